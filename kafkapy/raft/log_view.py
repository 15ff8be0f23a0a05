"""The core's view of its log: offsets, epochs, snapshots and the durable end. It never sees records.

The core records appends and truncations here first; the driver then carries them out. Only the end of an fsync comes
back, as an event with the generation of its request. A truncation starts a new generation, because an fsync requested
before it does not cover what was written after it.
"""

from bisect import bisect_left, bisect_right
from dataclasses import field
from enum import Enum

from kafkapy.dataclass import dataclass
from kafkapy.types import OffsetAndEpoch


class FetchPositionKind(Enum):
    """The relation of a fetch position to the leader's log: Apache Kafka's ValidOffsetAndEpoch.Kind."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


@dataclass(slots=True)
class LogView:
    """The shape of a log: [start_offset, end_offset), the start of each epoch, snapshots oldest first."""

    start_offset: int = 0
    end_offset: int = 0
    epoch_starts: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, its first offset), both increasing; the first one may start below start_offset."""
    snapshots: list[OffsetAndEpoch] = field(default_factory=list)
    durable_end_offset: int = 0
    """Up to here the log is fsynced; of a replica that can never vote: the end of the log."""
    generation: int = 0

    @property
    def last_epoch(self) -> int:
        """Return the epoch of the last record, of the latest snapshot if the log is empty, or 0."""
        if self.epoch_starts:
            return self.epoch_starts[-1][0]
        return self.snapshots[-1].leader_epoch if self.snapshots else 0

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots[-1] if self.snapshots else None

    def append(self, base_offset: int, last_offset: int, leader_epoch: int) -> None:
        assert base_offset == self.end_offset, f"append at {base_offset}, log ends at {self.end_offset}"
        last_epoch = self.epoch_starts[-1][0] if self.epoch_starts else -1
        assert leader_epoch >= last_epoch, f"epoch {leader_epoch} after {last_epoch}"
        if leader_epoch > last_epoch:
            self.epoch_starts.append((leader_epoch, base_offset))
        self.end_offset = last_offset + 1

    def end_offset_for_epoch(self, leader_epoch: int) -> OffsetAndEpoch:
        """Return the end offset and epoch of the largest epoch up to leader_epoch.

        Below all epochs: the end of the oldest snapshot, at most the first epoch's start.
        """
        if not self.epoch_starts:
            return self.end
        index = bisect_right(self.epoch_starts, leader_epoch, key=lambda start: start[0]) - 1
        if index < 0:
            floor = self.snapshots[0] if self.snapshots else OffsetAndEpoch(self.start_offset, 0)
            return OffsetAndEpoch(min(floor.offset, self.epoch_starts[0][1]), min(floor.leader_epoch, leader_epoch))
        is_last = index == len(self.epoch_starts) - 1
        end_offset = self.end_offset if is_last else self.epoch_starts[index + 1][1]
        return OffsetAndEpoch(end_offset, self.epoch_starts[index][0])

    def validate(self, offset: int, leader_epoch: int) -> tuple[FetchPositionKind, OffsetAndEpoch]:
        """Return whether a log that ends at (offset, leader_epoch) is a prefix of this one.

        VALID, DIVERGING with the epoch end to truncate to, or SNAPSHOT with the snapshot to start from.
        """
        if self.start_offset == 0 and offset == 0:
            return FetchPositionKind.VALID, OffsetAndEpoch(0, 0)
        if self.snapshots:
            oldest, latest = self.snapshots[0], self.snapshots[-1]
            is_at_start = offset == self.start_offset == oldest.offset
            if (
                offset < self.start_offset
                or leader_epoch < oldest.leader_epoch
                or (is_at_start and leader_epoch != oldest.leader_epoch)
            ):
                return FetchPositionKind.SNAPSHOT, latest
            if is_at_start:
                return FetchPositionKind.VALID, oldest
        end = self.end_offset_for_epoch(leader_epoch)
        if end.leader_epoch != leader_epoch or end.offset < offset:
            return FetchPositionKind.DIVERGING, end
        return FetchPositionKind.VALID, OffsetAndEpoch(offset, leader_epoch)

    def holds(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Return whether the last record of a snapshot, which is committed, is in this log or below its start.

        A longer log does not hold it if its record there is of another epoch: that record was never committed.
        """
        if snapshot_id.offset > self.end_offset:
            return False
        index = bisect_left(self.epoch_starts, snapshot_id.offset, key=lambda start: start[1]) - 1
        is_below_start = snapshot_id.offset <= self.start_offset
        return is_below_start or self.epoch_starts[index][0] == snapshot_id.leader_epoch

    def truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """Return the offset to truncate to, so that nothing beyond the leader's end of that epoch is left."""
        mine = self.end_offset_for_epoch(diverging.leader_epoch)
        if mine.leader_epoch == diverging.leader_epoch:
            return min(mine.offset, diverging.offset)
        return min(mine.offset, self.end_offset)

    def truncate_to(self, offset: int) -> None:
        assert self.start_offset <= offset <= self.end_offset, f"truncate [{self.start_offset}..] to {offset}"
        self.end_offset = offset
        while self.epoch_starts and self.epoch_starts[-1][1] >= offset:
            self.epoch_starts.pop()
        self.durable_end_offset = min(self.durable_end_offset, offset)
        self.generation += 1

    def reset_to_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Empty the log and start it at the end of a newly installed snapshot."""
        self.start_offset = self.end_offset = self.durable_end_offset = snapshot_id.offset
        self.epoch_starts.clear()
        self.snapshots = [snapshot_id]
        self.generation += 1

    def add_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        assert not self.snapshots or self.snapshots[-1] < snapshot_id
        self.snapshots.append(snapshot_id)

    def advance_start(self, offset: int) -> None:
        """Record that the log was deleted below `offset`, the end of a snapshot."""
        assert self.start_offset <= offset <= self.end_offset
        self.start_offset = offset
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot.offset >= offset]
        while len(self.epoch_starts) > 1 and self.epoch_starts[1][1] <= offset:
            self.epoch_starts.pop(0)
        if self.epoch_starts and self.end_offset == offset:
            self.epoch_starts.clear()

    def set_durable(self, end_offset: int, generation: int) -> bool:
        """Record the end of an fsync; return whether the durable end advanced."""
        if generation != self.generation or end_offset <= self.durable_end_offset:
            return False
        assert end_offset <= self.end_offset
        self.durable_end_offset = end_offset
        return True
