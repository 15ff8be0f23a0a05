"""The supported Pythons that this machine has: those of the PATH, else pyenv's and uv's, else tools/next_pythons.py's.

`python -m tools.pythons` prints the path of each, and says on standard error which are not here; `--others` leaves out
the version that runs it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

SUPPORTED: Final = ("3.11", "3.12", "3.13", "3.14", "3.15")
NEXT_PYTHONS: Final = Path(__file__).resolve().parent.parent / ".tools" / "pythons"
"""Where `make next-pythons` puts what the machine's distribution does not have yet."""
PYENV: Final = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
UV: Final = Path("~/.local/share/uv/python").expanduser()


def interpreter(
    version: str, directories: Iterable[Path] = (PYENV, UV), next_pythons: Path = NEXT_PYTHONS
) -> str | None:
    """Return the path of an interpreter of a version such as 3.12, None if none is here.

    `directories`: hold installations whose names tell the version, such as 3.12.1 or cpython-3.12.1-linux.
    """
    in_path = shutil.which(f"python{version}")
    installed = [path for directory in directories for path in directory.glob(f"*{version}.*/bin/python{version}")]
    candidates = [in_path] if in_path else []
    candidates += [str(path) for path in sorted(installed, key=_release, reverse=True)]
    candidates.append(str(next_pythons / "usr" / "bin" / f"python{version}"))
    return next((path for path in candidates if _is_of(path, version)), None)


def _release(path: Path) -> list[int]:
    """Return the numbers of an installation's name, so that 3.12.10 comes after 3.12.9."""
    return [int(part) for part in path.parts[-3].replace("-", ".").split(".") if part.isdecimal()]


def _is_of(path: str, version: str) -> bool:
    """Return whether an interpreter runs and is of a version; pyenv has stubs of those that are not chosen."""
    requested = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    if not os.access(path, os.X_OK):
        return False
    done = subprocess.run(requested, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version


def main(arguments: Sequence[str] = ()) -> int:
    own = ".".join(map(str, sys.version_info[:2]))
    for version in SUPPORTED:
        if version == own and "--others" in arguments:
            continue
        path = interpreter(version)
        if path is None:
            print(f"Python {version} is not here: skipped", file=sys.stderr)
        else:
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
