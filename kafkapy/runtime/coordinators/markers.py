"""Transaction markers: their data, how they are appended to a partition, and where they are written.

`MarkerSink` is the seam between a coordinator and partition leaders. `LocalMarkers` writes to partitions led here. It
also serves WriteTxnMarkers, so that all markers take the same path.

`RoutedMarkers` looks up the leader of each partition; `BrokerMarkers` sends to another broker, by WriteTxnMarkers 1-2.
Markers for a broker with too many requests in flight are queued and sent together in one request. Without a leader or a
response, the marker fails; MarkerWriter retries it and looks up the leader again.

Sources: KIP-98, KIP-1228; Apache Kafka's TransactionMarkerChannelManager.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kafkapy.errors import ApiError
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.metadata.registrations import NO_LEADER
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkapy.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from kafkapy.record.control import EndTxnMarker, build_end_txn_marker
from kafkapy.record.validate import AppendOrigin
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.partition import Role
from kafkapy.replication.replica_manager import ALL_ACKS, NOT_WRITTEN, ReplicaManager
from kafkapy.runtime.peer import NoResponseError
from kafkapy.seams import Clock, failpoint
from kafkapy.storage.log.own_append import ProducerMarker, append_own_markers
from kafkapy.types import INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.runtime.broker_channels import BrokerChannels
    from kafkapy.storage.log.log import Log

MARKERS_PER_WRITE: Final = 1000
"""80 KB; fits into a segment of the smallest configurable size."""
WRITE_TXN_MARKERS: Final = 27
WRITE_TXN_MARKERS_VERSIONS: Final = (1, 2)
MARKERS_PER_REQUEST: Final = 1000
"""Markers times partitions; below the limit of our own brokers per request (handlers/table.py)."""
REQUESTS_IN_FLIGHT: Final = 5
"""Per broker, so that a partition with slow replicas delays few others. Apache Kafka sends one at a time."""
_OF_ONE_MARKER: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
"""Errors that a single marker of a write may cause."""

logger = logging.getLogger("kafkapy.transaction")


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


class GroupMarkers(Protocol):
    """Ends transactions that committed offsets (group_coordinator.py)."""

    def append_markers(self, partition_id: int, markers: Sequence[Marker]) -> Sequence[PartitionAppend]:
        """Append markers to a partition of `__consumer_offsets` and replay them. Raises NOT_LEADER_OR_FOLLOWER."""
        ...


class LocalMarkers:
    """Writes markers to partitions led here: one write per partition."""

    def __init__(self, replica_manager: ReplicaManager, groups: GroupMarkers, clock: Clock) -> None:
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

        unacknowledged = [append for each in appends.values() for append in each if not append.is_final()]
        if unacknowledged:
            self._replica_manager.wait_for_replicas(unacknowledged, timeout_ms=timeout_ms, on_done=finish)
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
        if topic == OFFSETS_TOPIC and log.flush_messages < INT64_MAX:
            return None  # commits that share a write are written before the marker: they may make a flush due
        failpoint("transaction.marker.before_append")
        try:
            is_written = topic != OFFSETS_TOPIC and self._write_own(partition, marker)
            code = 0 if is_written else self._append(topic_partition, (marker,))[0].error_code
        except ApiError as error:
            return error.code
        failpoint("transaction.marker.after_append")
        assert code or log.is_committed(log.log_end_offset), "there is no replica and no flush to wait for"
        return code

    def _write_own(self, partition: "HostedPartition", marker: Marker) -> bool:
        """Write one marker as it is encoded here; False, with nothing changed, if it must be checked. Raises ApiError.

        What `append_markers` does for runs of markers takes ten calls more, and most transactions end with one marker.
        """
        producer_id, producer_epoch, is_commit, coordinator_epoch, version = marker
        own = (ProducerMarker(producer_id, producer_epoch, is_commit, coordinator_epoch),)
        now_ms = self._clock.wall_ms()

        def write(log: "Log", leader_epoch: int) -> bool:
            return append_own_markers(log, own, leader_epoch=leader_epoch, now_ms=now_ms, transaction_version=version)

        return self._replica_manager.write_own(partition, write) != NOT_WRITTEN

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


class RoutedMarkers:
    """A MarkerSink that routes markers to the leader of each partition."""

    def __init__(
        self, local: MarkerSink, channels: "BrokerChannels", *, node_id: int, image: "Callable[[], MetadataImage]"
    ) -> None:
        """`image`: returns the newest metadata."""
        self._local = local
        self._channels = channels
        self._node_id = node_id
        self._image = image
        self._brokers: dict[int, BrokerMarkers] = {}

    def write(self, markers: MarkersByPartition, *, timeout_ms: int, on_done: Callable[[MarkerResults], None]) -> None:
        """Write markers as MarkerSink specifies. NOT_LEADER_OR_FOLLOWER: no leader; NETWORK_EXCEPTION: no response."""
        by_leader: dict[int, dict[TopicPartition, Sequence[Marker]]] = {}
        for partition, of_partition in markers.items():
            by_leader.setdefault(self._leader_of(partition), {})[partition] = of_partition
        for leader_id, of_leader in by_leader.items():
            if leader_id == NO_LEADER:
                code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                on_done({partition: [code] * len(each) for partition, each in of_leader.items()})
            else:
                self._sink_of(leader_id).write(of_leader, timeout_ms=timeout_ms, on_done=on_done)

    def write_sole(self, topic_partition: TopicPartition, marker: Marker) -> int | None:
        """As specified by MarkerSink; None for partitions that other brokers lead."""
        registration = self._image().topics.partition(*topic_partition)
        if registration is None or registration.leader != self._node_id:
            return None
        return self._local.write_sole(topic_partition, marker)

    def _leader_of(self, partition: TopicPartition) -> int:
        registration = self._image().topics.partition(*partition)
        return registration.leader if registration is not None else NO_LEADER

    def _sink_of(self, leader_id: int) -> MarkerSink:
        if leader_id == self._node_id:
            return self._local
        if leader_id not in self._brokers:
            self._brokers[leader_id] = BrokerMarkers(leader_id, self._channels)
        return self._brokers[leader_id]


class Write:
    """A call of MarkerSink.write in progress: collects the codes and calls on_done when all are known."""

    def __init__(self, markers: MarkersByPartition, on_done: Callable[[MarkerResults], None]) -> None:
        self._on_done = on_done
        self._codes = {partition: [0] * len(of_partition) for partition, of_partition in markers.items()}
        self._missing_count = sum(map(len, markers.values()))

    def set_code(self, partition: TopicPartition, index: int, code: int) -> None:
        """Record the code of a partition's marker with this index."""
        self._codes[partition][index] = code
        self._missing_count -= 1
        if self._missing_count == 0:
            self._on_done(self._codes)


