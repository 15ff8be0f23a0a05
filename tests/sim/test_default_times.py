"""What a client waits for with Kafka's default times: no time-out at first, one session after a failure.

The simulated machine costs no CPU: what it waits for is what the nodes wait for.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

import pytest

from kafkapy.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from kafkapy.types import TopicPartition
from tests.simulator.cluster_checker import ClusterChecker
from tests.simulator.cluster_clients import Client, LostError, produce_request
from tests.simulator.cluster_world import ClusterWorld, combined
from tests.simulator.disk import Keep
from tests.simulator.process_lives import ProcessLoop, run_processes
from tests.simulator.saturation import KAFKAS
from tests.support.batches import build_batch

DEFAULT_TIMES: Final = {**KAFKAS, "internal_metadata_max_batch_size_in_bytes": "1000000"}
TOPIC: Final = "orders"
PARTITIONS: Final = 300
MAKING_MS: Final = 5
"""What making a directory takes on a slow disk: four times as much on ext4 where many files were deleted lately."""
START_S: Final = 60
SESSION_S: Final = 9
ELECTION_S: Final = 4
"""A follower's fetch that times out, and an election of controllers whose first votes may tie."""


class Writer(Client):
    """Writes one record after another; `longest_s`: the longest time without an acknowledgement."""

    def __init__(self, world: ClusterWorld, number: int, partition: int) -> None:
        super().__init__(world, ClusterChecker(world, ()), "writer", number)
        self._partition = partition
        self._last_s = world.loop.now
        self.longest_s = 0.0

    async def step(self) -> None:
        try:
            place = await self.place(TOPIC, self._partition)
            request = produce_request(place, TOPIC, self._partition, build_batch([(0, None, b"x", ())]))
            response = (await self.connections.call(place.leader_id, request)).responses[0].partition_responses[0]
            if response.error_code:
                raise LostError(response.error_code)
        except LostError:
            self.forget_place(TOPIC, self._partition)
            raise
        self.progress += 1
        self.longest_s = max(self.longest_s, self.world.loop.now - self._last_s)
        self._last_s = self.world.loop.now


async def started(loop: ProcessLoop, seed: int, count: int, *, io_ms: float = 1.0) -> ClusterWorld:
    """Start a cluster; `io_ms`: what each call takes that the nodes leave to their threads for I/O."""
    world = ClusterWorld(loop, seed, combined(count), **DEFAULT_TIMES)
    world.io_ms = io_ms
    world.start()
    await world.until(world.is_whole, START_S, "the cluster starts")
    return world


async def create(world: ClusterWorld, **fields: Any) -> None:
    client = Writer(world, 9, 0)
    request = CreateTopicsRequest(topics=[CreatableTopic(TOPIC, **fields)], timeout_ms=60_000)
    (created,) = (await client.connections.send_to_any(request)).topics
    assert not created.error_code
    client.connections.close()


async def first_record(world: ClusterWorld, number: int) -> float:
    """Write the first record of one of the partitions; return how long that took."""
    writer = Writer(world, 10 + number, number * 7 % PARTITIONS)
    while not writer.progress:
        try:
            await writer.step()
        except LostError:
            await writer.pause()
    return writer.longest_s


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("io_ms", [1.0, 20.0])
def test_first_records_of_many_new_partitions_wait_for_no_time_out(seed: int, io_ms: float) -> None:
    async def main(loop: ProcessLoop) -> None:
        world = await started(loop, seed, 3, io_ms=io_ms)
        await create(world, num_partitions=PARTITIONS, replication_factor=3)
        writers: list[Awaitable[float]] = [first_record(world, number) for number in range(40)]
        assert max(await asyncio.gather(*writers)) < 2  # 3,000 partitions: 0.71 s at most, of six seeds

    run_processes(main, seed=seed, limit_seconds=600)


def make_slowly(world: ClusterWorld) -> list[str]:
    """Let it take MAKING_MS to make a directory of the topic; return the list of those that were made."""
    made: list[str] = []

    def hook(operation: str, path: str) -> None:
        if operation == "make_directory" and TOPIC in path:
            made.append(path)
            world.loop.block(MAKING_MS)

    for computer in world.computers.values():
        computer.disk.hook = hook
    return made


@pytest.mark.parametrize("seed", range(2))
def test_first_records_do_not_wait_until_the_last_of_many_new_partitions_is_made(seed: int) -> None:
    async def main(loop: ProcessLoop) -> None:
        world = await started(loop, seed, 3)
        made = make_slowly(world)
        await create(world, num_partitions=PARTITIONS, replication_factor=3)
        assert len(made) < PARTITIONS, "the topic is told of, but not made yet"
        await first_record(world, 0)
        assert len(made) < 2.5 * PARTITIONS
        await world.until(lambda: len(made) == 3 * PARTITIONS, START_S, "all are made")

    run_processes(main, seed=seed, limit_seconds=600)


@pytest.mark.parametrize("keep", ["all", "none", "reordered"])
@pytest.mark.parametrize("seed", range(2))
def test_a_node_that_dies_while_it_makes_many_partitions_makes_the_others_at_its_next_start(
    seed: int, keep: Keep
) -> None:
    """What was acknowledged meanwhile is there; a loss of power takes the directories that were not synced."""

    async def main(loop: ProcessLoop) -> None:
        world = await started(loop, seed, 3)
        made = make_slowly(world)
        await create(world, num_partitions=PARTITIONS, replication_factor=3)
        await first_record(world, 0)
        assert len(made) < 3 * PARTITIONS
        world.computers[1 + seed].cut_power(keep)
        for computer in world.computers.values():
            computer.disk.hook = None
        await asyncio.sleep(1)
        await world.until(world.is_whole, START_S, "it is in sync again")
        hosted = [{each.topic_partition: each for each in node.partitions()} for node in world.computers.values()]
        assert [len(partitions) for partitions in hosted] == [PARTITIONS] * 3
        ends = [partitions[TopicPartition(TOPIC, 0)].log.log_end_offset for partitions in hosted]
        assert ends == [ends[0]] * 3
        assert ends[0] > 0
        await first_record(world, 1)

    run_processes(main, seed=seed, limit_seconds=600)


@pytest.mark.parametrize("seed", range(2))
def test_a_leader_that_dies_as_the_active_controller_is_missed_for_an_election_and_a_session(seed: int) -> None:
    async def main(loop: ProcessLoop) -> None:
        world = await started(loop, seed, 5)
        first = active(world)
        replicas = [first, *[node_id for node_id in world.computers if node_id != first][:2]]
        assigned = [CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)]
        await create(world, num_partitions=-1, replication_factor=-1, assignments=assigned)
        await world.until(world.is_whole, START_S, "the topic is made")
        writer = Writer(world, 8, 0)
        writing = loop.create_task(writer.run())
        await asyncio.sleep(3)
        world.computers[first].is_held = True
        world.computers[first].kill()
        written = writer.progress
        await world.until(lambda: writer.progress > written + 10, START_S, "another leader takes records")
        writer.is_over = True
        await writing
        assert SESSION_S < writer.longest_s < SESSION_S + ELECTION_S + 1

    run_processes(main, seed=seed, limit_seconds=600)


def active(world: ClusterWorld) -> int:
    """Return the active controller's node."""
    servers = {node_id: each.server for node_id, each in world.computers.items() if each.server is not None}
    (found,) = [node_id for node_id, server in servers.items() if server.node.controller.is_active]
    return found
