"""What happens to groups is counted once each: cases of Apache Kafka's tests about the sensors of its coordinator."""

from kafkapy.group.counts import GroupCounts
from kafkapy.group.shard import GroupShard
from kafkapy.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkapy.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkapy.types import TopicPartition
from tests.support.classic_groups import ClassicWorld
from tests.support.consumer_groups import FakeConsumer, GroupWorld, image_of
from tests.support.group_hosting import commit_request
from tests.support.streams_groups import StreamsShard, chain, request_of


def counted(shard: GroupShard) -> dict[str, int]:
    """Return the counts that are not 0."""
    counts = shard.settings.counts
    return {name: value for name in GroupCounts.__slots__ if (value := getattr(counts, name))}


def test_offsets_that_are_committed_are_counted_one_by_one() -> None:
    world = GroupWorld(image_of(foo=2))
    world.commit(world.shard.offsets.commit(commit_request(5, group_id="g", topic="foo"), 9, 0))
    assert counted(world.shard) == {"offset_commits": 1}
    partitions = [TxnOffsetCommitRequestPartition(partition, committed_offset=7) for partition in range(2)]
    topics = [TxnOffsetCommitRequestTopic("foo", partitions=partitions)]
    world.shard.offsets.commit_in_transaction(TxnOffsetCommitRequest(group_id="g", topics=topics), 5)
    assert counted(world.shard) == {"offset_commits": 3}


def test_offsets_that_are_deleted_or_expire_are_counted_where_they_were_there() -> None:
    world = GroupWorld(image_of(foo=3), offsets_retention_minutes=1)
    for partition in range(2):
        world.commit(
            world.shard.offsets.commit(commit_request(5, group_id="g", topic="foo", partition=partition), 9, 0)
        )
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (1, 2)]
    topics = [OffsetDeleteRequestTopic("foo", partitions=partitions)]
    world.commit(world.shard.offsets.delete(OffsetDeleteRequest("g", topics=topics)))
    assert counted(world.shard) == {"offset_commits": 2, "offset_deletions": 1}

    offsets = [TopicPartition("foo", 0), TopicPartition("foo", 1)]
    world.now_ms += 59_999
    world.commit(world.shard.expire("g", offsets))
    assert "offset_expirations" not in counted(world.shard)
    world.now_ms += 1
    world.commit(world.shard.expire("g", offsets))
    assert counted(world.shard)["offset_expirations"] == 1


def test_generations_with_an_assignment_are_counted() -> None:
    world = ClassicWorld()
    (member_id,) = world.stable()
    assert counted(world.shard) == {"classic_rebalances": 1}
    generation = world.joined(world.join(member_id)).generation_id
    assert counted(world.shard) == {"classic_rebalances": 1}, "it has no assignment yet"
    world.synced(world.sync(member_id, generation))
    world.synced(world.sync(member_id, generation))
    assert counted(world.shard) == {"classic_rebalances": 2}


def test_epochs_of_a_consumer_group_are_counted_unless_a_member_has_left() -> None:
    world = GroupWorld(image_of(foo=2))
    first, second = FakeConsumer(world, "a", "foo"), FakeConsumer(world, "b", "foo")
    first.join()
    second.join()
    second.beat()
    assert counted(world.shard) == {"consumer_rebalances": 2}
    second.leave()
    assert counted(world.shard) == {"consumer_rebalances": 2}
    world.image = image_of(2, foo=3)
    first.beat()
    assert counted(world.shard) == {"consumer_rebalances": 3}


def test_an_epoch_that_an_expression_begins_is_counted_once() -> None:
    world = GroupWorld(image_of(foo=1))
    consumer = FakeConsumer(world, "a", subscribed_topic_names=None, subscribed_topic_regex="fo+")
    consumer.join()
    consumer.beat()
    assert counted(world.shard) == {"consumer_rebalances": world.group().log.group_epoch - 1}


def test_epochs_of_a_streams_group_are_counted_unless_a_member_has_left() -> None:
    shard = StreamsShard(image_of(**{"in": 2}), group_streams_initial_rebalance_delay_ms=0)
    for member_id in ("a", "b"):
        shard.heartbeat(request_of(member_id, chain(False)))
    assert counted(shard.shard) == {"streams_rebalances": 2}
    shard.heartbeat(request_of("b", None, member_epoch=-1))
    assert counted(shard.shard) == {"streams_rebalances": 2}
