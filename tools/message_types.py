"""`python -m tools.message_types [PATH ...]`: do tests, or these files, make messages as their classes say?

Tests are not type-checked: they pass fakes where a class is declared. Their messages are: a field that a spec moves or
renames would else be noticed only by the tests that happen to read it. mypy checks the files with the project's
options; of its errors only those about calls of generated classes count, but for arguments as `**fields`, whose names
the call itself checks.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
MESSAGES: Final = "kafkapy.protocol.messages"
CALL: Final = re.compile(
    r'^(.+?):\d+: error: .*? (?:to|for) "(\w+)"(?! has incompatible type "\*).*\[(?:call-arg|arg-type)\]$'
)
"""The errors that mypy has for a call: its file and what is called."""


def main(arguments: Sequence[str]) -> int:
    """Print the errors; return 1 if there are some."""
    found = list(wrong_calls(arguments or ["tests"]))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


def wrong_calls(paths: Sequence[str]) -> Iterable[str]:
    """Yield mypy's line of each call of a generated class that does not fit it. Raises RuntimeError if mypy fails."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", *paths]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise RuntimeError(f"mypy failed: {run.stderr or run.stdout}")
    for line in run.stdout.splitlines():
        called = CALL.match(line)
        if called is not None and called[2] in generated_classes(ROOT / called[1]):
            yield line


@cache
def generated_classes(path: Path) -> set[str]:
    """Return the names under which a file imports generated classes."""
    imports = (each for each in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(each, ast.ImportFrom))
    return {name.name for each in imports if (each.module or "").startswith(MESSAGES) for name in each.names}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
