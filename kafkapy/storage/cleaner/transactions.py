"""Decide which transactional batches the cleaner may drop: data of aborted transactions, and markers without data.

No IO. Batches must be passed in log order. A marker is kept while data of its transaction exists: if the pass has read
a batch of it, the marker is not dropped in the same pass, and an abort keeps its entry in the transaction index.
"""

from collections import deque
from collections.abc import Iterable

from kafkapy.record.batch import RecordBatch
from kafkapy.record.control import ControlType, control_type_of
from kafkapy.storage.segment.txn_index import AbortedTransaction


class CleanedTransactions:
    """Tracks a log's transactions while its batches are cleaned in order.

    `retained`: aborted transactions whose markers are kept, for the new segment's transaction index.
    """

    __slots__ = ("_aborted", "_coming", "_with_aborted_data", "_with_data", "retained")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """aborted: the aborted transactions that overlap the batches to clean."""
        self._coming = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_aborted_data: set[int] = set()
        self._with_data: set[int] = set()
        self.retained: list[AbortedTransaction] = []

    def may_discard(self, batch: RecordBatch) -> bool:
        """Process the next batch; return whether it may be dropped: aborted data, or a marker without data.

        The caller drops a marker only after its delete horizon. Raises InvalidRecordsError for a malformed marker.
        """
        while self._coming and self._coming[0].first_offset <= batch.last_offset:
            aborted = self._coming.popleft()
            self._aborted.setdefault(aborted.producer_id, aborted)
        if batch.is_control:
            return self._apply_marker(batch)
        if not batch.is_transactional:
            return False
        is_aborted = batch.producer_id in self._aborted
        (self._with_aborted_data if is_aborted else self._with_data).add(batch.producer_id)
        return is_aborted

    def _apply_marker(self, batch: RecordBatch) -> bool:
        record = next(batch.records(), None)
        if record is None:
            return True  # a control batch emptied by an earlier pass
        control_type = control_type_of(record.key)
        if control_type is ControlType.ABORT:
            return self._pop_abort(batch.producer_id)
        if control_type is ControlType.COMMIT:
            had_data = batch.producer_id in self._with_data
            self._with_data.discard(batch.producer_id)
            return not had_data
        return False

    def _pop_abort(self, producer_id: int) -> bool:
        aborted = self._aborted.pop(producer_id, None)
        if aborted is None or producer_id not in self._with_aborted_data:
            return True
        self._with_aborted_data.discard(producer_id)
        self.retained.append(aborted)
        return False
