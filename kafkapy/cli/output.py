"""Output of the client commands: tables for people, JSON for programs."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from kafkapy.cli.table import printable, table_lines


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table: as wide as the terminal, or as wide as needed if stdout is not a terminal."""
    if title is not None:
        print(printable(title))
    width = screen_width()
    for line in table_lines(columns, rows, screen_width=width, is_bold=width is not None):
        print(line)


def screen_width() -> int | None:
    """Return the width of the terminal; None if stdout is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def shown_bytes(count: int | None) -> str:
    """Return a size for people: three digits and a unit of 1024; - if it is not known."""
    if count is None:
        return "-"
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1000 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{count} B" if units[0] == "B" else f"{size:.3g} {units[0]}"


def shown_count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def not_delivered(count: int) -> str:
    """Return "1 record was not delivered", "2 records were not delivered"."""
    return f"{counted(count, 'record')} {'was' if count == 1 else 'were'} not delivered"


def counted(count: int, noun: str) -> str:
    """Return "1 record", "2 records"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
