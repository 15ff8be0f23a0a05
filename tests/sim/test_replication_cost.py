"""What a produce and the follower's fetch that it wakes cost: by what changed, not by what is followed."""

import asyncio
import sys
from itertools import pairwise
from typing import Any

import pytest

from kafkapy.protocol.messages.fetch_response import FetchResponse
from kafkapy.replication import follower_watch
from kafkapy.replication.delayed_delete_records import PartitionDeletion
from kafkapy.runtime.followers import session as follower_session
from tests.simulator.hot_paths import Counter
from tests.simulator.loop import SimLoop, run
from tests.simulator.replicas import ReplicaWorld

MORE = 1.2
FEW, MANY = 10, 3000
REPEATS = 5
INSTRUCTIONS_OF_A_LAG_CHECK = 500
"""Of one partition; reading it again for its follower takes 700 more."""


def count(partition_count: int) -> float:
    """Return the instructions of a produce with acks=all, the fetches that it wakes and the follower's append."""

    async def main(loop: SimLoop) -> float:
        world = ReplicaWorld(loop, 2, replica_fetch_response_max_bytes="100000000")
        world.create_topic(partition_count, replicas=(1, 2))
        await world.pass_ms(3000)
        for number in range(3):
            assert (await world.produce(1, b"warm", number=number))[0] == 0
            await world.pass_ms(1)
        counter = Counter()
        with counter:
            for number in range(REPEATS):
                assert (await world.produce(1, b"v", number=number))[0] == 0
        await world.stop()
        return counter.instructions / REPEATS

    return run(main)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="bytecode is counted on CPython 3.11")
def test_a_produce_and_the_fetch_it_wakes_cost_the_same_with_few_and_many_partitions() -> None:
    few, many = count(FEW), count(MANY)
    assert many <= MORE * few, f"{few:.0f} instructions with {FEW} partitions, {many:.0f} with {MANY}"


def rest_cost(partition_count: int) -> float:
    """Return the instructions of a lag check of replicas that are in sync, with the fetches around it."""

    async def main(loop: SimLoop) -> float:
        world = ReplicaWorld(loop, 2, replica_lag_time_max_ms="2000")
        world.create_topic(partition_count, replicas=(1, 2))
        await world.pass_ms(3000)
        counter = Counter()
        with counter:
            await world.pass_ms(REPEATS * 1000)
        await world.stop()
        return counter.instructions / REPEATS

    return run(main)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="bytecode is counted on CPython 3.11")
def test_a_lag_check_makes_no_follower_read_the_partitions_that_are_in_sync_again() -> None:
    few, many = rest_cost(FEW), rest_cost(FEW + 1000)
    assert many - few < 1000 * INSTRUCTIONS_OF_A_LAG_CHECK, f"{(many - few) / 1000:.0f} instructions for each partition"


async def test_records_are_sent_once_however_many_partitions_have_some(loop: SimLoop) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(follower_session, "ADDED_PER_REQUEST", 2)
        world = ReplicaWorld(loop, 2)
        world.create_topic(8, replicas=(1, 2))
        await world.pass_ms(3000)
        sent_bytes = 0

        def count_bytes(_sender: int, _receiver: int, response: Any) -> Any:
            nonlocal sent_bytes
            if isinstance(response, FetchResponse):
                sent_bytes += sum(len(each.records or b"") for topic in response.responses for each in topic.partitions)
            return response

        world.tamper = count_bytes
        for _ in range(3):
            responses = await asyncio.gather(*(world.produce(1, bytes(100), number=number) for number in range(8)))
            assert {code for code, _ in responses} == {0}
        assert sent_bytes == sum(world.nodes[1].log(number=number).segments.active.size for number in range(8))
        await world.stop()


