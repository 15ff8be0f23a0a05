"""Replication throttles: replicas that are not in sync get what the rate allows, all others what there is. KIP-73."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.replication.fetch_session import FetchSessionCache
from kafkapy.replication.throttle import ReplicationThrottle, ThrottledSide
from kafkapy.server.admin.replication_gauges import replication_gauges
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import Node, ReplicaWorld
from tests.support.hosting import NOW_MS, batch

RECORD_BYTES = 1000
RECORDS = 20
RATE = 1000
FETCH = 1
SIDES = (ThrottledSide.LEADER, ThrottledSide.FOLLOWER)


def throttle(node: Node, side: ThrottledSide) -> None:
    limit = ReplicationThrottle(side, RATE, node_id=node.node_id, quota=node.config.quota, clock=node.clock)
    if side is ThrottledSide.LEADER:
        node.manager.watches.throttle = limit
    else:
        node.fetchers.throttle = limit


def throttled_world(loop: SimLoop, side: ThrottledSide, listed: str, isr: tuple[int, ...] = (1,)) -> ReplicaWorld:
    """Node 1 leads two partitions of 20 records of 1000 bytes, of which node 2 has none; a fetch gets one of each."""
    world = ReplicaWorld(loop, 2, replica_fetch_max_bytes=str(RECORD_BYTES))
    throttle(world.nodes[1 if side is ThrottledSide.LEADER else 2], side)
    key = f"{side.value}.replication.throttled.replicas"
    world.create_topic(2, replicas=(1, 2), isr=isr, configs={key: listed})
    for number in range(2):
        log = world.nodes[1].log(number=number)
        for _ in range(RECORDS):
            log.append_as_leader(batch(bytes(RECORD_BYTES)), leader_epoch=0, now_ms=NOW_MS)
        world.nodes[1].manager.notify_appended(world.nodes[1].partition(number))
    return world


def fetched(world: ReplicaWorld, number: int = 0) -> int:
    return world.nodes[2].log(number=number).log_end_offset


def fetch_count(world: ReplicaWorld) -> int:
    return sum(api_key == FETCH for _, _, api_key, _ in world.requests)


@pytest.mark.parametrize("side", SIDES)
async def test_a_replica_out_of_sync_gets_what_the_rate_allows_and_another_partition_all(
    loop: SimLoop, side: ThrottledSide
) -> None:
    broker = 1 if side is ThrottledSide.LEADER else 2
    world = throttled_world(loop, side, f"0:{broker}")
    await world.pass_ms(5000)
    assert fetched(world, 1) == RECORDS
    assert 3 <= fetched(world, 0) <= 7
    assert fetch_count(world) < RECORDS + 30
    await world.until(lambda: fetched(world, 0) == RECORDS)
    await world.until(lambda: world.registration(0).isr == (1, 2))
    await world.stop()


@pytest.mark.parametrize("side", SIDES)
async def test_a_list_of_other_brokers_replicas_throttles_nothing(loop: SimLoop, side: ThrottledSide) -> None:
    world = throttled_world(loop, side, "0:3,1:3")
    await world.pass_ms(1000)
    assert fetched(world, 0) == fetched(world, 1) == RECORDS
    await world.stop()


@pytest.mark.parametrize("side", SIDES)
async def test_a_replica_in_sync_is_not_held_back_and_counts(loop: SimLoop, side: ThrottledSide) -> None:
    world = throttled_world(loop, side, "*", isr=(1, 2))
    await world.pass_ms(1000)
    assert fetched(world, 0) == fetched(world, 1) == RECORDS
    node = world.nodes[1 if side is ThrottledSide.LEADER else 2]
    limit = node.manager.watches.throttle if side is ThrottledSide.LEADER else node.fetchers.throttle
    assert limit is not None
    assert limit.pause_ms() > 0
    await world.stop()


@pytest.mark.parametrize("side", SIDES)
async def test_an_end_of_the_throttle_lets_go_what_it_held(loop: SimLoop, side: ThrottledSide) -> None:
    world = throttled_world(loop, side, "*")
    await world.pass_ms(2000)
    assert fetched(world, 0) < RECORDS
    world.nodes[1].manager.watches.throttle = world.nodes[2].fetchers.throttle = None
    await world.pass_ms(2000)
    assert fetched(world, 0) == fetched(world, 1) == RECORDS
    await world.stop()


@pytest.mark.parametrize("side", SIDES)
async def test_the_measured_rate_is_a_gauge_by_kafkas_name(loop: SimLoop, side: ThrottledSide) -> None:
    world = throttled_world(loop, side, "*")
    await world.pass_ms(3000)
    node = world.nodes[1 if side is ThrottledSide.LEADER else 2]
    parts: Any = SimpleNamespace(isr_updates=None, fetchers=node.fetchers)
    found = [each for each in replication_gauges(parts, 0.0) if each is not None and each.name == "byte-rate"]
    assert [each.group for each in found] == [f"kafka.server:type={side.value.capitalize()}Replication"]
    assert RATE / 2 < found[0].value < 3 * RATE
    await world.stop()


async def test_a_follower_without_a_session_is_held_back_without_spinning(loop: SimLoop) -> None:
    world = throttled_world(loop, ThrottledSide.LEADER, "*")
    world.nodes[1].sessions = FetchSessionCache(0, new_session_id=lambda: 1)
    await world.pass_ms(5000)
    assert fetched(world, 0) + fetched(world, 1) <= 7
    assert fetch_count(world) <= 20
    await world.stop()
