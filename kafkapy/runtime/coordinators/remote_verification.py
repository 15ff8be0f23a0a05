"""Asks transaction coordinators: on this broker by a call, on others by AddPartitionsToTxn 4-5 (KIP-890).

`RoutedGate` finds the coordinator in the metadata, `RemoteGate` asks it if it is on another broker.

Questions of all producers to one broker share requests, one in flight; those that arrive meanwhile are sent with the
next. A question without a response gets NETWORK_EXCEPTION; the client retries. Source: Apache Kafka's
AddPartitionsToTxnManager.

Deviation: Apache Kafka answers the first of two questions about one transactional id that wait together with
NETWORK_EXCEPTION. Here both requests are sent, because the first producer did nothing wrong.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.coordinators.transaction_verification import LocalGate, TransactionalProducer
from kafkapy.types import TopicPartition

if TYPE_CHECKING:  # messages and connections are imported with the first request: most brokers have no transactions
    from kafkapy.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnTransaction
    from kafkapy.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
    from kafkapy.runtime.broker_channels import BrokerChannels
    from kafkapy.runtime.coordinators.transaction_coordinator import TransactionCoordinator

ADD_PARTITIONS_TO_TXN: Final = 24
VERSIONS: Final = (4, 5)
PARTITIONS_PER_REQUEST: Final = 5000
"""Limit per request, unless a single question has more: what a handler processes in some turns of the loop."""

logger = logging.getLogger("kafkapy.transaction")


class RoutedGate:
    """Finds the broker of the coordinator, and asks it there."""

    def __init__(
        self, transactions: "TransactionCoordinator", *, node_id: int, new_remote: "Callable[[], RemoteGate]"
    ) -> None:
        """`new_remote` makes the RemoteGate for the first request to another broker."""
        self._transactions = transactions
        self._local = LocalGate(transactions)
        self._node_id = node_id
        self._new_remote = new_remote
        self._remote: RemoteGate | None = None

    async def verify(
        self, producer: TransactionalProducer, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """As specified by TransactionGate; COORDINATOR_NOT_AVAILABLE if no broker coordinates the transactional id."""
        transactional_id = producer.transactional_id
        if self._transactions.is_hosted(transactional_id):
            return await self._local.verify(producer, partitions)
        broker_id = self._transactions.broker_of(transactional_id)
        if broker_id == self._node_id:
            return await self._local.verify(producer, partitions)
        if broker_id < 0:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._remote is None:
            self._remote = self._new_remote()
        return await self._remote.verify(broker_id, producer, partitions)

    def verify_at_once(self, producer: TransactionalProducer, partition: TopicPartition) -> int | None:
        """As specified by TransactionGate."""
        if not self._transactions.is_hosted(producer.transactional_id):
            return None
        return self._local.verify_at_once(producer, partition)


@dataclass(slots=True)
class Question:
    """A question about partitions of one producer's transaction; `answered` gets an error code for each of them."""

    producer: TransactionalProducer
    partitions: Sequence[TopicPartition]
    answered: "asyncio.Future[Mapping[TopicPartition, int]]"

    def respond(self, codes: Mapping[TopicPartition, int]) -> None:
        if not self.answered.done():
            self.answered.set_result(codes)


