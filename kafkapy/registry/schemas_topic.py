"""The topic _schemas: a thread reads it into the state; the leader appends to it."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kafkapy.cli.connection import Connection
from kafkapy.errors import KafkapyError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.record.batches import batches
from kafkapy.record.builder import PLAIN_FIELDS, build_batch
from kafkapy.registry.cluster import Cluster, ClusterError, call, check
from kafkapy.registry.errors import RegistryError, store_error, timed_out, unknown_leader
from kafkapy.registry.fence import FENCED, Fence
from kafkapy.registry.records import NOOP
from kafkapy.registry.retries import RetryLog
from kafkapy.registry.state import RegistryState

DEFAULT_TOPIC: Final = "_schemas"
FETCH_VERSION: Final = 10
LIST_OFFSETS_VERSION: Final = 4
PRODUCE_VERSION: Final = 7
FETCH_WAIT_MS: Final = 500
FETCH_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 15.0
"""For a write, and for everything that is in the topic to be read before it."""
RETRY_S: Final = 0.2
LATEST: Final = -1
EARLIEST: Final = -2
ALL_REPLICAS: Final = -1
TOO_LARGE: Final = 42209

logger = logging.getLogger("kafkapy.registry")


class SchemasTopic:
    """kafkapy.registry.registry.Store. start() reads the topic from its beginning."""

    def __init__(
        self,
        cluster: Cluster,
        state: RegistryState,
        topic: str = DEFAULT_TOPIC,
        *,
        may_write: Callable[[], bool],
        fence: Fence | None = None,
    ) -> None:
        """`may_write`: whether this registry still leads; asked last before each append.

        `fence`: keeps those that led before from writing; None if no other registry writes.
        """
        self.state = state
        self._fence = fence
        self._may_write = may_write
        self._cluster = cluster
        self._topic = topic
        self._lost = f"the topic {topic} lost records that were read: restart this registry"
        self._changed = threading.Condition()
        self._next_offset = 0
        self._is_stopping = threading.Event()
        self._reader: Connection | None = None
        self._writer: Connection | None = None
        self._writing = threading.Lock()
        self._retries = RetryLog(logger, f"Reading the topic {topic}")
        self._thread = threading.Thread(target=self._read, name="registry-reader", daemon=True)

    def start(self) -> None:
        """Create the topic if it is not there, and return once all of it was read. Raises ClusterError."""
        self._cluster.create_topic(self._topic)
        self._next_offset = self._with_leader(lambda connection: self._offset(connection, EARLIEST))
        self._thread.start()
        self.catch_up()

    def stop(self) -> None:
        self._is_stopping.set()
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.abort()
        if self._thread.is_alive():
            self._thread.join()
        with self._writing:
            self._drop_writer()

    # ---- store

    def catch_up(self) -> None:
        with self._changed:
            read_offset = self._next_offset  # before the request: another registry may append during it
        end_offset = self._with_leader(lambda connection: self._offset(connection, LATEST))
        if end_offset < read_offset:  # ids would be given again, and nothing that is appended would be read
            raise store_error(f"{self._lost}: its end is offset {end_offset}")
        self._await_offset(end_offset)

    def begin_write(self) -> None:
        fence = self._fence
        if fence is not None and fence.must_claim():
            if not self._may_write():
                raise unknown_leader()
            if fence.claim():
                self.append([(NOOP, None)])
        self.catch_up()

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        now_ms = time.time_ns() // 1_000_000
        fields = PLAIN_FIELDS if self._fence is None else self._fence.fields()
        batch = build_batch([(now_ms, key, value, ()) for key, value in records], fields)
        try:
            base_offset = self._with_leader(lambda connection: self._produce(connection, batch))
        except RegistryError as error:
            if self._fence is not None and error.code != TOO_LARGE:
                self._fence.on_failure()
            raise
        if self._fence is not None:
            self._fence.on_appended(len(records))
        self._await_offset(base_offset + len(records))

    def _await_offset(self, offset: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._next_offset >= offset or self._is_stopping.is_set(), TIMEOUT_S):
                raise timed_out(f"The topic {self._topic} was not read up to offset {offset} in {TIMEOUT_S:g} s")

    def _with_leader(self, ask: Any) -> int:
        """Return the result of `ask` with the leader, which is looked up again after a failure while there is time."""
        deadline_s = time.monotonic() + TIMEOUT_S
        with self._writing:
            while True:
                try:
                    if self._writer is None:
                        self._writer = self._cluster.to_leader(self._topic)
                    found: int = ask(self._writer)
                    return found
                except ClusterError as error:
                    self._drop_writer()
                    is_over = time.monotonic() > deadline_s or self._is_stopping.wait(RETRY_S)
                    if is_over or (error.code is not ErrorCode.NONE and not error.code.is_retriable):
                        raise store_error(f"Error while using the topic {self._topic}: {error}") from error

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _offset(self, connection: Connection, timestamp: int) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(self._topic, partitions=[partition])])
        (topic,) = call(connection, request, LIST_OFFSETS_VERSION).topics
        (found,) = topic.partitions
        check(found.error_code, "the end of the topic")
        return int(found.offset)

    def _produce(self, connection: Connection, batch: bytes) -> int:
        data = TopicProduceData(self._topic, partition_data=[PartitionProduceData(0, records=batch)])
        request = ProduceRequest(acks=ALL_REPLICAS, timeout_ms=int(TIMEOUT_S * 1000), topic_data=[data])
        if not self._may_write():
            raise unknown_leader()
        (topic,) = call(connection, request, PRODUCE_VERSION, TIMEOUT_S).responses
        (found,) = topic.partition_responses
        if found.error_code == ErrorCode.MESSAGE_TOO_LARGE:
            raise RegistryError(TOO_LARGE, "Register operation failed because schema is too large")
        if found.error_code in FENCED:
            raise unknown_leader()  # another registry leads, and has begun to write
        check(found.error_code, "the append", found.error_message)
        return int(found.base_offset)

    # ---- reader

    def _read(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self._reader = self._cluster.to_leader(self._topic)
                with self._reader as connection:
                    while not self._is_stopping.is_set():
                        self._fetch(connection)
                        self._retries.on_success()
            except KafkapyError as error:
                if not self._is_stopping.is_set():
                    if not (isinstance(error, ClusterError) and error.code.is_retriable):
                        self._retries.on_failure(error, time.monotonic())
                    self._is_stopping.wait(RETRY_S)
        with self._changed:
            self._changed.notify_all()

    def _fetch(self, connection: Connection) -> None:
        partition = FetchPartition(0, fetch_offset=self._next_offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(self._topic, partitions=[partition])],
        )
        (topic,) = call(connection, request, FETCH_VERSION).responses
        (found,) = topic.partitions
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise ClusterError(self._lost)
        check(found.error_code, "reading")
        self._replay(bytes(found.records or b""))

    def _replay(self, data: bytes) -> None:
        for batch in batches(data):
            if not batch.is_control:
                for record in batch.records():
                    if record.offset >= self._next_offset:
                        self.state.replay(record.key, record.value, record.timestamp_ms)
            with self._changed:
                self._next_offset = max(self._next_offset, batch.next_offset)
                self._changed.notify_all()
