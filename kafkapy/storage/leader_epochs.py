"""Which leader epoch began at which offset: the chain by which replicas find where their logs part. KIP-101, KIP-279.

`leader-epoch-checkpoint` holds it as text: a line 0 (version), a line with the count, then "epoch start_offset" lines.
Both columns strictly rise. Pure: the log reads and writes the file.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from kafkapy.types import OffsetAndEpoch


class EpochEntry(NamedTuple):
    """The first offset that a leader epoch wrote, or would have written."""

    leader_epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log. `is_dirty` says that the checkpoint file is older than this."""

    __slots__ = ("_epochs", "_starts", "is_dirty")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for entry in entries:
            self.assign(entry.leader_epoch, entry.start_offset)
        self.is_dirty = False

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def entries(self) -> list[EpochEntry]:
        return [EpochEntry(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    @property
    def earliest(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._starts[0]) if self._epochs else None

    def assign(self, leader_epoch: int, start_offset: int) -> bool:
        """Note that an epoch begins at an offset; return whether that was news.

        Entries that it contradicts go: those of the same or a later epoch, or that begin at or behind it.
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
        self.is_dirty = True
        return True

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> OffsetAndEpoch | None:
        """Return the largest epoch at or below `leader_epoch` and where it ends; None where it is not known.

        For the latest epoch that is the log's end. An epoch below all known ones answers itself and the start of the
        first known: what came before is gone.
        """
        epochs = self._epochs
        if leader_epoch < 0 or not epochs or leader_epoch > epochs[-1]:
            return None
        if leader_epoch == epochs[-1]:
            return OffsetAndEpoch(log_end_offset, leader_epoch)
        next_slot = bisect_right(epochs, leader_epoch)
        found = epochs[next_slot - 1] if next_slot else leader_epoch
        return OffsetAndEpoch(self._starts[next_slot], found)

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch that wrote (or will write) `offset`, None below the first known."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else None

    def previous_epoch(self, leader_epoch: int) -> int | None:
        """Return the largest known epoch below `leader_epoch`."""
        below = [epoch for epoch in self._epochs if epoch < leader_epoch]
        return below[-1] if below else None

    def truncate_to(self, end_offset: int) -> bool:
        """Drop the epochs that begin at or behind `end_offset`; return whether there were any."""
        starts = self._starts
        if end_offset < 0 or not starts or starts[-1] < end_offset:
            return False
        while starts and starts[-1] >= end_offset:
            starts.pop()
            self._epochs.pop()
        self.is_dirty = True
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop what lies before `start_offset`: the epoch that holds it now begins there. Return whether it changed."""
        kept_from = bisect_right(self._starts, start_offset) - 1
        if kept_from < 0 or (kept_from == 0 and self._starts[0] == start_offset):
            return False
        del self._epochs[:kept_from], self._starts[:kept_from]
        self._starts[0] = start_offset
        self.is_dirty = True
        return True

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()
        self.is_dirty = True
