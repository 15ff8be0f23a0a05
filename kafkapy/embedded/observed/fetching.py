"""The records of partitions, read from their leaders: what a consumer with isolation.level=read_committed would get."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.embedded.observed.nodes import Nodes, ask_any, raise_error
from kafkapy.embedded.observed.waiting import ObservationError
from kafkapy.errors import ApiError, unknown
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.record.batch import Record, RecordBatch
from kafkapy.record.batches import batches
from kafkapy.record.control import ControlType, control_type_of
from kafkapy.record.errors import CorruptRecordError
from kafkapy.types import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
READ_COMMITTED: Final = 1
FETCH_BYTES: Final = 4 << 20
REPLICA_OF_CLIENTS: Final = -1


@dataclass(slots=True, frozen=True)
class Offsets:
    """A partition's first offset and its end offset, of records that consumers may read."""

    start: int
    end: int


def leaders_of(nodes: Nodes, topic: str) -> dict[int, int]:
    """Return the leader of each partition of a topic. Raises ObservationError if there is none of the name."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    found = ask_any(nodes, request).topics[0]
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise ObservationError(unknown("topic", topic, topic_names(nodes)))
    raise_error(found.error_code, topic)
    return dict(sorted((each.partition_index, each.leader_id) for each in found.partitions))


def topic_names(nodes: Nodes) -> list[str]:
    """Return the names of all topics but Kafka's own."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return sorted(each.name for each in ask_any(nodes, request).topics if not each.is_internal)


def offsets_of(nodes: Nodes, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
    """Return the offsets of partitions, from their leaders. Raises ObservationError, ApiError."""
    leaders = {topic: leaders_of(nodes, topic) for topic in {each.topic for each in partitions}}
    by_leader: dict[int, list[TopicPartition]] = {}
    for each in partitions:
        by_leader.setdefault(leader_of(leaders[each.topic], each), []).append(each)
    found: dict[TopicPartition, Offsets] = {}
    for leader, led in by_leader.items():
        starts, ends = _listed(nodes, leader, led, EARLIEST), _listed(nodes, leader, led, LATEST)
        found.update({each: Offsets(starts[each], ends[each]) for each in led})
    return found


class PartitionReader:
    """Reads a partition from its first record on; each call goes on where the last one ended."""

    def __init__(self, nodes: Nodes, partition: TopicPartition) -> None:
        self._nodes = nodes
        self._partition = partition
        self._position: int | None = None

    def read_new(self, leader: int) -> Iterator[Record]:
        """Yield the records that are committed and were not read yet. Raises ApiError, also if it does not lead."""
        while True:
            position = self._position if self._position is not None else self._start(leader)
            response = self._fetch(leader, position)
            if response.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # deleted since then, by retention or a new topic
                self._position = None
                continue
            raise_error(response.error_code, str(self._partition))
            found = list(batches(response.records or b""))
            if not found:
                return
            for batch in found:
                if not batch.has_valid_crc():
                    raise CorruptRecordError(f"{self._partition} from offset {batch.base_offset} on: wrong checksum")
            shown = visible(found, response.aborted_transactions or ())
            records = [record for batch in shown for record in batch.records() if record.offset >= position]
            self._position = max(position, found[-1].next_offset)
            yield from records

    def _start(self, leader: int) -> int:
        return _listed(self._nodes, leader, [self._partition], EARLIEST)[self._partition]

    def _fetch(self, leader: int, position: int) -> Any:
        topic, number = self._partition
        part = FetchPartition(partition=number, fetch_offset=position, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_bytes=FETCH_BYTES, isolation_level=READ_COMMITTED, topics=[FetchTopic(topic=topic, partitions=[part])]
        )
        response = self._nodes.ask(leader, request)
        raise_error(response.error_code, topic)
        return response.responses[0].partitions[0]


def visible(found: Sequence[RecordBatch], aborted: Sequence[Any]) -> Iterator[RecordBatch]:
    """Yield the batches of records that no aborted transaction has written. `aborted`: as a Fetch response has them."""
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    open_producers: set[int] = set()
    for batch in found:
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            open_producers.add(waiting.pop().producer_id)
        if batch.is_control:
            if control_type_of(next(batch.records()).key) == ControlType.ABORT:
                open_producers.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in open_producers):
            yield batch


def _listed(
    nodes: Nodes, leader: int, partitions: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, number in partitions:
        requested = ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        topics.setdefault(topic, []).append(requested)
    request = ListOffsetsRequest(
        replica_id=REPLICA_OF_CLIENTS,
        isolation_level=READ_COMMITTED,
        topics=[ListOffsetsTopic(name=topic, partitions=requested) for topic, requested in topics.items()],
    )
    found: dict[TopicPartition, int] = {}
    for topic in nodes.ask(leader, request).topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            raise_error(each.error_code, str(partition))
            found[partition] = each.offset
    return found


def leader_of(leaders: dict[int, int], partition: TopicPartition) -> int:
    """Return who leads a partition. Raises ObservationError if there is no such partition, ApiError without leader."""
    leader = leaders.get(partition.partition)
    if leader is None:
        raise ObservationError(f"topic {partition.topic} has no partition {partition.partition}: it has {len(leaders)}")
    if leader < 0:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
    return leader
