"""A quorum of one in memory: what it is given is committed after `commit_delay_ms` of the loop's time.

Stands in for runtime.quorum.Quorum where a test is about what lies above it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from kafkapy.runtime.quorum.quorum import CommittedBatch, NotLeaderError, QuorumListener
from kafkapy.types import OffsetAndEpoch


class FakeQuorum:
    """Becomes leader by `lead()`, and loses the leadership by `lose()`."""

    def __init__(self, cluster_id: str, node_id: int = 1, commit_delay_ms: int = 5) -> None:
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.commit_delay_ms = commit_delay_ms
        self.leader_id = -1
        self.leader_epoch = 0
        self.high_watermark = 0
        self.log_end_offset = 0
        self.finalized_kraft_version = 1
        self.effects = SimpleNamespace(waiting=())
        """Nothing waits for room on a disk."""
        self.log: list[CommittedBatch] = []
        self.source: Callable[[], tuple[OffsetAndEpoch, int, Iterable[list[bytes]]]] | None = None
        self._uncommitted: deque[CommittedBatch] = deque()
        self._listeners: list[QuorumListener] = []

    def add_listener(self, listener: QuorumListener) -> None:
        self._listeners.append(listener)

    def set_snapshot_source(self, source: Callable[[], tuple[OffsetAndEpoch, int, Iterable[list[bytes]]]]) -> None:
        self.source = source

    def lead(self) -> None:
        """Win an election: the LeaderChange control record is committed, then the listeners are told."""
        self.leader_epoch += 1
        self.leader_id = self.node_id
        self._commit(CommittedBatch(self.log_end_offset, self.log_end_offset, self.leader_epoch, 1, is_control=True))
        for listener in self._listeners:
            _take_all(listener.on_leader_change(self.node_id, self.leader_epoch))

    def lose(self, leader_id: int = 2) -> None:
        """Another node leads from now on; what is not committed is gone."""
        self.leader_epoch += 1
        self.leader_id = leader_id
        self.log_end_offset = self.high_watermark
        for listener in self._listeners:
            _take_all(listener.on_leader_change(leader_id, self.leader_epoch))

    def append(self, records: list[bytes], leader_epoch: int) -> int:
        if self.leader_id != self.node_id or leader_epoch != self.leader_epoch:
            raise NotLeaderError("this node does not lead")
        base_offset = self.log_end_offset
        self.log_end_offset += len(records)
        batch = CommittedBatch(base_offset, self.log_end_offset - 1, leader_epoch, 1, records)
        self._commit_later(batch)
        return batch.last_offset

    def append_control(self) -> None:
        """Append a control record, as a change of the voters is."""
        offset = self.log_end_offset
        self.log_end_offset += 1
        batch = CommittedBatch(offset, offset, self.leader_epoch, 1, is_control=True)
        self._commit_later(batch)

    def commit_foreign(self, records: list[bytes]) -> None:
        """Commit a batch that another leader wrote."""
        base_offset = self.high_watermark
        self._commit(CommittedBatch(base_offset, base_offset + len(records) - 1, self.leader_epoch, 1, records))

    def load_snapshot(self, records: list[bytes], end_offset: int) -> None:
        self.high_watermark = self.log_end_offset = end_offset
        for listener in self._listeners:
            _take_all(listener.on_load_snapshot(FakeSnapshot(records, end_offset, self.leader_epoch)))

    def _commit_later(self, batch: CommittedBatch) -> None:
        self._uncommitted.append(batch)
        asyncio.get_running_loop().call_later(self.commit_delay_ms / 1000, self._commit_next_if_leading)

    def _commit_next_if_leading(self) -> None:
        batch = self._uncommitted.popleft()  # timers that are due together may run in any order
        if self.leader_epoch == batch.leader_epoch:
            self._commit(batch)

    def _commit(self, batch: CommittedBatch) -> None:
        self.log.append(batch)
        self.high_watermark = batch.last_offset + 1
        self.log_end_offset = max(self.log_end_offset, self.high_watermark)
        for listener in self._listeners:
            _take_all(listener.on_commit([batch]))


def _take_all(steps: Iterator[None] | None) -> None:
    for _ in steps or ():
        pass


class FakeSnapshot:
    def __init__(self, records: list[bytes], end_offset: int, leader_epoch: int) -> None:
        self._records = records
        self.snapshot_id = OffsetAndEpoch(end_offset, leader_epoch)
        self.last_contained_log_timestamp_ms = 1

    def batches(self) -> Iterable[list[bytes]]:
        yield self._records


def decoded(batches: Iterable[CommittedBatch]) -> list[Any]:
    """Return the metadata records of batches, in order."""
    from kafkapy.metadata.record_serde import decode_record

    return [decode_record(value) for batch in batches for value in batch.records]
