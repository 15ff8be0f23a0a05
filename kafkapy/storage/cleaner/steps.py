"""The cleaner's functions in the helper process: begin a pass, advance it, or abandon it.

Each call returns within some tenths of a second, so that the log's owner can stop a pass, throttle it, and swap in
finished groups. One pass at a time; beginning a new one drops the old one. Arguments and results are JSON-serializable.
A failed pass is returned as data; an exception means that the helper itself failed.
"""

import errno
import time
from collections.abc import Iterator
from typing import Any

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError, CorruptIndexError
from kafkapy.seams import Disk
from kafkapy.storage.cleaner.cleaning_pass import CleaningPass, Progress
from kafkapy.storage.cleaner.plan import CleaningPlan
from kafkapy.storage.system_disk import SystemDisk


@dataclass(slots=True)
class _Running:
    """A pass in progress. The first step allocates its memory, so that a MemoryError counts as the pass's failure."""

    pass_id: int
    plan: CleaningPlan
    cleaning: CleaningPass | None = None
    steps: Iterator[Progress] = iter(())

    def advance(self, disk: Disk, max_bytes: int, max_ms: int) -> dict[str, Any]:
        if self.cleaning is None:
            self.cleaning = CleaningPass(disk, self.plan)
            self.steps = self.cleaning.run()
        response = _advance(self.steps, max_bytes, max_ms)
        response["facts"] = self.cleaning.facts()
        return response


class CleaningSteps:
    """The functions of this module, on a given disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._running: _Running | None = None

    def begin(self, pass_id: int, plan: dict[str, Any]) -> None:
        """Prepare a pass; a previous one is dropped."""
        self._running = _Running(pass_id, CleaningPlan(**plan))

    def advance(self, pass_id: int, max_bytes: int, max_ms: int) -> dict[str, Any]:
        """Run steps until max_bytes were read or written, max_ms have passed, a group is ready, or the pass is done.

        Returns io_bytes, cleaned (as CleanedSegment, or None), is_done and the pass's facts; or failure {message,
        errno}, after which the pass is over; errno is 0 if the data is damaged. is_lost: there is no such pass.
        """
        running = self._running
        if running is None or running.pass_id != pass_id:
            return {"is_lost": True}
        try:
            response = running.advance(self._disk, max_bytes, max_ms)
        except (OSError, MemoryError, ApiError, CorruptIndexError) as error:
            self._running = None
            return {"failure": {"message": str(error) or type(error).__name__, "errno": _errno_of(error)}}
        if response["is_done"]:
            self._running = None
        return response

    def abandon(self, pass_id: int) -> None:
        """Drop a pass and free its memory."""
        if self._running is not None and self._running.pass_id == pass_id:
            self._running = None


def _advance(steps: Iterator[Progress], max_bytes: int, max_ms: int) -> dict[str, Any]:
    io_bytes = 0
    deadline = time.monotonic() + max_ms / 1000
    while io_bytes < max_bytes and time.monotonic() < deadline:
        progress = next(steps, None)
        if progress is None:
            return {"io_bytes": io_bytes, "cleaned": None, "is_done": True}
        io_bytes += progress.io_bytes
        if progress.cleaned is not None:
            return {"io_bytes": io_bytes, "cleaned": progress.cleaned._asdict(), "is_done": False}
    return {"io_bytes": io_bytes, "cleaned": None, "is_done": False}


def _errno_of(error: Exception) -> int:
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    return (error.errno or 0) if isinstance(error, OSError) else 0


_steps = CleaningSteps(SystemDisk())
begin, advance, abandon = _steps.begin, _steps.advance, _steps.abandon