async def test_a_partition_that_was_idle_for_long_keeps_its_isr_when_it_is_written_to(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 3, replica_lag_time_max_ms="1000")
    world.create_topic(2, replicas=(1, 2, 3))
    await world.pass_ms(20_000)
    world.alterations.clear()
    for _ in range(50):
        assert (await world.produce(1, b"v"))[0] == 0
        await world.pass_ms(97)
    assert world.alterations == []
    await world.stop()


async def test_a_follower_that_died_while_a_partition_was_idle_leaves_once_that_is_written_to(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 3, replica_lag_time_max_ms="1000")
    world.create_topic(replicas=(1, 2, 3))
    await world.pass_ms(5000)
    world.isolate(3)
    await world.pass_ms(5000)
    assert world.registration().isr == (1, 2, 3), "it has all there is"
    assert (await world.produce(1, b"v", timeout_ms=5000))[0] == 0
    assert world.registration().isr == (1, 2)
    await world.stop()


async def test_followers_wait_for_replica_fetch_min_bytes(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2, replica_fetch_min_bytes="1000", replica_fetch_wait_max_ms="400")
    world.create_topic(replicas=(1, 2))
    await world.pass_ms(2100)
    begin_ms = loop.now_ms()
    assert (await world.produce(1, b"v"))[0] == 0
    assert loop.now_ms() - begin_ms > 100
    begin_ms = loop.now_ms()
    world.nodes[1].run(world.produce(1, bytes(2000)))
    await world.until(lambda: world.nodes[2].log().log_end_offset == 2)
    assert loop.now_ms() - begin_ms < 100
    await world.stop()


async def test_a_followers_log_start_follows_a_deletion_of_records_at_once(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    for _ in range(4):
        await world.produce(1, b"v")
    await world.pass_ms(2000)
    leader = world.nodes[1]
    deletion = PartitionDeletion(leader.partition(), 3)
    assert not leader.manager.deletions.delete([deletion])
    await world.until(deletion.is_final, 2000)
    assert (deletion.low_watermark, world.nodes[2].log().log_start_offset) == (3, 3)
    await world.stop()


async def test_a_follower_whose_sessions_fail_early_gets_round_to_all_its_partitions(loop: SimLoop) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(follower_session, "ADDED_PER_REQUEST", 2)
        world = ReplicaWorld(loop, 2)
        world.create_topic(10, replicas=(1, 2))
        count = 0

        def lose_every_second(_sender: int, _receiver: int, response: Any) -> Any:
            nonlocal count
            count += isinstance(response, FetchResponse)
            return response if count % 2 else None

        world.tamper = lose_every_second
        for number in range(10):
            world.nodes[1].run(world.produce(1, b"v", number=number))
        await world.until(lambda: all(world.nodes[2].log(number=number).log_end_offset for number in range(10)))
        await world.stop()


async def test_a_session_that_ended_is_cleaned_up_by_the_fetches_that_follow(loop: SimLoop) -> None:
    partition_count, unbound = 40, 3
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(follower_watch, "UNBOUND_AT_ONCE", unbound)
        world = ReplicaWorld(loop, 2)
        world.create_topic(partition_count, replicas=(1, 2))
        await world.pass_ms(1000)
        watches = world.nodes[1].manager.watches
        assert watches.subscription_count == partition_count
        counts = []

        def count_subscriptions(_sender: int, _receiver: int, response: Any) -> Any:
            counts.append(watches.subscription_count)
            return response

        world.tamper = count_subscriptions
        world.cut = {(1, 2)}
        await world.pass_ms(1500)
        world.cut = set()
        await world.until(lambda: len(counts) > partition_count)
        assert max(counts) > partition_count, "the old session's are still there when the new one is made"
        turns = 2
        """Of a fetch that waits for news: it looks for some when it arrives, and when it is answered."""
        assert all(after >= before - turns * unbound for before, after in pairwise(counts))
        assert counts[-1] == partition_count
        assert (await world.produce(1, b"v", number=7))[0] == 0
        assert world.registration(7).isr == (1, 2)
        await world.stop()
