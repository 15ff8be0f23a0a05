"""The start offset of each leader epoch, with which replicas find where their logs diverge. KIP-101, KIP-279.

File format of `leader-epoch-checkpoint`: a line 0 (version), a line with the count, then "epoch start_offset" lines.
Both columns strictly increase. No IO here: each flush writes the file if it is dirty (storage/log/local_log.py),
so that below the recovery point it is complete. A start reads it; recovery adds the epochs of the batches that it
reads, and reads all of them if the file is damaged (storage/recovery/loader.py).
"""

from bisect import bisect_right
from collections.abc import Iterable

from kafkapy.named_tuple import NamedTuple
from kafkapy.types import OffsetAndEpoch


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset that it wrote, or would have written."""

    leader_epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log. `is_dirty`: changed since the checkpoint file was written."""

    __slots__ = ("_epochs", "_starts", "is_dirty", "latest_epoch")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest_epoch: int | None = None
        """None if no epoch is known. Not a property: each append asks."""
        for entry in entries:
            self.assign(entry.leader_epoch, entry.start_offset)
        self.is_dirty = False

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def entries(self) -> list[EpochEntry]:
        return [EpochEntry(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    @property
    def earliest(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._starts[0]) if self._epochs else None

    def assign(self, leader_epoch: int, start_offset: int) -> bool:
        """Record that an epoch begins at an offset; return whether this changed anything.

        Removes conflicting entries: those with the same or a later epoch, or with a start offset at or above this one.
        """
        assert leader_epoch >= 0, f"leader epoch {leader_epoch} is negative"
        assert start_offset >= 0, f"start offset {start_offset} is negative"
        epochs, starts = self._epochs, self._starts
        if epochs and leader_epoch == epochs[-1] and start_offset >= starts[-1]:
            return False
        while epochs and (epochs[-1] >= leader_epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(leader_epoch)
        starts.append(start_offset)
        self.latest_epoch = leader_epoch
        self.is_dirty = True
        return True

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> OffsetAndEpoch | None:
        """Return the largest epoch at or below `leader_epoch` and its end offset, or None if unknown.

        The latest epoch ends at the log end offset. For an epoch below all known ones, returns that epoch and the start
        offset of the first known one: earlier entries were deleted.
        """
        epochs = self._epochs
        if leader_epoch < 0 or not epochs or leader_epoch > epochs[-1]:
            return None
        if leader_epoch == epochs[-1]:
            return OffsetAndEpoch(log_end_offset, leader_epoch)
        next_slot = bisect_right(epochs, leader_epoch)
        found = epochs[next_slot - 1] if next_slot else leader_epoch
        return OffsetAndEpoch(self._starts[next_slot], found)

    def truncate_to(self, end_offset: int) -> bool:
        """Remove the epochs that begin at or above `end_offset`; return whether there were any."""
        starts = self._starts
        if end_offset < 0 or not starts or starts[-1] < end_offset:
            return False
        while starts and starts[-1] >= end_offset:
            starts.pop()
            self._epochs.pop()
        self.latest_epoch = self._epochs[-1] if self._epochs else None
        self.is_dirty = True
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove epochs below `start_offset`; the one that contains it now begins there. Return whether any changed."""
        kept_from = bisect_right(self._starts, start_offset) - 1
        if kept_from < 0 or (kept_from == 0 and self._starts[0] == start_offset):
            return False
        del self._epochs[:kept_from], self._starts[:kept_from]
        self._starts[0] = start_offset
        assert self._starts[:2] == sorted(set(self._starts[:2])), f"start offsets {self._starts[:2]} do not increase"
        self.is_dirty = True
        return True

    def clip(self, start_offset: int, end_offset: int) -> None:
        """Remove what lies outside [start_offset, end_offset), as each load of the log does.

        The checkpoint file need not be written for that as long as the next load does the same: not if epochs at the
        end were removed and others are left. Records of these may follow, which the file gives to a removed epoch.
        """
        assert 0 <= start_offset <= end_offset, f"a log from {start_offset} to {end_offset}"
        was_dirty = self.is_dirty
        is_shorter = self.truncate_to(end_offset)
        self.truncate_from_start(start_offset)
        self.is_dirty = was_dirty or (is_shorter and bool(self._epochs))

    def clear(self) -> None:
        self._epochs.clear()
        self.latest_epoch = None
        self._starts.clear()
        self.is_dirty = True
