"""Topics of hundreds of partitions are made and deleted under a whole broker, on a disk slow at it, in virtual time."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.runtime.turns import TURN_MS
from kafkapy.types import TopicPartition
from tests.simulator.broker_world import DATA_DIR, KafkaClient, Machine, Topic
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop, run
from tests.support.offsets import commit_request

PARTITION_COUNT = 300
STEP_MS = 1.0
"""What making or renaming a directory takes on this disk."""
ROUND_TRIP_MS = 0.2


def life(disk: SimDisk, work: Callable[[Machine], Coroutine[Any, Any, None]], **properties: str) -> None:
    """Run one life of a computer, which ends as `work` leaves it."""

    async def main(loop: SimLoop) -> None:
        machine = Machine(loop, disk=disk, **properties)

        def take_time(operation: str, _: str) -> None:
            if operation in ("make_directory", "rename"):
                loop.block(STEP_MS)

        await machine.boot()
        disk.hook = take_time
        await work(machine)
        disk.hook = None

    run(main)


async def longest_response_ms(machine: Machine, topic: Topic, during: asyncio.Task[Any]) -> float:
    """Produce on a connection of its own until a task is done; return how long the slowest answer took, in ms."""
    client, longest, count = machine.connect(), 0.0, 0
    while not during.done():
        start = machine.loop.time()
        assert (await client.produce(topic, b"v")).error_code == ErrorCode.NONE
        longest, count = max(longest, machine.loop.time() - start), count + 1
    await during
    assert count >= PARTITION_COUNT * STEP_MS / (2 * TURN_MS)
    return longest * 1000


def test_who_uses_other_topics_waits_a_turn_at_most() -> None:
    async def work(machine: Machine) -> None:
        client = machine.connect()
        orders = await client.create_topic("orders")
        creating = asyncio.ensure_future(machine.connect().create_topic("large", PARTITION_COUNT))
        assert await longest_response_ms(machine, orders, creating) < TURN_MS + 2 * STEP_MS + ROUND_TRIP_MS
        large = creating.result()
        for partition in range(PARTITION_COUNT):
            assert (await client.produce(large, b"v", partition=partition)).error_code == ErrorCode.NONE

        deleting = asyncio.ensure_future(client.delete_topic(large))
        assert await longest_response_ms(machine, orders, deleting) < TURN_MS + 2 * STEP_MS + ROUND_TRIP_MS
        assert set(machine.logs()) == {TopicPartition("orders", 0)}
        await machine.stop()

    life(SimDisk(), work)


async def described(client: KafkaClient, name: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    response = await client.call(request, 12)
    return response.topics[0]


def test_a_partition_in_the_metadata_but_not_yet_made_is_to_be_requested_again() -> None:
    async def work(machine: Machine) -> None:
        client = machine.connect()
        creating = asyncio.ensure_future(machine.connect().create_topic("large", PARTITION_COUNT))
        while (reported := await described(client, "large")).error_code:
            pass
        assert {partition.leader_id for partition in reported.partitions} == {machine.config.node_id}
        topic = Topic("large", reported.topic_id)
        early = await client.produce(topic, b"v", partition=PARTITION_COUNT - 1)
        assert early.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        fetched = await client.fetch(topic, 0, partition=PARTITION_COUNT - 1)
        assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await creating
        assert (await client.produce(topic, b"v", partition=PARTITION_COUNT - 1)).error_code == ErrorCode.NONE
        await machine.stop()

    life(SimDisk(), work)


def test_a_coordinator_that_is_found_while_its_topic_is_made_coordinates() -> None:
    async def work(machine: Machine) -> None:
        requested = FindCoordinatorRequest(key_type=0, coordinator_keys=["readers"])
        client = machine.connect()
        await client.create_topic("orders")
        first = asyncio.ensure_future(machine.connect().call(requested, 6))
        while (await described(client, OFFSETS_TOPIC)).error_code:
            pass
        assert not first.done(), "the topic is told of, but not made yet"
        (found,) = (await client.call(requested, 6)).coordinators
        assert found.error_code == ErrorCode.NONE
        response = await client.call(commit_request("readers", "orders", 4), 9)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        await first
        await machine.stop()

    life(SimDisk(), work)


def test_a_coordinator_that_is_there_is_found_at_once_while_a_large_topic_is_made() -> None:
    async def work(machine: Machine) -> None:
        requested = FindCoordinatorRequest(key_type=0, coordinator_keys=["readers"])
        client = machine.connect()
        await client.call(requested, 6)
        creating = asyncio.ensure_future(machine.connect().create_topic("large", PARTITION_COUNT))
        while (await described(client, "large")).error_code:
            pass
        (found,) = (await client.call(requested, 6)).coordinators
        assert found.error_code == ErrorCode.NONE
        assert not creating.done()
        await creating
        await machine.stop()

    life(SimDisk(), work)


async def create(client: KafkaClient, name: str, count: int, *, timeout_ms: int, validate_only: bool = False) -> int:
    topic = CreatableTopic(name, num_partitions=count, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=validate_only)
    return (await client.call(request, 7)).topics[0].error_code


def test_who_changes_nothing_does_not_wait_for_a_large_change() -> None:
    async def work(machine: Machine) -> None:
        client = machine.connect()
        creating = asyncio.ensure_future(machine.connect().create_topic("large", PARTITION_COUNT))
        while (await described(client, "large")).error_code:
            pass
        assert await create(client, "small", 1, timeout_ms=30_000, validate_only=True) == ErrorCode.NONE
        assert await create(client, "large", 1, timeout_ms=30_000) == ErrorCode.TOPIC_ALREADY_EXISTS
        assert not creating.done()
        await creating
        await machine.stop()

    life(SimDisk(), work)


def test_the_response_to_a_large_change_is_there_before_its_client_gives_up() -> None:
    async def work(machine: Machine) -> None:
        client = machine.connect()
        timeout_ms = PARTITION_COUNT * STEP_MS / 2
        started = machine.loop.time()
        assert await create(client, "large", PARTITION_COUNT, timeout_ms=int(timeout_ms)) == ErrorCode.NONE
        assert machine.loop.time() - started < timeout_ms / 1000
        assert len(machine.logs()) < PARTITION_COUNT
        await asyncio.sleep(PARTITION_COUNT * STEP_MS / 500)
        assert len(machine.logs()) == PARTITION_COUNT
        await machine.stop()

    life(SimDisk(), work)


def test_a_topic_that_is_deleted_while_it_is_made_is_gone() -> None:
    async def work(machine: Machine) -> None:
        client = machine.connect()
        creating = asyncio.ensure_future(machine.connect().create_topic("large", PARTITION_COUNT))
        while (reported := await described(client, "large")).error_code:
            pass
        await client.delete_topic(Topic("large", reported.topic_id))
        await creating
        assert machine.logs() == {}
        again = await client.create_topic("large", 2)
        assert (await client.produce(again, b"v", partition=1)).error_code == ErrorCode.NONE
        await machine.stop()

    life(SimDisk(), work, file_delete_delay_ms="1000")


BY_NAME_ALONE, BY_NAME_TOGETHER, BY_ID = 8, 12, 13
"""Versions of Produce: by the handler; coalesced; with topic ids."""


async def produce_at(client: KafkaClient, topic: Topic, version: int, value: bytes) -> Any:
    data = PartitionProduceData(0, records=client.batch([value]))
    request = ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(topic.name, topic_id=topic.topic_id, partition_data=[data])],
    )
    return (await client.call(request, version)).responses[0].partition_responses[0]


async def other_codes(client: KafkaClient, topic: Topic) -> set[int]:
    """Return what requests by name, but for Produce, are answered."""
    delete = DeleteRecordsRequest(
        [DeleteRecordsTopic(topic.name, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])],
        timeout_ms=1000,
    )
    fetch = FetchRequest(session_epoch=-1, topics=[FetchTopic(topic.name, partitions=[FetchPartition(0)])])
    return {
        (await client.call(fetch, 12)).responses[0].partitions[0].error_code,
        (await client.list_offset(topic, -1)).error_code,
        (await client.call(delete, 2)).topics[0].partitions[0].error_code,
    }


@pytest.mark.parametrize("version", [BY_NAME_ALONE, BY_NAME_TOGETHER, BY_ID])
def test_a_topic_that_is_gone_from_the_metadata_takes_no_records_though_the_broker_has_it_still(version: int) -> None:
    async def work(machine: Machine) -> None:
        client, other = machine.connect(), machine.connect()
        old = await client.create_topic("orders")
        assert (await produce_at(client, old, version, b"old")).error_code == ErrorCode.NONE
        creating = asyncio.ensure_future(machine.connect().create_topic("large", PARTITION_COUNT))
        while (await described(client, "large")).error_code:
            pass
        deleting = asyncio.ensure_future(other.delete_topic(old))
        while not (await described(client, "orders")).error_code:
            pass
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version == BY_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await produce_at(client, old, version, b"lost")).error_code == unknown
        assert await other_codes(client, old) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

        recreating = asyncio.ensure_future(machine.connect().create_topic("orders"))
        while (reported := await described(client, "orders")).error_code:
            pass
        new = Topic("orders", reported.topic_id)
        assert (await produce_at(client, new, version, b"lost")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await other_codes(client, new) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert not any(change.done() for change in (creating, deleting, recreating))
        await asyncio.gather(creating, deleting, recreating)
        response = await produce_at(client, new, version, b"new")
        assert (response.error_code, response.base_offset) == (ErrorCode.NONE, 0)
        assert await other_codes(client, new) == {ErrorCode.NONE}
        await machine.stop()

    life(SimDisk(), work)


@pytest.mark.parametrize("is_stop", [True, False])
@pytest.mark.parametrize("is_deletion", [True, False])
def test_the_next_start_finishes_what_a_stop_or_a_power_cut_left(is_stop: bool, is_deletion: bool) -> None:
    disk = SimDisk()

    async def first(machine: Machine) -> None:
        client = machine.connect()
        await client.create_topic("orders")
        await asyncio.sleep(2)
        if is_deletion:
            large = await client.create_topic("large", PARTITION_COUNT)
            changing: asyncio.Future[Any] = asyncio.ensure_future(machine.connect().delete_topic(large))
        else:
            changing = asyncio.ensure_future(machine.connect().create_topic("large", PARTITION_COUNT))
        changing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(PARTITION_COUNT * STEP_MS / 2 / 1000)
        assert 10 < len(machine.logs()) < PARTITION_COUNT - 10
        if is_stop:
            await machine.stop()
            assert not machine.has_failed

    async def second(machine: Machine) -> None:
        client = machine.connect()
        reported = await described(client, "large")
        names = {name.rpartition("-")[0] for name in disk.list_directory(DATA_DIR) if name.rpartition("-")[2].isdigit()}
        if is_deletion:
            assert reported.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert "large" not in names
        else:
            topic = Topic("large", reported.topic_id)
            for partition in range(PARTITION_COUNT):
                assert (await client.produce(topic, b"v", partition=partition)).error_code == ErrorCode.NONE
        await machine.stop()

    with contextlib.suppress(asyncio.CancelledError):
        life(disk, first)
    if not is_stop:
        disk.crash()
    life(disk, second)
