"""Output of the client commands: rich tables for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table: as wide as the terminal, or as wide as needed if stdout is not a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, soft_wrap=not sys.stdout.isatty()).print(table)


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


def counted(count: int, noun: str) -> str:
    """Return "1 record", "2 records"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
