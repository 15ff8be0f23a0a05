"""flush.messages holds for every append: a coordinator's responses wait until its records are durable, as in Kafka."""

import asyncio

import pytest

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.control import EndTxnMarker, build_end_txn_marker
from kafkapy.record.validate import AppendOrigin
from kafkapy.replication.delayed_produce import PartitionAppend
from tests.simulator.loop import SimLoop
from tests.support.group_hosting import GroupHosting
from tests.support.hosting import NOW_MS, Hosting, run_scheduled

STALL_MS = 2000


def stall_syncs(hosting: Hosting, part: str) -> None:
    def hook(operation: str, path: str) -> None:
        if operation == "sync" and part in path:
            hosting.disk.hook = None
            hosting.loop.block(STALL_MS)

    hosting.disk.hook = hook


async def test_an_offset_commit_is_answered_once_its_records_are_durable(loop: SimLoop) -> None:
    hosting = GroupHosting(loop)
    partition = hosting.create_offsets_topic(configs={"flush.messages": "1"})
    stall_syncs(hosting, "__consumer_offsets-0")
    started_ms = hosting.clock.monotonic_ms()
    commit = hosting.start(hosting.commit_offset(5))
    await run_scheduled()
    assert partition.log.high_watermark == 1
    assert partition.log.recovery_point == 0
    assert not commit.done()
    assert await commit == [0]
    assert partition.log.recovery_point == 1
    assert hosting.clock.monotonic_ms() - started_ms >= STALL_MS


async def test_a_commit_without_flush_messages_waits_for_no_disk(loop: SimLoop) -> None:
    hosting = GroupHosting(loop)
    partition = hosting.create_offsets_topic(configs={"flush.messages": "3"})
    assert await hosting.commit_offset(5) == [0]
    assert await hosting.commit_offset(6) == [0]
    assert partition.log.recovery_point == 0
    assert await hosting.commit_offset(7) == [0]
    assert partition.log.recovery_point == 3


async def test_a_failed_flush_answers_that_the_coordinator_is_gone(loop: SimLoop) -> None:
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic(configs={"flush.messages": "1"})
    hosting.disk.fail("sync", path="__consumer_offsets-0")
    with pytest.raises(ApiError) as refused:
        await hosting.commit_offset(5)
    assert refused.value.code == ErrorCode.NOT_COORDINATOR


async def test_a_marker_waits_for_its_flush(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic(configs={"flush.messages": "1"})
    records = build_end_txn_marker(EndTxnMarker(True, 0), producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS)
    append = PartitionAppend(partition, records)
    assert not hosting.manager.append_records([append], required_acks=-1, origin=AppendOrigin.COORDINATOR)
    done = asyncio.Event()
    hosting.manager.wait_for_replicas([append], timeout_ms=5000, on_done=done.set)
    assert not done.is_set()
    await done.wait()
    assert partition.log is not None
    assert (append.error_code, partition.log.recovery_point) == (0, 1)
