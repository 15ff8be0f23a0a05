"""Listeners that were changed while a broker ran: what its next start makes of them."""

import asyncio
from collections.abc import Mapping
from typing import Any

from kafkapy.metadata.image import RESOURCE_BROKER
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.server.broker import BrokerServer
from tests.simulator.broker_world import KafkaClient, Machine
from tests.simulator.cluster_clients import Connections
from tests.simulator.cluster_world import ClusterWorld
from tests.simulator.loop import SimLoop
from tests.simulator.network import SimClient, SimNetwork
from tests.simulator.process_lives import ProcessLoop, run_processes
from tests.support.logins import PLAIN_MODULE

OWN = "PLAINTEXT://127.0.0.1:9092"
LOGIN = "LOGIN://127.0.0.1:9095"
USERS_KEY = "listener.name.login.plain.sasl.jaas.config"


def change_of(configs: Mapping[str, str]) -> IncrementalAlterConfigsRequest:
    """Return the request to change configs of broker 1."""
    entries = [AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=RESOURCE_BROKER, resource_name="1", configs=entries)
    return IncrementalAlterConfigsRequest(resources=[resource])


def listens(network: SimNetwork, address: tuple[str, int]) -> bool:
    listener = network._listeners.get(address)
    return listener is not None and not listener.is_closed


def test_a_broker_of_a_cluster_listens_after_a_restart_as_it_was_told_before() -> None:
    """It binds its listeners before it knows the metadata."""
    address = ("10.0.0.1", 9094)
    configs = {
        "listeners": "PLAINTEXT://10.0.0.1:9092,EXTRA://10.0.0.1:9094",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
        "max.connections": "77",
    }

    async def main(loop: ProcessLoop) -> None:
        world = ClusterWorld(loop, 1, {1: "broker", 2: "broker", 3: "controller"})
        world.start()
        await world.until(world.is_whole, 30, "the cluster starts")
        response = await Connections(world, "admin", "10.1.0.1").call(1, change_of(configs), 1)
        assert response.responses[0].error_code == 0, response
        await world.until(lambda: listens(world.network, address), 5, "it listens")
        world.computers[1].kill()
        assert not listens(world.network, address)
        await world.until(world.is_whole, 30, "the broker starts again")
        server = world.computers[1].server
        assert isinstance(server, BrokerServer)
        assert listens(world.network, address)
        assert server._edge._limits.max_connections == 77

    run_processes(main, seed=1, limit_seconds=100)


def with_a_listener_for_logins(loop: SimLoop) -> Machine:
    users: dict[str, Any] = {USERS_KEY.replace(".", "_"): f'{PLAIN_MODULE} user_alice="secret";'}
    return Machine(
        loop,
        listeners=f"{OWN},{LOGIN}",
        advertised_listeners=OWN,
        listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        **users,
    )


async def test_what_a_removed_listener_needs_does_not_keep_a_broker_from_starting(loop: SimLoop) -> None:
    machine = with_a_listener_for_logins(loop)
    await machine.boot()
    controllers = str(machine.config.originals["listeners"]).rpartition(",")[2]
    client = machine.connect()
    for configs in ({"listeners": f"{OWN},{controllers}"}, {USERS_KEY: "nobody knows"}):
        response = await client.call(change_of(configs), 1)
        assert response.responses[0].error_code == 0, response
    assert not listens(machine.network, ("127.0.0.1", 9095))
    await machine.stop()
    await machine.boot()
    assert not listens(machine.network, ("127.0.0.1", 9095))
    await machine.connect().init_producer_id()
    await machine.stop()


async def test_a_listener_that_is_removed_leaves_nothing_behind(loop: SimLoop) -> None:
    machine = with_a_listener_for_logins(loop)
    await machine.boot()
    static = machine.config.originals
    protocols = f"{static['listener.security.protocol.map']},EXTRA:PLAINTEXT"
    extra = {"listeners": f"{static['listeners']},EXTRA://127.0.0.1:9096", "listener.security.protocol.map": protocols}
    admin = machine.connect()
    for configs in (extra, {"listeners": static["listeners"]}):
        response = await admin.call(change_of(configs), 1)
        assert response.responses[0].error_code == 0, response
        if configs is extra:
            client = KafkaClient(SimClient(machine.network.connect(("127.0.0.1", 9096))), machine)
            await client.init_producer_id()
    await client.link.wait_end()
    reactor = machine.server._reactor
    assert reactor.connection_count == 1
    assert set(reactor._quotas._by_listener) == {"PLAINTEXT"}
    assert [each.listener_name for each in reactor.acceptors] == ["PLAINTEXT", "LOGIN"]
    await machine.stop()


async def test_a_listener_that_is_added_during_a_stop_is_not_bound(loop: SimLoop) -> None:
    machine = with_a_listener_for_logins(loop)
    await machine.boot()
    edge, current = machine.server._edge, machine.server.node.dynamic_config
    stopping = asyncio.ensure_future(machine.stop())
    await asyncio.sleep(0)
    extra = f"{current.static.originals['listeners']},EXTRA://127.0.0.1:9096"
    protocols = f"{current.static.originals['listener.security.protocol.map']},EXTRA:PLAINTEXT"
    current.update(cluster={}, broker={"listeners": extra, "listener.security.protocol.map": protocols})
    await stopping
    assert edge._applied is current.current
    assert not listens(machine.network, ("127.0.0.1", 9096))
