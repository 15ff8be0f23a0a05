"""A record as a row of a page: its shown parts, and the line from which it can be restored."""

from kafkapy.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Shown:
    """A key, value or header as text; `text` is None for null. `is_cut`: only its beginning is shown."""

    text: str | None
    format: str
    error: str | None
    is_cut: bool
    size: int


@dataclass(frozen=True, slots=True)
class Row:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: Shown
    value: Shown
    headers: tuple[tuple[str, str | None], ...]
    line: str = ""
    """The record as `consume --json` prints it, "" if that is too long."""
    is_masked: bool = False
    """Whether its topic has masks, so that the line is not a copy of the record."""
    mark: str = ""
    """marks.ABORTED or marks.OPEN, "" for a record that read_committed consumers read, too."""
