"""What a fetch of a follower costs does not grow with the partitions that it does not read."""

import tracemalloc

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchPartition
from kafkapy.replication.fetch_session import FetchedPartition
from kafkapy.replication.follower_watch import FollowerWatch, FollowerWatches
from kafkapy.replication.partition_read import PartitionRead, failed_read
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import ReplicaWorld
from tests.support.hosting import NOW_MS, batch, topic_id

MANY = 20_000


def fetched(number: int) -> FetchedPartition:
    return FetchedPartition(
        "orders", topic_id("orders"), FetchPartition(number, current_leader_epoch=-1, fetch_offset=0)
    )


async def test_a_partition_without_room_is_read_next_without_a_copy_of_the_others(loop: SimLoop) -> None:
    """A copy of the others is 40 bytes for each of them."""

    world = ReplicaWorld(loop, 2)
    world.create_topic(2, replicas=(1, 2))
    watch = FollowerWatch(FollowerWatches(), 2, [fetched(number) for number in range(MANY)])
    first, second, *_ = watch.pop(2)
    for number, requested in enumerate((first, second)):
        partition = world.nodes[1].partition(number)
        assert partition.log is not None
        partition.log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)
        watch.bind(requested, partition)
    no_room = PartitionRead(0, 0, 0, 0, b"")
    tracemalloc.start()
    try:
        watch.requeue([(first, no_room), (second, no_room)])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MANY
    assert watch.unread_count == MANY
    assert [requested.request.partition for requested in watch.pop(3)] == [0, 1, 2]
    await world.stop()


async def test_partitions_without_news_are_settled_at_once_and_the_others_left_to_the_response(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(5, replicas=(1, 2))
    await world.pass_ms(3000)
    for number in (3, 4):
        log = world.nodes[1].partition(number).log
        assert log is not None
        log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)
    requests = [fetched(number) for number in range(5)]
    watch = FollowerWatch(FollowerWatches(), 2, requests)
    assert watch.pop() == requests
    for number, requested in enumerate(requests):
        watch.bind(requested, world.nodes[1].partition(number))
        requested.log_start_offset = requested.high_watermark = 0
    world.nodes[1].partition(2).isr = (1,)  # its follower does not count yet: read in each fetch
    quiet, failed = PartitionRead(0, 0, 0, 0, b""), failed_read(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    responses = [
        (requests[0], quiet),
        (requests[1], failed),
        (requests[2], quiet),
        (requests[3], PartitionRead(0, 0, 0, 0, b"records")),
        (requests[4], quiet),  # there was no room for its records
    ]
    news = watch.requeue_unchanged(responses)
    assert news == [responses[1], responses[3], responses[4]]
    assert watch.pop() == [requests[2]]
    watch.requeue(news)
    assert watch.pop() == [requests[4], requests[1], requests[3]]
    await world.stop()


async def test_a_follower_that_fetches_on_without_what_was_appended_is_out_of_sync(loop: SimLoop) -> None:
    """Until the append each fetch of the session showed that it had all of the log, without naming the partition."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(1, replicas=(1, 2))
    await world.pass_ms(3000)
    leader = world.nodes[1]
    partition = leader.partition(0)
    session = partition.followers[2].session
    assert partition.log is not None
    assert session is not None
    partition.log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)
    leader.manager.notify_appended(partition)
    session.last_fetch_ms += 60_000
    assert partition.isr_without_stragglers(session.last_fetch_ms) == (1,)
    await world.stop()


async def test_a_session_that_goes_on_without_a_partition_shows_nothing_of_it(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(1, replicas=(1, 2))
    await world.pass_ms(3000)
    partition, requested = world.nodes[1].partition(0), fetched(0)
    assert partition.log is not None
    watch = FollowerWatch(FollowerWatches(), 2, [requested])
    watch.bind(requested, partition)
    partition.followers[2].join_session(watch.times)
    watch.forget(requested)
    partition.log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)
    now_ms = partition.followers[2].caught_up_ms + 60_000
    watch.times.last_fetch_ms = now_ms
    assert partition.isr_without_stragglers(now_ms) == (1,)
    await world.stop()
