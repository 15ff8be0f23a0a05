"""The requests of `kafkapy transactions`, over connections of our own: librdkafka lacks these requests.

Each request uses the oldest version that supports its options, so that older brokers can answer.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kafkapy.cli.connection import Connection
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.errors import ProtocolError
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from kafkapy.protocol.messages.describe_producers_response import ProducerState
from kafkapy.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from kafkapy.protocol.messages.describe_transactions_response import TransactionState
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.list_transactions_request import ListTransactionsRequest
from kafkapy.protocol.messages.list_transactions_response import ListTransactionsResponse
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkapy.types import TopicPartition

TRANSACTION_KEY_TYPE: Final = 1
PARTITIONS_PER_REQUEST: Final = 500
RETRY_S: Final = 0.1
"""retry.backoff.ms of Kafka's clients."""
TERMINATION_TIMEOUT_MS: Final = 1
"""The transaction time-out that `terminate` sets, as Java's tool; no transaction begins with it."""

_RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


ResponseT = TypeVar("ResponseT")


class TransactionError(Exception):
    """Why a command failed, for the operator; `code`: the broker's error code, 0 without one."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class OpenTransaction(NamedTuple):
    """A producer with a transaction open in a partition."""

    partition: TopicPartition
    producer: ProducerState


class TransactionAdmin:
    """Requests over one connection per broker; a context manager. Methods raise TransactionError."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._stack = ExitStack()
        self._connections: dict[str, Connection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # -- operations -----------------------------------------------------------------------------------------------

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
        failures: dict[int, str] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the transactional ids of all brokers, with producer id, state and coordinator.

        Brokers that fail to answer are added to `failures`, with the reason. Without it, the first raises its error.
        Those that are there already are not asked.
        """
        request = ListTransactionsRequest(
            list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        # the first version with the filter; without it an older one is used
        version = 2 if pattern is not None else 1 if duration_ms >= 0 else 0
        found = []
        for node_id in self._brokers():
            if failures and node_id in failures:
                continue
            try:
                response = self._call(node_id, request, version)
                _check(response.error_code)
            except TransactionError as error:
                if failures is None:
                    raise
                failures[node_id] = str(error)
                continue
            if response.unknown_state_filters:
                raise TransactionError(f"no such state: {', '.join(response.unknown_state_filters)}")
            found += _listed(node_id, response)
        return sorted(found, key=lambda each: str(each["transactional_id"]))

    def describe(self, transactional_id: str) -> tuple[int, TransactionState]:
        """Return the coordinator of a transactional id, and its description of it."""

        def query() -> tuple[int, tuple[int, TransactionState]]:
            node_id = self._coordinator_of(transactional_id)
            (state,) = self._call(node_id, DescribeTransactionsRequest([transactional_id]), 0).transaction_states
            return state.error_code, (node_id, state)

        return _until_there(query)

    def producers_of(self, partition: TopicPartition) -> list[ProducerState]:
        """Return the producers in the state of the partition's leader."""
        (producers,) = self._producers_of([partition]).values()
        return producers

    def partitions(self, topic: str | None, node_id: int | None) -> list[TopicPartition]:
        """Return the partitions of a topic, or of all, optionally only those with a replica on one broker."""
        return [
            TopicPartition(described.name, partition.partition_index)
            for described in self._metadata(None if topic is None else [topic])
            for partition in described.partitions
            if node_id is None or node_id in partition.replica_nodes
        ]

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> list[OpenTransaction]:
        """Return the transactions that are open in any of the partitions."""
        found = []
        for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            described = self._producers_of(partitions[start : start + PARTITIONS_PER_REQUEST])
            found += [
                OpenTransaction(partition, producer)
                for partition, producers in described.items()
                for producer in producers
                if producer.current_txn_start_offset >= 0
            ]
        return found

    def hanging_among(self, candidates: Sequence[OpenTransaction]) -> list[OpenTransaction]:
        """Return those whose coordinator does not know them in the partition: nothing will end them.

        Raises TransactionError also if one coordinator does not answer: its transactions may not be taken for hanging.
        """
        expected = set()
        for listed in self.list_transactions(producer_ids={each.producer.producer_id for each in candidates}):
            try:
                _, state = self.describe(listed["transactional_id"])
            except TransactionError as error:
                if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue  # the transactional id has expired meanwhile
                raise
            expected |= {
                (listed["producer_id"], TopicPartition(topic.topic, partition))
                for topic in state.topics
                for partition in topic.partitions
            }
        return [each for each in candidates if (each.producer.producer_id, each.partition) not in expected]

    def abort(self, transaction: OpenTransaction) -> None:
        """Write an abort marker to one partition, for a transaction that its coordinator does not know."""
        (topic, partition), producer = transaction
        marker = WritableTxnMarker(
            producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(topic, partition_indexes=[partition])],
            coordinator_epoch=max(
                producer.coordinator_epoch, 0
            ),  # -1: no marker yet; 0 is never newer than the coordinator's
        )
        response = self._call(self._leader_of(transaction.partition), WriteTxnMarkersRequest([marker]), 1)
        _check(response.markers[0].topics[0].partitions[0].error_code, subject=transaction.partition)

    def terminate(self, transactional_id: str) -> tuple[int, int]:
        """Abort an ongoing transaction and fence its producer; return the new producer id and epoch."""
        request = InitProducerIdRequest(transactional_id, transaction_timeout_ms=TERMINATION_TIMEOUT_MS)

        def query() -> tuple[int, tuple[int, int]]:
            response = self._call(self._coordinator_of(transactional_id), request, 4)
            return response.error_code, (response.producer_id, response.producer_epoch)

        return _until_there(query)

    # -- brokers --------------------------------------------------------------------------------------------------

    def _coordinator_of(self, transactional_id: str) -> int:
        def query() -> tuple[int, Any]:
            request = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION_KEY_TYPE)
            response = self._call(None, request, 3)
            return response.error_code, response

        found = _until_there(query)
        self._addresses[found.node_id] = (found.host, found.port)
        return int(found.node_id)

    def _producers_of(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[ProducerState]]:
        by_leader: dict[int, dict[str, list[int]]] = {}
        leaders = self._leaders(sorted({topic for topic, _ in partitions}))
        for partition in partitions:
            leader = _leader(leaders, partition)
            by_leader.setdefault(leader, {}).setdefault(partition.topic, []).append(partition.partition)
        found = {}
        for leader, topics in by_leader.items():
            request = DescribeProducersRequest(
                [TopicRequest(topic, partition_indexes=numbers) for topic, numbers in topics.items()]
            )
            for described in self._call(leader, request, 0).topics:
                for each in described.partitions:
                    partition = TopicPartition(described.name, each.partition_index)
                    _check(each.error_code, each.error_message, subject=partition)
                    found[partition] = each.active_producers
        return found

    def _leader_of(self, partition: TopicPartition) -> int:
        return _leader(self._leaders([partition.topic]), partition)

    def _leaders(self, topics: list[str]) -> dict[TopicPartition, int]:
        return {
            TopicPartition(topic.name, partition.partition_index): partition.leader_id
            for topic in self._metadata(topics)
            for partition in topic.partitions
        }

    def _brokers(self) -> list[int]:
        self._metadata([])
        return sorted(self._addresses)

    def _metadata(self, topics: list[str] | None) -> list[Any]:
        """Return the metadata of topics (None: of all), and store the brokers' addresses."""
        requested = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        response = self._call(None, MetadataRequest(requested, allow_auto_topic_creation=False), 9)
        self._addresses.update((broker.node_id, (broker.host, broker.port)) for broker in response.brokers)
        for topic in response.topics:
            if topic.error_code:
                _check(topic.error_code, subject=topic.name)
        return list(response.topics)

    def _call(self, node_id: int | None, request: Any, version: int) -> Any:
        """Send a request to one broker; None: to any."""
        address = self._servers if node_id is None else "{}:{}".format(*self._addresses[node_id])
        try:
            if address not in self._connections:
                self._connections[address] = self._stack.enter_context(Connection.to_any(address))
            return self._connections[address].call(request, version)
        except OSError as error:
            raise TransactionError(f"no broker answers at {address}: {error.strerror or error}") from error
        except ProtocolError as error:
            raise TransactionError(f"what answers at {address} is not understood: {error}") from error


def _listed(node_id: int, response: ListTransactionsResponse) -> list[dict[str, Any]]:
    return [
        {
            "transactional_id": each.transactional_id,
            "coordinator": node_id,
            "producer_id": each.producer_id,
            "state": each.transaction_state,
        }
        for each in response.transaction_states
    ]


def _leader(leaders: dict[TopicPartition, int], partition: TopicPartition) -> int:
    if partition not in leaders:
        _check(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject=partition)
    if leaders[partition] < 0:
        _check(ErrorCode.LEADER_NOT_AVAILABLE, subject=partition)
    return leaders[partition]


def _until_there(query: Callable[[], tuple[int, ResponseT]]) -> ResponseT:
    """Retry until the code is not retriable, at most TIMEOUT_S; return the response. Raises TransactionError."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        code, response = query()
        if code not in _RETRIED or time.monotonic() >= deadline:
            _check(code)
            return response
        time.sleep(RETRY_S)


def _check(code: int, message: str | None = None, *, subject: object = "") -> None:
    if code:
        error = ErrorCode(code)
        reason = f"{message or error.message} ({error.name})"
        raise TransactionError(f"{subject}: {reason}" if subject else reason, code)
