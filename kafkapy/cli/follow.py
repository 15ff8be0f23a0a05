"""Follows files that grow: `kafkapy cluster logs --follow`."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

POLL_S: Final = 0.2
"""The interval of reads: people do not notice this delay."""
READ_BYTES: Final = 1 << 20
"""The bytes of one read: a file that grew by gigabytes is shown in parts."""


class GrowingFile:
    """Lines that are appended to a file; one that is replaced or truncated is read from its start."""

    def __init__(self, path: Path) -> None:
        """Start at the end of the file; a missing one is read once it exists."""
        self._path = path
        self._position, self._inode = self._state() or (0, None)
        self._partial = b""

    def lines(self) -> list[str]:
        """Return the whole lines that have been appended since the last call, of READ_BYTES at most."""
        state = self._state()
        if state is None:
            return []
        size, inode = state
        if inode != self._inode or size < self._position:
            self._position, self._inode, self._partial = 0, inode, b""
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read(READ_BYTES)
        self._position += len(data)
        *whole, self._partial = (self._partial + data).split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]

    def _state(self) -> tuple[int, int | None] | None:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_size, found.st_ino


def follow(
    files: Sequence[tuple[str, GrowingFile]],
    show: Callable[[str], None],
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Show the lines that are appended, each after its file's name, until KeyboardInterrupt."""
    while True:
        is_idle = True
        for name, file in files:
            for line in file.lines():
                show(f"{name}{line}")
                is_idle = False
        if is_idle:
            wait(POLL_S)
