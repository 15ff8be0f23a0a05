"""Run once more, alone, what failed in a run of many at once: `python -m tools.run_again`.

Only tests against real processes (tests/compat), and at most five: five workers on two cores can make such a test miss
a deadline. All others, and a test that fails again, stay failed; so does a run that a signal or an error of pytest
ended before all tests had run. What passes here is named, for somebody to look at.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
STATUS = Path(".pytest_cache/status")
"""How pytest ended: `make test-all` writes it."""
TESTS_FAILED = "1"
"""The status of a run of all tests, of which some failed."""
MAX_TESTS = 5  # more have a common cause
AGAIN = "tests/compat/"


def refusal(status: str, failed: Sequence[str]) -> str | None:
    """Return why these tests are not run again, or None."""
    if status != TESTS_FAILED:
        return f"pytest ended with status {status or 'unknown'}, so not all tests were run"
    if not failed:
        return "no test is recorded as failed: what failed was another thing"
    if len(failed) > MAX_TESTS:
        return f"{len(failed)} tests failed, more than {MAX_TESTS}: they have a common cause"
    others = [name for name in failed if not name.startswith(AGAIN)]
    return f"not of {AGAIN}: {', '.join(others)}" if others else None


def main() -> int:
    """Return 0 if all that failed passes now."""
    status = STATUS.read_text().strip() if STATUS.exists() else ""
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    reason = refusal(status, failed)
    if reason is not None:
        print(f"Nothing is run again: {reason}.")
        return 1
    again = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n0", *failed], check=False).returncode
    outcome = "passed alone, look at them" if again == 0 else "not all passed alone"
    print(f"Failed beside other tests, {outcome}: {', '.join(failed)}")
    return int(again != 0)


if __name__ == "__main__":
    sys.exit(main())
