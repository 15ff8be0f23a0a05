"""States of share partitions whose leaders and coordinators are on different brokers, over a simulated network."""

import asyncio
from collections.abc import Awaitable, Callable

from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.initialize_share_group_state_request import InitializeShareGroupStateRequest
from kafkapy.protocol.messages.write_share_group_state_request import WriteShareGroupStateRequest
from kafkapy.runtime.coordinators.share_persister import GIVE_UP_AFTER_MS, RoutedPersister
from kafkapy.share.persister import (
    InitialState,
    StateBatch,
    StateRead,
    StateWrite,
    TopicIdPartition,
)
from tests.simulator.loop import SimLoop, run
from tests.support.hosting import topic_id
from tests.support.linked_brokers import LinkedBrokers

COORDINATOR, LEADER, OTHER = 1, 2, 3
ORDERS, PARTITION_COUNT = topic_id("orders"), 8
ALL = range(PARTITION_COUNT)


def linked(test: Callable[[LinkedBrokers], Awaitable[None]]) -> Callable[[], None]:
    """Make a test of a coroutine over three brokers; 2 leads orders and asks, nobody coordinates yet."""

    def run_test() -> None:
        async def main(loop: SimLoop) -> None:
            brokers = LinkedBrokers(loop, 3)
            brokers.create_topic("orders", LEADER, PARTITION_COUNT)
            await test(brokers)
            await brokers.close()

        run(main)

    return run_test


def persister_of(brokers: LinkedBrokers, broker_id: int = LEADER) -> RoutedPersister:
    return brokers.nodes[broker_id].share.persister


def codes(results: list) -> list[int]:
    return [each.error_code for each in results]


async def initialize(brokers: LinkedBrokers, *partitions: int) -> list[int]:
    return codes(await persister_of(brokers).initialize("g", [InitialState(ORDERS, each, 0) for each in partitions]))


def write_of(partition: int, last_offset: int, *, leader_epoch: int = 0) -> StateWrite:
    return StateWrite(ORDERS, partition, 0, leader_epoch, 0, last_offset + 1, [StateBatch(0, last_offset, 2, 1)])


async def write(brokers: LinkedBrokers, *partitions: int, last_offset: int = 9) -> list[int]:
    return codes(await persister_of(brokers).write("g", [write_of(each, last_offset) for each in partitions]))


async def batches(brokers: LinkedBrokers, *partitions: int, broker_id: int = LEADER) -> list:
    reads = [StateRead(ORDERS, each, 0) for each in partitions]
    return [each.state_batches for each in await persister_of(brokers, broker_id).read("g", reads)]


@linked
async def test_a_state_is_kept_by_the_coordinators_broker(brokers: LinkedBrokers) -> None:
    brokers.create_topic(SHARE_STATE_TOPIC, COORDINATOR)
    assert await initialize(brokers, *ALL) == [0] * PARTITION_COUNT
    assert await write(brokers, *ALL) == [0] * PARTITION_COUNT
    assert await batches(brokers, *ALL) == [[StateBatch(0, 9, 2, 1)]] * PARTITION_COUNT
    asked = brokers.nodes[COORDINATOR].requests
    assert [len(each.topics[0].partitions) for each in asked] == [PARTITION_COUNT] * 3, "one request for each call"
    partitions = [TopicIdPartition(ORDERS, each) for each in (0, 5)]
    summaries = await persister_of(brokers).read_summary("g", partitions)
    assert [each.delivery_complete_count for each in summaries] == [10, 10]
    assert codes(await persister_of(brokers).delete("g", partitions)) == [0, 0]
    (forgotten,) = await persister_of(brokers).read_summary("g", partitions[:1])
    assert forgotten.start_offset == -1


@linked
async def test_each_coordinator_is_asked_for_its_own(brokers: LinkedBrokers) -> None:
    brokers.create_topic(SHARE_STATE_TOPIC, COORDINATOR, 3, others=[LEADER, OTHER])
    for partition_id, broker_id in ((1, LEADER), (2, OTHER)):
        brokers.lead(SHARE_STATE_TOPIC, broker_id, partition_id)
    assert await initialize(brokers, *ALL) == [0] * PARTITION_COUNT
    local = {key.partition for shard in brokers.nodes[LEADER].share.coordinator.active_shards() for key in shard.states}
    remote = [
        {
            partition.partition
            for request in brokers.nodes[each].requests
            if isinstance(request, InitializeShareGroupStateRequest)
            for partition in request.topics[0].partitions
        }
        for each in (COORDINATOR, OTHER)
    ]
    assert sorted([*local, *remote[0], *remote[1]]) == list(ALL)
    assert all((local, *remote))


@linked
async def test_calls_that_need_the_topic_wait_for_one_creation(brokers: LinkedBrokers) -> None:
    results = await asyncio.gather(*(initialize(brokers, each) for each in ALL))
    assert results == [[0]] * PARTITION_COUNT
    assert brokers.share_topics == 1