class RemoteGate:
    """Asks coordinators on other brokers."""

    def __init__(self, channels: "BrokerChannels", *, timeout_ms: int) -> None:
        """`timeout_ms`: request.timeout.ms."""
        self._channels = channels
        self._timeout_ms = timeout_ms
        self._waiting: dict[int, list[Question]] = {}
        """Queued questions by broker; a broker has an entry while a task sends its requests."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def verify(
        self, broker_id: int, producer: TransactionalProducer, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Add partitions to the producer's transaction, or verify that they were added; return a code for each."""
        question = Question(producer, partitions, asyncio.get_running_loop().create_future())
        if broker_id in self._waiting:
            self._waiting[broker_id].append(question)
        else:
            self._waiting[broker_id] = [question]
            task = asyncio.get_running_loop().create_task(self._send_all(broker_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await question.answered

    async def _send_all(self, broker_id: int) -> None:
        """Send one request after another until the queue is empty."""
        try:
            while self._waiting[broker_id]:
                taken, self._waiting[broker_id] = _one_request(self._waiting[broker_id])
                await self._send(broker_id, taken)
        finally:
            for question in self._waiting.pop(broker_id):
                question.respond(dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION))

    async def _send(self, broker_id: int, questions: Sequence[Question]) -> None:
        codes: Mapping[tuple[str, TopicPartition], int] = {}
        missing = int(ErrorCode.NETWORK_EXCEPTION)
        try:
            codes, missing = await self._request(broker_id, questions)
        finally:
            for question in questions:
                transactional_id = question.producer.transactional_id
                question.respond({each: codes.get((transactional_id, each), missing) for each in question.partitions})

    async def _request(
        self, broker_id: int, questions: Sequence[Question]
    ) -> tuple[Mapping[tuple[str, TopicPartition], int], int]:
        """Return the code of each partition in the response, and that of partitions which are not in it."""
        from kafkapy.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
        from kafkapy.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
        from kafkapy.runtime.peer import NoResponseError

        request = AddPartitionsToTxnRequest(transactions=_transactions(questions))
        try:
            response = await self._channels.send_request(
                broker_id, ADD_PARTITIONS_TO_TXN, lambda _version: request, versions=VERSIONS,
                timeout_ms=self._timeout_ms,
            )  # fmt: skip
        except NoResponseError as error:
            logger.info(
                "Could not verify partitions with a transaction coordinator, or add them to transactions: %s", error
            )
            return {}, int(ErrorCode.NETWORK_EXCEPTION)
        assert isinstance(response, AddPartitionsToTxnResponse)
        if response.error_code:
            return {}, _of_whole_response(broker_id, response.error_code)
        return _codes(response), int(ErrorCode.NETWORK_EXCEPTION)


def _one_request(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """Return the questions of the next request, and the rest. It has at most one transaction per transactional id."""
    taken: list[Question] = []
    rest: list[Question] = []
    producers: dict[str, TransactionalProducer] = {}
    partition_count = 0
    for question in questions:
        producer = question.producer
        is_alike = _is_alike(producers.setdefault(producer.transactional_id, producer), producer)
        if is_alike and (not taken or partition_count + len(question.partitions) <= PARTITIONS_PER_REQUEST):
            taken.append(question)
            partition_count += len(question.partitions)
        else:
            rest.append(question)
    return taken, rest


def _is_alike(one: TransactionalProducer, other: TransactionalProducer) -> bool:
    """Whether two questions about one transactional id fit into one entry of a request."""
    return (one.producer_id, one.producer_epoch, one.adds_partitions) == (
        other.producer_id,
        other.producer_epoch,
        other.adds_partitions,
    )


def _transactions(questions: Iterable[Question]) -> "list[AddPartitionsToTxnTransaction]":
    """Return one entry for each transactional id."""
    from kafkapy.protocol.messages.add_partitions_to_txn_request import (
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )

    producers: dict[str, TransactionalProducer] = {}
    topics: dict[str, dict[str, dict[int, None]]] = {}
    for question in questions:
        transactional_id = question.producer.transactional_id
        producers[transactional_id] = question.producer
        of_id = topics.setdefault(transactional_id, {})
        for topic, partition in question.partitions:
            of_id.setdefault(topic, {})[partition] = None
    return [
        AddPartitionsToTxnTransaction(
            transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=not producer.adds_partitions,
            topics=[
                AddPartitionsToTxnTopic(topic, partitions=list(partitions))
                for topic, partitions in topics[transactional_id].items()
            ],
        )
        for transactional_id, producer in producers.items()
    ]


def _codes(response: "AddPartitionsToTxnResponse") -> dict[tuple[str, TopicPartition], int]:
    return {
        (transaction.transactional_id, TopicPartition(topic.name, result.partition_index)): result.partition_error_code
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for result in topic.results_by_partition
    }


def _of_whole_response(broker_id: int, code: int) -> int:
    """Return the code for each partition if the whole request was refused."""
    logger.error("Broker %d refused to add partitions to transactions: %s", broker_id, ErrorCode(code).name)
    return ErrorCode.INVALID_TXN_STATE if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code
