"""The time-out of acquisition locks: the records become available again, or archived.

They are archived if they are out of attempts or below the start offset. The change is written to the share coordinator,
but not undone if that write fails.
"""

from typing import Final

from kafkapy.share.acknowledgement import split_at_start, state_after_release
from kafkapy.share.in_flight import InFlightRecords
from kafkapy.share.in_flight_batch import Run
from kafkapy.share.partition_settings import PartitionSettings
from kafkapy.share.pending_write import DeadLetterCause, PendingWrite
from kafkapy.share.persister import StateBatch
from kafkapy.share.record_state import RecordState

_ACQUIRED: Final = RecordState.ACQUIRED
_AVAILABLE: Final = RecordState.AVAILABLE
_ARCHIVING: Final = RecordState.ARCHIVING
_ARCHIVED: Final = RecordState.ARCHIVED


class Expiry:
    """Ends the locks of a share partition that have timed out. An object is used once."""

    __slots__ = ("_now_ms", "_records", "_settings", "next_deadline_ms", "write")

    def __init__(self, records: InFlightRecords, settings: PartitionSettings, now_ms: int) -> None:
        self._records = records
        self._settings = settings
        self._now_ms = now_ms
        self.write = PendingWrite(is_undoable=False)
        self.next_deadline_ms: int | None = None
        """The time-out of the first remaining lock; None without any."""

    def run(self) -> None:
        records = self._records
        for batch in records.batches:
            expired = [run for run in batch.runs if run.state is _ACQUIRED and self._has_expired(run)]
            if not expired:
                continue
            if batch.is_whole and records.contains_moved_start(batch.first_offset, batch.last_offset):
                batch.track_offsets()
            for run in expired:
                for part in [run] if batch.is_whole else split_at_start(records, batch, run):
                    self._release(part)
            batch.join_runs(batch.first_offset, batch.last_offset)
        is_ahead = self.next_deadline_ms is None or self.next_deadline_ms > self._now_ms
        assert is_ahead, "a lock that has timed out is kept"

    def _has_expired(self, run: Run) -> bool:
        deadline_ms = run.deadline_ms
        if deadline_ms is None or deadline_ms <= self._now_ms:
            return deadline_ms is not None
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms
        return False

    def _release(self, run: Run) -> None:
        records = self._records
        is_below_start = run.last_offset < records.start_offset
        state = _ARCHIVED if is_below_start else state_after_release(run, self._settings)
        run.release(state)
        cause = DeadLetterCause.DELIVERY_COUNT_EXCEEDED if state is _ARCHIVING else None
        self.write.add(StateBatch(run.first_offset, run.last_offset, state.value, run.delivery_count), cause)
        if state is _AVAILABLE:
            records.on_available()
        elif state.is_done:
            records.delivery_complete_count += records.count_from_start(run.first_offset, run.last_offset)
