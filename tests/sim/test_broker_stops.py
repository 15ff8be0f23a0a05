"""How a whole broker stops: where something fails on the way, with more to do than time, after half a start."""

import asyncio
import errno
import socket
from collections.abc import Mapping

import pytest

from kafkapy.errors import ApiError, KafkapyError, StorageError
from kafkapy.metadata.image import RESOURCE_BROKER
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.runtime.broker.lifecycle import SHUTDOWN_TIMEOUT_MS
from kafkapy.runtime.logs.log_dir_mover import THROTTLE_KEY
from kafkapy.server.broker import GRACE_MS
from kafkapy.storage.checkpoint import CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_FILE, HIGH_WATERMARK_FILE
from tests.sim.test_broker_failures import FIRST_DIR, GONE, METADATA_DIR, PROPERTIES, SECOND_DIR, is_in, offline_paths
from tests.simulator.broker_world import DATA_DIR, KafkaClient, Machine, values_of
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop

TOPICS = [f"t{number}" for number in range(6)]


async def set_broker_configs(client: KafkaClient, configs: Mapping[str, str]) -> None:
    entries = [AlterableConfig(name=name, value=value) for name, value in configs.items()]
    resource = AlterConfigsResource(resource_type=RESOURCE_BROKER, resource_name="", configs=entries)
    (result,) = (await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
    assert result.error_code == 0, result


@pytest.mark.parametrize(
    ("operation", "code", "raised"), [("create", errno.ENOSPC, ApiError), ("truncate", errno.EIO, StorageError)]
)
async def test_a_metadata_log_that_cannot_be_closed_costs_no_other_directory_its_clean_stop(
    loop: SimLoop, operation: str, code: int, raised: type[KafkapyError]
) -> None:
    machine = Machine(loop, **PROPERTIES)
    await machine.boot()
    client = machine.connect()
    topics = [await client.create_topic(name) for name in TOPICS]
    for topic in topics:
        await client.produce(topic, b"v")
    machine.disk.fail(operation, code, path=f"{METADATA_DIR}/__cluster_metadata-0")
    with pytest.raises(raised):
        await machine.stop()
    assert not machine.disk.locked
    clean = [machine.disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}") for path in (METADATA_DIR, FIRST_DIR, SECOND_DIR)]
    assert clean == [False, True, True]
    machine.disk.crash("none")
    await machine.boot()
    client = machine.connect()
    assert {(await client.produce(topic, b"later")).base_offset for topic in topics} == {1}
    await machine.stop()


async def test_a_failing_start_closes_the_metadata_before_it_logs_that_all_is_closed(
    loop: SimLoop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fails at a name that is not known, and the metadata log's disk from then on."""

    disk = SimDisk()
    machine = Machine(loop, disk=disk)
    await machine.boot()
    topic = await machine.connect().create_topic("orders")
    await machine.stop()

    def resolve(*_: object, **__: object) -> None:
        disk.fail("truncate", errno.EIO, path=f"{DATA_DIR}/__cluster_metadata-0")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(StorageError) as caught:
        await Machine(loop, disk=disk, max_connections_per_ip_overrides="gone:7").boot()
    assert isinstance(caught.value.__context__, OSError)
    assert not disk.locked
    assert not disk.exists(f"{DATA_DIR}/{CLEAN_SHUTDOWN_FILE}")
    disk.heal()
    await machine.boot()
    assert (await machine.connect().produce(topic, b"v")).error_code == ErrorCode.NONE
    await machine.stop()


async def test_a_stop_waits_for_large_changes_and_moves_no_longer_than_its_bound_and_leaves_nothing_running(
    loop: SimLoop,
) -> None:
    """On a disk that takes a tenth of a second to make a directory, while a thousand are to be made."""

    machine = Machine(loop, log_dirs=f"{FIRST_DIR},{SECOND_DIR}", metadata_log_dir=FIRST_DIR)
    await machine.boot()
    client = machine.connect()
    orders = await client.create_topic("orders")
    await client.produce(orders, b"v")
    target = FIRST_DIR if is_in(machine, orders, SECOND_DIR) else SECOND_DIR
    await set_broker_configs(client, {THROTTLE_KEY: "0"})
    move = AlterReplicaLogDirTopic(name="orders", partitions=[0])
    await client.call(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[move])]), 2)
    machine.disk.hook = lambda operation, _: loop.block(100.0) if operation == "make_directory" else None
    creating = asyncio.ensure_future(machine.connect().create_topic("large", 1000))
    await asyncio.sleep(1)
    started = loop.time()
    await machine.stop()
    assert loop.time() - started < (SHUTDOWN_TIMEOUT_MS + 3 * GRACE_MS) / 1000
    with pytest.raises(EOFError):
        await creating
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("name", [HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE])
async def test_a_checkpoint_that_cannot_be_read_takes_its_directory_offline(loop: SimLoop, name: str) -> None:
    machine = Machine(loop, **PROPERTIES)
    await machine.boot()
    client = machine.connect()
    topics = [await client.create_topic(topic, cleanup_policy="compact") for topic in TOPICS]
    for topic in topics:
        await client.produce(topic, b"v", key=b"k")
    await asyncio.sleep(60)
    await machine.stop()
    assert machine.disk.exists(f"{SECOND_DIR}/{name}")
    machine.disk.fail("read", errno.EIO, path=f"{SECOND_DIR}/{name}")
    await machine.boot()
    client = machine.connect()
    assert await offline_paths(client) == [SECOND_DIR]
    for topic in topics:
        response = await client.fetch(topic, 0)
        assert (response.error_code in GONE) == is_in(machine, topic, SECOND_DIR)
        assert response.error_code in GONE or values_of(response) == [b"v"]
    await machine.stop()


@pytest.mark.parametrize("name", [HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE])
async def test_a_start_that_fails_leaves_nothing_running(loop: SimLoop, name: str) -> None:
    machine = Machine(loop)
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders", cleanup_policy="compact")
    await client.produce(topic, b"v", key=b"k")
    await asyncio.sleep(60)
    await machine.stop()
    machine.disk.fail("read", errno.EIO, path=f"{DATA_DIR}/{name}")
    with pytest.raises(StorageError):
        await machine.boot()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not machine.disk.locked
    await machine.boot()
    assert (await machine.connect().produce(topic, b"w", key=b"k")).error_code == ErrorCode.NONE
    await machine.stop()
