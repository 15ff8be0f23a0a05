"""What /metrics tells of replicas that are missing, behind, or on their way to another broker."""

from types import SimpleNamespace
from typing import Any

from kafkapy.gauge import Row
from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkapy.server.admin.broker_gauges import replica_gauges
from kafkapy.server.admin.replication_gauges import replication_gauges
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import TOPIC, Node, ReplicaWorld
from tests.support.controllers import end_of

FAST = {"replica_lag_time_max_ms": "1000", "replica_fetch_wait_max_ms": "200", "replica_socket_timeout_ms": "300"}
WHOLE = {"ReplicasCount": 2, "InSyncReplicasCount": 2, "AtMinIsr": 1, "AtMinIsrPartitionCount": 1}
MISSING = {
    "ReplicasCount": 2,
    "InSyncReplicasCount": 1,
    "UnderReplicated": 1,
    "UnderReplicatedPartitions": 1,
    "UnderMinIsr": 1,
    "UnderMinIsrPartitionCount": 1,
}
STATES = {*WHOLE, *MISSING, "ReassigningPartitions"}


def gauges(node: Node) -> dict[str, float]:
    """Return the gauges of a broker with one partition, by name."""
    parts: Any = SimpleNamespace(isr_updates=node.isr_updates, fetchers=node.fetchers)
    found: dict[str, float] = {}
    for gauge in (*replica_gauges(node.manager), *replication_gauges(parts, 0.0)):
        if isinstance(gauge, Row):
            found |= {name: value for (_, name), value in zip(gauge.columns, gauge.values, strict=True)}
        elif gauge is not None:
            found[gauge.name] = gauge.value
    return found


def states(node: Node) -> dict[str, float]:
    """Return the gauges of replicas that are not 0."""
    return {name: value for name, value in gauges(node).items() if name in STATES and value}


def reassign(world: ReplicaWorld, replicas: list[int]) -> None:
    topics = [ReassignableTopic(TOPIC, partitions=[ReassignablePartition(0, replicas=replicas)])]
    request = AlterPartitionReassignmentsRequest(topics=topics)
    world.commit(end_of(world.cluster.controller.reassignments.decide_alter(request)))


async def test_a_replica_that_is_missing_is_counted_until_it_is_back(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2, **FAST)
    world.create_topic(replicas=(1, 2), configs={"min.insync.replicas": "2"})
    await world.produce(1, b"of both")
    assert states(world.nodes[1]) == WHOLE
    world.isolate(2)
    await world.produce(1, b"of 1 alone")
    await world.until(lambda: world.registration().isr == (1,))
    await world.pass_ms(100)
    missing = gauges(world.nodes[1])
    assert states(world.nodes[1]) == MISSING
    assert (missing["IsrShrinksPerSec"], missing["IsrExpandsPerSec"]) == (1, 0)
    world.heal()
    await world.until(lambda: world.registration().isr == (1, 2))
    await world.pass_ms(100)
    assert states(world.nodes[1]) == WHOLE
    assert gauges(world.nodes[1])["IsrExpandsPerSec"] == 1
    await world.stop()


async def test_replicas_that_are_being_added_are_no_missing_ones(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 3, **FAST)
    world.create_topic(replicas=(1, 2), configs={"min.insync.replicas": "2"})
    world.cut |= {(3, 1), (3, 2)}
    reassign(world, [1, 3])
    await world.pass_ms(100)
    assert world.registration().adding_replicas == (3,)
    assert states(world.nodes[1]) == WHOLE | {"ReassigningPartitions": 1}
    assert states(world.nodes[2]) == states(world.nodes[3]) == {}, "only leaders count"
    world.heal()
    await world.until(lambda: world.registration().replicas == (1, 3))
    await world.pass_ms(100)
    assert states(world.nodes[1]) == WHOLE
    await world.stop()


async def test_the_lag_of_a_follower_is_told_by_the_broker_that_follows(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2, **FAST, replica_fetch_response_max_bytes="1")
    world.create_topic(replicas=(1, 2), isr=(1,))
    world.isolate(2)
    for number in range(5):
        assert (await world.produce(1, b"%d" % number))[0] == 0
    world.slow[1, 2] = 100
    world.heal()
    await world.until(lambda: world.nodes[2].log().log_end_offset == 2)
    behind = gauges(world.nodes[2])
    assert (behind["ConsumerLag"], behind["MaxLag"]) == (3, 3)
    await world.until(lambda: world.registration().isr == (1, 2))
    caught_up = gauges(world.nodes[2])
    assert (caught_up["ConsumerLag"], caught_up["MaxLag"]) == (0, 0)
    await world.stop()
