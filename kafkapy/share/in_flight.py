"""The in-flight records of a share partition: batches in order of offset, start offset and end offset.

start_offset    the first offset that is not done (Kafka's SPSO): all before it were delivered, or never will be
end_offset      the last in-flight offset; with nothing in flight it equals start_offset, the next to acquire
batches         disjoint, in order. They may begin before start_offset if the log start has moved, and may leave
                offsets out only in the gap window
gap window      after a load: offsets between the persisted batches are available, but their batches are unknown until
                they are read. Ends when all have been acquired, or when the end offset grows
delivery_complete_count    records from start_offset on that are done; they do not count as lag (KIP-1226)
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from kafkapy.share.in_flight_batch import InFlightBatch
from kafkapy.share.record_state import RecordState

_AVAILABLE = RecordState.AVAILABLE


class GapWindow:
    """The offsets from gap_start_offset to end_offset, of which the persisted state has only some."""

    __slots__ = ("end_offset", "gap_start_offset")

    def __init__(self, end_offset: int, gap_start_offset: int) -> None:
        self.end_offset = end_offset
        self.gap_start_offset = gap_start_offset


class InFlightRecords:
    """All in-flight batches of one share partition."""

    __slots__ = (
        "_first_offsets",
        "batches",
        "delivery_complete_count",
        "end_offset",
        "gap_window",
        "must_search",
        "start_offset",
    )

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.batches: list[InFlightBatch] = []
        self._first_offsets: list[int] = []
        """The first offset of each of `batches`, for lookups."""
        self.gap_window: GapWindow | None = None
        self.must_search = False
        """In-flight records may be available: next_fetch_offset() looks for them."""
        self.delivery_complete_count = 0

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.batches)

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch; -1 if there is none."""
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def record_count(self) -> int:
        """Offsets from the start to the end, done or not: share.partition.max.record.locks bounds this number."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def active_gap_window(self) -> GapWindow | None:
        gap_window = self.gap_window
        return gap_window if gap_window is not None and gap_window.end_offset == self.end_offset else None

    def put(self, batch: InFlightBatch) -> None:
        """Add a batch; one that begins at the same offset is replaced."""
        index = bisect_left(self._first_offsets, batch.first_offset)
        if index < len(self.batches) and self._first_offsets[index] == batch.first_offset:
            self.batches[index] = batch
            return
        before, after = self.batches[index - 1] if index else None, self.batches[index] if index < len(self) else None
        assert before is None or before.last_offset < batch.first_offset, f"{batch} begins within {before}"
        assert after is None or batch.last_offset < after.first_offset, f"{batch} ends within {after}"
        self.batches.insert(index, batch)
        self._first_offsets.insert(index, batch.first_offset)

    def floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at or before the offset; it may end before it."""
        index = bisect_right(self._first_offsets, offset)
        return self.batches[index - 1] if index > 0 else None

    def beginning_within(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches whose first offset is one of these."""
        begin = bisect_left(self._first_offsets, first_offset)
        return self.batches[begin : bisect_right(self._first_offsets, last_offset)]

    def overlapping(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches with any of the offsets."""
        begin = bisect_right(self._first_offsets, first_offset)
        if begin > 0 and self.batches[begin - 1].last_offset >= first_offset:
            begin -= 1
        return self.batches[begin : bisect_right(self._first_offsets, last_offset)]

    def from_floor(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the last batch that begins at or before first_offset, and all that begin up to last_offset."""
        begin = max(bisect_right(self._first_offsets, first_offset) - 1, 0)
        return self.batches[begin : bisect_right(self._first_offsets, last_offset)]

    def count_from_start(self, first_offset: int, last_offset: int) -> int:
        """Return how many of the offsets are not below the start offset."""
        return max(last_offset - max(self.start_offset, first_offset) + 1, 0)

    def contains_moved_start(self, first_offset: int, last_offset: int) -> bool:
        """Return whether the start offset has moved into the offsets, and is not the first of them."""
        return first_offset < self.start_offset <= last_offset

    def on_available(self) -> None:
        self.must_search = True

    def next_fetch_offset(self) -> int:
        """Return the first offset that can be acquired: one that was released, or the one after the end."""
        if not self.batches or self.start_offset > self.last_offset:
            self.must_search = False
            return self.end_offset
        if self.must_search:
            found = self._first_acquirable()
            if found is not None:
                return found
            self.must_search = False
        return self.end_offset + 1

    def _first_acquirable(self) -> int | None:
        gap_window = self.active_gap_window
        gap_start_offset = gap_window.gap_start_offset if gap_window is not None else -1
        for batch in self.batches:
            if gap_window is not None:
                if batch.first_offset > gap_start_offset:
                    return gap_start_offset
                gap_start_offset = max(batch.last_offset + 1, gap_start_offset)
            for run in batch.runs:
                if run.state is _AVAILABLE and run.transition is None:
                    return run.first_offset
        return None

    def move_gap_start(self, offset: int) -> None:
        """Record that all missing offsets before `offset` have been acquired."""
        gap_window = self.gap_window
        if gap_window is None:
            return
        if gap_window.end_offset == self.end_offset and offset <= gap_window.end_offset:
            gap_window.gap_start_offset = offset
        else:
            self.gap_window = None

    def maybe_move_start(self) -> bool:
        """Move the start offset over records that are done, and drop the batches before it. Return whether it moved."""
        if not self._is_start_done():
            return False
        last_done_offset, done_count = self._done_from_front()
        if last_done_offset == -1:
            return False
        if last_done_offset == self.last_offset:
            self.start_offset = self.end_offset = last_done_offset + 1
            self._drop(len(self.batches))
            self.delivery_complete_count = 0
            return True
        index = bisect_right(self._first_offsets, last_done_offset)
        if self.batches[index - 1].last_offset == last_done_offset:
            self.start_offset = max(self._first_offsets[index], self.start_offset)
            # Offsets that are missing in the persisted state have still to be acquired: the start stops before them.
            gap_window = self.active_gap_window
            if gap_window is not None:
                self.start_offset = min(gap_window.gap_start_offset, self.start_offset)
        else:
            self.start_offset = max(last_done_offset + 1, self.start_offset)
            index -= 1
        assert self.start_offset > last_done_offset or self.active_gap_window is not None, "what is done stays behind"
        self.delivery_complete_count -= done_count
        self._drop(index)
        return True

    def _drop(self, count: int) -> None:
        """Drop the first `count` batches."""
        del self.batches[:count]
        del self._first_offsets[:count]

    def _is_start_done(self) -> bool:
        """Return whether the record at the start offset is done, so that the start can move.

        Deviation: Apache Kafka fails if the start offset lies after a batch whose offsets are tracked, and with it the
        copy to the dead-letter topic that was to follow. Here the start stays, because the gap can be acquired.
        """
        batch = self.floor(self.start_offset)
        if batch is None:
            return False  # no batch in flight, or a gap at the start, which can be acquired
        if batch.is_whole:
            run = batch.whole
        elif self.start_offset <= batch.last_offset:
            run = batch.run_at(self.start_offset)
        else:
            return False
        return run.state.is_done and run.transition is None

    def _done_from_front(self) -> tuple[int, int]:
        """Return (last offset up to which all in-flight records are done, or -1; how many of them count as such)."""
        last_done_offset, done_count = -1, 0
        gap_window = self.active_gap_window
        for batch in self.batches:
            if gap_window is not None and batch.last_offset >= gap_window.gap_start_offset:
                break
            for run in batch.runs:
                if run.transition is not None or not run.state.is_done:
                    return last_done_offset, done_count
                last_done_offset = run.last_offset
                done_count += self.count_from_start(run.first_offset, run.last_offset)
        return last_done_offset, done_count

    def move_log_start(self, log_start_offset: int) -> None:
        """Apply a log start offset above the start offset: available records below it are archived.

        Acquired ones stay acquired: their member may acknowledge them, and gets no error.
        """
        assert log_start_offset > self.start_offset
        if not self.batches:
            self.start_offset = self.end_offset = log_start_offset
            self.delivery_complete_count = 0
            return
        done_count = self._count_done_below(log_start_offset)
        if self.archive(self.batches, self.start_offset, log_start_offset - 1, _AVAILABLE) > 0:
            self.must_search = True
        self.start_offset = log_start_offset
        self.delivery_complete_count -= done_count
        self.end_offset = max(self.end_offset, self.start_offset)

    def _count_done_below(self, offset: int) -> int:
        count = 0
        for batch in self.batches:
            if batch.first_offset >= offset:
                break
            for run in batch.runs:
                if run.state.is_done:
                    count += self.count_from_start(run.first_offset, min(run.last_offset, offset - 1))
        return count

    def archive(
        self, batches: list[InFlightBatch], first_offset: int, last_offset: int, from_state: RecordState
    ) -> int:
        """Archive the records that are in from_state among the offsets, and return how many.

        `batches` may lie outside of the offsets.

        Deviation: Apache Kafka drops the pending write of a batch in one state here. Its records may be acquired before
        the write ends, or fail the fetch. Here they wait for its end, because it may be undone.
        """
        archived_count = 0
        for batch in batches:
            if batch.first_offset > last_offset:
                break
            if batch.is_whole and not batch.is_within(first_offset, last_offset):
                if batch.whole.state is not from_state:
                    continue
                batch.track_offsets()
            archived_count += _archive_in(batch, first_offset, last_offset, from_state)
        return archived_count

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self.batches)


def _archive_in(batch: InFlightBatch, first_offset: int, last_offset: int, from_state: RecordState) -> int:
    archived_count = 0
    for run in batch.runs_within(first_offset, last_offset):
        if run.state is from_state:
            part = batch.cut_out(run, first_offset, last_offset)
            part.archive()
            archived_count += part.record_count
    batch.join_runs(first_offset, last_offset)
    return archived_count
