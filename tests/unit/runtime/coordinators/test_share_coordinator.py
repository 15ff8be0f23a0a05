"""The share coordinator on its partitions: what is appended, when requests are answered, and its periodic work."""

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.remove_topic_record import RemoveTopicRecord
from kafkapy.record.batches import batches
from kafkapy.runtime.coordinators.share_coordinator import ITEMS_PER_SLICE, ITEMS_PER_WRITE, ShareCoordinator
from kafkapy.runtime.coordinators.share_host import STATES_PER_SLICE, ShareHost
from kafkapy.share.persister import InitialState, SharePartitionKey, StateBatch, StateRead, StateWrite, TopicIdPartition
from tests.simulator.loop import SimLoop
from tests.support.hosting import topic_id
from tests.support.linked_brokers import LinkedBroker, LinkedBrokers

ORDERS = topic_id("orders")
COUNT = 3 * STATES_PER_SLICE


@asynccontextmanager
async def coordinating(loop: SimLoop, count: int = 1, **properties: str) -> AsyncIterator[tuple[LinkedBrokers, Any]]:
    """Brokers of which the first coordinates on one partition; its coordinator."""
    brokers = LinkedBrokers(loop, count, **properties)
    brokers.create_topic("orders", 1, COUNT)
    brokers.create_topic(SHARE_STATE_TOPIC, 1, others=range(2, count + 1))
    yield brokers, brokers.nodes[1].share.coordinator
    await brokers.close()


def host_of(coordinator: ShareCoordinator) -> ShareHost:
    (host,) = coordinator._hosts.values()
    return host


def codes(results: Sequence[Any]) -> list[int]:
    return [each.error_code for each in results]


async def initialize(coordinator: ShareCoordinator, *partitions: int) -> list[int]:
    return codes(await coordinator.initialize_states("g", [InitialState(ORDERS, each, 0) for each in partitions]))


def write_of(partition: int, first: int = 0, count: int = 10) -> StateWrite:
    return StateWrite(ORDERS, partition, 0, 0, 0, count, [StateBatch(first, first + 9, 2, 1)])


async def write(coordinator: ShareCoordinator, *writes: StateWrite) -> list[int]:
    return codes(await coordinator.write_states("g", writes))


def record_counts(broker: LinkedBroker, first_offset: int = 0) -> list[int]:
    """Return how many records each batch of the topic has."""
    region = broker.log(SHARE_STATE_TOPIC).read(first_offset, 1 << 20, wait=True).region
    if region is None:
        return []
    data = region.read()
    region.release()
    return [batch.record_count for batch in batches(data)]


# -- appends ----------------------------------------------------------------------------------------------------------


async def test_the_share_partitions_of_a_request_are_one_batch(loop: SimLoop) -> None:
    async with coordinating(loop) as (brokers, coordinator):
        count = ITEMS_PER_WRITE - 1
        assert await initialize(coordinator, *range(count)) == [0] * count
        assert record_counts(brokers.nodes[1]) == [count]
        assert await write(coordinator, write_of(0), write_of(1)) == [0, 0]
        assert record_counts(brokers.nodes[1], count) == [2]


async def test_very_many_share_partitions_of_a_request_are_written_in_parts(loop: SimLoop) -> None:
    async with coordinating(loop) as (brokers, coordinator):
        brokers.create_topic("many", 1, 1_000)
        states = [InitialState(topic_id("many"), partition, 0) for partition in range(1_000)]
        assert codes(await coordinator.initialize_states("g", states)) == [0] * 1_000
        counts = record_counts(brokers.nodes[1])
        assert sum(counts) == 1_000
        assert max(counts) == ITEMS_PER_WRITE


async def test_requests_that_come_together_share_batches(loop: SimLoop) -> None:
    async with coordinating(loop) as (brokers, coordinator):
        await initialize(coordinator, *range(20))
        writes = [write(coordinator, write_of(partition)) for partition in range(20)]
        assert await asyncio.gather(*writes) == [[0]] * 20
        assert record_counts(brokers.nodes[1], 20) == [1, 19], "the first two of a millisecond are written at once"


async def test_requests_share_no_batch_if_nothing_may_linger(loop: SimLoop) -> None:
    async with coordinating(loop, share_coordinator_append_linger_ms="0") as (brokers, coordinator):
        await initialize(coordinator, *range(20))
        assert await asyncio.gather(*(write(coordinator, write_of(each)) for each in range(20))) == [[0]] * 20
        assert record_counts(brokers.nodes[1], 20) == [1] * 20


async def test_writes_of_one_share_partition_build_on_each_other(loop: SimLoop) -> None:
    async with coordinating(loop) as (_, coordinator):
        await initialize(coordinator, 0)
        writes = [write_of(0, first, count) for first, count in ((0, 30), (10, 20), (20, 10))]
        assert await write(coordinator, *writes) == [0, 0, 0]
        (read,) = await coordinator.read_states("g", [StateRead(ORDERS, 0, 0)])
        assert read.state_batches == [StateBatch(0, 29, 2, 1)]
        (summary,) = await coordinator.read_summaries("g", [TopicIdPartition(ORDERS, 0)])
        assert summary.delivery_complete_count == 30, "the count at one start never falls"


