"""Ends or renews deliveries to a member: by its acknowledgements, or by the release of all its records.

Each acknowledgement changes the state at once, so that the same records cannot be acknowledged twice. It is undone if a
later one of the same request is refused, or the write fails. A renewal is neither written nor undone.
"""

from collections.abc import Sequence
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.machine import SmallSteps
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.in_flight import InFlightRecords
from kafkapy.share.in_flight_batch import InFlightBatch, Run
from kafkapy.share.partition_settings import PartitionSettings
from kafkapy.share.pending_write import DeadLetterCause, PendingWrite, Refusal
from kafkapy.share.persister import StateBatch
from kafkapy.share.record_state import ACK_REJECT, ACK_RENEW, ACKNOWLEDGED_STATES, RecordState

_ACQUIRED: Final = RecordState.ACQUIRED
_AVAILABLE: Final = RecordState.AVAILABLE
_ARCHIVING: Final = RecordState.ARCHIVING
_ARCHIVED: Final = RecordState.ARCHIVED

OFFSETS_PER_STEP: Final = 200
"""Offsets with types of their own that are acknowledged before other events may come: one to two milliseconds."""
BATCHES_PER_STEP: Final = 100
"""Acknowledgement batches, or batches in flight, that are processed before other events may come: a millisecond."""

_INVALID_STATE: Final = ErrorCode.INVALID_RECORD_STATE
_NOT_FOUND: Final = Refusal(
    _INVALID_STATE, "Batch record not found. The request batch offsets are not found in the cache."
)
_FIRST_IS_PAST: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "Batch record not found. The first offset in request is past acquired records."
)
_LAST_IS_PAST: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "Batch record not found. The last offset in request is past acquired records."
)
_BATCH_NOT_ACQUIRED: Final = Refusal(
    _INVALID_STATE, "The batch cannot be acknowledged. The batch is not in the acquired state."
)
_SUBSET_NOT_ACQUIRED: Final = Refusal(
    _INVALID_STATE, "The batch cannot be acknowledged. The subset batch is not in the acquired state."
)
_OFFSET_NOT_ACQUIRED: Final = Refusal(_INVALID_STATE, "The offset cannot be acknowledged. The offset is not acquired.")
_IN_TRANSITION: Final = Refusal(
    _INVALID_STATE, "The record state is invalid. The acknowledgement of delivery could not be completed."
)
_ANOTHERS_BATCH: Final = Refusal(_INVALID_STATE, "Member is not the owner of batch record")
_ANOTHERS_OFFSET: Final = Refusal(_INVALID_STATE, "Member is not the owner of offset")
_RENEW_DISABLED: Final = Refusal(_INVALID_STATE, "Renewing acquisition locks is not enabled for the group.")


