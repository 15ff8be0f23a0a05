"""Markers that a partition here cannot take, and what their coordinator is told."""

import asyncio

import pytest

from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.coordinators.coordinator import STEPS_PER_SLICE
from kafkapy.runtime.coordinators.markers import LocalMarkers, Marker, MarkerResults
from kafkapy.types import TopicPartition
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimLoop
from tests.support.group_hosting import GROUP
from tests.support.transaction_hosting import SimProducer, TransactionHosting

OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


def commit_marker(hosting: TransactionHosting, producer: SimProducer, partition: TopicPartition) -> int:
    """Write the marker of a commit; return its code, which is there at once."""
    marker = Marker(producer.producer_id, producer.epoch, True, 0, 0)
    results: list[MarkerResults] = []
    sink = LocalMarkers(hosting.manager, hosting.groups, hosting.clock)
    sink.write({partition: [marker]}, timeout_ms=1000, on_done=results.append)
    ((code,),) = (codes for result in results for codes in result.values())
    return code


async def with_pending_offset(loop: SimLoop) -> tuple[TransactionHosting, SimProducer]:
    hosting = TransactionHosting(loop)
    hosting.create_state_topic()
    hosting.create_offsets_topic()
    hosting.create_topic("orders")
    producer = SimProducer(hosting)
    assert await producer.init() == ErrorCode.NONE
    assert await producer.commit_offset(7) == [ErrorCode.NONE]
    return hosting, producer


async def test_a_marker_for_groups_that_load_has_to_wait(loop: SimLoop) -> None:
    hosting, producer = await with_pending_offset(loop)
    hosting.restart()
    assert commit_marker(hosting, producer, OFFSETS) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await hosting.loaded()
    assert await hosting.committed_offset() == -1
    assert commit_marker(hosting, producer, OFFSETS) == ErrorCode.NONE
    assert await hosting.committed_offset() == 7


async def test_the_same_marker_again_is_written_and_changes_nothing(loop: SimLoop) -> None:
    hosting, producer = await with_pending_offset(loop)
    assert [commit_marker(hosting, producer, OFFSETS) for _ in range(2)] == [ErrorCode.NONE] * 2
    assert await hosting.committed_offset() == 7


@pytest.mark.parametrize("partition", [TopicPartition("orders", 5), TopicPartition("nowhere", 0)], ids=str)
async def test_a_marker_for_a_partition_that_is_not_here_is_refused(loop: SimLoop, partition: TopicPartition) -> None:
    hosting, producer = await with_pending_offset(loop)
    assert commit_marker(hosting, producer, partition) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_log_of_many_markers_is_loaded_in_slices(loop: SimLoop) -> None:
    hosting, _ = await with_pending_offset(loop)
    markers = [Marker(producer_id, 0, True, 0, 0) for producer_id in range(10_000, 10_000 + 10 * STEPS_PER_SLICE)]
    sink = LocalMarkers(hosting.manager, hosting.groups, hosting.clock)
    sink.write({OFFSETS: markers}, timeout_ms=1000, on_done=lambda results: None)
    hosting.io_pool = SimIoPool(loop, call_ms=0)
    hosting.restart()
    host = hosting.groups.host_of(GROUP)
    passes = 0
    while host.is_loading():
        await asyncio.sleep(0)
        passes += 1
    assert passes >= 10
    assert host.replayed_offset == hosting.log(OFFSETS_TOPIC).log_end_offset > len(markers)
