"""Replicas on their way between log directories: under load, throttled, called back, and cut short at every step."""

import asyncio
import errno
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kafkapy.metadata.delta import difference
from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkapy.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkapy.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.types import TopicPartition
from tests.simulator.broker_crashes import Doom
from tests.simulator.broker_world import KafkaClient, Machine, Topic
from tests.simulator.disk import Keep, SimDisk
from tests.simulator.loop import START_WALL_MS, SimLoop, run

pytestmark = pytest.mark.long

METADATA_DIR, FIRST_DIR, SECOND_DIR = "/metadata", "/first", "/second"
PROPERTIES = {"log_dirs": f"{METADATA_DIR},{FIRST_DIR},{SECOND_DIR}", "metadata_log_dir": METADATA_DIR}
THROTTLE = "replica_alter_log_dirs_io_max_bytes_per_second"


def on_machine(
    **properties: str,
) -> Callable[[Callable[[Machine], Coroutine[Any, Any, None]]], Callable[[], None]]:
    def decorate(test: Callable[[Machine], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        def call() -> None:
            async def main(loop: SimLoop) -> None:
                machine = Machine(loop, **PROPERTIES, **properties)
                await machine.boot()
                await test(machine)
                await machine.stop()

            run(main)

        call.__name__ = test.__name__
        return call

    return decorate


async def alter(client: KafkaClient, path: str, topic: str, *partitions: int) -> list[int]:
    moved = AlterReplicaLogDir(path, topics=[AlterReplicaLogDirTopic(topic, partitions=list(partitions))])
    response = await client.call(AlterReplicaLogDirsRequest([moved]), 2)
    return [partition.error_code for each in response.results for partition in each.partitions]


async def replicas(client: KafkaClient, topic: str) -> dict[tuple[str, int], tuple[bool, int]]:
    """Return (is_future, lag) of each of a topic's replicas, by directory and partition."""
    response = await client.call(DescribeLogDirsRequest(topics=None), 4)
    return {
        (result.log_dir, partition.partition_index): (partition.is_future_key, partition.offset_lag)
        for result in response.results
        for each in result.topics
        if each.name == topic
        for partition in each.partitions
    }


async def large_topic(client: KafkaClient, count: int, path: str = METADATA_DIR) -> Topic:
    """Create the topic "orders" with so many batches of 100 kB, in a directory."""
    await alter(client, path, "orders", 0)
    topic = await client.create_topic("orders")
    for _ in range(count):
        await client.produce(topic, bytes(100_000))
    return topic


def directory_in_metadata(machine: Machine, topic: Topic) -> str:
    """Return where the controller takes partition 0 to be."""
    registration = machine.server._controller.image.topics.by_id[topic.topic_id].partitions[0]
    directory = machine.server._log_manager.directories.with_id(registration.directories[0])
    return directory.path if directory is not None else "nowhere"


def directory_of(machine: Machine, topic: Topic) -> str:
    return machine.logs()[TopicPartition(topic.name, 0)].log_dir.path


def other_directory(machine: Machine, topic: Topic) -> str:
    return SECOND_DIR if directory_of(machine, topic) != SECOND_DIR else FIRST_DIR


async def moved(machine: Machine) -> None:
    """Wait until no move is under way and the controller has been told all."""
    mover = machine.server._mover
    while mover.moving_count or mover._assignments.pending_count:
        await asyncio.sleep(0.05)


def slow_disk(machine: Machine, **durations_ms: dict[str, int]) -> Callable[[str, str], None]:
    """Return a hook: operations on the files of logs take so long, by operation and directory."""

    def stall(operation: str, path: str) -> None:
        for directory, duration_ms in durations_ms.get(operation, {}).items():
            if path.startswith(f"{directory}/") and path.endswith(".log"):
                machine.loop.block(duration_ms)

    return stall


async def values(client: KafkaClient, topic: Topic) -> list[bytes | None]:
    return [record.value for batch in await client.read_all(topic) for record in batch.records()]


@on_machine()
async def test_a_replica_moves_while_it_is_written_and_read(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders", segment_bytes="1048576")
    for number in range(40):
        await client.produce(topic, b"%d " % number + bytes(60_000))
    source, target = directory_of(machine, topic), other_directory(machine, topic)
    reader = machine.connect()
    assert await alter(machine.connect(), target, "orders", 0) == [0]
    writing = asyncio.create_task(produce_all(client, topic, 40, 80))
    assert len(await values(reader, topic)) >= 40
    await writing
    await moved(machine)
    assert (directory_of(machine, topic), directory_in_metadata(machine, topic)) == (target, target)
    assert [value.split(b" ")[0] for value in await values(reader, topic) if value] == [b"%d" % n for n in range(80)]
    names = [name for name in machine.disk.list_directory(source) if name.startswith("orders-0")]
    assert [name.endswith("-delete") for name in names] == [True]
    await asyncio.sleep(62)
    assert not [name for name in machine.disk.list_directory(source) if name.startswith("orders-0")]


async def produce_all(client: KafkaClient, topic: Topic, first: int, end: int) -> None:
    for number in range(first, end):
        response = await client.produce(topic, b"%d " % number + bytes(10_000))
        assert response.error_code == 0, response


@on_machine()
async def test_a_log_that_starts_within_a_batch_moves_with_all_of_it(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    await client.produce(topic, b"0", b"1", b"2", b"3", b"4")
    await client.produce(topic, b"5")
    deleted = DeleteRecordsTopic("orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=3)])
    await client.call(DeleteRecordsRequest([deleted], timeout_ms=1000), 2)
    target = other_directory(machine, topic)
    assert await alter(client, target, "orders", 0) == [0]
    await moved(machine)
    log = machine.logs()[TopicPartition("orders", 0)]
    assert (log.log_dir.path, log.log_start_offset, log.log_end_offset) == (target, 3, 6)
    assert log.segments.first.base_offset == 0
    assert await values(client, topic) == [b"0", b"1", b"2", b"3", b"4", b"5"]


@on_machine(**{THROTTLE: "100000"})
async def test_a_throttled_move_shows_its_lag_and_can_be_called_back(machine: Machine) -> None:
    client = machine.connect()
    topic = await large_topic(client, 20)
    source, target = directory_of(machine, topic), other_directory(machine, topic)
    assert await alter(client, target, "orders", 0) == [0]
    await asyncio.sleep(5)
    reported = await replicas(client, "orders")
    assert reported[source, 0] == (False, 0)
    is_future, lag = reported[target, 0]
    assert is_future
    assert 10 <= lag < 18
    assert await alter(client, source, "orders", 0) == [0]
    assert list(await replicas(client, "orders")) == [(source, 0)]
    await moved(machine)
    assert (directory_of(machine, topic), directory_in_metadata(machine, topic)) == (source, source)
    await asyncio.sleep(62)
    assert not [name for name in machine.disk.list_directory(target) if name.startswith("orders-0")]


@on_machine(**{THROTTLE: "100000", "alter_log_dirs_replication_quota_window_size_seconds": "30"})
async def test_the_rate_of_moves_is_measured_in_windows_of_the_configured_size(machine: Machine) -> None:
    """The first window may hold all of its bytes at once."""
    client = machine.connect()
    topic = await large_topic(client, 20)
    target = other_directory(machine, topic)
    assert await alter(client, target, "orders", 0) == [0]
    await asyncio.sleep(5)
    assert directory_of(machine, topic) == target


@on_machine(**{THROTTLE: "200000"})
async def test_a_move_goes_on_after_a_restart(machine: Machine) -> None:
    client = machine.connect()
    topic = await large_topic(client, 20)
    target = other_directory(machine, topic)
    await alter(client, target, "orders", 0)
    await asyncio.sleep(3)
    await machine.stop()
    await machine.boot()
    copied = machine.server._log_manager.future_logs[TopicPartition("orders", 0)].log_end_offset
    assert copied >= 5
    await moved(machine)
    assert directory_of(machine, topic) == target
    assert len(await values(machine.connect(), topic)) == 20


@on_machine(**{THROTTLE: "200000"})
async def test_a_deleted_topic_takes_its_future_replica_with_it(machine: Machine) -> None:
    client = machine.connect()
    topic = await large_topic(client, 10)
    target = other_directory(machine, topic)
    await alter(client, target, "orders", 0)
    await asyncio.sleep(1)
    await client.delete_topic(topic)
    await moved(machine)
    await asyncio.sleep(62)
    for path in (FIRST_DIR, SECOND_DIR, METADATA_DIR):
        assert not [name for name in machine.disk.list_directory(path) if name.startswith("orders")]


@on_machine()
async def test_what_cannot_be_moved_is_refused(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    assert await alter(client, "/elsewhere", "orders", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert await alter(client, SECOND_DIR, "nothing", 0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    long_name = "t" * 220
    await client.create_topic(long_name)
    assert await alter(client, SECOND_DIR, long_name, 0) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    source = directory_of(machine, topic)
    assert await alter(client, source, "orders", 0) == [ErrorCode.NONE]
    target = next(each for each in (FIRST_DIR, SECOND_DIR) if each != source)
    third = await client.create_topic("third")
    failing = next(path for path in (FIRST_DIR, SECOND_DIR) if path != source)
    machine.server._log_manager.directories.at(failing).state.go_offline("test")  # type: ignore[union-attr]
    assert await alter(client, target, "orders", 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert await alter(client, METADATA_DIR, "orders", 0) in ([ErrorCode.KAFKA_STORAGE_ERROR], [ErrorCode.NONE])
    assert third


@on_machine()
async def test_a_replica_that_is_not_here_yet_is_made_in_the_requested_directory(machine: Machine) -> None:
    client = machine.connect()
    for number, path in enumerate((SECOND_DIR, FIRST_DIR, SECOND_DIR)):
        name = f"coming-{number}"
        assert await alter(client, path, name, 0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        topic = await client.create_topic(name)
        assert directory_of(machine, topic) == path


@on_machine()
async def test_a_directory_that_fails_under_a_move_leaves_the_replica_where_it_was(machine: Machine) -> None:
    client = machine.connect()
    topic = await large_topic(client, 10)
    source, target = directory_of(machine, topic), other_directory(machine, topic)
    machine.disk.fail("write", errno.EIO, path=f"{target}/orders-0.")
    await alter(client, target, "orders", 0)
    await moved(machine)
    assert directory_of(machine, topic) == source
    assert (await client.produce(topic, b"more")).error_code == 0
    assert machine.server._log_manager.directories.offline_paths == [target]
    machine.disk.heal()


STEP = 2
"""Every so many changes of the disk a life ends; the modes begin at different ones."""
MODES: list[tuple[Keep, int]] = [("all", 0), ("none", 1), ("torn", 0), ("reordered", 1)]


@pytest.mark.parametrize(("keep", "first"), MODES)
def test_a_move_that_is_cut_short_at_any_step_loses_nothing(keep: Keep, first: int) -> None:
    """What was made durable before the move must be there once, whatever the disk kept; and the move ends well."""
    places = set()
    for changes in range(first, 1000, STEP):
        disk = SimDisk(changes)
        is_done = run(lambda loop, disk=disk, changes=changes: _move_until(loop, disk, changes))  # type: ignore[misc]
        disk.crash(keep)
        places.add(run(lambda loop, disk=disk: _moved_in_the_next_life(loop, disk)))  # type: ignore[misc]
        if is_done:
            break
    assert is_done
    assert places == {"source", "target"}


async def _move_until(loop: SimLoop, disk: SimDisk, changes: int) -> bool:
    """Begin a move, end after so many changes of the disk; return whether the move was done by then."""
    machine = Machine(loop, disk=disk, **PROPERTIES)
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders", flush_messages="1", file_delete_delay_ms="0")
    for number in range(6):
        assert (await client.produce(topic, b"%d" % number)).error_code == 0
    await asyncio.sleep(3)
    assert directory_of(machine, topic) == METADATA_DIR
    loop.set_exception_handler(lambda _loop, context: None)
    disk.hook = doom = Doom(loop, changes)
    moving = loop.create_task(_move(machine, client))
    await asyncio.wait((moving, doom.crashed), return_when=asyncio.FIRST_COMPLETED)
    is_done = moving.done() and not moving.exception()
    doom.die()
    disk.hook = None
    return is_done


async def _move(machine: Machine, client: KafkaClient) -> None:
    await alter(client, SECOND_DIR, "orders", 0)
    await moved(machine)
    await asyncio.sleep(3)


async def _moved_in_the_next_life(loop: SimLoop, disk: SimDisk) -> str:
    """Start again; return where the replica was found, once it is checked."""
    machine = Machine(loop, disk=disk, start_wall_ms=START_WALL_MS + 60_000, **PROPERTIES)
    await machine.boot()
    client = machine.connect()
    (described,) = (await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12)).topics
    topic = Topic("orders", described.topic_id)
    found = "target" if directory_of(machine, topic) == SECOND_DIR else "source"
    assert await values(client, topic) == [b"%d" % number for number in range(6)]
    assert (await client.produce(topic, b"6")).error_code == 0
    await moved(machine)
    await asyncio.sleep(62)
    assert await values(client, topic) == [b"%d" % number for number in range(7)]
    assert directory_in_metadata(machine, topic) == directory_of(machine, topic)
    names = [f"{path}/{name}" for path in (METADATA_DIR, FIRST_DIR, SECOND_DIR) for name in disk.list_directory(path)]
    assert [name for name in names if "/orders-0" in name] == [f"{directory_of(machine, topic)}/orders-0"]
    await machine.stop()
    return found


@on_machine()
async def test_a_stop_in_the_middle_of_a_moves_flush_is_clean(machine: Machine) -> None:
    client = machine.connect()
    topic = await large_topic(client, 10)
    target = other_directory(machine, topic)
    stalls = {"left": 1}

    def stall(operation: str, path: str) -> None:
        if operation == "sync" and f"{target}/orders-0." in path and stalls["left"]:
            stalls["left"] = 0
            machine.loop.block(3000)

    machine.disk.hook = stall
    await alter(client, target, "orders", 0)
    await asyncio.sleep(0.5)
    assert not stalls["left"]
    await machine.stop()
    machine.disk.hook = None
    assert machine.disk.exists(f"{target}/.kafka_cleanshutdown")
    await machine.boot()
    await moved(machine)
    assert directory_of(machine, topic) == target


@on_machine()
async def test_a_source_that_cannot_be_read_any_more_is_offline_and_the_move_ends(machine: Machine) -> None:
    client = machine.connect()
    await large_topic(client, 10, FIRST_DIR)
    machine.disk.chill()
    machine.disk.fail("read", errno.EIO, path=f"{FIRST_DIR}/orders-0/")
    assert await alter(client, SECOND_DIR, "orders", 0) == [0]
    await moved(machine)
    assert machine.server._log_manager.directories.offline_paths == [FIRST_DIR]
    machine.disk.heal()


@on_machine()
async def test_a_copy_that_cannot_be_flushed_for_want_of_room_waits_for_it(machine: Machine) -> None:
    client = machine.connect()
    topic = await large_topic(client, 10)
    target = other_directory(machine, topic)
    machine.disk.fail("write", errno.ENOSPC, path="-future/leader-epoch-checkpoint", times=3)
    created = [0]
    machine.disk.hook = lambda operation, path: created.append(
        operation == "create" and path.startswith(f"{target}/orders-0.") and path.endswith("0.log")
    )
    await alter(client, target, "orders", 0)
    await moved(machine)
    machine.disk.hook = None
    assert directory_of(machine, topic) == target
    assert sum(created) == 1


@on_machine(**{THROTTLE: "100000"})
async def test_a_stopped_mover_begins_no_move_that_later_metadata_requests(machine: Machine) -> None:
    client = machine.connect()
    topic = await large_topic(client, 20)
    await alter(client, other_directory(machine, topic), "orders", 0)
    await asyncio.sleep(3)
    mover, future = machine.server._mover, machine.server._log_manager.future_logs[TopicPartition("orders", 0)]
    await mover.stop()
    copied = future.log_end_offset
    assert 0 < copied < 20
    await client.create_topic("later")
    await asyncio.sleep(3)
    assert (mover.moving_count, mover._assignments.pending_count, future.log_end_offset) == (0, 0, copied)


@on_machine()
async def test_old_metadata_does_not_undo_the_assignment_of_a_moved_directory(machine: Machine) -> None:
    """A delta is carried out in steps: by the last of them the replica may be on its way to another directory."""
    client, mover = machine.connect(), machine.server._mover
    images: list[MetadataImage] = []
    machine.server._controller.add_image_listener(lambda _delta, image: images.append(image))
    topic = await client.create_topic("orders")
    await client.produce(topic, b"0")
    await moved(machine)
    source, target = directory_of(machine, topic), other_directory(machine, topic)
    old = next(image for image in images if topic.topic_id in image.topics.by_id)
    machine.disk.hook = slow_disk(machine, sync={METADATA_DIR: 1000})
    await client.create_topic("other")
    await alter(client, target, "orders", 0)
    await asyncio.sleep(0.5)
    assert mover._assignments.is_pending(topic.topic_id, 0)
    for _ in mover.apply_delta(difference(EMPTY_IMAGE, old), old):
        pass
    await moved(machine)
    await asyncio.sleep(3)
    machine.disk.hook = None
    registered = [image.topics.by_id[topic.topic_id].partitions[0].directories[0] for image in images]
    ids = [machine.server._log_manager.directories.at(path).directory_id for path in (source, target)]
    assert [each for each, _ in itertools.groupby(registered)][1:] == ids
    assert directory_of(machine, topic) == target


@on_machine()
async def test_a_producer_waits_until_what_it_wrote_during_a_move_is_durable_where_it_is_now(machine: Machine) -> None:
    client = machine.connect()
    await alter(client, FIRST_DIR, "orders", 0)
    topic = await client.create_topic("orders", flush_messages="1")
    await moved(machine)
    machine.disk.hook = slow_disk(machine, sync={FIRST_DIR: 5000, METADATA_DIR: 1000})
    first = asyncio.create_task(machine.connect().produce(topic, b"0"))
    await asyncio.sleep(0.1)
    await alter(client, SECOND_DIR, "orders", 0)
    await asyncio.sleep(0.5)
    second = asyncio.create_task(machine.connect().produce(topic, b"1"))
    await asyncio.sleep(1)
    assert directory_of(machine, topic) == SECOND_DIR
    assert not second.done()
    assert [(await response).error_code for response in (first, second)] == [0, 0]
    assert machine.logs()[TopicPartition("orders", 0)].recovery_point == 2
    machine.disk.hook = None


@pytest.mark.parametrize("api", ["fetch", "list_offset"])
def test_a_disk_that_fails_under_a_read_is_blamed_though_the_replica_has_left_it(api: str) -> None:
    @on_machine()
    async def test(machine: Machine) -> None:
        client = machine.connect()
        topic = await large_topic(client, 3, FIRST_DIR)
        await client.produce(topic, b"3", b"4", b"5")
        await moved(machine)
        machine.disk.hook = slow_disk(machine, sync={METADATA_DIR: 1000}, read={FIRST_DIR: 3000})
        await alter(client, SECOND_DIR, "orders", 0)
        await asyncio.sleep(0.5)
        machine.disk.chill()
        machine.disk.fail("read", errno.EIO, path=f"{FIRST_DIR}/orders-0/")
        call = client.fetch(topic, 4) if api == "fetch" else client.list_offset(topic, 1)
        response = asyncio.create_task(call)
        await asyncio.sleep(1)
        assert (directory_of(machine, topic), response.done()) == (SECOND_DIR, False)
        assert (await response).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert machine.server._log_manager.directories.offline_paths == [FIRST_DIR]
        machine.disk.hook = None
        machine.disk.heal()

    test()
