"""Tables of the client commands, as text: what rich printed, without its import, which took longer than most commands.

Columns are two spaces apart. On a terminal the header is bold, and cells of the widest columns are folded where a row
would be wider than the screen; elsewhere every row is one line, for grep and awk. Control characters are shown as
Python writes them: names and client ids come from anybody, and must not move the reader's cursor.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

BETWEEN = "  "
MIN_WIDTH = 4
"""Cells of a column that is narrowed: on a screen too small for all columns, rows are longer than it."""
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, screen_width: int | None = None, is_bold: bool = False
) -> Iterator[str]:
    """Yield the lines of a table, none with blanks at its end. A cell of None is empty, its own lines stay lines.

    screen_width: in cells, None if rows may have any length; is_bold: whether the header is.
    """
    cells = [[printable("" if cell is None else str(cell)).split("\n") for cell in row] for row in rows]
    header = [[column] for column in columns]
    widths = [max(_cells(line) for row in (header, *cells) for line in row[index]) for index in range(len(columns))]
    if screen_width is not None:
        _narrow(widths, screen_width)
        header, *cells = (
            [_folded(lines, width) for lines, width in zip(row, widths, strict=True)] for row in (header, *cells)
        )
    yield from (f"{BOLD}{line}{PLAIN}" if is_bold else line for line in _lines_of_row(header, widths))
    for row in cells:
        yield from _lines_of_row(row, widths)


def _lines_of_row(row: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for parts in zip_longest(*row, fillvalue=""):
        padded = (part + " " * (width - _cells(part)) for part, width in zip(parts, widths, strict=True))
        yield BETWEEN.join(padded).rstrip()


def _narrow(widths: list[int], screen_width: int) -> None:
    """Take from the widest column, cell by cell, until a row fits or all columns are narrow."""
    too_much = sum(widths) + len(BETWEEN) * (len(widths) - 1) - screen_width
    while too_much > 0 and max(widths) > MIN_WIDTH:
        widths[widths.index(max(widths))] -= 1
        too_much -= 1


def _folded(lines: Sequence[str], width: int) -> list[str]:
    return [part for line in lines for part in _parts(line, width)]


def _parts(line: str, width: int) -> Iterator[str]:
    """Cut a line into parts of at most this many cells, at any character: names have no blanks to break at."""
    part, filled = "", 0
    for char in line:
        size = _cells(char)
        if part and filled + size > width:
            yield part
            part, filled = "", 0
        part, filled = part + char, filled + size
    yield part


def _cells(text: str) -> int:
    """Return how many cells of a terminal a text takes: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(char) for char in text)


def _cells_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def printable(text: str) -> str:
    """Return text with its control characters as Python writes them, but for the ends of lines."""
    if text.isprintable():
        return text
    return "".join(char if char == "\n" or char.isprintable() else repr(char)[1:-1] for char in text)
