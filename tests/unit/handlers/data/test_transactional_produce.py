"""What producers are told where the coordinator refuses, loads, is elsewhere or still ends the transaction before."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.handlers.data.transactional_produce import SeveralProducersError, verify
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.runtime.coordinators.transaction_verification import TransactionalProducer, TransactionVerification
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop
from tests.support.hosting import batch
from tests.support.transaction_hosting import TransactionHosting


class RefusingGate:
    """A coordinator that answers one code, always."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code
        self.count = 0

    async def verify(
        self, producer: TransactionalProducer, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        self.count += 1
        return dict.fromkeys(partitions, self._code)


def new_append(hosting: TransactionHosting, *, producer_id: int = 7, topic: str = "orders") -> PartitionAppend:
    partition = hosting.manager.partitions.find(topic, 0)
    assert partition is not None
    records = batch(b"value", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    return PartitionAppend(partition, bytearray(records))


async def produce(hosting: TransactionHosting, gate: RefusingGate, version: int, *appends: PartitionAppend) -> None:
    verification = TransactionVerification(
        gate, hosting.manager, config=lambda: hosting.config.transaction, request_timeout_ms=30_000, clock=hosting.clock
    )
    services: Any = SimpleNamespace(transaction_verification=verification)
    context: Any = SimpleNamespace(api_version=version, connection=SimpleNamespace(is_held=False))
    await verify(services, context, "t", appends)


@pytest.mark.parametrize(
    ("answered", "version", "reported"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 10, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 3, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_a_producer_gets_the_code_that_its_version_knows(
    loop: SimLoop, answered: ErrorCode, version: int, reported: ErrorCode
) -> None:
    hosting = TransactionHosting(loop)
    hosting.create_topic("orders")
    append = new_append(hosting)
    await produce(hosting, RefusingGate(answered), version, append)
    assert append.error_code == reported


async def test_the_end_of_the_transaction_before_is_waited_for_where_partitions_are_added(loop: SimLoop) -> None:
    hosting = TransactionHosting(loop)
    hosting.create_topic("orders")
    adding, verifying = RefusingGate(ErrorCode.CONCURRENT_TRANSACTIONS), RefusingGate(ErrorCode.CONCURRENT_TRANSACTIONS)
    started_ms = hosting.clock.monotonic_ms()
    await produce(hosting, adding, 12, new_append(hosting))
    waited_ms = hosting.clock.monotonic_ms() - started_ms
    config = hosting.config.transaction
    assert waited_ms == pytest.approx(config.add_partitions_to_txn_retry_backoff_max_ms, abs=20)
    assert adding.count == waited_ms // config.add_partitions_to_txn_retry_backoff_ms + 1
    await produce(hosting, verifying, 11, new_append(hosting))
    assert verifying.count == 1


async def test_a_request_has_one_transactional_producer(loop: SimLoop) -> None:
    hosting = TransactionHosting(loop)
    hosting.create_topic("orders")
    hosting.create_topic("trades")
    gate = RefusingGate(ErrorCode.NONE)
    appends = (new_append(hosting, producer_id=7), new_append(hosting, producer_id=8, topic="trades"))
    with pytest.raises(SeveralProducersError):
        await produce(hosting, gate, 12, *appends)
    assert gate.count == 0


async def test_verification_is_retried_until_the_transaction_is_open(loop: SimLoop) -> None:
    hosting = TransactionHosting(loop)
    hosting.create_topic("orders")
    gate = RefusingGate(ErrorCode.NONE)
    for is_open in (False, True):
        append = new_append(hosting)
        await produce(hosting, gate, 12, append)
        assert (append.verification is None) == is_open
        assert append.error_code == ErrorCode.NONE
        assert gate.count == 1
        hosting.manager.append_records([append], required_acks=-1)


async def test_partitions_are_added_though_verification_is_disabled(loop: SimLoop) -> None:
    hosting = TransactionHosting(loop, transaction_partition_verification_enable="false")
    hosting.create_topic("orders")
    gate = RefusingGate(ErrorCode.TRANSACTION_ABORTABLE)
    unverified, refused = new_append(hosting), new_append(hosting)
    await produce(hosting, gate, 11, unverified)
    assert (unverified.error_code, unverified.verification, gate.count) == (ErrorCode.NONE, None, 0)
    await produce(hosting, gate, 12, refused)
    assert (refused.error_code, gate.count) == (ErrorCode.TRANSACTION_ABORTABLE, 1)


async def test_a_new_epoch_is_verified_again_though_a_transaction_is_open(loop: SimLoop) -> None:
    hosting = TransactionHosting(loop)
    hosting.create_topic("orders")
    gate = RefusingGate(ErrorCode.NONE)
    first = new_append(hosting)
    await produce(hosting, gate, 12, first)
    hosting.manager.append_records([first], required_acks=-1)
    later = new_append(hosting)
    later.records = bytearray(batch(b"value", producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True))
    await produce(hosting, gate, 12, later)
    assert gate.count == 2
