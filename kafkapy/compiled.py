"""Does this installation run its source interpreted, or some modules of it compiled by mypyc?

A wheel of `make compiled` holds, beside the source of every module, an extension module for those of
packaging/compiled_modules.txt, and a manifest of them: a line per module with the CRC-32 and the size of the source
that it was compiled from, and its path. Python prefers an extension module to the source beside it, so one that is
older than its source would hide every later change. Therefore `kafkapy/__init__.py` calls `check_sources` before any
other module is imported. An installation without the manifest, such as a checkout, is interpreted: the check costs it
one failed open.
"""

import os
import sys
import zlib
from typing import Final

MANIFEST: Final = "compiled.txt"
"""In the package's directory; written by setup.py."""

PACKAGE: Final = os.path.dirname(os.path.abspath(__file__))


def check_sources(package: str = PACKAGE) -> None:
    """Raise ImportError if the source of a compiled module is not the one that it was compiled from."""
    for path, crc, size in manifest(package):
        try:
            with open(os.path.join(os.path.dirname(package), path), "rb") as file:
                source = file.read()
        except FileNotFoundError:
            raise ImportError(f"{path} is gone, its compiled module is not: install kafkapy again") from None
        if (zlib.crc32(source), len(source)) != (crc, size):
            raise ImportError(f"{path} has changed since it was compiled: install kafkapy again (make compiled)")


def manifest(package: str = PACKAGE) -> list[tuple[str, int, int]]:
    """Return (path, CRC-32 of the source, its size in bytes) of each compiled module; none if nothing is compiled."""
    try:
        with open(os.path.join(package, MANIFEST), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    fields = [line.split(maxsplit=2) for line in lines]
    return [(path, int(crc), int(size)) for crc, size, path in fields]


def description() -> str:
    """Return how the source runs, for `kafkapy --version` and the log."""
    count = len(manifest())
    return f"compiled ({count} modules)" if count else "interpreted"


def unlisted_modules() -> list[str]:
    """Return the files of loaded compiled modules that no manifest names: their source is unknown."""
    package = __name__.partition(".")[0]
    listed = {path.removesuffix(".py").replace("/", ".") for path, _, _ in manifest()}
    return [
        str(module.__file__)
        for name, module in sorted(sys.modules.items())
        if name.startswith(f"{package}.")
        and str(getattr(module, "__file__", None) or "").endswith((".so", ".pyd"))
        and name not in listed
    ]
