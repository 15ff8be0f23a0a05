"""Checks for packages that are not installed, and for another distribution that provides a package of the same name.

This broker's distribution is `kafkapy-broker`. `kafkapy` on PyPI is another project, a command-line tool whose package
and command are also called kafkapy: if both are installed in one environment, each overwrites files of the other.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import PathFinder
from typing import Final

DISTRIBUTION: Final = "kafkapy-broker"
WITHOUT: Final = {
    "lz4": "lz4 is not installed: batches that are compressed with lz4 are refused (UNSUPPORTED_COMPRESSION_TYPE)",
    "re2": "google-re2 is not installed: subscriptions by a regular expression are refused, and patterns in settings",
}
"""Modules that a Python may lack, as their packages have no wheel for it: what does not work without."""
OWN_ENTRY_POINT: Final = "kafkapy.__main__:main"


def foreign_distributions(path: Iterable[str] | None = None) -> list[str]:
    """Return the .dist-info directories of the other project on a module path (default: sys.path).

    Reads only directory names: importlib.metadata would delay the start by 20 ms.
    """
    found = []
    for directory in sys.path if path is None else path:
        names = [name for name in _names(directory) if name.startswith("kafkapy-") and name.endswith(".dist-info")]
        found += [path for name in names if _is_foreign(path := f"{directory}/{name}")]
    return found


def warnings_of_installation() -> Sequence[str]:
    """Return the warnings for the operator if the other project is installed."""
    return [
        f"{each} is another project whose package and command are called kafkapy, too: each overwrites files of the "
        f"other. Run `pip uninstall kafkapy {DISTRIBUTION}`, then install {DISTRIBUTION} again"
        for each in foreign_distributions()
    ]


def missing_packages(path: Sequence[str] | None = None) -> list[str]:
    """Return a warning for each optional package that is missing on a module path (default: sys.path)."""
    return [warning for module, warning in WITHOUT.items() if PathFinder.find_spec(module, path) is None]


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory or ".")
    except OSError:  # the path may have missing directories and archives
        return []


def _is_foreign(directory: str) -> bool:
    try:
        with open(f"{directory}/entry_points.txt", encoding="utf-8") as file:
            return OWN_ENTRY_POINT not in file.read()  # else an old install of this broker under that name
    except OSError:
        return True
