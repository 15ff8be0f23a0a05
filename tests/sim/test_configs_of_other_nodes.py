"""A node takes up its own configs and the cluster's defaults, and rereads its files then: not with those of others."""

import asyncio

import pytest

from kafkapy.metadata.image import RESOURCE_BROKER
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.simulator.cluster_clients import Connections
from tests.simulator.cluster_world import ClusterWorld
from tests.simulator.process_lives import ProcessLoop, run_processes


@pytest.mark.parametrize(("name", "readers"), [("1", {1}), ("2", {2}), ("", {1, 2, 3})])
def test_configs_are_taken_up_by_the_nodes_that_they_are_of(name: str, readers: set[int]) -> None:
    async def main(loop: ProcessLoop) -> set[int]:
        world = ClusterWorld(loop, 1, {1: "broker", 2: "broker", 3: "controller"})
        world.start()
        await world.until(world.is_whole, 30, "the cluster starts")
        has_read: set[int] = set()
        for node_id, computer in world.computers.items():
            assert computer.server is not None
            computer.server.node.dynamic_config.add_reader(lambda _config, node_id=node_id: has_read.add(node_id))
        change = AlterableConfig(name="message.max.bytes", value="2000")
        resource = AlterConfigsResource(resource_type=RESOURCE_BROKER, resource_name=name, configs=[change])
        client = Connections(world, "admin", "10.1.0.1")
        response = await client.call(int(name or "1"), IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert response.responses[0].error_code == 0, response
        await asyncio.sleep(2)
        return has_read

    assert run_processes(main, seed=1, limit_seconds=100) == readers
