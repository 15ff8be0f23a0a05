"""A share partition: which records of a partition a share group has in flight, with whom, and how often. KIP-932; pure.

No record is looked at: headers of record batches suffice. The driver reads from next_fetch_offset(), gives what it has
read to acquire(), and wakes expire() at deadline_ms. Whatever changes what must survive comes back as a PendingWrite,
which the driver hands to the persister, and then to finish_write() with the outcome.

    partition.begin_load()                              # EMPTY -> INITIALIZING
    partition.load(state, reset_offset)                 # -> ACTIVE
    acquired = partition.acquire("m1", fetched, limits, now_ms=0)    # [(0, 9, 1)]: offsets 0 to 9, delivered once
    answer = partition.acknowledge("m1", [AcknowledgementBatch(0, 9, [ACK_ACCEPT])], now_ms=5)
    finished = partition.finish_write(answer.write, None, now_ms=7)  # start_offset is 10 now

Memory: an idle share partition takes less than 1 KiB; a run in flight some 200 bytes, with at most
partition.max.record.locks offsets in flight, beside the rest of one batch.

Source: Apache Kafka's SharePartition. Differences that no client sees: runs instead of an entry for each
offset, also in what is persisted (the share coordinator merges such entries); one deadline for the partition instead of
a timer for each lock.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.machine import SmallSteps, end_of
from kafkapy.metrics.shares import SharePartitionCounts
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.acknowledgement import Acknowledgement, AcknowledgementBatch
from kafkapy.share.acquisition import Acquisition
from kafkapy.share.fetched import AcquiredRecords, AcquireLimits, FetchedRecords
from kafkapy.share.in_flight import GapWindow, InFlightRecords
from kafkapy.share.in_flight_batch import InFlightBatch, Run
from kafkapy.share.lock_expiry import Expiry
from kafkapy.share.partition_settings import PartitionSettings
from kafkapy.share.pending_write import DeadLetter, DeadLetterCause, PendingWrite, Refusal, persister_refusal
from kafkapy.share.persister import (
    UNINITIALIZED_OFFSET,
    SharePartitionKey,
    StateBatch,
    StateReadResult,
    StateWrite,
)
from kafkapy.share.record_state import RecordState

_ACQUIRED: Final = RecordState.ACQUIRED
_AVAILABLE: Final = RecordState.AVAILABLE
_ARCHIVING: Final = RecordState.ARCHIVING
_ARCHIVED: Final = RecordState.ARCHIVED

WRITTEN_PER_STEP: Final = 200
"""State batches of a write that are completed or undone before other events may come: one to two milliseconds."""


class PartitionState(Enum):
    """EMPTY -> INITIALIZING -> ACTIVE or FAILED; FENCED from any of them, when the leader has changed."""

    EMPTY = 0
    INITIALIZING = 1
    ACTIVE = 2
    FAILED = 3
    FENCED = 4


@dataclass(slots=True)
class AcknowledgeOutcome:
    """`refusal`: only renewals were applied. Else the response is sent after `write`, if there is one."""

    refusal: Refusal | None = None
    write: PendingWrite | None = None


@dataclass(slots=True)
class FinishedWrite:
    """The result of a write: whether the start offset `has_moved`; records to copy to the dead-letter topic."""

    has_moved: bool
    dead_letters: list[DeadLetter]


class SharePartition:
    """One partition as one share group reads it."""

    __slots__ = (
        "_fetch_owner",
        "_next_deadline_ms",
        "counts",
        "key",
        "leader_epoch",
        "records",
        "settings",
        "state",
        "state_epoch",
    )

    def __init__(self, key: SharePartitionKey, leader_epoch: int, settings: PartitionSettings) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.settings = settings
        self.state = PartitionState.EMPTY
        self.state_epoch = 0
        self.records = InFlightRecords(0)
        self.counts: SharePartitionCounts | None = None
        """What the share partition is counted in, if anywhere."""
        self._fetch_owner: object | None = None
        self._next_deadline_ms: int | None = None
        """A lower bound of the deadlines of all locks: it stays when a lock ends before its time-out."""

    # ---- life

    def configure(self, settings: PartitionSettings) -> None:
        """Apply the group's changed configuration, from the next event on."""
        self.settings = settings

    def fence(self) -> None:
        """Refuse all requests from now on: this node does not lead the partition, or its state has begun again."""
        self.state = PartitionState.FENCED

    @property
    def refusal(self) -> Refusal | None:
        """Why the share partition cannot be used, and may not be loaded now; None if it can."""
        if self.state in (PartitionState.EMPTY, PartitionState.ACTIVE):
            return None
        if self.state is PartitionState.FAILED:
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"Share partition failed to load {self._name}")
        what = "is fenced" if self.state is PartitionState.FENCED else "is already initializing"
        return Refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"Share partition {what} {self._name}")

    @property
    def _name(self) -> str:
        return self.key.coordinator_key

    def begin_load(self) -> None:
        """The driver has begun to read the state."""
        assert self.state is PartitionState.EMPTY
        self.state = PartitionState.INITIALIZING

    def load(self, read: StateReadResult, reset_offset: int) -> Refusal | None:
        """Apply the persisted state and become ACTIVE; return the refusal if that fails, and become FAILED.

        `reset_offset`: where share.auto.offset.reset says to begin, if the state has no start offset yet.
        """
        if self.state is PartitionState.FENCED:
            return self.refusal
        assert self.state is PartitionState.INITIALIZING
        refusal = self._load_refusal(read, reset_offset)
        if refusal is not None:
            self.state = PartitionState.FAILED
            return refusal
        self.state_epoch = read.state_epoch
        is_new = read.start_offset == UNINITIALIZED_OFFSET
        self.records = InFlightRecords(reset_offset if is_new else read.start_offset)
        self._load_batches(read.state_batches)
        self.state = PartitionState.ACTIVE
        return None

    def _load_refusal(self, read: StateReadResult, reset_offset: int) -> Refusal | None:
        if read.error_code != ErrorCode.NONE:
            return persister_refusal(read.error_code, read.error_message)
        start_offset = read.start_offset if read.start_offset != UNINITIALIZED_OFFSET else reset_offset
        previous_last_offset = start_offset - 1
        for batch in read.state_batches:
            if batch.first_offset <= previous_last_offset or batch.last_offset < batch.first_offset:
                return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to initialize the share partition {self._name}")
            previous_last_offset = batch.last_offset
        return None

    def _load_batches(self, batches: Sequence[StateBatch]) -> None:
        if not batches:
            return
        records = self.records
        gap_start_offset = None
        expected_offset = records.start_offset
        for batch in batches:
            if gap_start_offset is None and batch.first_offset > expected_offset:
                gap_start_offset = expected_offset
            expected_offset = batch.last_offset + 1
            state = RecordState(batch.delivery_state)
            if state is _ACQUIRED:  # never written here; in a damaged state its holder is unknown
                state = _AVAILABLE
            run = Run(batch.first_offset, batch.last_offset, state, batch.delivery_count)
            records.put(InFlightBatch(run))
            if self.counts is not None:
                self.counts.record_batch(run.record_count)
            if state.is_done:
                records.delivery_complete_count += run.record_count
        records.on_available()
        records.end_offset = records.last_offset
        assert records.end_offset >= records.start_offset, "what was loaded begins at the start or after it"
        if gap_start_offset is not None:
            records.gap_window = GapWindow(records.end_offset, gap_start_offset)
        records.maybe_move_start()

    def unfinished_dead_letters(self) -> list[DeadLetter]:
        """Return, after a load, the records whose dead letter may be missing: they are copied again."""
        limit = self.settings.delivery_count_limit
        return [
            DeadLetter(
                run.first_offset,
                run.last_offset,
                run.delivery_count,
                DeadLetterCause.DELIVERY_COUNT_EXCEEDED
                if run.delivery_count >= limit
                else DeadLetterCause.CLIENT_REJECT,
            )
            for batch in self.records
            for run in batch.runs
            if run.state is _ARCHIVING and run.transition is None
        ]

    # ---- fetching

    def next_fetch_offset(self) -> int:
        """Return the offset to read from: of a record that was released, or the one after the end."""
        return self.records.next_fetch_offset()

    def can_acquire(self) -> bool:
        """Return whether records may be acquired now: share.partition.max.record.locks bounds those in flight.

        At that limit only released records may be acquired again; nothing after the end of what is in flight.

        Deviation: Apache Kafka moves the start offset only when a write has ended. Here also at the limit, because
        records that are archived without a write (of aborted transactions, compacted, or whose lock timed out while the
        write failed) could fill it: then nothing could be acquired, and so nothing written, ever again.
        """
        records, limit = self.records, self.settings.max_record_locks
        if records.record_count < limit or records.next_fetch_offset() != records.end_offset + 1:
            return True
        return records.maybe_move_start() and records.record_count < limit

    def maybe_hold_fetch(self, owner: object) -> bool:
        """Hold the share partition for one fetch at a time: only that one reads and acquires."""
        if self.state is not PartitionState.ACTIVE or self._fetch_owner is not None:
            return False
        self._fetch_owner = owner
        if self.counts is not None:
            self.counts.on_hold()
        return True

    def release_fetch(self, owner: object) -> None:
        if self._fetch_owner is owner:
            self._fetch_owner = None
            if self.counts is not None:
                self.counts.on_release()

    def acquire(
        self, member_id: str, fetched: FetchedRecords, limits: AcquireLimits, now_ms: int
    ) -> list[AcquiredRecords]:
        """Acquire for a member the available ones of the records that were read; return them in order of offset."""
        if self.state is not PartitionState.ACTIVE:
            return []
        deadline_ms = now_ms + self.settings.record_lock_duration_ms
        acquisition = Acquisition(self.records, self.settings, member_id, limits, deadline_ms)
        acquisition.run(fetched)
        if acquisition.acquired:
            self._wake_by(deadline_ms)
        if self.counts is not None:
            for record_count in acquisition.new_batches:
                self.counts.record_batch(record_count)
        return acquisition.acquired

    def move_log_start(self, log_start_offset: int) -> bool:
        """Apply a new log start offset (retention, DeleteRecords). Return whether the start offset moved.

        Nothing is written: the next write has the start offset.
        """
        if log_start_offset <= self.records.start_offset:
            return False
        self.records.move_log_start(log_start_offset)
        return True

    # ---- acknowledging

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int) -> AcknowledgeOutcome:
        """End or renew deliveries, all of them or, renewals aside, none. Offsets below the start are ignored.

        INVALID_RECORD_STATE: not acquired, by another member, timed out, or in a write. INVALID_REQUEST: an unknown
        type, or offsets that are not in flight.
        """
        return end_of(self.acknowledge_steps(member_id, batches, now_ms))

    def acknowledge_steps(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int
    ) -> SmallSteps[AcknowledgeOutcome]:
        """Like acknowledge(), in steps, between which all other events may come. To be run to its end."""
        deadline_ms = now_ms + self.settings.record_lock_duration_ms
        acknowledgement = Acknowledgement(self.records, self.settings, member_id, deadline_ms)
        refusal = yield from acknowledgement.steps(batches)
        if acknowledgement.has_renewed:
            self._wake_by(deadline_ms)
        if refusal is not None:
            yield from self._end_transitions(acknowledgement.write, now_ms)
            return AcknowledgeOutcome(refusal)
        return AcknowledgeOutcome(write=self._prepared(acknowledgement.write))

    def release(self, member_id: str, now_ms: int) -> PendingWrite | None:
        """End all deliveries to a member that is gone: its session ended, or its connection closed."""
        acknowledgement = Acknowledgement(self.records, self.settings, member_id, now_ms)
        acknowledgement.release_all()
        return self._prepared(acknowledgement.write)

    @property
    def deadline_ms(self) -> int | None:
        """When expire() must be called; None while nothing is acquired."""
        return self._next_deadline_ms

    def expire(self, now_ms: int) -> PendingWrite | None:
        """Release records whose lock has timed out. With a write, some are available again: wake waiting fetches."""
        if self._next_deadline_ms is None or now_ms < self._next_deadline_ms:
            return None
        expiry = Expiry(self.records, self.settings, now_ms)
        expiry.run()
        self._next_deadline_ms = expiry.next_deadline_ms
        if self.counts is not None:
            self.counts.timeouts += sum(batch.record_count for batch in expiry.write.state_batches)
        return self._prepared(expiry.write)

    def _wake_by(self, deadline_ms: int) -> None:
        if self._next_deadline_ms is None or deadline_ms < self._next_deadline_ms:
            self._next_deadline_ms = deadline_ms

    # ---- writing

    def _prepared(self, write: PendingWrite) -> PendingWrite | None:
        if not write.state_batches:
            return None
        assert len(write.causes) == len(write.state_batches), "a dead letter would have the cause of another"
        write.start_offset = self.records.start_offset
        write.delivery_complete_count = self.records.delivery_complete_count
        return write

    def state_write(self, write: PendingWrite) -> StateWrite:
        """Return the write as the persister takes it."""
        return StateWrite(
            topic_id=self.key.topic_id,
            partition=self.key.partition,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.delivery_complete_count,
            state_batches=write.state_batches,
        )

    def finish_write(self, write: PendingWrite, refusal: Refusal | None, now_ms: int) -> FinishedWrite:
        """Complete the changes of a write that has ended, or undo them if it failed (persister_refusal)."""
        return end_of(self.finish_write_steps(write, refusal, now_ms))

    def finish_write_steps(
        self, write: PendingWrite, refusal: Refusal | None, now_ms: int
    ) -> SmallSteps[FinishedWrite]:
        """Like finish_write(), in steps, between which all other events may come. To be run to its end."""
        if write.is_undoable:
            yield from self._end_transitions(write, None if refusal is None else now_ms)
            if refusal is not None:
                return FinishedWrite(False, [])
        has_moved = self.records.maybe_move_start()
        dead_letters = [
            DeadLetter(batch.first_offset, batch.last_offset, batch.delivery_count, cause)
            for batch, cause in zip(write.state_batches, write.causes, strict=True)
            if cause is not None
        ]
        return FinishedWrite(has_moved, dead_letters)

    def archive_copied(self, *letters: DeadLetter) -> PendingWrite | None:
        """Archive records: their copy to the dead-letter topic has ended, successfully or not."""
        records = self.records
        write = PendingWrite(is_undoable=False)
        for letter in letters:
            first_offset, last_offset = letter.first_offset, letter.last_offset
            for batch in records.overlapping(first_offset, last_offset):
                for run in batch.runs_within(first_offset, last_offset):
                    if run.state is _ARCHIVING:
                        part = batch.cut_out(run, first_offset, last_offset)
                        part.archive()
                        done_count = records.count_from_start(part.first_offset, part.last_offset)
                        records.delivery_complete_count += done_count
                batch.join_runs(first_offset, last_offset)
            write.add(StateBatch(first_offset, last_offset, _ARCHIVED.value, letter.delivery_count))
        return self._prepared(write)

    def _end_transitions(self, write: PendingWrite, undone_at_ms: int | None) -> SmallSteps[None]:
        """Complete the transitions by this write, or undo them if undone_at_ms is not None."""
        records = self.records
        for count, batch in enumerate(write.state_batches):
            if count > 0 and count % WRITTEN_PER_STEP == 0:
                yield
            first_offset, last_offset = batch.first_offset, batch.last_offset
            # no run of the write has been dropped, but they may be divided
            for in_flight in records.overlapping(first_offset, last_offset):
                for run in in_flight.runs_within(first_offset, last_offset):
                    if run.transition is None or run.transition.write is not write:
                        continue
                    if undone_at_ms is None:
                        run.complete_transition()
                    else:
                        self._undo(run, undone_at_ms)
                    if run.state is _AVAILABLE:
                        records.on_available()
                in_flight.join_runs(first_offset, last_offset)

    def _undo(self, run: Run, now_ms: int) -> None:
        was_done = run.state.is_done
        run.undo_transition(now_ms)
        if was_done and not run.state.is_done:
            records = self.records
            records.delivery_complete_count -= records.count_from_start(run.first_offset, run.last_offset)
        if run.deadline_ms is not None:
            self._wake_by(run.deadline_ms)
