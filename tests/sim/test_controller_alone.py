"""A node that is a controller alone, on a simulated machine: what it serves, and what it leaves in its directory."""

import asyncio

import pytest

from kafkapy.errors import ApiError
from kafkapy.metadata.image import RESOURCE_BROKER, RESOURCE_BROKER_LOGGER
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.server.controller import ControllerServer
from kafkapy.server.quorum_node import Network
from kafkapy.storage.checkpoint import CLEAN_SHUTDOWN_FILE, HIGH_WATERMARK_FILE
from tests.simulator.broker_world import ADDRESS, DATA_DIR, Machine
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop, run
from tests.simulator.network import SimConnector

ALONE = {
    "process_roles": "controller",
    "listeners": "CONTROLLER://127.0.0.1:9092",
    "security_inter_broker_protocol": "PLAINTEXT",
}
CONTROLLERS = 2
CLEAN = f"{DATA_DIR}/{CLEAN_SHUTDOWN_FILE}"
CHECKPOINT = f"{DATA_DIR}/{HIGH_WATERMARK_FILE}"


class ControllerMachine(Machine):
    """A machine whose node is a controller alone."""

    async def boot(self) -> None:
        self.format()
        self.controller = ControllerServer(
            self.config,
            disk=self.disk,
            clock=self.clock,
            random=self.random,
            new_io_pool=self._new_io_pool,
            network=Network(self._listen, lambda _loop: SimConnector(self.network, ADDRESS[0])),
        )
        await self.controller.start()

    async def stop(self) -> None:
        await self.controller.stop()


async def test_it_describes_the_controllers_and_no_broker(loop: SimLoop) -> None:
    machine = ControllerMachine(loop, **ALONE)
    await machine.boot()
    client = machine.connect()
    response = await client.call(DescribeClusterRequest(endpoint_type=CONTROLLERS), 2)
    assert (response.error_code, response.controller_id) == (ErrorCode.NONE, 1)
    assert [(node.broker_id, node.host, node.port) for node in response.brokers] == [(1, "127.0.0.1", 9092)]
    refused = await client.call(DescribeClusterRequest(endpoint_type=1), 2)
    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert "endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER" in refused.error_message
    await machine.stop()


async def test_its_own_configs_are_set_and_described_and_no_other_nodes_loggers(loop: SimLoop) -> None:
    machine = ControllerMachine(loop, **ALONE)
    await machine.boot()
    client = machine.connect()
    own = AlterConfigsResource(
        RESOURCE_BROKER, resource_name="1", configs=[AlterableConfig("max.connections", config_operation=0, value="77")]
    )
    loggers = AlterConfigsResource(
        RESOURCE_BROKER_LOGGER,
        resource_name="2",
        configs=[AlterableConfig("kafkapy", config_operation=0, value="INFO")],
    )
    changed = await client.call(IncrementalAlterConfigsRequest(resources=[own, loggers]), 1)
    codes = {result.resource_type: result.error_code for result in changed.responses}
    assert codes == {RESOURCE_BROKER: ErrorCode.NONE, RESOURCE_BROKER_LOGGER: ErrorCode.INVALID_REQUEST}
    requested = DescribeConfigsResource(RESOURCE_BROKER, resource_name="1", configuration_keys=["max.connections"])
    (described,) = (await client.call(DescribeConfigsRequest(resources=[requested]), 4)).results
    assert [(entry.name, entry.value) for entry in described.configs] == [("max.connections", "77")]
    await machine.stop()


async def test_its_changes_are_committed_while_all_workers_of_the_io_pool_wait_for_the_disk(loop: SimLoop) -> None:
    machine = ControllerMachine(loop, **ALONE)
    await machine.boot()
    for _ in range(machine.io_pool.worker_count):
        machine.io_pool.submit(lambda: loop.block(10_000), lambda *_: None)
    await asyncio.sleep(0.001)
    began = loop.time()
    own = AlterConfigsResource(
        RESOURCE_BROKER, resource_name="1", configs=[AlterableConfig("max.connections", config_operation=0, value="77")]
    )
    changed = await machine.connect().call(IncrementalAlterConfigsRequest(resources=[own]), 1)
    assert changed.responses[0].error_code == ErrorCode.NONE
    assert loop.time() - began < 1
    await machine.stop()


@pytest.mark.parametrize("was_clean", [True, False])
def test_logs_of_a_former_broker_stay_as_they_are_and_are_not_called_clean_unless_they_were(was_clean: bool) -> None:
    disk = SimDisk()

    async def as_broker(loop: SimLoop) -> None:
        machine = Machine(loop, disk=disk)
        await machine.boot()
        await machine.connect().create_topic("orders")
        await machine.stop()

    run(as_broker)
    if not was_clean:
        disk.delete(CLEAN)
    checkpoint = disk.read_file(CHECKPOINT)

    async def as_controller(loop: SimLoop) -> None:
        machine = ControllerMachine(loop, disk=disk, **ALONE)
        await machine.boot()
        assert not disk.exists(CLEAN)
        await machine.stop()

    run(as_controller)
    assert disk.exists(CLEAN) is was_clean
    assert disk.read_file(CHECKPOINT) == checkpoint
    assert not disk.locked


async def test_a_start_that_takes_too_long_names_the_key_and_what_it_waited_for(loop: SimLoop) -> None:
    machine = Machine(
        loop,
        listeners="PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        controller_quorum_voters="1@127.0.0.1:9093,2@127.0.0.1:9094",
        controller_quorum_bootstrap_servers="",
        server_max_startup_time_ms="3000",
    )
    with pytest.raises(ApiError, match=r"server\.max\.startup\.time\.ms=3000 ms, waiting for the registration"):
        await machine.boot()
    assert not machine.disk.locked
