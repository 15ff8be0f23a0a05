"""TxnOffsetCommit that coordinators cannot serve: the code that clients of its version know."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.handlers.transactions import txn_offset_commit
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkapy.runtime.coordinators.transaction_verification import TransactionalProducer, TransactionVerification
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop
from tests.support.group_hosting import GROUP
from tests.support.metadata_services import Deny
from tests.support.transaction_hosting import TRANSACTIONAL_ID, SimProducer, TransactionHosting


class RefusingGate:
    """A transaction coordinator that refuses each partition with one code."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code

    async def verify(
        self, producer: TransactionalProducer, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, self._code)

    def verify_at_once(self, producer: TransactionalProducer, partition: TopicPartition) -> int | None:
        return self._code


async def commit(hosting: TransactionHosting, producer: SimProducer, version: int) -> int:
    """Return the error code of a partition's offset."""
    services: Any = hosting.services(Deny())
    services.groups, services.transaction_verification = hosting.groups, hosting.verification
    context: Any = SimpleNamespace(api_version=version, listener_name="PLAINTEXT", client_id="tester")
    topics = [
        TxnOffsetCommitRequestTopic("orders", partitions=[TxnOffsetCommitRequestPartition(0, committed_offset=7)])
    ]
    request = TxnOffsetCommitRequest(
        TRANSACTIONAL_ID, group_id=GROUP, producer_id=producer.producer_id, producer_epoch=producer.epoch, topics=topics
    )
    response = await txn_offset_commit.handle(services, context, request)
    return int(response.topics[0].partitions[0].error_code)


@pytest.mark.parametrize(
    ("version", "reported"),
    [
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_a_client_gets_the_code_of_a_load_if_its_version_knows_it(
    loop: SimLoop, version: int, reported: ErrorCode
) -> None:
    hosting = TransactionHosting(loop)
    hosting.create_state_topic()
    hosting.create_offsets_topic()
    hosting.create_topic("orders")
    producer = SimProducer(hosting)
    assert await producer.init() == ErrorCode.NONE
    assert await hosting.commit_offset(3) == [ErrorCode.NONE]
    await hosting.transactions.close()
    await hosting.groups.close()
    hosting.restart()
    assert await commit(hosting, producer, version) == reported
    await hosting.loaded()
    assert await commit(hosting, producer, 5) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("refused", "reported"),
    [
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
async def test_a_refused_verification_has_a_code_of_group_coordinators(
    loop: SimLoop, refused: ErrorCode, reported: ErrorCode
) -> None:
    hosting = TransactionHosting(loop)
    hosting.create_offsets_topic()
    hosting.create_topic("orders")
    hosting.verification = TransactionVerification(
        RefusingGate(refused),
        hosting.manager,
        config=lambda: hosting.config.transaction,
        request_timeout_ms=30_000,
        clock=hosting.clock,
    )
    assert await commit(hosting, SimProducer(hosting), 5) == reported


async def test_after_the_end_the_coordinator_is_not_available(loop: SimLoop) -> None:
    hosting = TransactionHosting(loop)
    hosting.create_state_topic()
    hosting.create_offsets_topic()
    hosting.create_topic("orders")
    producer = SimProducer(hosting)
    assert await producer.init() == ErrorCode.NONE
    await hosting.groups.close()
    assert await commit(hosting, producer, 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
