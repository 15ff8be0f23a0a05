"""Carries out the effects of each step in order. If a disk is full, an effect and all later ones wait for room.

That happens when the reserve of the metadata (storage/manager/space_reserve.py) has been released, and another process
has used its room. A full disk has not failed: for its peers this node is a voter that is silent for a while, as on a
slow disk. Deviation: Apache Kafka's node stops. Here it waits, because it then recovers by itself once there is room.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.machine import Effect
from kafkapy.raft.effects import AppendBatch, PersistElection, ResetLogToSnapshot, TruncateLog, WriteSnapshotPart
from kafkapy.runtime.quorum.room_wait import RoomWait
from kafkapy.storage.log_dir import lacks_space


class EffectQueue:
    """`waiting`: effects that wait for room. While there are any, the core must not step: the log is incomplete."""

    def __init__(
        self,
        carry_out: Callable[[Effect], None],
        *,
        make_room: Callable[[], None],
        may_wait: Callable[[], bool],
        on_room: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """make_room: called before a write is tried again. may_wait: whether the cluster can work without this node.

        on_room() is called when all that waited is carried out, on_failed(error) if that failed for another reason.
        """
        self._carry_out = carry_out
        self._make_room = make_room
        self._may_wait = may_wait
        self._on_room = on_room
        self._on_failed = on_failed
        self.waiting: deque[Effect] = deque()
        self._room = RoomWait("The metadata quorum")

    @property
    def waited_ms(self) -> int:
        """The time for which the oldest effect has waited for room, 0 if nothing waits."""
        return self._room.waited_ms if self.waiting else 0

    def run(self, effects: Iterable[Effect]) -> bool:
        """Carry out the effects of a step; return whether all are done, and none waits for room.

        Raises StorageError if the disk fails: the node must then stop.
        """
        assert not self.waiting, "a step while effects wait for room"
        remaining = iter(effects)
        for effect in remaining:
            try:
                self._carry_out(effect)
            except (ApiError, StorageError, OSError) as error:
                if not _is_for_lack_of_room(effect, error):
                    raise
                self.waiting.extend((effect, *remaining))
                self._try_again()
        return not self.waiting

    def close(self) -> None:
        """Drop the waiting effects, as a crash would."""
        self._room.cancel()

    def _try_again(self) -> None:
        self._make_room()
        while self.waiting:
            try:
                self._carry_out(self.waiting[0])
            except Exception as error:
                if _is_for_lack_of_room(self.waiting[0], error) and self._may_wait():
                    self._room.try_later(self._try_again, error)
                else:
                    self._on_failed(error)
                return
            self.waiting.popleft()
        self._room.end()
        self._on_room()


REPEATABLE: Final = (AppendBatch, PersistElection, ResetLogToSnapshot, TruncateLog, WriteSnapshotPart)
"""Effects that can be carried out again after they found the disk full. The first two and the last have changed nothing
then; the others go on with the files that they have not truncated, renamed or created yet."""


def _is_for_lack_of_room(effect: Effect, error: BaseException) -> bool:
    """Return whether the disk is only full, and the effect can be tried again."""
    return lacks_space(error) and isinstance(effect, REPEATABLE)
