"""One batch of in-flight offsets of a share partition: runs of offsets that are in one state.

A batch is acquired as a whole, and keeps its bounds until the start offset has moved over it. `is_whole` is true as
long as all its offsets change together, and false from the first change of only some of them. The difference is
visible to members: it decides how many records are delivered together later (acquisition.py). Apache Kafka then keeps
an entry for each offset; here neighbours in the same state stay one run.
"""

from bisect import bisect_right
from operator import attrgetter
from typing import Final

from kafkapy.share.pending_write import PendingWrite
from kafkapy.share.record_state import NEXT_STATES, RecordState

NO_MEMBER: Final = ""

_FIRST_OFFSET = attrgetter("first_offset")
_ARCHIVED = RecordState.ARCHIVED


class Transition:
    """The former state of a run whose change is being written: restored if the write fails."""

    __slots__ = ("delivery_count_limit", "member_id", "state", "write")

    def __init__(self, run: "Run", delivery_count_limit: int, write: PendingWrite) -> None:
        self.state = run.state
        self.member_id = run.member_id
        self.delivery_count_limit = delivery_count_limit
        self.write = write


class Run:
    """Offsets from first_offset to last_offset (inclusive) in one state."""

    __slots__ = (
        "deadline_ms",
        "delivery_count",
        "first_offset",
        "is_archived_for_good",
        "last_offset",
        "member_id",
        "state",
        "transition",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        state: RecordState,
        delivery_count: int,
        member_id: str = NO_MEMBER,
        deadline_ms: int | None = None,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.state = state
        self.delivery_count = delivery_count
        """How often the records were delivered, the current delivery included."""
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        """When the acquisition lock times out. Kept while a transition is under way, which may be undone."""
        self.transition: Transition | None = None
        self.is_archived_for_good = False
        """Archived while a write was under way: it stays archived if the write fails."""

    @property
    def is_acquirable(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.transition is None

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1

    def acquire(self, member_id: str, deadline_ms: int) -> None:
        """Begin a delivery. It is counted in memory alone: a restart before its end forgets it, as in Apache Kafka."""
        self._enter(RecordState.ACQUIRED)
        self.delivery_count += 1
        self.member_id = member_id
        self.deadline_ms = deadline_ms

    def release(self, state: RecordState) -> None:
        """End the delivery at once, as a time-out of the lock does; a failed write does not undo it."""
        assert self.transition is None
        self._enter(state)
        self.member_id = NO_MEMBER
        self.deadline_ms = None

    def begin_transition(self, state: RecordState, delivery_count_limit: int, write: PendingWrite) -> None:
        """End the delivery by `state`, to be completed by complete_transition() when `write` has ended."""
        assert self.transition is None
        self.transition = Transition(self, delivery_count_limit, write)
        self._enter(state)
        self.member_id = NO_MEMBER

    def complete_transition(self) -> None:
        self.transition = self.deadline_ms = None

    def undo_transition(self, now_ms: int) -> None:
        """Restore what was before the transition; if the lock has timed out meanwhile, release the records."""
        before = self.transition
        assert before is not None
        if self.is_archived_for_good:
            self.complete_transition()
            return
        self.transition = None
        self.state, self.member_id = before.state, before.member_id
        if self.deadline_ms is not None and self.deadline_ms <= now_ms:
            is_out_of_attempts = self.delivery_count >= before.delivery_count_limit
            self.state = _ARCHIVED if is_out_of_attempts else RecordState.AVAILABLE
            self.member_id = NO_MEMBER
            self.deadline_ms = None

    def archive(self) -> None:
        """Never deliver the records again, whatever becomes of a write that is under way."""
        self._enter(_ARCHIVED)
        self.is_archived_for_good = True
        self.member_id = NO_MEMBER
        self.deadline_ms = None

    def _enter(self, state: RecordState) -> None:
        assert state in NEXT_STATES[self.state]
        self.state = state

    def split_after(self, last_offset: int) -> "Run":
        """Shorten this run to last_offset, and return a run of the rest."""
        assert self.first_offset <= last_offset < self.last_offset
        rest = Run(last_offset + 1, self.last_offset, self.state, self.delivery_count, self.member_id, self.deadline_ms)
        rest.transition, rest.is_archived_for_good = self.transition, self.is_archived_for_good
        self.last_offset = last_offset
        return rest

    def is_continued_by(self, run: "Run") -> bool:
        """Return whether `run`, the next one, differs in nothing but its offsets."""
        return (
            self.state is run.state
            and self.delivery_count == run.delivery_count
            and self.deadline_ms == run.deadline_ms
            and self.member_id == run.member_id
            and (self.transition is None) is (run.transition is None)
            and (self.transition is None or self._has_transition_of(run))
            and self.is_archived_for_good == run.is_archived_for_good
        )

    def _has_transition_of(self, run: "Run") -> bool:
        ours, other = self.transition, run.transition
        assert ours is not None
        assert other is not None
        return (
            ours.write is other.write
            and ours.state is other.state
            and ours.member_id == other.member_id
            and ours.delivery_count_limit == other.delivery_count_limit
        )


class InFlightBatch:
    """Offsets that were acquired together, as runs that leave nothing out."""

    __slots__ = ("first_offset", "is_whole", "last_offset", "runs")

    def __init__(self, run: Run) -> None:
        self.first_offset = run.first_offset
        self.last_offset = run.last_offset
        self.runs = [run]
        self.is_whole = True
        """All offsets change together, so that there is one run. False for ever after track_offsets()."""

    @property
    def whole(self) -> Run:
        """The run of a batch that is whole."""
        assert self.is_whole
        return self.runs[0]

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1

    def track_offsets(self) -> None:
        """From now on, each offset may have a state of its own."""
        self.is_whole = False

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        return first_offset <= self.first_offset and self.last_offset <= last_offset

    def run_at(self, offset: int) -> Run:
        assert self.first_offset <= offset <= self.last_offset
        return self.runs[bisect_right(self.runs, offset, key=_FIRST_OFFSET) - 1]

    def runs_within(self, first_offset: int, last_offset: int) -> list[Run]:
        """Return the runs that overlap the offsets; they may reach beyond them."""
        if self.last_offset < first_offset or last_offset < self.first_offset:
            return []
        if len(self.runs) == 1:
            return self.runs[:]
        begin = max(bisect_right(self.runs, first_offset, key=_FIRST_OFFSET) - 1, 0)
        return self.runs[begin : bisect_right(self.runs, last_offset, key=_FIRST_OFFSET)]

    def cut_out(self, run: Run, first_offset: int, last_offset: int) -> Run:
        """Return the part of `run` within the offsets as a run of its own, which the caller is about to change."""
        index = bisect_right(self.runs, run.first_offset, key=_FIRST_OFFSET) - 1
        assert self.runs[index] is run
        if run.first_offset < first_offset:
            run = run.split_after(first_offset - 1)
            index += 1
            self.runs.insert(index, run)
        if last_offset < run.last_offset:
            self.runs.insert(index + 1, run.split_after(last_offset))
        return run

    def join_runs(self, first_offset: int, last_offset: int) -> None:
        """Join neighbours in the same state, among the runs of the offsets and those beside them."""
        if self.is_whole or len(self.runs) == 1:
            return
        runs = self.runs
        begin = max(bisect_right(runs, first_offset, key=_FIRST_OFFSET) - 2, 0)
        end = min(bisect_right(runs, last_offset, key=_FIRST_OFFSET) + 1, len(runs))
        joined = [runs[begin]]
        for run in runs[begin + 1 : end]:
            if joined[-1].is_continued_by(run):
                joined[-1].last_offset = run.last_offset
            else:
                joined.append(run)
        if len(joined) < end - begin:
            runs[begin:end] = joined
