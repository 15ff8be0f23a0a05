"""Acquires records of a share partition for a member.

There are two sources: in-flight records that are available again, and offsets after the end or in the gap window,
which become batches in flight. Both follow the batches that were read. A record is never decoded, and an offset without
a record (compacted, a control batch) is acquired, too: the client acknowledges it as a gap.

Records that were delivered often come in smaller parts, because one that no member can process keeps its batch back.
From half of the delivery count limit on (at least 2) a batch is halved with each delivery, and comes alone; a record on
its last attempt is delivered alone, if the limit is above 2.
"""

from typing import Final

from kafkapy.share.aborted import aborted_batches, without
from kafkapy.share.fetched import AcquiredRecords, AcquireLimits, FetchedBatch, FetchedRecords
from kafkapy.share.in_flight import InFlightRecords
from kafkapy.share.in_flight_batch import InFlightBatch, Run
from kafkapy.share.partition_settings import PartitionSettings
from kafkapy.share.record_state import RecordState

_AVAILABLE: Final = RecordState.AVAILABLE
_ACQUIRED: Final = RecordState.ACQUIRED


class Acquisition:
    """One member acquires from what one read returned: made for it, run, and dropped."""

    __slots__ = (
        "_batches",
        "_deadline_ms",
        "_first_offset",
        "_is_complete",
        "_last_offset",
        "_limits",
        "_max_records",
        "_member_id",
        "_records",
        "_settings",
        "acquired",
        "count",
        "new_batches",
    )

    def __init__(
        self,
        records: InFlightRecords,
        settings: PartitionSettings,
        member_id: str,
        limits: AcquireLimits,
        deadline_ms: int,
    ) -> None:
        self._records = records
        self._settings = settings
        self._member_id = member_id
        self._limits = limits
        self._deadline_ms = deadline_ms
        self._batches: list[FetchedBatch] = []
        self._first_offset = self._last_offset = 0
        """The base offset of the first batch that was read; the last offset that may be acquired."""
        self._max_records = 0
        self._is_complete = False
        """Nothing may be added: throttled records are delivered alone."""
        self.acquired: list[AcquiredRecords] = []
        self.count = 0
        """The number of acquired records, without those of aborted transactions."""
        self.new_batches: list[int] = []
        """The number of records of each batch that this acquisition has put in flight."""

    def run(self, fetched: FetchedRecords) -> None:
        """Acquire what is there, within the limits."""
        if self._limits.max_records <= 0 or not fetched.batches:
            return
        if fetched.batches[-1].last_offset < self._records.start_offset or not self._set_bounds(fetched):
            return
        self._batches = list(fetched.batches)
        self._first_offset = self._batches[0].base_offset
        self._archive_missing(fetched.fetch_offset)
        base_offset = self._base_offset()
        if self._last_offset < base_offset:
            # At the limit of record locks, and the log has lost the in-flight records that were requested.
            # Deviation: Apache Kafka fails the fetch. Here nothing is acquired, because the next fetch goes on.
            return
        in_flight = self._records.beginning_within(min(self._first_offset, base_offset), self._last_offset)
        if in_flight:
            self._acquire_in_flight_and_gaps(in_flight, base_offset)
        else:
            self._acquire_new(base_offset, self._last_offset, self._max_records)
        if self.acquired and in_flight:
            self._records.move_gap_start(self.acquired[-1].last_offset + 1)
        if fetched.aborted and self.acquired:
            self._archive_aborted(fetched)
        assert self.count == sum(part.record_count for part in self.acquired), "the limits count other records"

    def _set_bounds(self, fetched: FetchedRecords) -> bool:
        """Apply share.partition.max.record.locks. Return False if nothing may be acquired.

        At the limit records that are in flight, and available again, may be acquired, but none after the end.
        """
        records = self._records
        self._last_offset = fetched.batches[-1].last_offset
        room = self._settings.max_record_locks - records.record_count
        self._max_records = min(self._limits.max_records, room)
        if self._max_records <= 0 and fetched.fetch_offset <= records.end_offset:
            self._max_records = min(self._limits.max_records, records.end_offset - fetched.fetch_offset + 1)
            self._last_offset = min(self._last_offset, records.end_offset)
        return self._max_records > 0

    def _archive_missing(self, fetch_offset: int) -> None:
        """Archive available records from the requested offset up to the first batch read: the log has them no more."""
        first_offset = self._first_offset
        if fetch_offset >= first_offset:
            return
        lost = self._records.overlapping(fetch_offset, first_offset - 1)
        archived_count = self._records.archive(lost, fetch_offset, first_offset - 1, _AVAILABLE)
        if archived_count > 0:
            self._records.delivery_complete_count += archived_count
            self._records.on_available()

    def _base_offset(self) -> int:
        """Return where to begin: with the in-flight batch that has the first offset, or not before the start."""
        floor = self._records.floor(self._first_offset)
        if floor is None:
            return max(self._first_offset, self._records.start_offset)
        return floor.first_offset if floor.last_offset >= self._first_offset else self._first_offset

    def _acquire_in_flight_and_gaps(self, in_flight: list[InFlightBatch], base_offset: int) -> None:
        """Acquire from the in-flight batches and the gaps between them, in order of offset; then what comes after."""
        gap_start_offset = base_offset
        for batch in in_flight:
            if self.count >= self._max_records:
                break
            if self._records.active_gap_window is not None:
                if gap_start_offset < batch.first_offset:
                    self._acquire_new(gap_start_offset, batch.first_offset - 1, self._max_records - self.count)
                gap_start_offset = batch.last_offset + 1
                if self.count >= self._max_records:
                    break
            self._acquire_in_flight(batch)
            if self._is_complete:
                return
        remaining = self._max_records - self.count
        if remaining > 0 and in_flight[-1].last_offset < self._last_offset:
            self._acquire_new(in_flight[-1].last_offset + 1, self._last_offset, remaining)

    def _acquire_in_flight(self, batch: InFlightBatch) -> None:
        is_throttled = self._is_throttled(batch)
        if is_throttled and self.count > 0:
            self._is_complete = True
            return
        remaining = self._max_records - self.count
        is_divided = self._limits.is_record_limit and batch.record_count > remaining
        is_within = batch.is_within(self._first_offset, self._last_offset)
        if batch.is_whole and is_within and not is_divided and not is_throttled:
            self._acquire_whole(batch.whole)
            return
        if batch.is_whole:
            if not batch.whole.is_acquirable:
                return
            batch.track_offsets()
        parts = self._acquire_parts(batch, remaining)
        batch.join_runs(batch.first_offset, batch.last_offset)
        self.acquired.extend(joined(parts))
        count = sum(part.record_count for part in parts)
        self.count += count
        self._is_complete = is_throttled and count > 0

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        """Return whether records of the batch were delivered so often that they come in smaller parts."""
        limit = self._settings.throttled_delivery_count
        if batch.is_whole:
            return batch.whole.is_acquirable and batch.whole.delivery_count >= limit
        runs = batch.runs_within(self._first_offset, self._last_offset)
        return any(run.is_acquirable and run.delivery_count >= limit for run in runs)

    def _acquire_whole(self, run: Run) -> None:
        if run.is_acquirable:
            run.acquire(self._member_id, self._deadline_ms)
            self.acquired.append(AcquiredRecords(run.first_offset, run.last_offset, run.delivery_count))
            self.count += run.record_count

    def _acquire_parts(self, batch: InFlightBatch, remaining: int) -> list[AcquiredRecords]:
        """Acquire what is available of a batch whose offsets are tracked, as much as may be delivered together."""
        settings = self._settings
        parts: list[AcquiredRecords] = []
        count = throttled_max = 0
        for run in batch.runs_within(self._first_offset, self._last_offset):
            if not run.is_acquirable:
                continue
            is_last_attempt = settings.last_attempt_is_alone and run.delivery_count == settings.delivery_count_limit - 1
            if is_last_attempt and count > 0:
                break
            if throttled_max == 0 and run.delivery_count >= settings.throttled_delivery_count:
                halvings = run.delivery_count - settings.throttled_delivery_count + 1
                throttled_max = max(1, batch.record_count >> halvings)
            part = batch.cut_out(run, self._first_offset, self._last_offset)
            wanted = 1 if is_last_attempt else part.record_count
            if self._limits.is_record_limit:
                wanted = min(wanted, remaining - count)
            if count < throttled_max:  # what was acquired before the first throttled record may be more already
                wanted = min(wanted, throttled_max - count)
            if wanted < part.record_count:
                part = batch.cut_out(part, part.first_offset, part.first_offset + wanted - 1)
            assert 0 < wanted == part.record_count, f"{wanted} of {part.record_count} records are acquired"
            part.acquire(self._member_id, self._deadline_ms)
            parts.append(AcquiredRecords(part.first_offset, part.last_offset, part.delivery_count))
            count += wanted
            if is_last_attempt or count == throttled_max or (self._limits.is_record_limit and count == remaining):
                break
        return parts

    def _acquire_new(self, first_offset: int, last_offset: int, max_records: int) -> None:
        """Acquire offsets that are not in flight, as batches that end where those read end."""
        records = self._records
        if not records.batches:
            first_offset = max(first_offset, records.end_offset)
        assert max_records > 0, "the limits were applied before"
        assert first_offset <= last_offset, f"nothing between {first_offset} and {last_offset} to acquire"
        if max_records < last_offset - first_offset + 1:
            end_of_batch = self._end_of_batch(first_offset + max_records - 1)
            is_bounded = records.active_gap_window is not None
            last_offset = min(end_of_batch, last_offset) if is_bounded else end_of_batch
        if self._limits.is_record_limit and last_offset - first_offset + 1 > max_records:
            acquired = self._put_divided(first_offset, last_offset, max_records)
        else:
            acquired = self._put_batches(first_offset, last_offset)
        if records.batches[0].first_offset == first_offset:
            records.start_offset = first_offset
        records.end_offset = max(records.end_offset, last_offset)
        self.acquired.extend(acquired)
        self.count += sum(part.record_count for part in acquired)
        records.move_gap_start(acquired[-1].last_offset + 1)

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of the batch with `offset`, or `offset` if none of those read has it."""
        for batch in reversed(self._batches):
            if batch.base_offset <= offset:
                return max(batch.last_offset, offset)
        return offset

    def _put_divided(self, first_offset: int, last_offset: int, max_records: int) -> list[AcquiredRecords]:
        """Put one batch in flight, of which only max_records are acquired; the others can be."""
        last_acquired_offset = first_offset + max_records - 1
        assert last_acquired_offset < last_offset, "a batch is divided that is acquired as a whole"
        batch = InFlightBatch(self._new_run(first_offset, last_offset))
        batch.track_offsets()
        acquired = batch.cut_out(batch.runs[0], first_offset, last_acquired_offset)
        rest = batch.runs[1]
        rest.state, rest.delivery_count, rest.member_id, rest.deadline_ms = _AVAILABLE, 0, "", None
        self._records.put(batch)
        self.new_batches.append(batch.record_count)
        self._records.on_available()
        return [AcquiredRecords(acquired.first_offset, acquired.last_offset, 1)]

    def _put_batches(self, first_offset: int, last_offset: int) -> list[AcquiredRecords]:
        """Put the offsets in flight, divided at bounds of batches that were read when more than batch_size."""
        batch_size = self._limits.batch_size
        acquired: list[AcquiredRecords] = []
        if not self._limits.is_record_limit and last_offset - first_offset + 1 > batch_size:
            for batch in self._batches:
                if batch.base_offset > last_offset:
                    break
                if batch.base_offset - first_offset >= batch_size:
                    acquired.append(AcquiredRecords(first_offset, batch.base_offset - 1, 1))
                    first_offset = batch.base_offset
        acquired.append(AcquiredRecords(first_offset, last_offset, 1))
        for part in acquired:
            self._records.put(InFlightBatch(self._new_run(part.first_offset, part.last_offset)))
            self.new_batches.append(part.record_count)
        return acquired

    def _new_run(self, first_offset: int, last_offset: int) -> Run:
        return Run(first_offset, last_offset, _ACQUIRED, 1, self._member_id, self._deadline_ms)

    def _archive_aborted(self, fetched: FetchedRecords) -> None:
        """Archive acquired records of aborted transactions: nobody sees them.

        Deviation: Apache Kafka fails the fetch if an aborted batch begins before all that is in flight. Here the part
        in flight is archived, because a start offset within a batch is allowed, and the fetch would fail for ever.
        """
        aborted = aborted_batches(self._batches, fetched.aborted)
        for batch in aborted:
            batches = self._records.from_floor(batch.base_offset, batch.last_offset)
            archived = self._records.archive(batches, batch.base_offset, batch.last_offset, _ACQUIRED)
            self._records.delivery_complete_count += archived
        self.acquired = without(self.acquired, aborted)
        self.count = sum(part.record_count for part in self.acquired)


def joined(parts: list[AcquiredRecords]) -> list[AcquiredRecords]:
    """Return the parts with neighbours of the same delivery count as one."""
    result: list[AcquiredRecords] = []
    for part in parts:
        before = result[-1] if result else None
        if (
            before is not None
            and before.last_offset + 1 == part.first_offset
            and before.delivery_count == part.delivery_count
        ):
            result[-1] = AcquiredRecords(before.first_offset, part.last_offset, part.delivery_count)
        else:
            result.append(part)
    return result