async def test_a_request_gives_way_to_others(loop: SimLoop) -> None:
    async with coordinating(loop) as (_, coordinator):
        long = asyncio.ensure_future(initialize(coordinator, *range(2 * ITEMS_PER_SLICE)))
        await asyncio.sleep(0)
        assert await write(coordinator, write_of(0)) == [0], "its state was initialised, and is written first"
        assert await long == [0] * (2 * ITEMS_PER_SLICE)


async def test_what_cannot_be_appended_changes_nothing(loop: SimLoop) -> None:
    async with coordinating(loop) as (brokers, coordinator):
        await initialize(coordinator, 0, 1)

        def fill(operation: str, path: str) -> None:
            if operation == "write" and SHARE_STATE_TOPIC in path:
                raise OSError(errno.ENOSPC, "no space left", path)

        brokers.nodes[1].disk.hook = fill
        assert await write(coordinator, write_of(0), write_of(1)) == [ErrorCode.NOT_COORDINATOR] * 2
        brokers.nodes[1].disk.hook = None
        (read,) = await coordinator.read_states("g", [StateRead(ORDERS, 0, 0)])
        assert read.state_batches == []
        assert await write(coordinator, write_of(0)) == [0]


async def test_a_write_is_answered_once_it_is_replicated(loop: SimLoop) -> None:
    async with coordinating(loop, 2) as (brokers, coordinator):
        await asyncio.sleep(1)
        brokers.join_isr(SHARE_STATE_TOPIC, 1, 2)
        assert await initialize(coordinator, 0) == [0]
        brokers.cut_off(2)
        began = loop.time()
        assert await write(coordinator, write_of(0)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert 4.9 < loop.time() - began < 6, "share.coordinator.write.timeout.ms"
        writing = asyncio.ensure_future(write(coordinator, write_of(0)))
        await asyncio.sleep(1)
        assert not writing.done()
        brokers.unreachable.clear()
        assert await writing == [0]


async def test_what_another_leader_has_overwritten_is_not_answered_as_written(loop: SimLoop) -> None:
    """Of two shards, the second is lost while the first one's commit is waited for."""
    brokers = LinkedBrokers(loop, 3)
    brokers.create_topic("orders", 1, COUNT)
    brokers.create_topic(SHARE_STATE_TOPIC, 1, 2, others=(2, 3))
    await asyncio.sleep(1)
    coordinator, other = (brokers.nodes[each].share.coordinator for each in (1, 2))
    first, second = (next(each for each in range(COUNT) if shard_of(coordinator, each) == shard) for shard in (0, 1))
    brokers.join_isr(SHARE_STATE_TOPIC, 1, 3, partition_id=0)
    brokers.join_isr(SHARE_STATE_TOPIC, 1, 2, partition_id=1)
    assert await initialize(coordinator, first, second) == [0, 0]
    brokers.cut_off(2)
    brokers.cut_off(3)
    writing = asyncio.ensure_future(write(coordinator, write_of(first), write_of(second)))
    await asyncio.sleep(1)
    brokers.lead(SHARE_STATE_TOPIC, 2, 1)
    brokers.unreachable.discard(brokers.nodes[2].host)
    await asyncio.sleep(1)
    assert await write(other, write_of(second, 100), write_of(second, 200)) == [0, 0]
    assert await writing == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
    await brokers.close()


def shard_of(coordinator: ShareCoordinator, partition: int) -> int:
    return coordinator.partition_of(SharePartitionKey("g", ORDERS, partition).coordinator_key)


# -- which broker -----------------------------------------------------------------------------------------------------


async def test_another_brokers_share_partitions_are_not_coordinated_here(loop: SimLoop) -> None:
    async with coordinating(loop, 2) as (brokers, _):
        other = brokers.nodes[2].share.coordinator
        assert await write(other, write_of(0)) == [ErrorCode.NOT_COORDINATOR]
        brokers.lead(SHARE_STATE_TOPIC, 2)
        assert await initialize(other, 0) == [0]
        assert await write(brokers.nodes[1].share.coordinator, write_of(0)) == [ErrorCode.NOT_COORDINATOR]


async def test_a_failure_says_what_could_not_be_done(loop: SimLoop) -> None:
    """In the words of Apache Kafka's ShareCoordinatorService; the words for the code are our own."""
    async with coordinating(loop, 2) as (brokers, coordinator):
        brokers.lead(SHARE_STATE_TOPIC, 2)
        partitions = [TopicIdPartition(ORDERS, 0)]
        results: list[Any] = [
            *await coordinator.initialize_states("g", [InitialState(ORDERS, 0, 0)]),
            *await coordinator.read_states("g", [StateRead(ORDERS, 0, 0)]),
            *await coordinator.read_summaries("g", partitions),
            *await coordinator.write_states("g", [write_of(0)]),
            *await coordinator.delete_states("g", partitions),
        ]
    code = ErrorCode.NOT_COORDINATOR
    actions = ["initialize", "read", "read", "write", "delete"]
    nouns = ["state", "state", "state summary", "state", "state"]
    assert [(result.error_code, result.error_message) for result in results] == [
        (code, f"Unable to {action} share group {noun}: {code.message}")
        for action, noun in zip(actions, nouns, strict=True)
    ]


async def test_states_are_loaded_before_they_are_asked_for(loop: SimLoop) -> None:
    async with coordinating(loop, 2) as (brokers, coordinator):
        await initialize(coordinator, *range(COUNT))
        await asyncio.sleep(2)
        brokers.lead(SHARE_STATE_TOPIC, 2)
        other = brokers.nodes[2].share.coordinator
        assert await write(other, write_of(0)) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        while brokers.nodes[2].share.loading_count:
            await asyncio.sleep(0.01)
        assert await write(other, *map(write_of, range(COUNT))) == [0] * COUNT


async def test_after_the_end_there_is_no_coordinator(loop: SimLoop) -> None:
    async with coordinating(loop) as (_, coordinator):
        await coordinator.close()
        assert await write(coordinator, write_of(0)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


# -- periodic work ----------------------------------------------------------------------------------------------------


async def test_states_of_a_deleted_topic_are_forgotten_in_slices(loop: SimLoop) -> None:
    async with coordinating(loop) as (brokers, coordinator):
        await initialize(coordinator, *range(COUNT))
        brokers.commit(RemoveTopicRecord(topic_id=ORDERS))
        await asyncio.sleep(1)
        assert host_of(coordinator).shard.states == {}
        assert record_counts(brokers.nodes[1], COUNT) == [STATES_PER_SLICE] * 3


async def test_states_of_a_topic_that_is_deleted_while_they_are_loaded_are_forgotten(loop: SimLoop) -> None:
    async with coordinating(loop) as (brokers, coordinator):
        await initialize(coordinator, *range(COUNT))
        coordinator.reload(SharePartitionKey("g", ORDERS, 0).coordinator_key)
        assert coordinator.loading_count == 1
        brokers.commit(RemoveTopicRecord(ORDERS))
        await asyncio.sleep(1)
        assert (coordinator.loading_count, host_of(coordinator).shard.states) == (0, {})


async def test_states_are_forgotten_also_by_a_shard_that_is_loaded_again_meanwhile(loop: SimLoop) -> None:
    async with coordinating(loop) as (brokers, coordinator):
        await initialize(coordinator, *range(COUNT))
        key = SharePartitionKey("g", ORDERS, 0).coordinator_key
        coordinator.reload(key)
        brokers.commit(RemoveTopicRecord(ORDERS))
        await asyncio.sleep(0)
        coordinator.reload(key)
        assert coordinator.loading_count == 1
        await asyncio.sleep(1)
        assert (coordinator.loading_count, host_of(coordinator).shard.states) == (0, {})


async def test_the_log_is_pruned_up_to_the_oldest_last_snapshot(loop: SimLoop) -> None:
    async with coordinating(loop, share_coordinator_snapshot_update_records_per_snapshot="2") as (brokers, coordinator):
        coordinator.start()
        await initialize(coordinator, 0, 1)
        for _ in range(5):
            await write(coordinator, write_of(0))
        await asyncio.sleep(310)
        log = brokers.nodes[1].log(SHARE_STATE_TOPIC)
        assert log.log_start_offset == 1, "the snapshot of partition 1 is the oldest"
        for _ in range(3):
            await write(coordinator, write_of(1))
        await asyncio.sleep(310)
        assert log.log_start_offset > 5
        assert [type(each).__name__ for each in host_of(coordinator).shard.states.values()] == [
            "SharePartitionState"
        ] * 2


async def test_states_that_are_not_written_are_snapshotted_so_that_the_log_can_be_pruned(loop: SimLoop) -> None:
    keys = {"share_coordinator_snapshot_update_records_per_snapshot": "2"}
    async with coordinating(loop, **keys) as (brokers, coordinator):
        coordinator.start()
        await initialize(coordinator, *range(COUNT))
        await asyncio.sleep(600)
        end_offset = brokers.nodes[1].log(SHARE_STATE_TOPIC).log_end_offset
        assert end_offset >= 2 * COUNT
        await asyncio.sleep(1800)
        log = brokers.nodes[1].log(SHARE_STATE_TOPIC)
        assert log.log_end_offset == end_offset, "what only repeats is not repeated"
        assert log.log_start_offset == end_offset - COUNT


async def test_without_share_groups_there_is_no_periodic_work(loop: SimLoop) -> None:
    async with coordinating(loop) as (brokers, coordinator):
        coordinator._keys = coordinator._keys._replace(share_version=lambda: 0)
        coordinator.start()
        await initialize(coordinator, 0)
        await asyncio.sleep(1800)
        assert brokers.nodes[1].log(SHARE_STATE_TOPIC).log_end_offset == 1
