from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.handlers.data import delete_records
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkapy.runtime.turns import STEPS_PER_TURN
from kafkapy.security.authorizer import AclOperation
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, CountedTurns, Hosting, batch, run_scheduled
from tests.support.metadata_services import Deny


async def delete(
    hosting: Hosting,
    offset: int,
    version: int = 2,
    *,
    topic: str = "orders",
    partition: int = 0,
    authorizer: Any = None,
) -> tuple[int, int]:
    """Return error code and low watermark."""
    parts = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(topic, partitions=parts)], timeout_ms=800)
    context: Any = SimpleNamespace(api_version=version, listener_name="PLAINTEXT", client_id="tester")
    response = await delete_records.handle(hosting.services(authorizer), context, request)
    result = type(response).decode(response.encode(version), version).topics[0].partitions[0]
    return result.error_code, result.low_watermark


def fill(hosting: Hosting, **fields: Any) -> Any:
    partition = hosting.create_topic(**fields)
    for _ in range(5):
        partition.log.append_as_leader(batch(b"x", key=b"k"), leader_epoch=0, now_ms=NOW_MS)
    partition.maybe_advance_high_watermark(0)
    return partition


@pytest.mark.parametrize("version", range(3))
async def test_every_version_moves_the_start(loop: SimLoop, version: int) -> None:
    hosting = Hosting(loop)
    partition = fill(hosting)
    assert await delete(hosting, 3, version) == (0, 3)
    assert partition.log.log_start_offset == 3
    assert await delete(hosting, 1, version) == (0, 3)
    assert await delete(hosting, -1, version) == (0, 5)


async def test_the_new_start_survives_a_restart(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    fill(hosting)
    await delete(hosting, 3)
    hosting.restart()
    assert hosting.log().log_start_offset == 3


async def test_what_cannot_be_deleted_is_refused(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    fill(hosting)
    fill(hosting, name="compacted", configs={"cleanup.policy": "compact"})
    fill(hosting, name="both", configs={"cleanup.policy": "compact,delete"})
    fill(hosting, name="__consumer_offsets")
    hosting.create_topic("elsewhere", replicas=(2,))
    denied = Deny((AclOperation.DELETE, "orders"))
    assert await delete(hosting, 6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(hosting, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(hosting, 1, topic="compacted") == (ErrorCode.POLICY_VIOLATION, -1)
    assert await delete(hosting, 1, topic="both") == (0, 1)
    assert await delete(hosting, 1, topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert await delete(hosting, 1, topic="nowhere") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete(hosting, 1, partition=4) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete(hosting, 1, topic="elsewhere") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert await delete(hosting, 1, authorizer=denied) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


async def test_a_deletion_waits_for_the_followers_or_times_out(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = fill(hosting, replicas=(1, 2))
    partition.record_follower_fetch(2, fetch_offset=5, log_start_offset=0, now_ms=0)
    task = hosting.start(delete(hosting, 3))
    await run_scheduled()
    assert not task.done()
    partition.record_follower_fetch(2, fetch_offset=5, log_start_offset=3, now_ms=0)
    hosting.manager.complete_waiting(partition)
    assert await task == (0, 3)
    assert await delete(hosting, 4) == (ErrorCode.REQUEST_TIMED_OUT, 3)
    assert loop.now_ms() == 800


async def test_many_partitions_are_deleted_from_in_turns(loop: SimLoop) -> None:
    """Each step of it: the plan, the deletions, the results. Followers are waited for by some at a time."""
    hosting = Hosting(loop, broker_count=2)
    partition = fill(hosting, replicas=(1, 2))
    partition.record_follower_fetch(2, fetch_offset=5, log_start_offset=0, now_ms=0)
    parts = [DeleteRecordsPartition(partition_index=0, offset=1) for _ in range(3 * STEPS_PER_TURN)]
    services = hosting.services()
    services.turns = turns = CountedTurns()
    context: Any = SimpleNamespace(
        api_version=2, client=None, is_long=False, connection=SimpleNamespace(is_held=False), listener_name="PLAINTEXT"
    )
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic("orders", partitions=parts)], timeout_ms=800)
    response = await delete_records.handle(services, context, request)
    assert {part.error_code for part in response.topics[0].partitions} == {ErrorCode.REQUEST_TIMED_OUT}
    assert turns.count >= 3 * (len(parts) // STEPS_PER_TURN)
