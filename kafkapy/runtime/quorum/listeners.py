"""The notifications of the quorum's listeners, and their order.

First the latest snapshot, if there is one, then every committed batch after it, exactly once. A new leader on another
node, or the loss of a leader, is notified at once. A node that becomes leader is notified only after all records of
earlier epochs were delivered and its own first record is committed: so its tables are complete when it starts to
decide.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from kafkapy.metadata.registrations import NO_LEADER
from kafkapy.raft.effects import AppendBatch, LeaderChanged
from kafkapy.record.batches import batches
from kafkapy.storage.metadata.metadata_log import CommittedBatch, MetadataLog, to_committed
from kafkapy.types import OffsetAndEpoch

logger = logging.getLogger(__name__)

READ_BYTES = 1 << 18
"""Bytes read from the log per delivery: thousands of records."""


class SnapshotSource(Protocol):
    """The part of SnapshotReader that listeners use (storage.metadata.snapshot)."""

    snapshot_id: OffsetAndEpoch
    last_contained_log_timestamp_ms: int

    def batches(self) -> Iterable[list[bytes]]:
        """Yield the values of the data records, one list per batch; control records are left out."""
        ...


class QuorumListener(Protocol):
    """The state machine on top of the metadata log. Called on the loop's thread; must not block or raise.

    Long work is done in steps of at most a millisecond: the quorum takes the steps of the returned iterator, spread
    over turns of the loop, before the next notification. There are two exceptions: a change of leader is notified
    between steps, and another snapshot discards all remaining steps.
    """

    def on_load_snapshot(self, reader: SnapshotSource) -> Iterator[None] | None:
        """Clear all state and load the snapshot, which replaces the records below reader.snapshot_id.offset."""
        ...

    def on_commit(self, batches: list[CommittedBatch]) -> Iterator[None] | None:
        """Apply newly committed batches, in offset order. On the leader they include its own appends."""
        ...

    def on_leader_change(self, leader_id: int, leader_epoch: int) -> Iterator[None] | None:
        """leader_id is -1 while none is known. Our own id: caught up, append() accepts this epoch from now on."""
        ...


class Delivery:
    """The state of notifications: what was delivered and what is next. Call `notify_next` until it returns False."""

    def __init__(self, node_id: int, on_own_committed: Callable[[list[CommittedBatch]], None] | None = None) -> None:
        """on_own_committed: called with batches that this node appended as the leader, once they are committed."""
        self._on_own_committed = on_own_committed
        self.listeners: list[QuorumListener] = []
        self.delivered_offset = 0
        """All records below this offset were delivered."""
        self.delivered_bytes = 0
        """Total size of all delivered batches; used by the snapshot schedule."""
        self._node_id = node_id
        self._notice: LeaderChanged | None = None
        self._to_load: OffsetAndEpoch | None = None
        self._own: deque[CommittedBatch] = deque()
        self._steps: deque[Iterator[None]] = deque()
        """Unfinished iterators of listeners, in order."""

    @property
    def is_busy(self) -> bool:
        """Whether listeners have unfinished steps, or a snapshot is yet to be loaded."""
        return bool(self._steps) or self._to_load is not None

    @property
    def has_notice(self) -> bool:
        """Whether a change of leader is yet to be notified."""
        return self._notice is not None

    # ---- events

    def begin_with(self, snapshot_id: OffsetAndEpoch | None) -> None:
        """Load this snapshot before anything else: at the start, or after the log was reset to it."""
        self._own.clear()
        self._steps.clear()
        if snapshot_id is not None:
            self._to_load = snapshot_id
            self.delivered_offset = snapshot_id.offset

    def on_leader_changed(self, notice: LeaderChanged) -> None:
        self._notice = notice

    def add_own_batch(self, effect: AppendBatch, *, timestamp_ms: int, size_bytes: int) -> None:
        """Keep a batch that we appended as leader in memory until it is committed."""
        batch = effect.batch
        values = batch.data if isinstance(batch.data, list) else []
        self._own.append(
            CommittedBatch(
                batch.base_offset,
                batch.last_offset,
                batch.leader_epoch,
                timestamp_ms,
                values,
                size_bytes,
                bool(batch.controls),
            )
        )

    def forget_own_from(self, end_offset: int) -> None:
        """Drop own batches that were truncated from the log: they were never committed."""
        while self._own and self._own[-1].last_offset >= end_offset:
            self._own.pop()

    # ---- notifications

    def notify_next(self, log: MetadataLog, high_watermark: int) -> bool:
        """Deliver one notification or take one step; return False if there was nothing to do."""
        notice = self._notice
        if notice is not None and notice.leader_id != self._node_id:
            self._notify_leader(notice)
        elif self._steps:
            self._run_step()
        elif self._to_load is not None:
            self._load_snapshot(log, self._to_load)
        elif self.delivered_offset < high_watermark:
            self._deliver(log, high_watermark)
        elif notice is not None and notice.start_offset < high_watermark:
            self._notify_leader(notice)
        else:
            return False
        return True

    def notify_end(self, leader_epoch: int) -> None:
        """Notify listeners immediately that this node no longer leads, because the quorum has failed."""
        for listener in self.listeners:
            try:
                listener.on_leader_change(NO_LEADER, leader_epoch)
            except Exception:
                logger.exception(
                    "A listener of the metadata quorum failed when it was notified that the quorum has stopped"
                )

    def _notify_leader(self, notice: LeaderChanged) -> None:
        self._notice = None
        logger.info("The leader of the metadata quorum is %d in epoch %d", notice.leader_id, notice.leader_epoch)
        for listener in self.listeners:
            self._begin(listener.on_leader_change(notice.leader_id, notice.leader_epoch))

    def _load_snapshot(self, log: MetadataLog, snapshot_id: OffsetAndEpoch) -> None:
        self._to_load = None
        for listener in self.listeners:
            self._begin(listener.on_load_snapshot(log.open_snapshot(snapshot_id)))

    def _deliver(self, log: MetadataLog, end_offset: int) -> None:
        """Deliver the next committed batches: own ones from memory, others from the log, one chunk at a time."""
        found = self._pop_own_batches(end_offset)
        if not found:
            found = self._read_chunk(log, end_offset)
        elif self._on_own_committed is not None:
            self._on_own_committed(found)
        self.delivered_offset = found[-1].last_offset + 1
        for batch in found:
            self.delivered_bytes += batch.size_bytes
        for listener in self.listeners:
            self._begin(listener.on_commit(found))

    def _begin(self, steps: Iterator[None] | None) -> None:
        """Queue a listener's iterator; take its first step now if it is the only one."""
        if steps is not None:
            self._steps.append(steps)
            if self._steps[0] is steps:
                self._run_step()

    def _run_step(self) -> None:
        steps = self._steps[0]
        if next(steps, self) is self and self._steps and self._steps[0] is steps:
            self._steps.popleft()

    def _pop_own_batches(self, end_offset: int) -> list[CommittedBatch]:
        own = self._own
        while own and own[0].base_offset < self.delivered_offset:
            own.popleft()
        found: list[CommittedBatch] = []
        if own and own[0].base_offset == self.delivered_offset:
            while own and own[0].last_offset < end_offset:
                found.append(own.popleft())
        return found

    def _read_chunk(self, log: MetadataLog, end_offset: int) -> list[CommittedBatch]:
        data = log.read_bytes(self.delivered_offset, READ_BYTES)
        found = [to_committed(batch) for batch in batches(data) if batch.last_offset < end_offset]
        assert found, f"the high watermark {end_offset} is not the end of a batch"
        assert found[0].base_offset == self.delivered_offset
        return found
