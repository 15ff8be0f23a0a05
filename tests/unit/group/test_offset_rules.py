"""Who may commit, fetch and delete a group's offsets, by its kind and state: cases of Apache Kafka's own tests."""

from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.offsets import offset_record
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_commit_request import OffsetCommitRequest
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafkapy.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.classic_groups import ClassicWorld
from tests.support.consumer_groups import FakeConsumer, GroupWorld, image_of, settled_pair, topic_id
from tests.support.converted_groups import classic_group, modern, world_of
from tests.support.group_hosting import commit_request

GROUP = "g"
ZERO_ID = bytes(16)
PRODUCER = 77
ILLEGAL, UNKNOWN = ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID
STALE, NOT_FOUND = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND


def code_of(call: Any, *arguments: Any, **fields: Any) -> ErrorCode:
    """Return the code of the ApiError that a call raises, NONE if it raises none."""
    try:
        call(*arguments, **fields)
    except ApiError as error:
        return ErrorCode(error.code)
    return ErrorCode.NONE


def commit_of(generation: int = -1, member_id: str = "", *, topic: str = "foo", **fields: Any) -> OffsetCommitRequest:
    return commit_request(
        100, group_id=GROUP, topic=topic, generation_id_or_member_epoch=generation, member_id=member_id, **fields
    )


def in_transaction(generation: int = -1, member_id: str = "", **fields: Any) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(
        0, committed_offset=100, committed_leader_epoch=10, committed_metadata="metadata"
    )
    topics = [TxnOffsetCommitRequestTopic("foo", partitions=[partition])]
    return TxnOffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics, **fields
    )


# -- classic groups -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "member", "instance", "expected"),
    [
        (1, "own", "instance", ErrorCode.NONE),
        (1, "own", None, ErrorCode.NONE),
        (0, "own", "instance", ILLEGAL),
        (10, "own", "instance", ILLEGAL),
        (1, "other", None, UNKNOWN),
        (1, "own", "unknown", UNKNOWN),
        (1, "other", "instance", ErrorCode.FENCED_INSTANCE_ID),
        (-1, "", None, UNKNOWN),
        (-1, "", "", UNKNOWN),
        (-1, "own", "instance", ILLEGAL),
    ],
)
def test_a_member_of_the_generation_commits_in_a_classic_group(
    generation: int, member: str, instance: str | None, expected: ErrorCode
) -> None:
    world = ClassicWorld()
    token = world.join(group_instance_id="instance")
    world.advance(0)
    joined = world.joined(token)
    world.sync_all([joined])
    assert joined.generation_id == 1
    member_id = joined.member_id if member == "own" else member
    request = commit_of(generation, member_id, group_instance_id=instance)
    assert code_of(world.shard.offsets.commit, request, 9, 0) == expected


@pytest.mark.parametrize(
    ("generation", "member", "instance", "expected"),
    [
        (1, "own", None, ErrorCode.NONE),
        (100, "own", None, ILLEGAL),
        (1, "other", None, UNKNOWN),
        (-1, "", None, ErrorCode.NONE),
        (-1, "", "", UNKNOWN),
    ],
)
def test_a_member_of_the_generation_or_a_producer_without_one_commits_in_a_transaction(
    generation: int, member: str, instance: str | None, expected: ErrorCode
) -> None:
    world = ClassicWorld()
    (own,) = world.stable()
    request = in_transaction(generation, own if member == "own" else member, group_instance_id=instance)
    assert code_of(world.shard.offsets.commit_in_transaction, request, 5) == expected


def test_a_commit_in_a_transaction_is_written_with_all_its_fields() -> None:
    world = ClassicWorld()
    (own,) = world.stable()
    decision = world.shard.offsets.commit_in_transaction(in_transaction(1, own), 5)
    (record,) = decision.records
    assert (record.key.group, record.key.topic, record.key.partition) == (GROUP, "foo", 0)
    assert (record.value.offset, record.value.leader_epoch, record.value.metadata) == (100, 10, "metadata")
    assert [each.error_code for each in decision.response.topics[0].partitions] == [ErrorCode.NONE]


def test_a_commit_keeps_the_session_of_a_classic_member() -> None:
    world = ClassicWorld()
    (own,) = world.stable(session_timeout_ms=10_000)
    for _ in range(3):
        world.advance(6_000)
        world.shard.offsets.commit(commit_of(1, own), 9, world.now_ms)
        assert world.group.log.members.find(own) is not None
    world.advance(6_000)
    assert world.group.log.members.find(own) is not None
    world.advance(6_000)
    assert world.group.log.members.find(own) is None


def test_who_has_no_group_may_name_an_instance() -> None:
    world = ClassicWorld()
    assert code_of(world.shard.offsets.commit, commit_of(group_instance_id="instance"), 9, 0) == ErrorCode.NONE


