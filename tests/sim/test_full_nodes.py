"""A node of three whose disk is full: others lead in its place and nobody waits for it, until it has room again."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pytest

from kafkapy.handlers.stale_metadata import STALE_AFTER_MS
from kafkapy.metadata.registrations import DIRECTORY_LOST, PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.replication.partition import Role
from kafkapy.types import TopicPartition
from tests.simulator.cluster_checker import ClusterChecker
from tests.simulator.cluster_clients import Client, Committer, IdempotentProducer, LostError, produce_request
from tests.simulator.cluster_world import ClusterWorld, combined
from tests.simulator.loop import START_WALL_MS
from tests.simulator.process_lives import ProcessLoop, run_processes
from tests.simulator.replicas import stored
from tests.support.batches import build_batch
from tests.support.interpreter import needs_interpreter

GIVEN_AWAY_S: Final = 5.0
"""The longest that a record may wait: leaders wait for a follower for 30 s here, Kafka's default."""
LED, FOLLOWED = TopicPartition("orders", 0), TopicPartition("orders", 1)
ALONE = TopicPartition("alone", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
TOPICS: Final = {"orders": ([1, 2, 3], [2, 3, 1]), "alone": ([1],), "__consumer_offsets": ([1, 2, 3],)}
"""By name, the replicas of each partition: node 1 is the one whose disk will be full."""


class FullNodes(Client):
    """Three nodes, and a client for single records. `clients` go on all the time, and are checked in the end."""

    def __init__(self, world: ClusterWorld, checker: ClusterChecker) -> None:
        super().__init__(world, checker, "test", 90)
        self.clients: list[Client] = [
            IdempotentProducer(world, checker, "of-led", 1, *LED),
            IdempotentProducer(world, checker, "of-followed", 2, *FOLLOWED),
            Committer(world, checker, "group", 3, "orders"),
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        self.world.start()
        await self.world.until(self.world.is_whole, 60, "the cluster starts")
        await self.create_topics(TOPICS)
        await self.world.until(self.world.is_whole, 60, "topics are created")
        self._tasks = [asyncio.ensure_future(client.run()) for client in self.clients]

    async def create_topics(self, replicas_by_topic: Mapping[str, Sequence[list[int]]]) -> None:
        topics = [
            CreatableTopic(
                name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(number, broker_ids=each) for number, each in enumerate(replicas)
                ],
                configs=[CreatableTopicConfig("min.insync.replicas", value=str(min(2, len(replicas[0]))))],
            )
            for name, replicas in replicas_by_topic.items()
        ]
        response = await self.connections.call(2, CreateTopicsRequest(topics=topics, timeout_ms=5000))
        assert not any(topic.error_code for topic in response.topics)

    async def finish(self) -> None:
        """Stop the clients, and compare all logs with what they were told."""
        for client in self.clients:
            client.is_over = True
        await asyncio.gather(*self._tasks)
        await self.world.until(self.checker.has_settled, 60, "the replicas agree")
        self.checker.finish()

    def fill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            disk = self.world.computers[node_id].disk
            disk.capacity_bytes = disk.used_bytes()

    def fill_with_others(self, node_id: int) -> None:
        """Fill a disk, and go on taking what the node gives up for its metadata, until `empty`."""
        self.fill(node_id)
        disk = self.world.computers[node_id].disk

        async def take() -> None:
            while disk.capacity_bytes is not None:
                disk.capacity_bytes = min(disk.capacity_bytes, disk.used_bytes())
                await asyncio.sleep(0.001)

        self._tasks.append(asyncio.ensure_future(take()))

    def empty(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.world.computers[node_id].disk.capacity_bytes = None

    def registration(self, partition: TopicPartition) -> PartitionRegistration:
        return self.world.registrations()[partition]

    async def all_go_on(self) -> None:
        """Wait until each client has got something done twice; the first may have been under way before."""
        before = [client.progress for client in self.clients]
        await self.world.until(
            lambda: all(client.progress >= count + 2 for client, count in zip(self.clients, before, strict=True)),
            GIVEN_AWAY_S,
            f"clients go on: {before}, {[client.progress for client in self.clients]}, {self.world.registrations()}",
        )

    async def produce(self, partition: TopicPartition, value: bytes) -> int:
        """Send a record once to its leader; return the error code."""
        self.forget_place(*partition)
        place = await self.place(*partition)
        data = build_batch([(START_WALL_MS + self.world.loop.now_ms(), None, value, ())])
        response = await self.connections.call(place.leader_id, produce_request(place, *partition, data))
        return int(response.responses[0].partition_responses[0].error_code)

    async def is_without(self, node_id: int, *partitions: TopicPartition) -> None:
        """Wait until others lead partitions, without a node in their ISRs."""
        await self.world.until(
            lambda: all(
                node_id not in self.registration(each).isr and self.registration(each).leader > 0 for each in partitions
            ),
            GIVEN_AWAY_S,
            f"{partitions} are given away",
        )


def in_a_cluster(
    test: Callable[[FullNodes], Coroutine[Any, Any, None]],
) -> Callable[[], None]:
    def call() -> None:
        async def main(loop: ProcessLoop) -> None:
            world = ClusterWorld(loop, 0, combined(3), replica_lag_time_max_ms="30000")
            nodes = FullNodes(world, ClusterChecker(world))
            await nodes.begin()
            await test(nodes)

        run_processes(main, seed=0, limit_seconds=600)

    call.__name__ = getattr(test, "__name__", "call")
    return call


@in_a_cluster
async def test_a_full_node_is_neither_led_by_nor_waited_for_until_it_has_room(nodes: FullNodes) -> None:
    """Filled, emptied and filled again; nothing is lost, and nothing is there twice."""
    for _ in range(2):
        nodes.fill(1)
        await nodes.is_without(1, LED, FOLLOWED, OFFSETS)
        await nodes.all_go_on()
        assert nodes.registration(LED).directory_of(1) == DIRECTORY_LOST
        assert nodes.registration(FOLLOWED).isr == (2, 3)
        nodes.empty(1)
        await nodes.world.until(nodes.world.is_whole, 10, "it is in sync again")
        assert nodes.registration(LED).directory_of(1) == nodes.world.computers[1].directory_id
        await nodes.connections.call(2, ElectLeadersRequest(0, topic_partitions=None, timeout_ms=2000))
        await nodes.world.until(lambda: nodes.registration(LED).leader == 1, 10, "it leads again")
        await nodes.all_go_on()
    await nodes.finish()


def hosted(nodes: FullNodes, partition: TopicPartition) -> Any:
    """Return a partition as node 1 has it."""
    return nodes.world.computers[1].partition(partition)


@in_a_cluster
async def test_a_full_node_that_learns_nothing_stops_leading_and_sends_clients_to_others(nodes: FullNodes) -> None:
    """Somebody else takes what it gives up for its metadata: it does not learn who leads, for as long as that lasts."""
    for _ in range(2):
        nodes.forget_place(*LED)
        before = await nodes.place(*LED)
        assert before.leader_id == 1
        nodes.fill_with_others(1)
        await nodes.is_without(1, LED, FOLLOWED, OFFSETS)
        await nodes.world.until(lambda: hosted(nodes, LED).role is not Role.LEADER, 2, "it leads no more")
        assert hosted(nodes, LED).role is hosted(nodes, OFFSETS).role is Role.RESIGNED, "its metadata stands still"
        refused = await nodes.connections.call(1, produce_request(before, *LED, build_batch([(0, None, b"v", ())])))
        partition = refused.responses[0].partition_responses[0]
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.current_leader.leader_id == -1, "librdkafka would come back to this node for ever"
        await nodes.all_go_on()
        await asyncio.sleep(STALE_AFTER_MS / 1000)
        with pytest.raises(LostError):
            await nodes.connections.call(1, MetadataRequest(topics=None))
        assert hosted(nodes, LED).role is Role.RESIGNED
        nodes.empty(1)
        await nodes.world.until(nodes.world.is_whole, 10, "it is in sync again")
        assert (await nodes.connections.call(1, MetadataRequest(topics=None))).topics
        await nodes.connections.call(2, ElectLeadersRequest(0, topic_partitions=None, timeout_ms=2000))
        await nodes.world.until(lambda: nodes.registration(LED).leader == 1, 10, "it leads again")
        await nodes.all_go_on()
    await nodes.finish()


@needs_interpreter("a method is replaced")
@pytest.mark.parametrize("fill", [FullNodes.fill, FullNodes.fill_with_others])
def test_leaders_that_know_no_directories_do_not_wait_for_it_either(
    monkeypatch: pytest.MonkeyPatch, fill: Callable[[FullNodes, int], None]
) -> None:
    """Apache Kafka's leaders wait for a replica that was in sync lately, wherever it is reported to be."""
    monkeypatch.setattr("kafkapy.replication.brokers.ReplicaBrokers.has_online_directory", lambda *_: True)
    in_a_cluster(partial(go_on_without_the_full_node, fill=fill))()


async def go_on_without_the_full_node(nodes: FullNodes, fill: Callable[[FullNodes, int], None]) -> None:
    await nodes.all_go_on()
    for _ in range(2):
        fill(nodes, 1)
        await nodes.is_without(1, LED, FOLLOWED, OFFSETS)
        await nodes.all_go_on()
        nodes.empty(1)
        await nodes.world.until(nodes.world.is_whole, 10, "it is in sync again")
    await nodes.finish()


@in_a_cluster
async def test_a_replica_that_is_alone_stays_where_its_disk_is_full(nodes: FullNodes) -> None:
    assert await nodes.produce(ALONE, b"before") == 0
    nodes.fill(1)
    assert await nodes.produce(ALONE, b"refused") == ErrorCode.KAFKA_STORAGE_ERROR
    await nodes.is_without(1, LED)
    assert nodes.registration(ALONE).leader == 1
    assert await nodes.produce(ALONE, b"refused") == ErrorCode.KAFKA_STORAGE_ERROR
    nodes.empty(1)
    await nodes.world.until(nodes.world.is_whole, 10, "it is in sync again")
    assert await nodes.produce(ALONE, b"after") == 0
    log = nodes.world.computers[1].partition(ALONE).log  # type: ignore[union-attr]
    assert log is not None
    assert [value for _, _, value in stored(log)] == [b"before", b"after"]
    await nodes.finish()


@in_a_cluster
async def test_the_last_node_with_room_leads_and_one_that_has_some_again_follows_it(nodes: FullNodes) -> None:
    """With all disks full nobody gives anything away: the last leader stays, and refuses."""
    nodes.fill(1, 2)
    await nodes.is_without(1, LED, FOLLOWED)
    await nodes.is_without(2, LED, FOLLOWED)
    assert nodes.registration(LED).isr == (3,)
    nodes.fill(3)
    await asyncio.sleep(3)
    assert {nodes.registration(each).leader for each in (LED, FOLLOWED, OFFSETS)} == {3}
    nodes.empty(2)
    await nodes.world.until(lambda: nodes.registration(LED).leader == 2, 10, "node 3 gives away to node 2")
    nodes.empty(1, 3)
    await nodes.world.until(nodes.world.is_whole, 20, "all are in sync again")
    await nodes.all_go_on()
    await nodes.finish()


def test_a_full_node_leads_again_if_no_other_is_left() -> None:
    """It was given away with all that was acknowledged: the ISR without it is too small for more (KIP-966)."""

    async def main(loop: ProcessLoop) -> None:
        world = ClusterWorld(loop, 0, {1: "broker", 2: "broker", 3: "controller"}, replica_lag_time_max_ms="30000")
        nodes = FullNodes(world, ClusterChecker(world))
        world.start()
        await world.until(world.is_whole, 60, "the cluster starts")
        await nodes.create_topics({"pair": ([1, 2],)})
        await world.until(world.is_whole, 60, "topics are created")
        pair = TopicPartition("pair", 0)
        assert await nodes.produce(pair, b"before") == 0
        nodes.fill(1)
        assert await nodes.produce(pair, b"refused") == ErrorCode.KAFKA_STORAGE_ERROR
        await nodes.is_without(1, pair)
        assert (nodes.registration(pair).isr, nodes.registration(pair).elr) == ((2,), (1,))
        world.computers[2].is_held = True
        world.computers[2].kill()
        await world.until(lambda: nodes.registration(pair).leader == 1, 10, "node 1 leads again")
        assert nodes.registration(pair).directory_of(1) != DIRECTORY_LOST
        nodes.empty(1)
        world.computers[2].is_held = False
        await world.until(world.is_whole, 20, "both are in sync again")
        assert await nodes.produce(pair, b"after") == 0

    run_processes(main, seed=0, limit_seconds=600)


async def let_it_lead_the_quorum(nodes: FullNodes, node_id: int) -> None:
    """Have leaders of the metadata quorum resign until this node is elected."""
    quorums = {each: quorum_of(nodes, each) for each in nodes.world.computers}
    for _ in range(50):
        await nodes.world.until(lambda: any(quorum.is_leader for quorum in quorums.values()), 20, "a leader is elected")
        leader = next(quorum for quorum in quorums.values() if quorum.is_leader)
        if leader.node_id == node_id:
            return
        leader.resign(leader.leader_epoch)
    raise AssertionError(f"node {node_id} is never elected")


def quorum_of(nodes: FullNodes, node_id: int) -> Any:
    server = nodes.world.computers[node_id].server
    assert server is not None
    return server._quorum_node.quorum


@in_a_cluster
async def test_an_active_controller_without_any_room_leaves_all_that_it_led_to_others(nodes: FullNodes) -> None:
    """A failure: it could not write that another node was elected, so it told nobody that it gave its replicas away."""
    for number in range(2):
        await let_it_lead_the_quorum(nodes, 1)
        await nodes.world.until(nodes.world.is_whole, 20, "all are in sync")
        await nodes.all_go_on()
        nodes.fill_with_others(1)
        await nodes.is_without(1, LED, FOLLOWED, OFFSETS)
        await nodes.all_go_on()
        began_ms = nodes.world.loop.now_ms()
        await nodes.create_topics({f"more-{number}": ([2, 3],)})
        assert nodes.world.loop.now_ms() - began_ms < 10_000
        assert hosted(nodes, LED).role is hosted(nodes, OFFSETS).role is Role.RESIGNED, "its metadata stands still"
        nodes.empty(1)
        await nodes.world.until(nodes.world.is_whole, 10, "it is in sync again")
        await nodes.connections.call(2, ElectLeadersRequest(0, topic_partitions=None, timeout_ms=2000))
        await nodes.world.until(lambda: nodes.registration(LED).leader == 1, 10, "it leads again")
    await nodes.finish()
