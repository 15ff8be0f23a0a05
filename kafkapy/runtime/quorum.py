"""The driver of the Raft core: owns `__cluster_metadata-0`, its fsyncs, quorum-state, snapshots and listeners.

Everything happens on the loop's thread; only fsync runs in the IO pool. A record counts as committed once a majority
has it *durable*; with one voter that is our own fsync. Many appends share one fsync: at most one is in flight.

What a listener sees, in this order and nothing twice: the latest snapshot (if there is one), then every committed batch
after it, then `on_leader_change`. A node that becomes leader is told so only after it has seen every record of earlier
epochs, so that its tables are complete when it starts to decide.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from kafkapy.errors import ApiError
from kafkapy.types import OffsetAndEpoch


class NotLeaderError(ApiError):
    """append() on a node that is not the leader of the epoch it names (NOT_CONTROLLER)."""

    def __init__(self, message: str) -> None:
        super().__init__(41, message)


@dataclass(slots=True)
class CommittedBatch:
    """A committed batch; record i has offset base_offset + i. A control batch has no records but still moves offsets."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    append_timestamp_ms: int
    records: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    is_control: bool = False


class SnapshotSource(Protocol):
    """What SnapshotReader (storage.metadata_snapshot) offers to a listener."""

    @property
    def snapshot_id(self) -> OffsetAndEpoch: ...

    @property
    def last_contained_log_timestamp_ms(self) -> int: ...

    def batches(self) -> Iterable[list[bytes]]:
        """Yield the values of the data records, a list per batch; control records are left out."""
        ...


class QuorumListener(Protocol):
    """The state machine over the metadata log. Called on the loop's thread; must not block or raise."""

    def on_load_snapshot(self, reader: SnapshotSource) -> None:
        """Forget everything and take the snapshot's records: they replace offsets below reader.snapshot_id.offset."""
        ...

    def on_commit(self, batches: list[CommittedBatch]) -> None:
        """Take newly committed batches, in order of offset. On the leader its own appends come back here, too."""
        ...

    def on_leader_change(self, leader_id: int, leader_epoch: int) -> None:
        """leader_id is -1 while nobody is known. Our own id: caught up, append() works with this epoch from now on."""
        ...


class Quorum:
    """SKELETON: signatures to build on; see docstrings.

    Attributes: node_id, leader_id (-1 unknown), leader_epoch, is_leader, high_watermark (exclusive), log_end_offset,
    log_start_offset, latest_snapshot_id (OffsetAndEpoch | None), finalized_kraft_version (0 or 1).
    """

    node_id: int
    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int

    def add_listener(self, listener: QuorumListener) -> None:
        """Add before start(). (Later is fine: it is then brought up to date at once from snapshot and log.)"""
        raise NotImplementedError

    async def start(self) -> None:
        """Recover and join. A quorum of one has, on return, elected itself, committed LeaderChange and told listeners."""
        raise NotImplementedError

    async def close(self) -> None:
        """Resign if leader, flush, write what a clean start needs, close the log."""
        raise NotImplementedError

    def append(self, records: list[bytes], leader_epoch: int) -> int:
        """Append as ONE batch (atomic; framed records of metadata.record_serde), return the last offset. Plain call.

        Raises NotLeaderError, and ApiError(RECORD_LIST_TOO_LARGE... as MESSAGE_TOO_LARGE 10) above MAX_BATCH_BYTES (8 MiB).
        Committed when on_commit has shown that offset. If leadership is lost first: on_leader_change comes, and the
        record's fate is unknown until a later on_commit.
        """
        raise NotImplementedError

    def resign(self, leader_epoch: int) -> None:
        """Step down (a controller that met its own failure); another election follows."""
        raise NotImplementedError

    def set_snapshot_source(
        self, source: Callable[[], tuple[OffsetAndEpoch, int, Iterable[list[bytes]]]]
    ) -> None:
        """Say where snapshots come from; the quorum decides when (Kafka's metadata.log.max.* keys) and writes in slices.

        source() returns (snapshot id: end offset and epoch of the committed image, timestamp of its last record in ms,
        an iterable of lists of framed records: each list becomes a batch, one or a few are pulled per loop turn).
        The offset must be the end of a committed batch.
        """
        raise NotImplementedError
