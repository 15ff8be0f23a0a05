"""Sends markers to other brokers that lead partitions, by WriteTxnMarkers 1-2.

`RoutedMarkers` looks up the leader of each partition. Markers for a broker with too many requests in flight are queued
and sent together in one request. Without a leader or a response, the marker fails; MarkerWriter retries it and looks up
the leader again. Source: TransactionMarkerChannelManager.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.metadata.registrations import NO_LEADER
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkapy.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from kafkapy.runtime.markers import Marker, MarkerResults, MarkersByPartition, MarkerSink
from kafkapy.runtime.peer import NoResponseError
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.runtime.broker_channels import BrokerChannels

WRITE_TXN_MARKERS: Final = 27
VERSIONS: Final = (1, 2)
MARKERS_PER_REQUEST: Final = 1000
"""Markers times partitions; below the limit of our own brokers per request (handlers/table.py)."""
REQUESTS_IN_FLIGHT: Final = 5
"""Per broker, so that a partition with slow replicas delays few others. Apache Kafka sends one at a time."""

logger = logging.getLogger("kafkapy.transaction")


class RoutedMarkers:
    """A MarkerSink that routes markers to the leader of each partition."""

    def __init__(
        self,
        local: MarkerSink,
        channels: "BrokerChannels",
        *,
        node_id: int,
        image: "Callable[[], MetadataImage]",
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
        if self._leader_of(topic_partition) != self._node_id:
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

    def settle(self, partition: TopicPartition, index: int, code: int) -> None:
        """Record the code of a partition's marker with this index."""
        self._codes[partition][index] = code
        self._missing_count -= 1
        if self._missing_count == 0:
            self._on_done(self._codes)


class QueuedMarker(NamedTuple):
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
                    each.write.settle(each.partition, each.place, code)
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
            self._broker_id, WRITE_TXN_MARKERS, lambda _version: request, versions=VERSIONS, timeout_ms=timeout_ms
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
            marker.producer_epoch,
            marker.is_commit,
            [WritableTxnMarkerTopic(topic, list(partitions)) for topic, partitions in of_marker.items()],
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        for marker, of_marker in topics.items()
    ]