@dataclass(slots=True)
class AcknowledgementBatch:
    """Offsets with one type for all, or one for each. The caller has checked the number and the order."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


class Acknowledgement:
    """The acknowledgements of one request of one member; created for each request."""

    __slots__ = ("_deadline_ms", "_member_id", "_records", "_settings", "has_renewed", "write")

    def __init__(
        self, records: InFlightRecords, settings: PartitionSettings, member_id: str, renewed_deadline_ms: int
    ) -> None:
        self._records = records
        self._settings = settings
        self._member_id = member_id
        self._deadline_ms = renewed_deadline_ms
        self.write = PendingWrite(is_undoable=True)
        """The changes to write; empty if there were only renewals, or records before the start offset."""
        self.has_renewed = False

    def steps(self, batches: Sequence[AcknowledgementBatch]) -> SmallSteps[Refusal | None]:
        """Apply the batches in order, up to the first that is refused; then the caller undoes `write`.

        An offset in flight takes some 6 us, however many batches there are: batches below the start offset cost
        nothing, and a second renewal of the same offset is skipped. Between two steps the changed records are in
        transition, as during any write, so that events in between do not depend on the rest.
        """
        renewed_offset = -1
        for count, batch in enumerate(batches, 1):
            if count % BATCHES_PER_STEP == 0:
                yield
            is_renewal = batch.types[-1] == ACK_RENEW
            if is_renewal and batch.first_offset == batch.last_offset == renewed_offset:
                continue
            refusal = yield from self._acknowledge(batch)
            if refusal is not None:
                return refusal
            renewed_offset = batch.last_offset if is_renewal else -1
        return None

    def release_all(self) -> None:
        """End all deliveries to the member: records below the start offset are archived, the others available."""
        records = self._records
        for batch in records.batches:
            if batch.is_whole:
                run = batch.whole
                if run.state is not _ACQUIRED or run.member_id != self._member_id:
                    continue
                if not records.contains_moved_start(batch.first_offset, batch.last_offset):
                    self._release(run)
                    continue
                batch.track_offsets()
            held = [run for run in batch.runs if run.state is _ACQUIRED and run.member_id == self._member_id]
            for run in held:
                for part in split_at_start(records, batch, run):
                    self._release(part)
            if held:
                batch.join_runs(batch.first_offset, batch.last_offset)

    def _release(self, run: Run) -> None:
        self._end(run, _ARCHIVED if run.last_offset < self._records.start_offset else _AVAILABLE)

    def _acknowledge(self, batch: AcknowledgementBatch) -> SmallSteps[Refusal | None]:
        """Apply one acknowledgement batch to the batches in flight that it overlaps; they must cover it to its end."""
        unknown = next((t for t in batch.types if t != ACK_RENEW and t not in ACKNOWLEDGED_STATES), None)
        if unknown is not None:
            return Refusal(ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: {list(batch.types)}")
        records = self._records
        if batch.last_offset < records.start_offset:
            return None
        floor = records.floor(batch.first_offset)
        if floor is None:
            if not records.contains_moved_start(batch.first_offset, batch.last_offset):
                return _NOT_FOUND
            floor = records.floor(records.start_offset)
            if floor is None:
                return _NOT_FOUND
        in_flight = records.beginning_within(floor.first_offset, batch.last_offset)
        assert in_flight, "the batch that was found begins at or before the last offset"
        if in_flight[-1].last_offset < batch.first_offset:
            return _FIRST_IS_PAST
        if in_flight[-1].last_offset < batch.last_offset:
            return _LAST_IS_PAST
        for count, in_flight_batch in enumerate(in_flight, 1):
            if count % BATCHES_PER_STEP == 0:
                yield
            if in_flight_batch.last_offset >= records.start_offset:  # else it is done, or no longer in flight
                refusal = yield from self._acknowledge_in(in_flight_batch, batch)
                if refusal is not None:
                    return refusal
        return None

    def _acknowledge_in(self, in_flight: InFlightBatch, batch: AcknowledgementBatch) -> SmallSteps[Refusal | None]:
        """Acknowledge the offsets within a batch in flight; at once if it has one state, and they have one type."""
        if not in_flight.is_whole:
            return (yield from self._acknowledge_offsets(in_flight, batch))
        run = in_flight.whole
        if run.member_id != self._member_id:
            return _ANOTHERS_BATCH if run.member_id else _BATCH_NOT_ACQUIRED
        if run.transition is not None:
            return _IN_TRANSITION
        has_moved_start = self._records.contains_moved_start(in_flight.first_offset, in_flight.last_offset)
        is_within = in_flight.is_within(batch.first_offset, batch.last_offset)
        is_one_change = is_within and len(batch.types) == 1 and not has_moved_start
        if run.state is not _ACQUIRED:
            return _BATCH_NOT_ACQUIRED if is_one_change else _SUBSET_NOT_ACQUIRED
        if is_one_change:
            return self._apply(run, batch.types[0])
        in_flight.track_offsets()
        return (yield from self._acknowledge_offsets(in_flight, batch))

    def _acknowledge_offsets(self, in_flight: InFlightBatch, batch: AcknowledgementBatch) -> SmallSteps[Refusal | None]:
        """Acknowledge some offsets of a batch in flight, OFFSETS_PER_STEP at a time."""
        first_offset = max(batch.first_offset, in_flight.first_offset)
        end_offset = min(batch.last_offset, in_flight.last_offset) + 1
        while True:
            first_offset = max(first_offset, self._records.start_offset)  # the start offset may have moved in between
            if first_offset >= end_offset:
                return None
            last_offset = _end_of_step(batch, first_offset, end_offset) - 1
            refusal = self._acknowledge_some(in_flight, batch, first_offset, last_offset)
            if refusal is not None or last_offset == end_offset - 1:
                return refusal
            yield
            first_offset = last_offset + 1

    def _acknowledge_some(
        self, in_flight: InFlightBatch, batch: AcknowledgementBatch, first_offset: int, last_offset: int
    ) -> Refusal | None:
        refusal = None
        for run in in_flight.runs_within(first_offset, last_offset):
            refusal = self._refusal_of(run)
            if refusal is not None:
                break
            rest: Run | None = in_flight.cut_out(run, first_offset, last_offset)
            while rest is not None and refusal is None:
                refusal, rest = self._apply_first(in_flight, rest, batch)
            if refusal is not None:
                break
        in_flight.join_runs(first_offset, last_offset)
        return refusal

    def _refusal_of(self, run: Run) -> Refusal | None:
        if run.state is not _ACQUIRED:
            return _OFFSET_NOT_ACQUIRED
        if run.transition is not None:
            return _IN_TRANSITION
        return None if run.member_id == self._member_id else _ANOTHERS_OFFSET

    def _apply_first(
        self, in_flight: InFlightBatch, run: Run, batch: AcknowledgementBatch
    ) -> tuple[Refusal | None, Run | None]:
        """Acknowledge the first offsets of a run that have one type; return the rest of the run, if there is one."""
        types = batch.types
        if len(types) == 1:
            return self._apply(run, types[0]), None
        index = run.first_offset - batch.first_offset
        assert 0 <= index < len(types), f"offset {run.first_offset} would end by the type of another"
        acknowledged_type = types[index]
        end = index + 1
        while end < index + run.record_count and types[end] == acknowledged_type:
            end += 1
        last_offset = batch.first_offset + end - 1
        rest = None
        if last_offset < run.last_offset:
            rest = in_flight.cut_out(run, last_offset + 1, run.last_offset)
        return self._apply(run, acknowledged_type), rest

    def _apply(self, run: Run, acknowledged_type: int) -> Refusal | None:
        """Renew the lock of a run, or end its delivery."""
        if acknowledged_type == ACK_RENEW:
            if not self._settings.is_renew_enabled:
                return _RENEW_DISABLED
            run.deadline_ms = self._deadline_ms
            self.has_renewed = True
        elif acknowledged_type == ACK_REJECT and self._settings.has_dead_letters:
            self._end(run, _ARCHIVING, DeadLetterCause.CLIENT_REJECT)
        else:
            self._end(run, ACKNOWLEDGED_STATES[acknowledged_type])
        return None

    def _end(self, run: Run, state: RecordState, cause: DeadLetterCause | None = None) -> None:
        """End a delivery with `state`. Records that would be available are archived if they are out of attempts."""
        settings = self._settings
        if state is _AVAILABLE:
            state = state_after_release(run, settings)
            if state is _ARCHIVING:
                cause = DeadLetterCause.DELIVERY_COUNT_EXCEEDED
        run.begin_transition(state, settings.delivery_count_limit, self.write)
        self.write.add(StateBatch(run.first_offset, run.last_offset, state.value, run.delivery_count), cause)
        if state.is_done:
            self._records.delivery_complete_count += self._records.count_from_start(run.first_offset, run.last_offset)


def _end_of_step(batch: AcknowledgementBatch, first_offset: int, end_offset: int) -> int:
    """Return the last offset of a step: it does not divide offsets with the same type, which are one run."""
    types = batch.types
    end = first_offset - batch.first_offset + OFFSETS_PER_STEP
    last_end = end_offset - batch.first_offset
    if len(types) == 1 or end >= last_end:
        return end_offset
    while end < last_end and types[end] == types[end - 1]:
        end += 1
    return batch.first_offset + end


def state_after_release(run: Run, settings: PartitionSettings) -> RecordState:
    """Return the state of records whose delivery ended without success."""
    if run.delivery_count < settings.delivery_count_limit:
        return _AVAILABLE
    return _ARCHIVING if settings.has_dead_letters else _ARCHIVED


def split_at_start(records: InFlightRecords, batch: InFlightBatch, run: Run) -> list[Run]:
    """Split a run at the start offset."""
    if not records.contains_moved_start(run.first_offset, run.last_offset):
        return [run]
    return [run, batch.cut_out(run, records.start_offset, run.last_offset)]
