"""ListOffsets on a simulated disk: special timestamps, times, epochs, and what each version may ask."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.errors import ProtocolError
from kafkapy.handlers.data import list_offsets
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.security.authorizer import AclOperation
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, Hosting, batch, topic_id
from tests.support.metadata_services import Deny

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


async def send_request(
    hosting: Hosting, timestamp: int, version: int = 11, *, authorizer: Any = None, topic: str = "orders", **fields: Any
) -> Any:
    """Ask for one partition; return its response as a client reads it."""
    part = ListOffsetsPartition(
        partition_index=fields.pop("partition", 0),
        current_leader_epoch=fields.pop("current_leader_epoch", -1),
        timestamp=timestamp,
    )
    fields.setdefault("replica_id", -1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(topic, partitions=[part])], **fields)
    context: Any = SimpleNamespace(api_version=version, listener_name="PLAINTEXT", client_id="tester")
    response = await list_offsets.handle(hosting.services(authorizer), context, request)
    return type(response).decode(response.encode(version), version).topics[0].partitions[0]


def reported(response: Any) -> tuple[int, int, int, int]:
    return response.error_code, response.timestamp, response.offset, response.leader_epoch


def fill(hosting: Hosting, *timestamps: int) -> Any:
    partition = hosting.create_topic()
    for timestamp_ms in timestamps:
        partition.log.append_as_leader(batch(b"x", timestamp_ms=timestamp_ms), leader_epoch=0, now_ms=NOW_MS)
    partition.maybe_advance_high_watermark(0)
    return partition


@pytest.mark.parametrize("version", range(1, 12))
async def test_every_version_returns_the_end_offsets(loop: SimLoop, version: int) -> None:
    hosting = Hosting(loop)
    fill(hosting, 10, 20).log.maybe_increment_log_start_offset(1)
    epoch = 0 if version >= 4 else -1
    assert reported(await send_request(hosting, LATEST, version)) == (0, -1, 2, epoch)
    assert reported(await send_request(hosting, EARLIEST, version)) == (0, -1, 1, epoch)


async def test_an_empty_partition(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    assert reported(await send_request(hosting, LATEST)) == (0, -1, 0, 0)
    assert reported(await send_request(hosting, EARLIEST)) == (0, -1, 0, 0)
    assert reported(await send_request(hosting, MAX_TIMESTAMP)) == (0, -1, -1, -1)
    assert reported(await send_request(hosting, 5)) == (0, -1, -1, -1)


async def test_offsets_by_time(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    fill(hosting, 10, 30, 20, 40)
    for timestamp_ms, expected in ((0, (10, 0)), (10, (10, 0)), (11, (30, 1)), (31, (40, 3)), (41, (-1, -1))):
        response = await send_request(hosting, timestamp_ms)
        assert (response.timestamp, response.offset) == expected


async def test_the_record_with_the_largest_timestamp(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    fill(hosting, 10, 40, 20)
    assert reported(await send_request(hosting, MAX_TIMESTAMP)) == (0, 40, 1, 0)


async def test_without_tiered_storage_local_is_all_and_tiered_is_nothing(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    fill(hosting, 10, 20)
    assert reported(await send_request(hosting, EARLIEST_LOCAL)) == (0, -1, 0, 0)
    assert reported(await send_request(hosting, LATEST_TIERED)) == (0, -1, -1, -1)
    assert reported(await send_request(hosting, PENDING_UPLOAD)) == (0, -1, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (PENDING_UPLOAD, 10), (-7, 11)],
)
async def test_a_version_knows_only_its_special_timestamps(loop: SimLoop, timestamp: int, version: int) -> None:
    hosting = Hosting(loop)
    fill(hosting, 10)
    assert reported(await send_request(hosting, timestamp, version)) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


async def test_read_committed_ends_at_the_last_stable_offset(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = fill(hosting, 10)
    guard = partition.log.producer_state.start_verification(7, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    records = batch(b"a", timestamp_ms=20, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    partition.log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, verification=guard)
    partition.maybe_advance_high_watermark(0)
    assert (await send_request(hosting, LATEST, isolation_level=1)).offset == 1
    assert (await send_request(hosting, LATEST)).offset == 2
    assert (await send_request(hosting, 15, isolation_level=1)).offset == -1
    assert (await send_request(hosting, 15)).offset == 1


async def test_offsets_beyond_the_high_watermark_are_returned_to_replicas_only(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    partition.log.append_as_leader(batch(b"x", timestamp_ms=10), leader_epoch=0, now_ms=NOW_MS)
    assert (await send_request(hosting, LATEST)).offset == 0
    assert (await send_request(hosting, 5)).offset == -1
    assert (await send_request(hosting, MAX_TIMESTAMP)).offset == -1
    assert (await send_request(hosting, LATEST, replica_id=2)).offset == 1


async def test_a_new_leader_returns_no_end_offset_before_its_high_watermark_has_reached_its_epoch(
    loop: SimLoop,
) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    partition.log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1))
    assert (await send_request(hosting, LATEST)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert (await send_request(hosting, LATEST, 4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (await send_request(hosting, NOW_MS + 1)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert (await send_request(hosting, EARLIEST)).error_code == 0
    assert (await send_request(hosting, LATEST, replica_id=2)).offset == 1


async def test_leader_epochs_fence(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    fill(hosting, 10)
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1))
    for epoch, code in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH), (1, 0)):
        assert (await send_request(hosting, LATEST, current_leader_epoch=epoch)).error_code == code
    assert reported(await send_request(hosting, LATEST)) == (0, -1, 1, 1)


async def test_a_follower_answers_a_tool_up_to_the_end_of_its_log(loop: SimLoop) -> None:
    """Replica id -2; to clients and other replicas it is no leader."""
    hosting = Hosting(loop, broker_count=2)
    fill(hosting, 10, 20)
    moved = PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=2, replicas=[1, 2], isr=[1, 2])
    hosting.commit(moved)
    assert reported(await send_request(hosting, LATEST, replica_id=-2)) == (0, -1, 2, 1)
    assert reported(await send_request(hosting, EARLIEST, replica_id=-2)) == (0, -1, 0, 0)
    assert reported(await send_request(hosting, 15, replica_id=-2)) == (0, 20, 1, 0)
    for replica_id in (-1, 2):
        refused = await send_request(hosting, LATEST, replica_id=replica_id)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    stale = await send_request(hosting, LATEST, replica_id=-2, current_leader_epoch=0)
    assert stale.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_what_is_not_here_or_not_allowed(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    fill(hosting, 10)
    hosting.create_topic("elsewhere", replicas=(2,))
    denied = Deny((AclOperation.DESCRIBE, "orders"))
    assert (await send_request(hosting, LATEST, topic="nowhere")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await send_request(hosting, LATEST, partition=3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await send_request(hosting, LATEST, topic="elsewhere")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await send_request(hosting, LATEST, authorizer=denied)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(ProtocolError):
        await send_request(hosting, LATEST, isolation_level=2)


async def test_a_partition_requested_twice_is_refused_twice(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    fill(hosting, 10)
    twice = [
        ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST),
        ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=EARLIEST),
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("orders", partitions=twice)])
    context: Any = SimpleNamespace(api_version=11, listener_name="PLAINTEXT", client_id="tester")
    response = await list_offsets.handle(hosting.services(), context, request)
    assert [part.error_code for part in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


async def test_cold_pages_are_warmed_and_a_failing_disk_is_reported(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    fill(hosting, *range(1_000, 1_400))
    hosting.restart()
    hosting.disk.chill()
    assert (await send_request(hosting, 1_200)).offset == 200
    assert hosting.io_pool.finished_count > 0
    hosting.disk.chill()
    hosting.disk.fail("read", times=5)
    assert (await send_request(hosting, 1_100)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
