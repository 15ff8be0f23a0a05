"""Run once more, alone, what failed in a run of many at once: `python -m tools.run_again`.

Only tests against real processes (tests/compat), and at most five: five workers on two cores can make such a test miss
a deadline. All others, and a test that fails again, stay failed. What passes here is named, for somebody to look at.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
MAX_TESTS = 5  # more have a common cause
AGAIN = "tests/compat/"


def refusal(failed: Sequence[str]) -> str | None:
    """Return why these tests are not run again, or None."""
    if not failed:
        return "no test is recorded as failed: what failed was another thing"
    if len(failed) > MAX_TESTS:
        return f"{len(failed)} tests failed, more than {MAX_TESTS}: they have a common cause"
    others = [name for name in failed if not name.startswith(AGAIN)]
    return f"not of {AGAIN}: {', '.join(others)}" if others else None


def main() -> int:
    """Return 0 if all that failed passes now."""
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    reason = refusal(failed)
    if reason is not None:
        print(f"Nothing is run again: {reason}.")
        return 1
    status = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n0", *failed], check=False).returncode
    outcome = "passed alone, look at them" if status == 0 else "not all passed alone"
    print(f"Failed beside other tests, {outcome}: {', '.join(failed)}")
    return int(status != 0)


if __name__ == "__main__":
    sys.exit(main())
