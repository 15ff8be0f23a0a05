"""What a follower does at the edges of its log, its directories and its fetchers, over simulated links."""

from collections import Counter
from typing import Any

from kafkapy.metadata.delta import MetadataDelta
from kafkapy.replication.partition import Role
from kafkapy.runtime.followers.replica_fetcher import WAIT_WHILE_BEHIND_MS
from tests.sim.test_followers import elect, fill
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import ReplicaWorld, stored
from tests.support.hosting import topic_id


async def test_a_follower_beyond_the_end_of_the_leaders_log_is_cut_to_it(loop: SimLoop) -> None:
    """OFFSET_OUT_OF_RANGE: after an unclean election, a replica without epochs has committed more than the leader."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1, 2))
    await world.produce(1, b"a")
    world.isolate(2)
    follower = world.nodes[2].log()
    fill(world.nodes[2], 0, b"b", b"c")
    follower.update_high_watermark(3)
    follower.leader_epochs.clear()
    elect(world, 1, isr=(1,))
    assert follower.log_end_offset == 3
    world.heal()
    await world.until(lambda: follower.log_end_offset == 1, 3000)
    assert {key for *_, key, _ in world.requests} == {1, 2}, "Fetch and ListOffsets"
    assert (await world.produce(1, b"d"))[0] == 0
    assert [value for _, _, value in stored(follower)] == [b"a", b"d"]
    await world.stop()


async def test_the_partitions_of_the_other_directory_are_fetched_on(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2, log_dirs="/data,/more")
    world.create_topic(2, replicas=(1, 2), isr=(1, 2))
    await world.pass_ms(100)
    follower = world.nodes[2]
    assert {follower.log(number=number).log_dir.path for number in (0, 1)} == {"/data", "/more"}
    follower.disk.fail("write", path="orders-0/")
    await world.produce(1, b"a", number=0, timeout_ms=100)
    begin_ms = loop.now_ms()
    assert (await world.produce(1, b"b", number=1, timeout_ms=3000))[0] == 0
    assert loop.now_ms() - begin_ms < 500, "without waiting for replica.fetch.backoff.ms"
    assert [follower.partition(number).role for number in (0, 1)] == [Role.OFFLINE, Role.FOLLOWER]
    assert follower.log(number=1).log_end_offset == 1
    await world.stop()


async def test_records_are_durable_at_flush_messages_before_another_fetcher_goes_on(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), configs={"flush.messages": "1"})
    await world.pass_ms(100)
    leader, follower = world.nodes[1], world.nodes[2]
    follower.io_pool._call_ms = 300
    leader.run(world.produce(1, b"a"))
    await world.until(lambda: follower.log().log_end_offset == 1)
    assert follower.log().recovery_point == 0, "the flush takes its time"
    former = follower.fetchers._placed[topic_id("orders"), 0][1]
    for fetcher_count in (2, 3):  # one of these gives the partition to another fetcher
        follower.resize_fetchers(fetcher_count)
        leader.alter_configs("orders", {"retention.ms": str(fetcher_count * 1_000_000)})
        for node in world.nodes.values():
            node.follow(world.cluster.image)
    assert follower.fetchers._placed[topic_id("orders"), 0][1] is not former
    await world.until(lambda: leader.partition().followers[2].log_end_offset == 1, 2000)
    assert follower.log().recovery_point == 1
    await world.stop()


async def test_a_change_of_the_number_of_fetchers_costs_one_response_and_loses_nothing(loop: SimLoop) -> None:
    """The fetch that waits at the leader is answered to the former fetcher, which drops what is not its own now."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(8, replicas=(1, 2))
    await world.pass_ms(1000)
    follower, sent = world.nodes[2], Counter[tuple[int, int]]()

    def count(_sender: int, _receiver: int, response: Any) -> Any:
        for topic in getattr(response, "responses", ()):
            sent.update(
                (each.partition_index, int.from_bytes(each.records[:8])) for each in topic.partitions if each.records
            )
        return response

    world.tamper = count
    for round_number, fetcher_count in enumerate((3, 1, 2)):
        follower.resize_fetchers(fetcher_count)
        world.nodes[1].alter_configs("orders", {"retention.ms": str(fetcher_count * 1_000_000)})
        for node in world.nodes.values():
            node.follow(world.cluster.image)
        for offset in (2 * round_number, 2 * round_number + 1):
            for number in range(8):
                assert (await world.produce(1, b"a", number=number)) == (0, offset)
    assert {count for (_, offset), count in sent.items() if offset % 2} == {1}
    assert max(sent.values()) <= 2
    assert all(len(stored(follower.log(number=number))) == 6 for number in range(8))
    await world.stop()


async def test_fetches_are_short_while_a_change_of_metadata_may_add_partitions(loop: SimLoop) -> None:
    """Only the next Fetch names a partition that is made meanwhile."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    await world.pass_ms(2000)
    follower = world.nodes[2]
    wait_max_ms = follower.config.replication.replica_fetch_wait_max_ms
    assert world.requests[-1][3].max_wait_ms == wait_max_ms
    follower.manager.announce(world.cluster.image)
    await world.pass_ms(wait_max_ms + 10)
    assert world.requests[-1][3].max_wait_ms == WAIT_WHILE_BEHIND_MS
    before = len(world.requests)
    await world.pass_ms(1000)
    assert len(world.requests) - before <= 1000 / WAIT_WHILE_BEHIND_MS, "and none follows at once"
    for _ in follower.manager.apply_delta(MetadataDelta(world.cluster.image), world.cluster.image, 0):
        pass
    await world.pass_ms(WAIT_WHILE_BEHIND_MS + 10)
    assert world.requests[-1][3].max_wait_ms == wait_max_ms
    await world.stop()


async def test_a_follower_that_a_read_has_taken_offline_is_fetched_no_more(loop: SimLoop) -> None:
    """A consumer's read (KIP-392) that violates an invariant does that: nobody tells the fetcher."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    await world.pass_ms(2000)
    world.nodes[2].partition().go_offline()
    before = len(world.requests)
    await world.produce(1, b"a", timeout_ms=100)
    await world.pass_ms(1000)
    assert len(world.requests) - before <= 3, "the same records are not sent again and again"
    assert world.nodes[2].fetchers.failed_count == 1
    await world.stop()
