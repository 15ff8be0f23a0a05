"""TxnOffsetCommit while coordinators load, of a version whose clients know of that and of one whose do not."""

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
from tests.simulator.loop import SimLoop
from tests.support.group_hosting import GROUP
from tests.support.metadata_services import Deny
from tests.support.transaction_hosting import TRANSACTIONAL_ID, SimProducer, TransactionHosting


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