class QueuedMarker(NamedTuple):
    """A marker that waits for the next WriteTxnMarkers to its broker."""

    partition: TopicPartition
    marker: Marker
    place: int
    """Its index among the partition's markers of the write."""
    write: Write


class BrokerMarkers:
    """The MarkerSink of partitions that one other broker leads."""

    def __init__(self, broker_id: int, channels: "BrokerChannels") -> None:
        self._broker_id = broker_id
        self._channels = channels
        self._queue: deque[QueuedMarker] = deque()
        self._requests: set[asyncio.Task[None]] = set()
        """Requests in flight."""

    def write(self, markers: MarkersByPartition, *, timeout_ms: int, on_done: Callable[[MarkerResults], None]) -> None:
        """Write markers as specified by MarkerSink; on_done is called once for all of them."""
        write = Write(markers, on_done)
        for partition, of_partition in markers.items():
            self._queue.extend(
                QueuedMarker(partition, marker, index, write) for index, marker in enumerate(of_partition)
            )
        self._send(timeout_ms)

    def write_sole(self, topic_partition: TopicPartition, marker: Marker) -> int | None:
        """As specified by MarkerSink: these are sent."""
        return None

    def _send(self, timeout_ms: int) -> None:
        while self._queue and len(self._requests) < REQUESTS_IN_FLIGHT:
            task = asyncio.get_running_loop().create_task(self._request(_one_request(self._queue), timeout_ms))
            self._requests.add(task)

    async def _request(self, queued: Sequence[QueuedMarker], timeout_ms: int) -> None:
        codes: Mapping[tuple[int, TopicPartition], int] = {}
        try:
            codes = await self._send_request(queued, timeout_ms)
        except NoResponseError as error:
            logger.info("Could not send transaction markers for %d partitions, trying again: %s", len(queued), error)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._requests.discard(task)
            for each in queued:
                code = codes.get((each.marker.producer_id, each.partition), int(ErrorCode.NETWORK_EXCEPTION))
                try:
                    each.write.set_code(each.partition, each.place, code)
                except Exception:  # one callback's failure must not affect the others
                    logger.exception(
                        "Handling the response to the transaction marker for %s (error code %d) failed",
                        each.partition,
                        code,
                    )
            self._send(timeout_ms)

    async def _send_request(
        self, queued: Sequence[QueuedMarker], timeout_ms: int
    ) -> Mapping[tuple[int, TopicPartition], int]:
        request = WriteTxnMarkersRequest(_request_markers(queued))
        response = await self._channels.send_request(
            self._broker_id,
            WRITE_TXN_MARKERS,
            lambda _version: request,
            versions=WRITE_TXN_MARKERS_VERSIONS,
            timeout_ms=timeout_ms,
        )
        assert isinstance(response, WriteTxnMarkersResponse)
        return {
            (result.producer_id, TopicPartition(topic.name, partition.partition_index)): partition.error_code
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        }


def _one_request(queue: deque[QueuedMarker]) -> list[QueuedMarker]:
    """Take the markers of the next request. Responses are by producer id, so a producer has only one marker in it."""
    taken: list[QueuedMarker] = []
    by_producer: dict[int, Marker] = {}
    while queue and len(taken) < MARKERS_PER_REQUEST:
        marker = queue[0].marker
        if by_producer.setdefault(marker.producer_id, marker) != marker:
            break
        taken.append(queue.popleft())
    return taken


def _request_markers(queued: Iterable[QueuedMarker]) -> list[WritableTxnMarker]:
    topics: dict[Marker, dict[str, dict[int, None]]] = {}
    for each in queued:
        topics.setdefault(each.marker, {}).setdefault(each.partition.topic, {})[each.partition.partition] = None
    return [
        WritableTxnMarker(
            marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.is_commit,
            topics=[
                WritableTxnMarkerTopic(topic, partition_indexes=list(partitions))
                for topic, partitions in of_marker.items()
            ],
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
        for marker, of_marker in topics.items()
    ]