@pytest.mark.parametrize(("version", "expected"), [(0, ILLEGAL), (5, ILLEGAL), (6, NOT_FOUND)])
def test_a_transaction_of_a_generation_needs_a_group(version: int, expected: ErrorCode) -> None:
    offsets = ClassicWorld().shard.offsets
    assert code_of(offsets.commit_in_transaction, in_transaction(10, "member"), version) == expected
    assert code_of(offsets.commit_in_transaction, in_transaction(), version) == ErrorCode.NONE


def test_only_a_classic_group_of_consumers_lets_offsets_be_deleted_while_it_has_members() -> None:
    consumers, others = ClassicWorld(), ClassicWorld()
    consumers.stable()
    others.stable(protocol_type="connect")
    request = deletion_of("foo")
    assert code_of(consumers.shard.offsets.delete, request) == ErrorCode.NONE
    assert code_of(others.shard.offsets.delete, request) == ErrorCode.NON_EMPTY_GROUP
    (member,) = others.group.log.members
    others.leave((member.member_id, None))
    assert code_of(others.shard.offsets.delete, request) == ErrorCode.NONE


# -- consumer groups ------------------------------------------------------------------------------------------------


def consumer_world() -> GroupWorld:
    """Return a group whose members "a" and "b" are at epoch 3; "a" has foo-0 since epoch 2."""
    world = GroupWorld(image_of(foo=2))
    settled_pair(world)
    return world


@pytest.mark.parametrize(
    ("epoch", "member", "fields", "expected"),
    [
        (3, "a", {}, ErrorCode.NONE),
        (2, "a", {"topic_id": topic_id("foo")}, ErrorCode.NONE),
        (1, "a", {"topic_id": topic_id("foo")}, STALE),
        (2, "a", {"topic_id": ZERO_ID}, STALE),
        (2, "a", {"topic_id": topic_id("foo"), "partition": 1}, STALE),
        (2, "a", {"topic_id": topic_id("bar"), "topic": "bar"}, STALE),
        (4, "a", {}, STALE),
        (3, "x", {}, UNKNOWN),
        (-1, "", {}, UNKNOWN),
    ],
)
def test_a_member_commits_what_it_had_at_its_epoch(
    epoch: int, member: str, fields: dict[str, Any], expected: ErrorCode
) -> None:
    world = consumer_world()
    assert code_of(world.shard.offsets.commit, commit_of(epoch, member, **fields), 9, 0) == expected


@pytest.mark.parametrize(
    ("epoch", "member", "stale"),
    [(3, "a", False), (2, "a", False), (1, "a", True), (2, "b", True), (4, "a", True)],
)
@pytest.mark.parametrize(("version", "code"), [(5, ILLEGAL), (6, STALE)])
def test_a_member_commits_what_it_had_at_its_epoch_in_a_transaction(
    epoch: int, member: str, stale: bool, version: int, code: ErrorCode
) -> None:
    world = consumer_world()
    request = in_transaction(epoch, member)
    expected = code if stale else ErrorCode.NONE
    assert code_of(world.shard.offsets.commit_in_transaction, request, version) == expected


def test_an_older_epoch_commits_nothing_of_a_topic_that_is_gone_in_a_transaction() -> None:
    world = consumer_world()
    world.image = image_of(bar=1)
    assert code_of(world.shard.offsets.commit_in_transaction, in_transaction(2, "a"), 5) == ILLEGAL
    assert code_of(world.shard.offsets.commit_in_transaction, in_transaction(3, "a"), 5) == ErrorCode.NONE


def test_classic_members_of_a_consumer_group_have_generations() -> None:
    world = world_of()
    (classic,) = classic_group(world, (0, 1, 2, 3))
    modern(world).join()
    group = world.consumer_group
    current = group.log.members[classic].member_epoch
    assert group.check_offset_commit(classic, None, current, version=8) is None
    assert code_of(group.check_offset_commit, classic, None, current + 1, version=8) == ILLEGAL
    check = group.check_offset_commit(classic, None, current - 1, version=8)
    assert check is not None
    assert code_of(check, "t", topic_id("t"), 0) == ILLEGAL
    group.check_offset_fetch(classic, current)
    assert code_of(group.check_offset_fetch, classic, current + 1) == ILLEGAL


# -- fetches --------------------------------------------------------------------------------------------------------


def replay(world: GroupWorld, partition: int, offset: int, *, topic: str = "foo", producer_id: int = -1) -> None:
    record = offset_record(GROUP, topic, partition, OffsetCommitValue(offset, leader_epoch=1, metadata="metadata"))
    world.shard.replay(record, len(world.log), producer_id)
    world.log.append((None, None))


def fetched(world: Any, *topics: str, require_stable: bool = False) -> dict[tuple[str, int], int]:
    """Return the offset, or the error code as a negative number below -1, of partitions 0 and 1 of these; else all."""
    named = [OffsetFetchRequestTopics(topic, partition_indexes=[0, 1]) for topic in topics] or None
    response = world.shard.offsets.fetch(OffsetFetchRequestGroup(GROUP, topics=named), require_stable=require_stable)
    return {
        (topic.name, part.partition_index): -part.error_code if part.error_code else part.committed_offset
        for topic in response.topics
        for part in topic.partitions
    }


