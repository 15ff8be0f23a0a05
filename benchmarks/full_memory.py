"""Free memory taken up by the page cache before a measurement, so that every page is one that the host already gave.

A virtual machine may give its free pages back to the host within seconds (free page reporting, ballooning). A process
that uses such a page again waits while the host finds and clears one, and that wait counts as the process's CPU time:
here, writing a GB costs 1.6 to 2.8 s with pages from the host, 0.2 s with pages that the machine kept. Which it is
depends on what ran in the minute before, not on the process. On a machine that has run for a day the page cache holds
all memory. This brings it about at once, by reading holes of a sparse file, which needs no disk; the kernel drops these
pages first when memory is wanted.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

LEFT_FREE: Final = 384 << 20
"""Bytes of free memory that are left; below, the kernel frees as much as is read."""
READ_BYTES: Final = 1 << 20
STEP: Final = 128 * READ_BYTES
"""Bytes that are read before free memory is looked at again."""
MAX_VAIN_STEPS: Final = 8
"""So many steps that took less than half of what was read end it: a container may cache no more than its own limit."""
FILE_BYTES: Final = 1 << 43


class FullMemory:
    """A sparse file without a name, in `directory`, which is not on tmpfs: every part of it is read once."""

    def __init__(self, directory: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  open as long as the process
        self._file.truncate(FILE_BYTES)
        # Otherwise the kernel reads ahead in huge pages and frees gigabytes to have some.
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        self._offset = 0

    def fill(self) -> None:
        """Read until free memory is taken: about 2 s for a GB that the host has to give."""
        vain_steps = 0
        free = free_bytes()
        while free > LEFT_FREE and vain_steps < MAX_VAIN_STEPS:
            self._read_step()
            before, free = free, free_bytes()
            vain_steps += before - free < STEP // 2

    def _read_step(self) -> None:
        buffer = bytearray(READ_BYTES)
        for offset in range(self._offset, self._offset + STEP, READ_BYTES):
            os.preadv(self._file.fileno(), [buffer], offset % FILE_BYTES)
        self._offset += STEP


def free_bytes() -> int:
    """Return how much memory holds nothing, not even a cached page."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
