"""A follower's fetch during which the leader follows another, and leads again."""

import asyncio

from kafkapy.protocol.messages.fetch_request import ReplicaState
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, Hosting, run_scheduled, topic_id
from tests.unit.handlers.data.test_fetch import append, epoch_of, parts_of, request


async def test_a_follower_has_not_what_the_leader_appended_since_it_led_again(loop: SimLoop) -> None:
    """While the pages of another partition are warmed, the log of this one is truncated and grows anew."""
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(1, 2), partition_count=2)
    changing, cold = TopicPartition("orders", 0), TopicPartition("orders", 1)
    append(hosting.manager.partitions.find(*changing), b"lost")
    for number in range(300):
        append(hosting.manager.partitions.find(*cold), b"x" * 100, timestamp_ms=NOW_MS + number)
    hosting.restart()
    hosting.disk.chill()
    state = ReplicaState(replica_id=2, replica_epoch=epoch_of(hosting, 2))
    fetching = hosting.start(parts_of(hosting, request(18, 1, 150, replica_state=state)))
    await run_scheduled()
    assert not fetching.done(), "it waits for cold pages"

    partition = hosting.manager.partitions.find(*changing)
    hosting.commit(PartitionChangeRecord(topic_id=topic_id("orders"), partition_id=0, leader=2))
    hosting.log_manager.truncate_to({changing: 0})
    hosting.commit(PartitionChangeRecord(topic_id=topic_id("orders"), partition_id=0, leader=1))
    append(partition, b"other")
    await fetching
    assert (partition.followers[2].log_end_offset, partition.log.high_watermark) == (-1, 0)


async def test_a_follower_that_has_all_from_before_the_read_is_caught_up(loop: SimLoop) -> None:
    """What is appended while cold pages of another partition are read does not count against it."""
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(1, 2), partition_count=2)
    whole, cold = TopicPartition("orders", 0), TopicPartition("orders", 1)
    append(hosting.manager.partitions.find(*whole), b"all")
    for number in range(300):
        append(hosting.manager.partitions.find(*cold), b"x" * 100, timestamp_ms=NOW_MS + number)
    hosting.restart()
    hosting.disk.chill()
    await asyncio.sleep(1)
    state = ReplicaState(replica_id=2, replica_epoch=epoch_of(hosting, 2))
    fetching = hosting.start(parts_of(hosting, request(18, 1, 150, replica_state=state)))
    await run_scheduled()
    assert not fetching.done(), "it waits for cold pages"
    partition = hosting.manager.partitions.find(*whole)
    append(partition, b"more")
    await fetching
    assert partition.followers[2].log_end_offset == 1
    assert partition.followers[2].caught_up_ms >= 1000
