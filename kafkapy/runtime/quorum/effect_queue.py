"""Carries out the effects of each step in order; what a full disk does not take waits for room, and all behind it.

The reserve of the metadata (storage/manager/space_reserve.py) may be given up and its room used by another process. A
full disk has not failed: to its peers this node is then a voter that is silent for a while, as on a disk that is slow.
Deviation: Apache Kafka's node stops. Here it waits, because it then comes back by itself once there is room.
"""

from collections import deque
from collections.abc import Callable, Iterable

from kafkapy.errors import ApiError, StorageError
from kafkapy.machine import Effect
from kafkapy.raft.effects import AppendBatch, PersistElection, WriteSnapshotPart
from kafkapy.runtime.quorum.room_wait import RoomWait
from kafkapy.storage.log_dir import lacks_space


class EffectQueue:
    """`waiting`: what waits for room. While there is any, no event may be stepped: the log is behind the core."""

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
        self.waiting: deque[Effect] = deque()
        self._room = RoomWait("The metadata quorum")

    @property
    def waited_ms(self) -> int:
        """How long what was written last has waited for room, 0 if nothing waits."""
        return self._room.waited_ms if self.waiting else 0

    def run(self, effects: Iterable[Effect]) -> bool:
        """Carry out the effects of a step; return whether none of them waits for room.

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
        """Carry out nothing more of what waits, as after a crash."""
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


def _is_for_lack_of_room(effect: Effect, error: BaseException) -> bool:
    """Return whether the disk is merely full; the effect has then changed nothing, and can be tried again."""
    return lacks_space(error) and isinstance(effect, AppendBatch | PersistElection | WriteSnapshotPart)
