from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.handlers.data import offset_for_leader_epoch
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.security.authorizer import AclOperation
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, Hosting, batch, topic_id
from tests.support.metadata_services import Deny, response_of


def send_request(
    hosting: Hosting, epoch: int, version: int = 4, *, topic: str = "orders", known: int = -1, authorizer: Any = None
) -> tuple[int, int, int]:
    """Return error code, leader epoch and its end offset."""
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic,
                partitions=[OffsetForLeaderPartition(partition=0, current_leader_epoch=known, leader_epoch=epoch)],
            )
        ]
    )
    context: Any = SimpleNamespace(api_version=version, listener_name="PLAINTEXT", client_id="tester")
    response = response_of(offset_for_leader_epoch.handle(hosting.services(authorizer), context, request))
    part = type(response).decode(response.encode(version), version).topics[0].partitions[0]
    return part.error_code, part.leader_epoch, part.end_offset


def two_epochs(loop: SimLoop) -> Hosting:
    """Epoch 0 wrote [0, 2), epoch 1 writes from 2 on and has got to 3."""
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic()
    partition.log.append_as_leader(batch(b"a", b"b"), leader_epoch=0, now_ms=NOW_MS)
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1))
    partition.log.append_as_leader(batch(b"c"), leader_epoch=1, now_ms=NOW_MS)
    return hosting


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_every_version_returns_where_epochs_end(loop: SimLoop, version: int) -> None:
    hosting = two_epochs(loop)
    assert send_request(hosting, 0, version) == (0, 0, 2)
    assert send_request(hosting, 1, version) == (0, 1, 3)


async def test_an_epoch_that_is_not_known_has_no_end(loop: SimLoop) -> None:
    hosting = two_epochs(loop)
    assert send_request(hosting, 2) == (0, -1, -1)
    assert send_request(hosting, -1) == (0, -1, -1)


async def test_a_leader_that_has_written_nothing_knows_its_epoch(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    assert send_request(hosting, 0) == (0, 0, 0)


async def test_errors(loop: SimLoop) -> None:
    hosting = two_epochs(loop)
    hosting.create_topic("elsewhere", replicas=(2, 1))
    denied = Deny((AclOperation.DESCRIBE, "orders"), (AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    assert send_request(hosting, 0, known=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert send_request(hosting, 0, known=2) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert send_request(hosting, 0, topic="nowhere") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert send_request(hosting, 0, topic="elsewhere") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
    assert send_request(hosting, 0, authorizer=denied) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1)


async def test_brokers_and_consumers_may_request_it(loop: SimLoop) -> None:
    hosting = two_epochs(loop)
    assert send_request(hosting, 0, authorizer=Deny((AclOperation.DESCRIBE, "orders"))) == (0, 0, 2)
    assert send_request(hosting, 0, authorizer=Deny((AclOperation.CLUSTER_ACTION, "kafka-cluster"))) == (0, 0, 2)
