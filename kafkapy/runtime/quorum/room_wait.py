"""Waits for room on a full disk: a write is tried again until it succeeds."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("kafkapy.runtime.quorum")

ROOM_RETRY_MS: Final = 1000
"""The interval of attempts on a full disk. Each failed one is logged (storage/log_dir.py)."""


class RoomWait:
    """A write that waits for room. The start and the end of the wait are logged."""

    def __init__(self, what: str) -> None:
        """what: the subject of the log lines."""
        self._what = what
        self._timer: asyncio.TimerHandle | None = None
        self._begun_s = 0.0
        """The loop's time at the start of the wait."""

    @property
    def waited_ms(self) -> int:
        """How long it has waited for room, 0 if it does not wait."""
        if self._timer is None:
            return 0
        return int((asyncio.get_running_loop().time() - self._begun_s) * 1000)

    def try_later(self, call: Callable[[], None], error: BaseException | None) -> None:
        """Call `call` after the interval. error: why the write failed."""
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._begun_s = loop.time()
            logger.warning("%s waits for room on the disk: %s", self._what, error)
        else:
            self._timer.cancel()  # it was tried meanwhile, with the step of another event
        self._timer = loop.call_later(ROOM_RETRY_MS / 1000, call)

    def end(self) -> None:
        """End the wait, if there was one, and log it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            logger.warning("%s goes on: there is room on the disk", self._what)

    def cancel(self) -> None:
        """Cancel the next attempt."""
        if self._timer is not None:
            self._timer.cancel()
