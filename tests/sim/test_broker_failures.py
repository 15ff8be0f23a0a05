"""A whole broker whose disk fails: what is told to clients, what goes offline, what goes on."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kafkapy.errors import ConfigError, StorageError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.runtime.logs.maintenance import RESERVE_CHECK_MS
from tests.simulator.broker_world import DATA_DIR, KafkaClient, Machine, Topic, values_of
from tests.simulator.loop import SimLoop, run

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
METADATA_DIR, FIRST_DIR, SECOND_DIR = "/metadata", "/first", "/second"
GONE = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Of a partition in a failed directory: the second once the controller has taken its leadership away."""
PROPERTIES = {"log_dirs": f"{METADATA_DIR},{FIRST_DIR},{SECOND_DIR}", "metadata_log_dir": METADATA_DIR}


def on_machine(test: Callable[[Machine], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on a machine with three log directories that has booted; it must come up again after."""

    def call() -> None:
        async def main(loop: SimLoop) -> None:
            machine = Machine(loop, **PROPERTIES)
            await machine.boot()
            await test(machine)
            await machine.stop()
            machine.disk.heal()
            await machine.boot()
            await machine.stop()

        run(main)

    call.__name__ = test.__name__
    return call


async def offline_paths(client: KafkaClient) -> list[str]:
    response = await client.call(DescribeLogDirsRequest(topics=[]), 4)
    return [result.log_dir for result in response.results if result.error_code]


@on_machine
async def test_a_full_disk_refuses_an_append_and_serves_again_when_there_is_room(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    await client.produce(topic, b"first")
    machine.disk.capacity_bytes = machine.disk.used_bytes() + 50_000
    for size_bytes in (100_000, 100_000, 10):
        refused = await client.produce(topic, b"x" * size_bytes)
        assert (refused.error_code, refused.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    machine.disk.capacity_bytes += 16 << 20
    assert (await client.produce(topic, b"x" * 100_000)).base_offset == 1
    machine.disk.heal()
    assert (await client.produce(topic, b"x" * 100_000)).base_offset == 2
    found = await client.read_all(topic)
    assert [batch.base_offset for batch in found] == [0, 1, 2]
    assert all(batch.has_valid_crc() for batch in found)
    assert await offline_paths(client) == []


@on_machine
async def test_an_idempotent_producer_may_try_again_after_a_full_disk(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    producer_id, producer_epoch = await client.init_producer_id()
    producer = {"producer_id": producer_id, "producer_epoch": producer_epoch}
    assert (await client.produce(topic, b"0", base_sequence=0, **producer)).error_code == 0
    machine.disk.fail("write", errno.ENOSPC, path="orders-0", times=1)
    refused = await client.produce(topic, b"1", base_sequence=1, **producer)
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.produce(topic, b"1", base_sequence=1, **producer)).base_offset == 1
    assert (await client.produce(topic, b"2", base_sequence=2, **producer)).base_offset == 2


@on_machine
async def test_a_full_disk_does_not_end_what_was_served(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    await client.produce(topic, b"first")
    machine.disk.fail("write", errno.ENOSPC, path="orders-0", times=1000)
    for _ in range(50):
        assert (await client.produce(topic, b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.sleep(0.1)
    assert values_of(await client.fetch(topic, 0)) == [b"first"]
    assert not machine.has_failed


@on_machine
async def test_a_disk_without_a_byte_left_refuses_and_takes_up_again(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders", flush_messages="1")
    await client.produce(topic, b"first")
    machine.disk.capacity_bytes = machine.disk.used_bytes()
    await asyncio.sleep(60)
    assert (await client.produce(topic, b"second")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await create(client, "in-the-room-set-aside")).error_code == 0
    machine.disk.capacity_bytes = machine.disk.used_bytes()
    assert (await client.produce(topic, b"second")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await create(client, "never")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert values_of(await client.fetch(topic, 0)) == [b"first"]
    assert not machine.has_failed
    machine.disk.heal()
    assert (await client.produce(topic, b"second")).base_offset == 1
    assert (await create(client, "later")).error_code == 0


LARGE_VALUE = bytes(range(1, 256)) * 400


async def produce_until_refused(client: KafkaClient, topic: Topic) -> None:
    for _ in range(1000):
        if (await client.produce(topic, LARGE_VALUE)).error_code:
            return
    raise AssertionError("the disk is never full")


async def test_what_a_stop_writes_finds_room_however_soon_after_a_start_records_fill_the_disk(loop: SimLoop) -> None:
    machine = Machine(loop)
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders")
    await asyncio.sleep(2)
    machine.disk.capacity_bytes = machine.disk.used_bytes() + (1 << 20)
    await produce_until_refused(client, topic)
    await machine.stop()
    await machine.boot()
    await asyncio.sleep(RESERVE_CHECK_MS / 2000)
    client = machine.connect()
    assert (await client.produce(topic, b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    machine.disk.capacity_bytes = machine.disk.used_bytes() + (10 << 20)
    await produce_until_refused(client, topic)
    others_bytes = len(LARGE_VALUE)
    machine.disk.capacity_bytes = max(machine.disk.used_bytes(), machine.disk.capacity_bytes - others_bytes)
    await machine.stop()
    assert machine.disk.exists(f"{DATA_DIR}/{CLEAN_SHUTDOWN}")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_deletion_that_finds_no_room_is_made_up_for(code: int) -> None:
    @on_machine
    async def test(machine: Machine) -> None:
        client = machine.connect()
        orders, beside = [await client.create_topic(name, file_delete_delay_ms="0") for name in ("orders", "beside")]
        (directory,) = (path for path in (METADATA_DIR, FIRST_DIR, SECOND_DIR) if is_in(machine, orders, path))
        machine.disk.fail("rename", code, path=f"{directory}/orders-0", times=2)
        await client.delete_topic(orders)
        assert machine.disk.exists(f"{directory}/orders-0")
        assert (await client.produce(beside, b"v")).base_offset == 0
        await asyncio.sleep(5)
        assert not any("orders" in name for name in machine.disk.list_directory(directory))
        again = await client.create_topic("orders")
        assert (await client.produce(again, b"v")).base_offset == 0
        assert not machine.has_failed

    test()


RESERVE = ".kafkapy-reserve"
DIRECTORIES = {
    "several-with-the-metadata-in-one": {"log_dirs": f"{FIRST_DIR},{SECOND_DIR}", "metadata_log_dir": FIRST_DIR},
    "several-and-the-metadata-beside": {"log_dirs": f"{FIRST_DIR},{SECOND_DIR}", "metadata_log_dir": METADATA_DIR},
}


@pytest.mark.parametrize("properties", DIRECTORIES.values(), ids=DIRECTORIES)
async def test_what_is_given_up_on_a_disk_of_several_directories_is_for_metadata(
    loop: SimLoop, properties: dict[str, str]
) -> None:
    reserve = f"{properties['metadata_log_dir']}/{RESERVE}"

    machine = Machine(loop, **properties)
    await machine.boot()
    client = machine.connect()
    topics = [await client.create_topic(f"t{number}") for number in range(2)]
    await asyncio.sleep(2)
    machine.disk.capacity_bytes = machine.disk.used_bytes() + (1 << 20)
    (filling,) = (topic for topic in topics if is_in(machine, topic, FIRST_DIR))
    await produce_until_refused(client, filling)
    assert not machine.disk.exists(reserve)
    await refuse_all(client, topics)
    assert (await create(client, "later")).error_code == 0
    await machine.stop()
    await machine.boot()
    client = machine.connect()
    await refuse_all(client, topics)
    await client.delete_topic(filling)
    machine.disk.heal()
    (other,) = (topic for topic in topics if topic is not filling)
    assert (await client.produce(other, b"v")).base_offset == 0
    assert machine.disk.exists(reserve)
    await machine.stop()


async def refuse_all(client: KafkaClient, topics: list[Topic]) -> None:
    for topic in topics:
        assert (await client.produce(topic, b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@on_machine
async def test_a_topic_can_be_deleted_where_others_filled_the_disk_and_no_record_came_since(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    await asyncio.sleep(2)
    machine.disk.capacity_bytes = machine.disk.used_bytes()
    await client.delete_topic(topic)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failing_directory_takes_its_partitions_offline_and_no_others(operation: str) -> None:
    @on_machine
    async def test(machine: Machine) -> None:
        client = machine.connect()
        topics = [await client.create_topic(f"t{number}", flush_messages="1") for number in range(6)]
        failing, beside = [topic for topic in topics if is_in(machine, topic, SECOND_DIR)][:2]
        elsewhere = next(topic for topic in topics if is_in(machine, topic, FIRST_DIR))
        waiting = asyncio.create_task(machine.connect().fetch(beside, 0, max_wait_ms=60_000))
        machine.disk.fail(operation, errno.EIO, path=f"{SECOND_DIR}/{failing.name}-0")
        await client.produce(failing, b"v")
        await asyncio.sleep(2)
        for topic in (failing, beside):
            assert (await client.produce(topic, b"v")).error_code in GONE
            assert (await client.fetch(topic, 0, max_wait_ms=100)).error_code in GONE
            assert (await client.list_offset(topic, -1)).error_code in GONE
        assert (await waiting).error_code in GONE
        assert (await client.produce(elsewhere, b"v")).base_offset == 0
        assert await offline_paths(client) == [SECOND_DIR]
        created = await client.create_topic("later")
        assert (await client.produce(created, b"v")).base_offset == 0
        assert not machine.has_failed

    test()


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failing_metadata_directory_ends_the_node(operation: str) -> None:
    @on_machine
    async def test(machine: Machine) -> None:
        client = machine.connect()
        topic = await client.create_topic("orders")
        await client.produce(topic, b"kept")
        machine.disk.fail(operation, errno.EIO, path="__cluster_metadata-0")
        assert (await create(client, "never")).error_code == ErrorCode.NOT_CONTROLLER
        assert machine.server.failed is not None
        error = await machine.server.failed
        assert isinstance(error, StorageError)
        assert METADATA_DIR in str(error)
        await machine.stop()
        assert not machine.disk.exists(f"{METADATA_DIR}/{CLEAN_SHUTDOWN}")
        assert machine.disk.exists(f"{FIRST_DIR}/{CLEAN_SHUTDOWN}")
        await machine.boot()
        names = {each.name for each in (await machine.connect().call(MetadataRequest(topics=None), 12)).topics}
        assert {"orders"} <= names <= {"orders", "never"}

    test()


@on_machine
async def test_without_any_directory_left_the_node_ends(machine: Machine) -> None:
    client = machine.connect()
    topics = [await client.create_topic(f"t{number}") for number in range(6)]
    for directory in (METADATA_DIR, FIRST_DIR, SECOND_DIR):
        (topic, *_) = [topic for topic in topics if is_in(machine, topic, directory)]
        machine.disk.fail("write", errno.EIO, path=f"{topic.name}-0/")
        await client.produce(topic, b"v")
    assert machine.server.failed is not None
    assert isinstance(await machine.server.failed, StorageError)


@on_machine
async def test_a_failed_directory_leaves_its_partitions_without_leader_until_the_restart(machine: Machine) -> None:
    client = machine.connect()
    topics = [await client.create_topic(f"t{number}") for number in range(6)]
    await asyncio.sleep(1)  # the controller knows where they lie
    failing = next(topic for topic in topics if is_in(machine, topic, SECOND_DIR))
    await client.produce(failing, b"v")
    machine.disk.fail("write", errno.EIO, path=f"{SECOND_DIR}/{failing.name}-0")
    await client.produce(failing, b"v")
    await asyncio.sleep(0.1)
    assert await leaders(client) == {topic.name: -1 if is_in(machine, topic, SECOND_DIR) else 1 for topic in topics}
    machine.disk.heal()
    await machine.stop()
    await machine.boot()
    client = machine.connect()
    assert await leaders(client) == {topic.name: 1 for topic in topics}
    assert (await client.produce(failing, b"v")).base_offset >= 1


@on_machine
async def test_a_topic_in_a_failed_directory_can_be_made_anew_at_once(machine: Machine) -> None:
    client = machine.connect()
    topics = [await client.create_topic(f"t{number}") for number in range(6)]
    await asyncio.sleep(1)  # the controller knows where they lie
    old = next(topic for topic in topics if is_in(machine, topic, SECOND_DIR))
    await client.produce(old, b"old")
    machine.disk.fail("write", errno.EIO, path=f"{SECOND_DIR}/{old.name}-0", times=1000)
    await client.produce(old, b"refused")
    await client.delete_topic(old)
    new = await client.create_topic(old.name)
    assert (await client.produce(new, b"new")).base_offset == 0
    assert (await leaders(client))[new.name] == 1
    machine.disk.heal()
    await machine.stop()
    await machine.boot()
    assert values_of(await machine.connect().fetch(new, 0)) == [b"new"]
    (stray,) = [name for name in machine.disk.list_directory(SECOND_DIR) if name.startswith(f"{old.name}-0")]
    assert stray.endswith("-stray")


@on_machine
async def test_a_deleted_log_without_room_for_another_name_gets_that_at_a_stop(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    await client.produce(topic, b"v")
    machine.disk.fail("rename", errno.ENOSPC, path="orders-0", times=1000)
    await client.delete_topic(topic)
    assert not machine.has_failed
    assert await offline_paths(client) == []
    machine.disk.heal()
    await machine.stop()
    await machine.boot()
    names = [name for path in (METADATA_DIR, FIRST_DIR, SECOND_DIR) for name in machine.disk.list_directory(path)]
    (left,) = [name for name in names if name.startswith("orders-0")]
    assert left.endswith("-delete")


async def leaders(client: KafkaClient) -> dict[str, int]:
    response = await client.call(MetadataRequest(topics=None), 12)
    return {topic.name: topic.partitions[0].leader_id for topic in response.topics}


def is_in(machine: Machine, topic: Topic, directory: str) -> bool:
    return machine.disk.exists(f"{directory}/{topic.name}-0")


async def create(client: KafkaClient, name: str) -> Any:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name, num_partitions=1, replication_factor=1)], timeout_ms=30_000
    )
    return (await client.call(request, 7)).topics[0]


@on_machine
async def test_a_directory_that_cannot_be_loaded_is_offline_from_the_start(machine: Machine) -> None:
    client = machine.connect()
    topics = [await client.create_topic(f"t{number}") for number in range(6)]
    for topic in topics:
        await client.produce(topic, b"v")
    await machine.stop()
    machine.disk.fail("open", errno.EIO, path=f"{SECOND_DIR}/t", times=100)
    await machine.boot()
    client = machine.connect()
    for topic in topics:
        response = await client.fetch(topic, 0)
        assert (response.error_code in GONE) == is_in(machine, topic, SECOND_DIR), topic
    assert await offline_paths(client) == [SECOND_DIR]
    assert not machine.has_failed


async def test_a_metadata_directory_of_another_cluster_stops_the_start(loop: SimLoop) -> None:
    """Where it is none of log.dirs, too; and is let go of then."""

    machine = Machine(loop, log_dirs=FIRST_DIR, metadata_log_dir=METADATA_DIR)
    await machine.boot()
    await machine.stop()
    path = f"{METADATA_DIR}/meta.properties"
    mine = machine.disk.read_file(path)
    cluster_id = next(line for line in mine.splitlines() if line.startswith(b"cluster.id"))
    machine.disk.write_file_atomically(path, mine.replace(cluster_id, b"cluster.id=another"))
    with pytest.raises(ConfigError, match="they belong to several clusters"):
        await machine.boot()
    assert not machine.disk.locked
    machine.disk.write_file_atomically(path, mine)
    await machine.boot()
    assert machine.disk.locked == {FIRST_DIR, METADATA_DIR}
    await machine.stop()