@linked
async def test_a_state_is_there_after_its_coordinator_has_moved(brokers: LinkedBrokers) -> None:
    brokers.create_topic(SHARE_STATE_TOPIC, COORDINATOR, others=[OTHER])
    await asyncio.sleep(1)
    brokers.join_isr(SHARE_STATE_TOPIC, COORDINATOR, OTHER)
    assert await initialize(brokers, 0) == [0]
    assert await write(brokers, 0) == [0]
    await asyncio.sleep(1)
    brokers.behind.add(LEADER)
    brokers.lead(SHARE_STATE_TOPIC, OTHER)
    writing = asyncio.ensure_future(write(brokers, 0, last_offset=19))
    await asyncio.sleep(0.3)
    assert not writing.done(), "the old coordinator has said that it is none any more"
    brokers.behind.clear()
    brokers.catch_up()
    assert await writing == [0]
    assert await batches(brokers, 0) == [[StateBatch(0, 19, 2, 1)]]
    assert await batches(brokers, 0, broker_id=OTHER) == [[StateBatch(0, 19, 2, 1)]]


@linked
async def test_a_coordinator_that_cannot_be_reached_is_tried_for_a_while(brokers: LinkedBrokers) -> None:
    brokers.create_topic(SHARE_STATE_TOPIC, COORDINATOR)
    assert await initialize(brokers, 0) == [0]
    brokers.cut_off(COORDINATOR)
    began = brokers.loop.time()
    assert await write(brokers, 0) == [ErrorCode.NETWORK_EXCEPTION]
    assert GIVE_UP_AFTER_MS / 1000 <= brokers.loop.time() - began < GIVE_UP_AFTER_MS / 1000 + 3
    writing = asyncio.ensure_future(write(brokers, 0))
    await asyncio.sleep(5)
    brokers.unreachable.clear()
    assert await writing == [0]


@linked
async def test_without_a_leader_there_is_no_coordinator(brokers: LinkedBrokers) -> None:
    brokers.create_topic(SHARE_STATE_TOPIC, COORDINATOR)
    brokers.lead(SHARE_STATE_TOPIC, -1)
    assert await initialize(brokers, 0) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert brokers.share_topics == 0


@linked
async def test_what_is_refused_is_not_tried_again(brokers: LinkedBrokers) -> None:
    brokers.create_topic(SHARE_STATE_TOPIC, COORDINATOR)
    assert await initialize(brokers, 0) == [0]
    began = brokers.loop.time()
    persister = persister_of(brokers)
    await persister.read("g", [StateRead(ORDERS, 0, 5)])
    results = await persister.write("g", [write_of(0, 9, leader_epoch=4), write_of(1, 9)])
    assert codes(results) == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_REQUEST]
    brokers.nodes[COORDINATOR].deny()
    assert await write(brokers, 0) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert brokers.loop.time() - began < 1


@linked
async def test_results_of_several_coordinators_are_in_the_order_of_the_call(brokers: LinkedBrokers) -> None:
    brokers.create_topic(SHARE_STATE_TOPIC, COORDINATOR, 2, others=[OTHER])
    brokers.lead(SHARE_STATE_TOPIC, OTHER, 1)
    await initialize(brokers, 1, 3, 6)
    summaries = await persister_of(brokers).read_summary("g", [TopicIdPartition(ORDERS, each) for each in (6, 2, 3)])
    assert [each.partition for each in summaries] == [6, 2, 3]
    assert codes(summaries) == [0, 0, 0]


@linked
async def test_large_calls_are_several_requests(brokers: LinkedBrokers) -> None:
    brokers.create_topic(SHARE_STATE_TOPIC, COORDINATOR)
    await initialize(brokers, *ALL)
    many = [StateBatch(2 * offset, 2 * offset, 2, 1) for offset in range(4_000)]
    writes = [StateWrite(ORDERS, each, 0, 0, 0, 4_000, many) for each in ALL]
    assert codes(await persister_of(brokers).write("g", writes)) == [0] * PARTITION_COUNT
    written = [each for each in brokers.nodes[COORDINATOR].requests if isinstance(each, WriteShareGroupStateRequest)]
    assert len(written) == PARTITION_COUNT / 2
    assert len((await batches(brokers, 3))[0]) == 4_000


@linked
async def test_a_call_at_a_stop_ends_with_its_last_error(brokers: LinkedBrokers) -> None:
    brokers.create_topic(SHARE_STATE_TOPIC, COORDINATOR)
    brokers.cut_off(COORDINATOR)
    writing = asyncio.ensure_future(write(brokers, 0))
    await asyncio.sleep(1)
    began = brokers.loop.time()
    persister_of(brokers).close()
    assert await writing == [ErrorCode.NETWORK_EXCEPTION]
    assert brokers.loop.time() - began < 3
