"""Produces rows as records, as a Java client with acks=all would: its partitioner, and records that are there."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.plain import jsonable
from kafkapy.decoders.row import bytes_of, record_of
from kafkapy.embedded.observed.fetching import leaders_of, topic_names
from kafkapy.embedded.observed.nodes import Nodes, ask_any
from kafkapy.embedded.observed.rows import Row, rows_of
from kafkapy.embedded.observed.waiting import TIMEOUT_S, NotObserved, ObservationError, wait_until
from kafkapy.errors import ApiError, quoted
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.record.builder import Headers, NewRecord, build_batch
from kafkapy.types import INT32_MAX

BATCH_BYTES: Final = 256 << 10
"""Far below max.message.bytes; a larger record is a batch of its own."""
RECORD_OVERHEAD_BYTES: Final = 32
ACKS_ALL: Final = -1
ACKS_TIMEOUT_MS: Final = 30_000
MOVED: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.BROKER_NOT_AVAILABLE,
    )
)
"""Errors of an append that was not done: it is tried again."""
CREATION_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.05
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True, frozen=True)
class SeedColumns:
    """Which columns of a row become the key and the timestamp of its record, and the like; see Topic.produce."""

    key: str | Callable[[Mapping[str, Any]], Any] | None = None
    partition: int | None = None
    timestamp: str | None = None
    is_exported: bool = False


class Seeder:
    """Produces rows to a topic."""

    def __init__(self, nodes: Nodes, topic: str, columns: SeedColumns) -> None:
        self._nodes = nodes
        self._topic = topic
        self._columns = columns
        self._waiting: dict[int, list[NewRecord]] = {}
        self._waiting_bytes: dict[int, int] = {}
        self._keyless_count = 0

    def produce(self, source: Any) -> int:
        """Return how many records were produced. Raises ObservationError, ApiError, OSError, ImportError."""
        partition_count = len(self._created())
        count = 0
        for partition, record in self._records(source, partition_count):
            count += 1
            size = RECORD_OVERHEAD_BYTES + len(record[1] or b"") + len(record[2] or b"")
            if self._waiting_bytes.get(partition, 0) + size > BATCH_BYTES:
                self._send(partition)
            self._waiting.setdefault(partition, []).append(record)
            self._waiting_bytes[partition] = self._waiting_bytes.get(partition, 0) + size
        for partition in list(self._waiting):
            self._send(partition)
        return count

    def _created(self) -> dict[int, int]:
        """Return the leaders of the topic, which is created as for a producer if the broker creates topics."""
        if self._topic not in topic_names(self._nodes):
            topics = [MetadataRequestTopic(name=self._topic)]
            # its response is an error in any case: the topic is there soon after it, or never
            ask_any(self._nodes, MetadataRequest(topics=topics, allow_auto_topic_creation=True))

        def led() -> dict[int, int] | None:
            leaders = leaders_of(self._nodes, self._topic)
            return leaders if min(leaders.values()) >= 0 else None

        try:
            return wait_until(led, lambda: f"topic {self._topic} has no leaders", CREATION_TIMEOUT_S)
        except NotObserved as error:
            raise ObservationError(f"{error}: create it first, or allow auto.create.topics.enable") from error

    def _records(self, source: Any, partition_count: int) -> Iterator[tuple[int, NewRecord]]:
        """Yield each row's partition and record."""
        for number, row in enumerate(rows_of(source), 1):
            try:
                partition, record = self._exported(row) if self._columns.is_exported else self._made(row)
            except (ValueError, TypeError, DecodeError) as error:
                raise ObservationError(f"row {number}: {error}") from error
            if partition is None:
                partition = self._partition_of(record[1], partition_count)
            if not 0 <= partition < partition_count:
                raise ObservationError(
                    f"row {number}: topic {self._topic} has no partition {partition}: it has {partition_count}"
                )
            yield partition, record

    def _made(self, row: Row) -> tuple[int | None, NewRecord]:
        key, name = self._columns.key, self._columns.timestamp
        value = bytes_of(jsonable(dict(row)))
        found_key = None if key is None else key(row) if callable(key) else _column(row, key)
        timestamp_ms = _now_ms() if name is None else _milliseconds(_column(row, name))
        return self._columns.partition, (timestamp_ms, _key_bytes(found_key), value, ())

    def _exported(self, row: Row) -> tuple[int | None, NewRecord]:
        found = record_of(dict(row))
        headers: Headers = tuple(found.get("headers", ()))
        timestamp_ms = found.get("timestamp", -1)
        partition = found.get("partition") if self._columns.partition is None else self._columns.partition
        return partition, (timestamp_ms if timestamp_ms >= 0 else _now_ms(), found["key"], found["value"], headers)

    def _partition_of(self, key: bytes | None, partition_count: int) -> int:
        if key is None:
            self._keyless_count += 1
            return (self._keyless_count - 1) % partition_count
        return (murmur2(key) & INT32_MAX) % partition_count

    def _send(self, partition: int) -> None:
        """Append the records that wait for a partition. Raises ApiError."""
        records, _ = self._waiting.pop(partition, []), self._waiting_bytes.pop(partition, 0)
        if not records:
            return
        part = PartitionProduceData(index=partition, records=build_batch(records))
        topic = TopicProduceData(name=self._topic, partition_data=[part])
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=ACKS_TIMEOUT_MS, topic_data=[topic])
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            leader = leaders_of(self._nodes, self._topic).get(partition, -1)
            code = ErrorCode.LEADER_NOT_AVAILABLE
            message: str | None = None
            if leader >= 0:
                code, message = self._respond(leader, request)
            if code is ErrorCode.NONE:
                return
            if code not in MOVED or time.monotonic() > deadline:
                raise ApiError(code, f"{self._topic}-{partition}{f': {message}' if message else ''}")
            time.sleep(RETRY_S)

    def _respond(self, leader: int, request: ProduceRequest) -> tuple[ErrorCode, str | None]:
        """Return the leader's code and message; that of a broker which does not run if it has no address."""
        try:
            response = self._nodes.ask(leader, request).responses[0].partition_responses[0]
        except ApiError as error:
            return ErrorCode(error.code), error.message
        return ErrorCode(response.error_code), response.error_message


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key (org.apache.kafka.common.utils.Utils.murmur2), as an unsigned number."""
    mask, multiplier, length = 0xFFFFFFFF, 0x5BD1E995, len(data)
    found = (0x9747B28C ^ length) & mask
    whole = length & ~3
    for position in range(0, whole, 4):
        part = int.from_bytes(data[position : position + 4], "little") * multiplier & mask
        part = (part ^ part >> 24) * multiplier & mask
        found = (found * multiplier & mask) ^ part
    if whole < length:
        found = (found ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    found = (found ^ found >> 13) * multiplier & mask
    return found ^ found >> 15


def _column(row: Row, name: str) -> Any:
    if name not in row:
        raise ValueError(f"no column is called {quoted(name)}, only {', '.join(map(str, row))}")
    return row[name]


def _key_bytes(key: Any) -> bytes | None:
    return bytes(key) if isinstance(key, bytes | bytearray) else bytes_of(jsonable(key))


def _milliseconds(moment: Any) -> int:
    """Return a time in milliseconds: of a number, a datetime (without a zone: UTC), a text of ISO 8601, or digits."""
    if isinstance(moment, str):
        moment = int(moment) if moment.isdecimal() else datetime.fromisoformat(moment)
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (aware - EPOCH) // timedelta(milliseconds=1)
    if isinstance(moment, bool) or not isinstance(moment, int):
        raise ValueError(f"a timestamp is a number of milliseconds or a datetime, not {quoted(str(moment))}")
    return moment


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
