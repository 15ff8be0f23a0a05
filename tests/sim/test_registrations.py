"""A broker that cannot register, as its node id is taken or it has no right to, does not start, and says why."""

import asyncio
import errno
from typing import Any

import pytest

from kafkapy.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from kafkapy.security.authorizer import AllowAll
from tests.simulator.cluster_world import ClusterWorld, Computer, combined, host_of
from tests.simulator.process_lives import ProcessLoop, run_processes

TIMEOUT_MS = 3000


class Twin(Computer):
    """A computer whose broker has the node id of another one."""

    def properties(self) -> dict[str, str]:
        return {**super().properties(), "node.id": "2"}


class NoRegistrations(AllowAll):
    allows_everything = False

    def authorize(self, requester: Any, *_question: object, **_manner: object) -> bool:
        return bool(requester.api_key != BrokerRegistrationRequest.API_KEY)


def test_a_start_that_finds_its_node_id_taken_says_so() -> None:
    async def main(loop: ProcessLoop) -> None:
        roles = {1: "controller", 2: "broker"}
        world = ClusterWorld(loop, 0, roles, initial_broker_registration_timeout_ms=str(TIMEOUT_MS))
        world.start()
        await world.until(world.is_whole, 10, "the first broker serves")
        twin = Twin(world, 3, "broker")
        twin.format()
        supervisor = loop.create_task(twin.supervise())
        await world.until(lambda: bool(world.history), 10, "the second broker gives up")
        assert not supervisor.done()
        assert "DUPLICATE_BROKER_REGISTRATION: another process is registered with node.id=2" in world.history[0]
        assert f"initial.broker.registration.timeout.ms={TIMEOUT_MS}" in world.history[0]
        assert "majority" not in world.history[0]

    run_processes(main, seed=0, limit_seconds=60)


def test_a_start_without_a_controller_says_so() -> None:
    async def main(loop: ProcessLoop) -> None:
        roles = {1: "controller", 2: "broker"}
        world = ClusterWorld(loop, 0, roles, initial_broker_registration_timeout_ms=str(TIMEOUT_MS))
        world.computers[1].is_held = True
        world.start()
        await world.until(lambda: bool(world.history), 10, "the broker gives up")
        assert "No controller appears to be active. Is a majority of the controllers running?" in world.history[0]

    run_processes(main, seed=0, limit_seconds=60)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_start_whose_metadata_directory_fails_says_so(is_late: bool) -> None:
    """Not that a registration without directories is invalid. is_late: it fails while the broker waits to register."""

    async def main(loop: ProcessLoop) -> None:
        world = ClusterWorld(loop, 0, combined(3))
        world.start()
        await world.until(world.is_whole, 10, "all serve")
        computer = world.computers[3]
        links = {(host_of(node_id), computer.host) for node_id in (1, 2)} if is_late else set()
        world.network.packets.cut |= links
        computer.kill()
        life_count = computer.life_count
        computer.has_disk_fault = True
        if is_late:
            await world.until(lambda: computer.life_count > life_count, 10, "the broker starts")
            await asyncio.sleep(1)
        computer.disk.fail("write", errno.EIO, path="/quorum-state")
        world.network.packets.cut -= links
        await world.until(lambda: bool(world.history), 5, "the broker gives up")
        assert "node 3 ends: StorageError(" in world.history[0]
        assert "quorum-state" in world.history[0]

    run_processes(main, seed=0, limit_seconds=60)


def test_of_two_brokers_that_start_with_one_id_the_first_to_register_ends_and_says_what_to_do() -> None:
    async def main(loop: ProcessLoop) -> None:
        world = ClusterWorld(loop, 0, {1: "controller", 2: "broker"})
        twin = Twin(world, 3, "broker")
        twin.format()
        supervisor = loop.create_task(twin.supervise())
        world.start()
        await world.until(lambda: bool(world.history), 20, "one of them gives up")
        assert not supervisor.done()
        assert "STALE_BROKER_EPOCH" in world.history[0]
        assert "another process has registered with node.id=2 after this one" in world.history[0]

    run_processes(main, seed=0, limit_seconds=60)


def test_a_start_without_the_right_to_register_says_so() -> None:
    async def main(loop: ProcessLoop) -> None:
        roles = {1: "controller", 2: "broker"}
        world = ClusterWorld(loop, 0, roles, initial_broker_registration_timeout_ms=str(TIMEOUT_MS))
        world.computers[2].is_held = True
        world.start()
        await world.until(lambda: world.computers[1].is_serving, 10, "the controller serves")
        server = world.computers[1].server
        assert server is not None
        assert server.node.quorum_node.services is not None
        server.node.quorum_node.services.authorizer = NoRegistrations()
        world.computers[2].is_held = False
        await world.until(lambda: bool(world.history), 20, "the broker gives up")
        assert "CLUSTER_AUTHORIZATION_FAILED: the controllers do not allow this node's principal" in world.history[0]

    run_processes(main, seed=0, limit_seconds=60)


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_a_restart_in_order_does_not_wait_for_the_session_of_the_incarnation_before(node_id: int) -> None:
    async def main(loop: ProcessLoop) -> None:
        world = ClusterWorld(loop, 0, combined(3), broker_session_timeout_ms="9000")
        world.start()
        await world.until(world.is_whole, 10, "the cluster serves")
        await world.computers[node_id].stop()
        await world.until(world.is_whole, 3, "the node serves again")

    run_processes(main, seed=0, limit_seconds=60)
