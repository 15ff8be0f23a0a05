"""Transaction markers: their data, how they are appended to a partition, and where they are written.

`MarkerSink` is the seam between a coordinator and partition leaders. `LocalMarkers` writes to partitions led here,
remote_markers.py sends to those that other brokers lead. `LocalMarkers` also serves WriteTxnMarkers, so that all
markers take the same path. KIP-98, KIP-1228.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kafkapy.errors import ApiError
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.control import EndTxnMarker, build_end_txn_marker
from kafkapy.record.validate import AppendOrigin
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.partition import Role
from kafkapy.replication.replica_manager import ALL_ACKS, ReplicaManager
from kafkapy.runtime.group_coordinator import OFFSETS_TOPIC
from kafkapy.seams import Clock, failpoint
from kafkapy.storage.log.own_append import ProducerMarker, append_own_markers
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.runtime.group_coordinator import GroupCoordinator
    from kafkapy.storage.log.log import Log

MARKERS_PER_WRITE: Final = 1000
"""80 KB; fits into a segment of the smallest configurable size."""
_OF_ONE_MARKER: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
"""Errors that a single marker of a write may cause."""


class Marker(NamedTuple):
    """The end of one producer's transaction, for any of its partitions.

    transaction_version: 0 or 2; decides which epochs the partition accepts (KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


MarkersByPartition: TypeAlias = Mapping[TopicPartition, Sequence[Marker]]
MarkerResults: TypeAlias = Mapping[TopicPartition, Sequence[int]]
"""One error code for each marker, in the same order."""


class MarkerSink(Protocol):
    """Writes markers to the leaders of their partitions."""

    def write(self, markers: MarkersByPartition, *, timeout_ms: int, on_done: Callable[[MarkerResults], None]) -> None:
        """Write markers; call on_done(results) once all replicas have them, possibly before this returns.

        on_done may be called several times, each time with the results of other partitions.
        """
        ...

    def write_sole(self, topic_partition: TopicPartition, marker: Marker) -> int | None:
        """Write a marker that has nothing to wait for, and return its error code; None if nothing was tried.

        That is: the partition is led here without other replicas, and no second transaction is open in it.
        """
        ...


class LocalMarkers:
    """Writes markers to partitions led here: one write per partition."""

    def __init__(self, replica_manager: ReplicaManager, groups: "GroupCoordinator", clock: Clock) -> None:
        self._replica_manager = replica_manager
        self._groups = groups
        self._clock = clock

    def write(self, markers: MarkersByPartition, *, timeout_ms: int, on_done: Callable[[MarkerResults], None]) -> None:
        """Write markers as specified by MarkerSink.

        Codes: UNKNOWN_TOPIC_OR_PARTITION (not here, or offline), NOT_LEADER_OR_FOLLOWER (also while groups load),
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, and any other error of an append.
        """
        appends: dict[TopicPartition, Sequence[PartitionAppend]] = {}
        refused: dict[TopicPartition, Sequence[int]] = {}
        for topic_partition, of_partition in markers.items():
            failpoint("transaction.marker.before_append")
            try:
                appends[topic_partition] = self._append(topic_partition, of_partition)
            except ApiError as error:
                refused[topic_partition] = [error.code] * len(of_partition)
            failpoint("transaction.marker.after_append")

        def finish() -> None:
            codes = {
                partition: [append.error_code for append in of_partition] for partition, of_partition in appends.items()
            }
            on_done({**codes, **refused})

        unsettled = [append for each in appends.values() for append in each if not append.is_settled()]
        if unsettled:
            self._replica_manager.wait_for_replicas(unsettled, timeout_ms=timeout_ms, on_done=finish)
        else:
            finish()

    def write_sole(self, topic_partition: TopicPartition, marker: Marker) -> int | None:
        """As specified by MarkerSink; None, too, if the log is to be flushed with the marker."""
        topic, partition_id = topic_partition
        partition = self._replica_manager.partitions.find(topic, partition_id)
        if partition is None or not partition.is_alone:
            return None
        log = partition.log
        if log is None or log.producer_state.open_count > 1 or log.is_flush_due_after(1):
            return None
        failpoint("transaction.marker.before_append")
        try:
            (append,) = self._append(topic_partition, (marker,))
        except ApiError as error:
            return error.code
        failpoint("transaction.marker.after_append")
        assert append.is_settled(), "there is no replica and no flush to wait for"
        return append.error_code

    def _append(self, topic_partition: TopicPartition, markers: Sequence[Marker]) -> Sequence[PartitionAppend]:
        topic, partition_id = topic_partition
        partition = self._replica_manager.partitions.find(topic, partition_id)
        if partition is None or partition.role is Role.OFFLINE:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic == OFFSETS_TOPIC:
            return self._groups.append_markers(partition_id, markers)
        return append_markers(self._replica_manager, partition, markers, timestamp_ms=self._clock.wall_ms())


def append_markers(
    replica_manager: ReplicaManager,
    partition: "HostedPartition",
    markers: Sequence[Marker],
    *,
    timestamp_ms: int,
    on_appended: Callable[[Marker, int], None] = lambda marker, offset: None,
) -> list[PartitionAppend]:
    """Append markers to one partition, in one write unless one of them is invalid; return the append of each.

    on_appended(marker, offset): called for each appended marker.
    """
    if len(markers) == 1:
        return _append_run(replica_manager, partition, markers, timestamp_ms, on_appended)
    appends: list[PartitionAppend] = []
    for _, run in groupby(markers, key=attrgetter("transaction_version")):
        of_version = list(run)
        for start in range(0, len(of_version), MARKERS_PER_WRITE):
            chunk = of_version[start : start + MARKERS_PER_WRITE]
            appends += _append_run(replica_manager, partition, chunk, timestamp_ms, on_appended)
    return appends


def _append_run(
    replica_manager: ReplicaManager,
    partition: "HostedPartition",
    markers: Sequence[Marker],
    timestamp_ms: int,
    on_appended: Callable[[Marker, int], None],
) -> list[PartitionAppend]:
    append = _append_together(replica_manager, partition, markers, timestamp_ms)
    if append.base_offset >= 0:
        for offset, marker in enumerate(markers, append.base_offset):
            on_appended(marker, offset)
    elif len(markers) > 1 and append.error_code in _OF_ONE_MARKER:
        return [_append_run(replica_manager, partition, [marker], timestamp_ms, on_appended)[0] for marker in markers]
    return [append] * len(markers)


def _append_together(
    replica_manager: ReplicaManager, partition: "HostedPartition", markers: Sequence[Marker], timestamp_ms: int
) -> PartitionAppend:
    """Append markers of one transaction version by one write, or none of them."""
    version = markers[0].transaction_version
    append = PartitionAppend(partition, b"", transaction_version=version)
    own = [
        ProducerMarker(producer_id, producer_epoch, is_commit, coordinator_epoch)
        for producer_id, producer_epoch, is_commit, coordinator_epoch, _ in markers
    ]

    def write(log: "Log", leader_epoch: int) -> bool:
        return append_own_markers(log, own, leader_epoch=leader_epoch, now_ms=timestamp_ms, transaction_version=version)

    if not replica_manager.append_own(append, write):
        append.records = bytearray(b"".join([_batch_of(marker, timestamp_ms) for marker in markers]))
        replica_manager.append_records([append], required_acks=ALL_ACKS, origin=AppendOrigin.COORDINATOR)
    return append


def _batch_of(marker: Marker, timestamp_ms: int) -> bytes:
    return build_end_txn_marker(
        EndTxnMarker(marker.is_commit, marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp_ms=timestamp_ms,
    )
