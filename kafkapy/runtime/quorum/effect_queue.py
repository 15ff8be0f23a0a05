"""Carries out the effects of each step in order; what a full disk does not take waits for room, and all behind it.

The reserve of the metadata (storage/manager/space_reserve.py) may be given up and its room used by another process. A
full disk has not failed: to its peers this node is then a voter that is silent for a while, as on a disk that is slow.
Deviation: Apache Kafka's node stops. Here it waits, because it then comes back by itself once there is room.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from kafkapy.errors import ApiError, StorageError, cause_of
from kafkapy.machine import Effect
from kafkapy.raft.effects import AppendBatch, PersistElection, WriteSnapshotPart
from kafkapy.storage.log_dir import NO_SPACE

logger = logging.getLogger("kafkapy.runtime.quorum")

ROOM_RETRY_MS: Final = 250
"""How often a full disk is tried again: four small writes a second."""


class EffectQueue:
    """`is_waiting`: whether effects wait for room. No event may be stepped then, as the log is behind the core."""

    def __init__(
        self,
        carry_out: Callable[[Effect], None],
        *,
        make_room: Callable[[], None],
        may_wait: Callable[[], bool],
        on_room: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """make_room: called before a write is tried again. may_wait: whether anybody goes on without this node.

        on_room() is called when all that waited is carried out, on_failed(error) if that failed for another reason.
        """
        self._carry_out = carry_out
        self._make_room = make_room
        self._may_wait = may_wait
        self._on_room = on_room
        self._on_failed = on_failed
        self._waiting: deque[Effect] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def run(self, effects: Iterable[Effect]) -> bool:
        """Carry out the effects of a step; return whether none of them waits for room.

        Raises StorageError if the disk fails: the node must then stop.
        """
        assert not self.is_waiting, "a step while effects wait for room"
        remaining = iter(effects)
        for effect in remaining:
            try:
                self._carry_out(effect)
            except (ApiError, StorageError, OSError) as error:
                if not _is_for_lack_of_room(effect, error):
                    raise
                self._waiting.extend((effect, *remaining))
                self._try_again()
        return not self.is_waiting

    def close(self) -> None:
        """Forget what waits, as a crash would."""
        if self._timer is not None:
            self._timer.cancel()

    def _try_again(self) -> None:
        self._make_room()
        while self._waiting:
            try:
                self._carry_out(self._waiting[0])
            except Exception as error:
                if _is_for_lack_of_room(self._waiting[0], error) and self._may_wait():
                    self._try_later(error)
                else:
                    self._on_failed(error)
                return
            self._waiting.popleft()
        if self._timer is not None:
            self._timer = None
            logger.warning("The metadata quorum goes on: there is room on the disk")
        self._on_room()

    def _try_later(self, error: BaseException) -> None:
        if self._timer is None:
            logger.warning("The metadata quorum waits for room on the disk: %s", error)
        self._timer = asyncio.get_running_loop().call_later(ROOM_RETRY_MS / 1000, self._try_again)


def _is_for_lack_of_room(effect: Effect, error: BaseException) -> bool:
    """Return whether the disk is merely full; the effect has then changed nothing, and can be tried again."""
    cause = error if isinstance(error, OSError) else cause_of(error)
    if not (isinstance(cause, OSError) and cause.errno in NO_SPACE):
        return False
    return isinstance(effect, AppendBatch | PersistElection | WriteSnapshotPart)
