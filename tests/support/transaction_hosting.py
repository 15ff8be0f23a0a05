"""A broker's group and transaction coordinators over partitions on a simulated disk, on a virtual-time loop."""

import asyncio
from collections.abc import Sequence
from typing import Any

from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.metadata.delta import difference
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkapy.record.batch import NO_SEQUENCE, RecordBatch
from kafkapy.record.batches import batches
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.runtime.broker.producer_ids import ProducerIdManager
from kafkapy.runtime.coordinators.markers import LocalMarkers, MarkerSink
from kafkapy.runtime.coordinators.transaction_coordinator import TransactionCoordinator, TransactionKeys
from kafkapy.runtime.coordinators.transaction_verification import (
    LocalGate,
    TransactionalProducer,
    TransactionGate,
    TransactionVerification,
)
from kafkapy.runtime.coordinators.writer import TransactionalWrite
from kafkapy.transaction.settings import TRANSACTION_STATE_TOPIC
from tests.support.group_hosting import GROUP, GroupHosting
from tests.support.hosting import batch

TRANSACTIONAL_ID = "t"
IDS_PER_BLOCK = 10


class TransactionHosting(GroupHosting):
    """As GroupHosting, with `transactions`; `create_state_topic` makes this node the coordinator."""

    transactions: TransactionCoordinator
    transaction_version = 2
    _next_block = 0

    def _load(self) -> None:
        super()._load()
        self.transactions = TransactionCoordinator(
            replica_manager=self.manager,
            keys=TransactionKeys(lambda: self.config.transaction, lambda: self.transaction_version, 30_000),
            producer_ids=ProducerIdManager(self._allocate_block),
            new_sink=self._new_sink,
            clock=self.clock,
            wheel=self.wheel,
            io_pool=self.io_pool,
        )
        self.verification = TransactionVerification(
            self._new_gate(),
            self.manager,
            config=lambda: self.config.transaction,
            request_timeout_ms=30_000,
            clock=self.clock,
        )

    def _new_sink(self) -> MarkerSink:
        return LocalMarkers(self.manager, self.groups, self.clock)

    def _new_gate(self) -> TransactionGate:
        return LocalGate(self.transactions)

    async def _allocate_block(self) -> range:
        await asyncio.sleep(0.005)
        start = TransactionHosting._next_block
        TransactionHosting._next_block += IDS_PER_BLOCK
        return range(start, start + IDS_PER_BLOCK)

    def _publish(self, before: MetadataImage) -> None:
        super()._publish(before)
        for _ in self.transactions.apply_delta(difference(before, self.cluster.image), self.cluster.image):
            pass

    def create_state_topic(self, partition_count: int = 1, **options: Any) -> Any:
        return self.create_topic(TRANSACTION_STATE_TOPIC, partition_count, **options)

    async def loaded(self) -> None:
        """Wait until no coordinator reads its log."""
        hosts = [*self.groups._hosts.values(), *self.transactions._hosts.values()]
        while any(host.is_loading() for host in hosts):
            await asyncio.sleep(0.001)


class SimProducer:
    """The requests of a client of transaction version 2, each in one line."""

    def __init__(
        self,
        hosting: TransactionHosting,
        transactional_id: str = TRANSACTIONAL_ID,
        *,
        coordinator: TransactionHosting | None = None,
    ) -> None:
        """`hosting` leads the partitions; `coordinator`: where the transactional id is coordinated, if elsewhere."""
        self._hosting = hosting
        self.coordinator = coordinator or hosting
        self.transactional_id = transactional_id
        self.producer_id = self.epoch = -1
        self._sequences: dict[str, int] = {}

    async def init(self, *, timeout_ms: int = 60_000) -> int:
        request = InitProducerIdRequest(self.transactional_id, transaction_timeout_ms=timeout_ms)
        response = await self.coordinator.transactions.decide(
            self.transactional_id, lambda shard, now_ms: shard.init_producer_id(request, 5, now_ms)
        )
        if response.error_code == 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()
        return int(response.error_code)

    async def send(self, topic: str = "orders", value: bytes = b"value", partition_id: int = 0) -> int:
        """Verify and append, as Produce 12 does; return the error code."""
        partition = self._hosting.manager.partitions.find(topic, partition_id)
        assert partition is not None
        requester = TransactionalProducer(self.transactional_id, self.producer_id, self.epoch, True, True)
        sequence = self._sequences.get(f"{topic}-{partition_id}", 0)
        verified = (await self._hosting.verification.verify_with_retries(requester, {partition: sequence}))[partition]
        if verified.code:
            return verified.code
        records = batch(
            value, producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence,
            is_transactional=True,
        )  # fmt: skip
        append = PartitionAppend(partition, bytearray(records), verification=verified.guard)
        self._hosting.manager.append_records([append], required_acks=1)
        if not append.error_code:
            self._sequences[f"{topic}-{partition_id}"] = sequence + 1
        return append.error_code

    async def commit_offset(self, offset: int, group_id: str = GROUP) -> list[int]:
        """Commit an offset of orders-0 in the transaction, as TxnOffsetCommit 5 does; return the error codes."""
        partition = self._hosting.manager.partitions.find(OFFSETS_TOPIC, self._hosting.groups.partition_of(group_id))
        assert partition is not None
        requester = TransactionalProducer(self.transactional_id, self.producer_id, self.epoch, True, True)
        verified = (await self._hosting.verification.verify(requester, {partition: NO_SEQUENCE}))[partition]
        if verified.code:
            return [verified.code]
        requested = TxnOffsetCommitRequestPartition(0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic("orders", partitions=[requested])],
        )
        write = TransactionalWrite(self.producer_id, self.epoch, verified.guard)
        response = await self._hosting.groups.call(
            group_id, lambda shard, token, now_ms: shard.offsets.commit_in_transaction(request, 5), write
        )
        return [each.error_code for topic in response.topics for each in topic.partitions]

    async def end(self, *, commit: bool = True) -> int:
        request = EndTxnRequest(
            self.transactional_id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        response = await self.coordinator.transactions.decide(
            self.transactional_id, lambda shard, now_ms: shard.end_txn(request, 5, now_ms)
        )
        if response.error_code == 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()
        return int(response.error_code)

    def state(self) -> str:
        host = self.coordinator.transactions.host_of(self.transactional_id)
        return str(host.shard.describe(self.transactional_id).transaction_state)


def batches_of(hosting: TransactionHosting, topic: str, partition_id: int = 0) -> list[RecordBatch]:
    """Return all batches of a partition."""
    partition = hosting.manager.partitions.find(topic, partition_id)
    assert partition is not None
    assert partition.log is not None
    region = partition.log.read(partition.log.log_start_offset, 1 << 20, wait=True).region
    if region is None:
        return []
    data = region.read()
    region.release()
    return list(batches(data))


def shape_of(found: Sequence[RecordBatch]) -> list[str]:
    """Return "marker" or "records" for each batch."""
    return ["marker" if each.is_control else "records" for each in found]
