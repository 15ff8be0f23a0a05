"""Verifies with the transaction coordinator that a partition belongs to a transaction before its first records.

For clients of transaction version 2 (Produce 12, TxnOffsetCommit 5) the request adds the partitions; other clients have
added them before, and the request verifies it (KIP-890). A verification guard marks the pending request in the
partition; the append presents it as proof.

`TransactionGate` is the seam to the coordinator; `LocalGate` asks the one on this node, `RoutedGate` of
remote_verification.py finds the coordinator in the metadata.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kafkapy.config.transaction import TransactionConfig
from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.seams import Clock
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.metrics.verifications import VerificationCounts
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.runtime.coordinators.transaction_coordinator import TransactionCoordinator
    from kafkapy.storage.producers.state import VerificationGuard

ADDING_VERSION: Final = 5
"""The version of AddPartitionsToTxn that Kafka's brokers send for clients of transaction version 2."""
RETRIED_BY_CLIENTS: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""After these codes the client sends the batch again, and its guard remains valid."""


class TransactionalProducer:
    """The producer of the records, and what its client supports.

    adds_partitions: the verification adds the partitions to the transaction (Produce 12, TxnOffsetCommit 5 and above).
    knows_transaction_abortable: the client knows TRANSACTION_ABORTABLE (Produce 11, TxnOffsetCommit 4 and above).
    """

    __slots__ = ("adds_partitions", "knows_transaction_abortable", "producer_epoch", "producer_id", "transactional_id")

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        adds_partitions: bool,
        knows_transaction_abortable: bool,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.adds_partitions = adds_partitions
        self.knows_transaction_abortable = knows_transaction_abortable


class Verified:
    """code NONE: append, with the guard (None if the transaction is already open, or verification is disabled)."""

    __slots__ = ("code", "guard")

    def __init__(self, guard: "VerificationGuard | None" = None, code: int = ErrorCode.NONE) -> None:
        self.guard = guard
        self.code = code


class TransactionGate(Protocol):
    """Access to a transaction's coordinator, for a partition leader."""

    async def verify(
        self, producer: TransactionalProducer, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Add partitions to the producer's transaction, or verify that they were added; return a code for each."""
        ...

    def verify_at_once(self, producer: TransactionalProducer, partition: TopicPartition) -> int | None:
        """Like `verify` for one partition; None if it must wait for a response: then call `verify`, to ask again."""
        ...


class LocalGate:
    """Asks the coordinator on this node."""

    def __init__(self, transactions: "TransactionCoordinator") -> None:
        self._transactions = transactions

    async def verify(
        self, producer: TransactionalProducer, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """As specified by TransactionGate; NOT_COORDINATOR if another node coordinates the transactional id."""
        transactional_id, producer_id = producer.transactional_id, producer.producer_id
        producer_epoch = producer.producer_epoch
        try:
            if not producer.adds_partitions:
                return await self._transactions.read(
                    transactional_id,
                    lambda shard: shard.verify_partitions(transactional_id, producer_id, producer_epoch, partitions),
                )
            code = await self._transactions.decide(
                transactional_id,
                lambda shard, now_ms: shard.add_partitions(
                    transactional_id, producer_id, producer_epoch, partitions, ADDING_VERSION, now_ms
                ),
            )
        except ApiError as error:
            code = error.code
        return dict.fromkeys(partitions, code)

    def verify_at_once(self, producer: TransactionalProducer, partition: TopicPartition) -> int | None:
        """As specified by TransactionGate."""
        transactional_id, producer_id = producer.transactional_id, producer.producer_id
        producer_epoch = producer.producer_epoch
        try:
            host = self._transactions.host_of(transactional_id)
            if producer.adds_partitions:
                code: int | None = host.try_call(
                    transactional_id,
                    lambda shard, now_ms: shard.add_partitions(
                        transactional_id, producer_id, producer_epoch, [partition], ADDING_VERSION, now_ms
                    ),
                )
                return code
            host.check_active()
            codes = host.shard.verify_partitions(transactional_id, producer_id, producer_epoch, [partition])
            return codes[partition] if host.log.is_committed(host.replayed_offset) else None
        except ApiError as error:
            return error.code


class CountedGate:
    """Counts the questions to another gate; used only on brokers with an admin listener."""

    def __init__(self, gate: TransactionGate, counts: "VerificationCounts") -> None:
        self._gate = gate
        self._counts = counts

    async def verify(
        self, producer: TransactionalProducer, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """As specified by TransactionGate."""
        requested_ns = self._counts.now_ns()
        codes = await self._gate.verify(producer, partitions)
        self._counts.record(requested_ns, sum(code != ErrorCode.NONE for code in codes.values()))
        return codes

    def verify_at_once(self, producer: TransactionalProducer, partition: TopicPartition) -> int | None:
        """As specified by TransactionGate. Only success is counted: in all other cases `verify` follows."""
        requested_ns = self._counts.now_ns()
        code = self._gate.verify_at_once(producer, partition)
        if code == ErrorCode.NONE:
            self._counts.record(requested_ns, 0)
        return code


class TransactionVerification:
    """Verifies partitions before records of a transaction are appended."""

    def __init__(
        self,
        gate: TransactionGate,
        replica_manager: ReplicaManager,
        *,
        config: Callable[[], TransactionConfig],
        request_timeout_ms: int,
        clock: Clock,
    ) -> None:
        self._gate = gate
        self._replica_manager = replica_manager
        self._config = config
        self._request_timeout_ms = request_timeout_ms
        self._clock = clock

    async def verify(
        self, producer: TransactionalProducer, base_sequences: Mapping["HostedPartition", int]
    ) -> dict["HostedPartition", Verified]:
        """Return for each partition whether its batch, with this base sequence, may be appended.

        Codes: INVALID_TXN_STATE or TRANSACTION_ABORTABLE (not added), INVALID_PRODUCER_EPOCH,
        INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS (the previous one is still ending), and those of partitions
        that are not led here and of coordinators that are not here or still load.
        """
        if not producer.adds_partitions and not self._config().transaction_partition_verification_enable:
            return {partition: Verified() for partition in base_sequences}
        verified = {
            partition: self._start(producer, partition, base_sequence)
            for partition, base_sequence in base_sequences.items()
        }
        requested = {
            partition.topic_partition: partition for partition, each in verified.items() if each.guard is not None
        }
        if requested:
            codes = await self._gate.verify(producer, list(requested))
            for topic_partition, partition in requested.items():
                verified[partition].code = _as_client_knows(codes[topic_partition], producer)
            self._abandon_refused(producer, verified)
        return verified

    def verify_at_once(
        self, producer: TransactionalProducer, partition: "HostedPartition", base_sequence: int
    ) -> "VerificationGuard | None":
        """Return the guard with which a batch may be appended; None if `verify` must be called."""
        if not producer.adds_partitions and not self._config().transaction_partition_verification_enable:
            return None
        verified = self._start(producer, partition, base_sequence)
        if verified.guard is None or self._gate.verify_at_once(producer, partition.topic_partition) != ErrorCode.NONE:
            return None
        return verified.guard

    async def verify_with_retries(
        self, producer: TransactionalProducer, base_sequences: Mapping["HostedPartition", int]
    ) -> dict["HostedPartition", Verified]:
        """Like `verify`, but if partitions cannot be added because the previous transaction is still ending, try again.

        It tries every add.partitions.to.txn.retry.backoff.ms, for at most ...backoff.max.ms: a retry by the client
        would take longer.
        """
        started_ms = self._clock.monotonic_ms()
        while True:
            verified = await self.verify(producer, base_sequences)
            if not producer.adds_partitions or not _has_concurrent(verified.values()):
                return verified
            config = self._config()
            max_wait_ms = min(config.add_partitions_to_txn_retry_backoff_max_ms, self._request_timeout_ms)
            if self._clock.monotonic_ms() - started_ms >= max_wait_ms:
                return verified
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)

    def _start(self, producer: TransactionalProducer, partition: "HostedPartition", base_sequence: int) -> Verified:
        try:
            guard = self._replica_manager.start_verification(
                partition,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=base_sequence,
                supports_epoch_bump=producer.adds_partitions,
            )
        except ApiError as error:
            return Verified(code=error.code)
        return Verified(guard)

    def _abandon_refused(self, producer: TransactionalProducer, verified: Mapping["HostedPartition", Verified]) -> None:
        for partition, each in verified.items():
            if each.guard is not None and each.code != ErrorCode.NONE and each.code not in RETRIED_BY_CLIENTS:
                self._replica_manager.abandon_verification(
                    partition,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    guard=each.guard,
                )


def _has_concurrent(verified: Iterable[Verified]) -> bool:
    return any(each.code == ErrorCode.CONCURRENT_TRANSACTIONS for each in verified)


def _as_client_knows(code: int, producer: TransactionalProducer) -> int:
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not producer.knows_transaction_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
