"""Three combined nodes whose cores do nothing but serve produces: what becomes of elections and sessions meanwhile.

A node's core takes RECORD_MS for each record that it appends as leader, FOLLOWER_MS as follower; its callbacks wait
meanwhile. Its client keeps DEPTH requests on their way, far more than it serves in a pass of its loop. All
timeouts are Kafka's defaults.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kafkapy.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from kafkapy.record.builder import build_batch
from tests.simulator.cluster_checker import ClusterChecker
from tests.simulator.cluster_clients import Client, LostError, produce_request
from tests.simulator.cluster_world import PROPERTIES, ClusterWorld, Computer, combined
from tests.simulator.loop import START_WALL_MS
from tests.simulator.process_lives import BusyLoop, ProcessLoop, run_processes

TOPIC: Final = "load"
NODES: Final = (1, 2, 3)
RECORD_MS: Final = 10.0
FOLLOWER_MS: Final = 0.5
CONNECTIONS: Final = 12
"""To each node."""
DEPTH: Final = 5
"""Requests of a connection that are on their way, as of Java's producer."""
SECONDS: Final = 60.0
VALUE: Final = bytes(40)
BATCH: Final = bytes(build_batch([(START_WALL_MS, None, VALUE, ())]))
KAFKAS: Final = {
    "broker_heartbeat_interval_ms": "2000",
    "broker_session_timeout_ms": "9000",
    "controller_quorum_election_timeout_ms": "1000",
    "controller_quorum_fetch_timeout_ms": "2000",
    "controller_quorum_request_timeout_ms": "2000",
    "controller_quorum_retry_backoff_ms": "20",
    "replica_lag_time_max_ms": "30000",
    "replica_socket_timeout_ms": "30000",
    "replica_fetch_wait_max_ms": "500",
    "replica_fetch_backoff_ms": "1000",
    "metadata_max_idle_interval_ms": "500",
    "internal_metadata_log_segment_bytes": "1000000",
    "metadata_log_max_record_bytes_between_snapshots": "1000000",
}
assert {key.replace("_", ".") for key in KAFKAS} <= {*PROPERTIES}, "each replaces a shorter one of the simulation"


@dataclass
class Outcome:
    """What a load has done to the cluster."""

    served: int
    """Produces that were answered."""
    busy: list[float]
    """The share of the time that each node's core computed."""
    elections: int
    """Epochs of the metadata quorum that began."""
    fencings: int
    """Changes of the partitions' leaders."""


class Flood(Client):
    """Keeps DEPTH produces of one record each on their way to the leader of a partition."""

    def __init__(self, world: ClusterWorld, checker: ClusterChecker, number: int, partition: int) -> None:
        super().__init__(world, checker, f"flood-{number}", number)
        self._partition = partition
        self._sent: deque[asyncio.Future[Any]] = deque()

    async def step(self) -> None:
        place = await self.place(TOPIC, self._partition)
        while len(self._sent) < DEPTH:
            request = produce_request(place, TOPIC, self._partition, BATCH)
            request.acks = 1
            self._sent.append(await self.connections.send(place.leader_id, request))
        try:
            response = (await self._sent.popleft()).responses[0].partition_responses[0]
        except LostError:
            self._sent.clear()
            raise
        assert response.error_code == 0
        self.progress += 1


def saturate(*, seconds: float = SECONDS, seed: int = 1) -> Outcome:
    """Return what a load of so many seconds has done."""

    async def main(loop: ProcessLoop) -> Outcome:
        world = ClusterWorld(loop, seed, combined(len(NODES)), **KAFKAS)
        world.start()
        await world.until(world.is_whole, 30, "the cluster starts")
        checker = ClusterChecker(world)
        floods = [Flood(world, checker, number, number % len(NODES)) for number in range(CONNECTIONS * len(NODES))]
        await _create_topic(floods[0])
        await world.until(lambda: len(world.registrations()) == len(NODES) and world.is_whole(), 30, "a whole topic")
        elections, fencings = _epochs(world)
        for computer in world.computers.values():
            computer.disk.hook = _core(computer)
        tasks = [loop.create_task(flood.run()) for flood in floods]
        end = loop.now + seconds
        while loop.now < end:
            world.check()
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        elections_since, fencings_since = _epochs(world)
        return Outcome(
            served=sum(flood.progress for flood in floods),
            busy=[each.life.busy_s / seconds for each in world.computers.values() if each.life is not None],
            elections=elections_since - elections,
            fencings=fencings_since - fencings,
        )

    return run_processes(main, seed=seed, limit_seconds=600, new_loop=BusyLoop)


async def _create_topic(client: Client) -> None:
    """Create a partition for each node, which is its leader; the others follow."""
    assignments = [
        CreatableReplicaAssignment(node_id - 1, broker_ids=[node_id, *({*NODES} - {node_id})]) for node_id in NODES
    ]
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments)
    response = await client.connections.send_to_any(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    assert response.topics[0].error_code == 0


def _epochs(world: ClusterWorld) -> tuple[int, int]:
    """Return the epoch of the quorum, and the sum of the epochs of the partitions: each fenced broker led one."""
    epochs = [
        each.server.node.quorum_node.quorum.leader_epoch for each in world.computers.values() if each.server is not None
    ]
    return max(epochs), sum(each.leader_epoch for each in world.registrations().values())


def _core(computer: Computer) -> Callable[[str, str], None]:
    """Return a disk's hook, by which what is appended takes the node's core its time."""
    led = f"{TOPIC}-{computer.node_id - 1}/"

    def spend(operation: str, path: str) -> None:
        if operation == "write" and f"/{TOPIC}-" in path and path.endswith(".log"):
            assert computer.disk.under_way is not None
            assert computer.life is not None
            records = len(computer.disk.under_way[1][1]) / len(BATCH)
            computer.life.spend(records * (RECORD_MS if led in path else FOLLOWER_MS))

    return spend