def test_of_an_unknown_group_there_are_no_offsets() -> None:
    world = GroupWorld()
    assert fetched(world, "foo", "bar") == {("foo", 0): -1, ("foo", 1): -1, ("bar", 0): -1, ("bar", 1): -1}
    assert fetched(world) == {}


def test_each_commit_is_fetched_from_then_on() -> None:
    world = GroupWorld(image_of(foo=2))
    FakeConsumer(world, "a", "foo").join()
    assert fetched(world) == {}
    expected: dict[tuple[str, int], int] = {}
    for topic, partition, offset in (("foo", 0, 100), ("foo", 1, 110), ("bar", 0, 200), ("foo", 1, 111)):
        replay(world, partition, offset, topic=topic)
        expected[topic, partition] = offset
        assert fetched(world) == expected
        assert (
            fetched(world, "foo", "bar") == {("foo", 0): -1, ("foo", 1): -1, ("bar", 0): -1, ("bar", 1): -1} | expected
        )


def test_offsets_of_an_open_transaction_are_unstable_and_those_that_were_there_are_fetched() -> None:
    unstable = -ErrorCode.UNSTABLE_OFFSET_COMMIT
    world = GroupWorld(image_of(foo=2))
    FakeConsumer(world, "a", "foo").join()
    for topic, partition, offset in (("foo", 0, 100), ("foo", 1, 110), ("bar", 0, 200)):
        replay(world, partition, offset, topic=topic)
    before = fetched(world)
    for topic, partition, offset in (("foo", 1, 111), ("bar", 0, 201), ("bar", 1, 211)):
        replay(world, partition, offset, topic=topic, producer_id=PRODUCER)

    stable = {"require_stable": True}
    changing = {("foo", 0): 100, ("foo", 1): unstable, ("bar", 0): unstable}
    assert fetched(world, "foo", "bar", **stable) == changing | {("bar", 1): unstable}
    assert fetched(world, **stable) == changing, "what has no offset yet is not listed"
    assert fetched(world) == before
    world.shard.replay_marker(PRODUCER, is_commit=True)
    after = {("foo", 0): 100, ("foo", 1): 111, ("bar", 0): 201, ("bar", 1): 211}
    assert fetched(world, **stable) == fetched(world) == after


# -- deletions, expiry ----------------------------------------------------------------------------------------------


def deletion_of(topic: str, *partitions: int) -> OffsetDeleteRequest:
    named = [OffsetDeleteRequestPartition(partition_index=each) for each in partitions or (0,)]
    return OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic(topic, partitions=named)])


def test_offsets_of_topics_that_members_subscribe_to_are_not_deleted() -> None:
    world = GroupWorld(image_of(foo=2, bar=2))
    FakeConsumer(world, "a", "foo").join()
    for topic in ("foo", "bar"):
        replay(world, 0, 100, topic=topic)
    codes = {}
    for topic in ("foo", "bar", "zar"):
        decision = world.shard.offsets.delete(deletion_of(topic))
        world.commit(decision)
        codes[topic] = decision.response.topics[0].partitions[0].error_code
    assert codes == {"foo": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "bar": 0, "zar": 0}
    assert fetched(world) == {("foo", 0): 100}


def test_pending_offsets_are_deleted_with_those_that_count() -> None:
    world = GroupWorld(image_of(foo=2))
    replay(world, 0, 100)
    replay(world, 1, 110, producer_id=PRODUCER)
    decision = world.shard.offsets.delete(deletion_of("foo", 0, 1))
    assert [record.key.partition for record in decision.records] == [0, 1]
    world.commit(decision)
    world.shard.replay_marker(PRODUCER, is_commit=True)
    assert fetched(world) == {}


def test_a_group_with_nothing_but_pending_offsets_does_not_expire() -> None:
    world = GroupWorld(image_of(foo=2), offsets_retention_minutes=1)
    store = world.shard.offsets.store
    replay(world, 0, 100)
    replay(world, 1, 110, producer_id=PRODUCER)
    for count in (1, 0, 0):
        decision = world.shard.expire(GROUP, store.partitions_of(GROUP))
        world.commit(decision)
        assert len(decision.records) == count
    assert GROUP in world.groups
    world.shard.replay_marker(PRODUCER, is_commit=False)
    world.commit(world.shard.expire(GROUP, store.partitions_of(GROUP)))
    assert GROUP not in world.groups
    assert world.shard.expire(GROUP, []).records == []


def test_offsets_are_counted_once_each() -> None:
    world = GroupWorld(image_of(foo=2))
    for partition, producer_id in ((0, 4), (0, 5), (1, 6)):
        replay(world, partition, 100 + producer_id, producer_id=producer_id)
    assert world.shard.offsets.store.committed_count == 0
    for producer_id in (4, 5, 6):
        world.shard.replay_marker(producer_id, is_commit=True)
    assert world.shard.offsets.store.committed_count == 2
