"""Members of a loaded KIP-848 group that join again or repeat themselves, and each record by itself.

After Apache Kafka's GroupMetadataManagerTest.
"""

from collections.abc import Set
from typing import Any

import pytest

from kafkapy.group.consumer.member import ConsumerMember, MemberState
from kafkapy.group.consumer.records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    regex_record,
    target_epoch_record,
    target_record,
)
from kafkapy.group.consumer.state import ResolvedRegex
from kafkapy.group.records import CoordinatorRecord
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafkapy.protocol.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from kafkapy.protocol.messages.consumer_group_partition_metadata_value import ConsumerGroupPartitionMetadataValue
from tests.support.consumer_groups import (
    FakeConsumer,
    GroupWorld,
    error_of,
    image_of,
    names_of,
    reconcile,
    topic_id,
)

FOO = topic_id("foo")
SESSION_MS = 45_000
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def member(state: MemberState, assigned: set[int], pending: Set[int] = frozenset(), **fields: Any) -> ConsumerMember:
    owned = {FOO: dict.fromkeys(assigned, 11)}
    return ConsumerMember(
        **{"member_id": "m", "member_epoch": 100, **fields},
        previous_member_epoch=99,
        state=state,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=frozenset({"foo"}),
        assigned=owned if assigned else {},
        pending_revocation={FOO: dict.fromkeys(pending, 11)} if pending else {},
    )


def loaded(before: ConsumerMember, epoch: int, target: set[int], *others: ConsumerMember) -> GroupWorld:
    """Return the coordinator of a group that nobody else changes: the hash of its topics is up to date."""
    world = GroupWorld(image_of(foo=3))
    joined = FakeConsumer(world, "x", "foo")
    joined.join()
    metadata_hash = world.group().log.metadata_hash
    world.log.clear()
    records = [member_record("g", before), epoch_record("g", epoch, metadata_hash)]
    records += [target_record("g", "m", {FOO: frozenset(target)}), target_epoch_record("g", epoch, 0)]
    records.append(current_record("g", before))
    for other in others:
        records += [member_record("g", other), target_record("g", other.member_id, {}), current_record("g", other)]
    world.load(*records)
    return world


def beat(world: GroupWorld, member_epoch: int, owned: set[int], **fields: Any) -> tuple[int, list[int]]:
    """Send a full heartbeat; return the epoch and the assignment of the response."""
    partitions = [TopicPartitions(FOO, partitions=sorted(owned))] if owned else []
    request = ConsumerGroupHeartbeatRequest(
        "g",
        member_id="m",
        member_epoch=member_epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["foo"],
        topic_partitions=partitions,
        **fields,
    )
    response = world.send(request)
    assert response.assignment is not None
    topics = response.assignment.topic_partitions
    return response.member_epoch, sorted(partition for topic in topics for partition in topic.partitions)


def state_of(world: GroupWorld) -> MemberState:
    return world.group().log.members["m"].state


@pytest.mark.parametrize(
    ("before", "epoch", "target"),
    [
        (member(STABLE, {0, 1, 2}), 100, {0, 1, 2}),
        (member(UNREVOKED, {0, 1}, {2}), 101, {0, 1}),
        (member(UNRELEASED, {0}), 100, {0, 1, 2}),
    ],
    ids=["stable", "unrevoked", "unreleased"],
)
def test_a_member_that_joins_again_has_given_all_up_and_gets_its_target(
    before: ConsumerMember, epoch: int, target: set[int]
) -> None:
    world = loaded(before, epoch, target)

    assert beat(world, 0, set()) == (epoch, sorted(target))
    assert state_of(world) is STABLE


GIVING = member(UNREVOKED, set(), {1, 2}, member_id="other", member_epoch=99)


@pytest.mark.parametrize(
    ("before", "others", "epoch", "target", "owned", "expected"),
    [
        (member(STABLE, {0, 1, 2}), (), 100, {0, 1, 2}, {0, 1, 2}, (STABLE, 100, [0, 1, 2])),
        (member(UNREVOKED, {0, 1}, {2}), (), 101, {0, 1}, {0, 1, 2}, (UNREVOKED, 100, [0, 1])),
        (member(UNRELEASED, {0}), (GIVING,), 100, {0, 1, 2}, {0}, (UNRELEASED, 100, [0])),
        (member(UNREVOKED, {0, 1}, {2}), (), 101, {0, 1}, {0, 1}, (STABLE, 101, [0, 1])),
    ],
    ids=["stable", "unrevoked", "unreleased", "revoked"],
)
def test_a_full_heartbeat_that_comes_twice_is_answered_twice_and_writes_once(
    before: ConsumerMember,
    others: tuple[ConsumerMember, ...],
    epoch: int,
    target: set[int],
    owned: set[int],
    expected: tuple[MemberState, int, list[int]],
) -> None:
    world = loaded(before, epoch, target, *others)

    first = beat(world, 100, owned)
    assert (state_of(world), *first) == expected
    assert beat(world, 100, owned) == first
    assert world.written == []
    assert state_of(world) is expected[0]


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_the_epoch_before_is_taken_from_who_owns_no_more_than_it_has(instance_id: str | None) -> None:
    world = loaded(member(STABLE, {0, 1, 2}, instance_id=instance_id), 100, {0, 1, 2})

    for epoch in (200, 50):
        assert error_of(beat, world, epoch, {0}, instance_id=instance_id)[0] == ErrorCode.FENCED_MEMBER_EPOCH
    fenced = ConsumerGroupHeartbeatRequest("g", member_id="m", member_epoch=99, instance_id=instance_id)
    assert error_of(world.send, fenced)[0] == ErrorCode.FENCED_MEMBER_EPOCH
    assert error_of(beat, world, 99, {0, 1, 2, 3}, instance_id=instance_id)[0] == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(world, 99, {0, 1}, instance_id=instance_id) == (100, [0, 1, 2])


# -- records by themselves --------------------------------------------------------------------------------------------

PARTITION_METADATA = CoordinatorRecord(ConsumerGroupPartitionMetadataKey("g"), ConsumerGroupPartitionMetadataValue())
EACH_RECORD = [
    member_record("g", member(STABLE, set())),
    epoch_record("g", 10, 5),
    PARTITION_METADATA,
    target_record("g", "m", {FOO: frozenset({0, 1, 2})}),
    target_epoch_record("g", 10, 12_345),
    current_record("g", member(UNRELEASED, {0, 1, 2})),
    regex_record("g", "abc*", ResolvedRegex(frozenset({"abc", "abcd"}), 10, 12_345)),
]


def kind(record: CoordinatorRecord) -> str:
    return record.key.NAME


@pytest.mark.parametrize("record", EACH_RECORD, ids=kind)
def test_a_record_whose_predecessors_were_compacted_makes_the_group(record: CoordinatorRecord) -> None:
    world = GroupWorld()
    world.load(record)

    log = world.group().log
    facts = {
        "ConsumerGroupMemberMetadataKey": "m" in log.members and log.members["m"].subscribed_topic_names == {"foo"},
        "ConsumerGroupMetadataKey": (log.group_epoch, log.metadata_hash) == (10, 5),
        "ConsumerGroupPartitionMetadataKey": log.has_partition_metadata_record,
        "ConsumerGroupTargetAssignmentMemberKey": log.targets.get("m") == {FOO: {0, 1, 2}},
        "ConsumerGroupTargetAssignmentMetadataKey": log.assignment_epoch == 10,
        "ConsumerGroupCurrentMemberAssignmentKey": "m" in log.members and log.members["m"].state is UNRELEASED,
        "ConsumerGroupRegularExpressionKey": "abc*" in log.subscriptions.resolved,
    }
    assert {name for name, holds in facts.items() if holds} == {kind(record)}


@pytest.mark.parametrize("record", EACH_RECORD, ids=kind)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_tombstone_makes_no_group_and_no_member(record: CoordinatorRecord, is_known: bool) -> None:
    world = GroupWorld()
    if is_known:
        world.load(epoch_record("g", 10, 0))
    world.load(CoordinatorRecord(record.key, None))

    is_of_the_group = kind(record) == "ConsumerGroupMetadataKey"
    assert (set(world.groups) == {"g"}) == (is_known and not is_of_the_group)
    assert not world.groups or not world.group().log.members


def test_all_tombstones_leave_no_group() -> None:
    world = GroupWorld()
    world.load(*EACH_RECORD)
    world.load(*group_tombstones("g", ["m"], ["abc*"]))

    assert world.groups == {}


# -- static members ---------------------------------------------------------------------------------------------------


def static_pair(world: GroupWorld) -> tuple[FakeConsumer, FakeConsumer]:
    """Return two static members that have divided the topic foo between them."""
    pair = FakeConsumer(world, "a", "foo", instance_id="i1"), FakeConsumer(world, "b", "foo", instance_id="i2")
    for consumer in pair:
        consumer.join()
    reconcile(*pair)
    return pair


def test_a_static_member_that_leaves_for_a_while_begins_no_epoch_and_gets_back_what_it_had() -> None:
    world = GroupWorld(image_of(foo=4))
    _, second = static_pair(world)
    epoch, had = world.group().log.group_epoch, second.partitions()

    assert second.leave(-2).member_epoch == -2
    assert names_of(world.written) == ["CurrentMemberAssignment"]
    back = FakeConsumer(world, "new", "foo", instance_id="i2")
    back.join()

    assert (back.epoch, world.group().log.group_epoch, back.partitions()) == (epoch, epoch, had)
    assert sorted(world.group().log.members) == ["a", "new"]
    assert sorted(world.group().log.targets) == ["a", "new"]


def test_a_static_member_that_comes_back_with_other_topics_begins_an_epoch() -> None:
    world = GroupWorld(image_of(foo=4, bar=2))
    _, second = static_pair(world)
    epoch, had = world.group().log.group_epoch, second.partitions()
    second.leave(-2)

    back = FakeConsumer(world, "new", "foo", "bar", instance_id="i2")
    back.join()

    assert (back.epoch, world.group().log.group_epoch) == (epoch + 1, epoch + 1)
    assert {("bar", 0), ("bar", 1)} <= set(back.partitions()) <= {("bar", 0), ("bar", 1), *had}


@pytest.mark.parametrize("instance_id", [None, "i2"])
def test_a_member_that_leaves_for_good_begins_an_epoch_and_leaves_nothing(instance_id: str | None) -> None:
    world = GroupWorld(image_of(foo=4))
    first = FakeConsumer(world, "a", "foo", instance_id="i1")
    second = FakeConsumer(world, "b", "foo", instance_id=instance_id)
    for consumer in (first, second):
        consumer.join()
    epoch = world.group().log.group_epoch

    assert second.leave().member_epoch == -1
    assert names_of(world.written) == [
        "-CurrentMemberAssignment",
        "-TargetAssignmentMember",
        "-MemberMetadata",
        "Metadata",
    ]
    assert world.group().log.group_epoch == epoch + 1


@pytest.mark.parametrize(
    ("member_id", "instance_id", "expected"),
    [
        ("a", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        ("unknown", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        ("unknown", "i1", ErrorCode.FENCED_INSTANCE_ID),
        ("b", "i1", ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_an_instance_and_a_member_have_to_belong_together(
    member_id: str, instance_id: str, expected: ErrorCode
) -> None:
    world = GroupWorld(image_of(foo=4))
    first, _ = static_pair(world)

    for epoch in (first.epoch, -1, -2):
        request = ConsumerGroupHeartbeatRequest("g", member_id=member_id, instance_id=instance_id, member_epoch=epoch)
        assert error_of(world.send, request)[0] == expected
    joining = FakeConsumer(world, "new", "foo", instance_id="i1")
    assert error_of(joining.join)[0] == ErrorCode.UNRELEASED_INSTANCE_ID


# -- time-outs --------------------------------------------------------------------------------------------------------


def giving_member(world: GroupWorld) -> FakeConsumer:
    """Return the member "a", which has just been told to revoke, within 12 s, what the member "b" is to get."""
    first = FakeConsumer(world, "a", "foo", rebalance_timeout_ms=180_000)
    first.join()
    FakeConsumer(world, "b", "foo", rebalance_timeout_ms=90_000).join()
    world.pass_time(5_000)
    first.beat(rebalance_timeout_ms=12_000)
    assert world.group().log.members["a"].state is UNREVOKED
    return first


@pytest.mark.parametrize("revokes", [True, False])
def test_a_member_has_its_own_time_to_revoke(revokes: bool) -> None:
    world = GroupWorld(image_of(foo=3))
    first = giving_member(world)

    world.pass_time(11_999)
    if revokes:
        first.beat()
    else:
        world.send(first.request())  # it is alive, and has not revoked
    written = world.pass_time(1)

    assert ("a" in world.group().log.members) == revokes
    removal = ["-CurrentMemberAssignment", "-TargetAssignmentMember", "-MemberMetadata", "Metadata"]
    assert names_of(written) == ([] if revokes else removal)


def test_another_coordinator_gives_the_time_to_revoke_anew() -> None:
    world = GroupWorld(image_of(foo=3))
    giving_member(world)

    world.pass_time(10_000)
    world.restart()
    world.pass_time(0)
    assert world.pass_time(11_999) == []
    assert names_of(world.pass_time(1))[0] == "-CurrentMemberAssignment"


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_a_session_is_renewed_by_each_heartbeat_and_ends_with_the_member(instance_id: str | None) -> None:
    world = GroupWorld(image_of(foo=6))
    consumer = FakeConsumer(world, "a", "foo", instance_id=instance_id)
    consumer.join()
    for _ in range(3):
        assert world.pass_time(SESSION_MS - 1) == []
        consumer.beat()
    if instance_id is not None:
        consumer.leave(-2)
    assert world.pass_time(SESSION_MS - 1) == []
    assert names_of(world.pass_time(1))[-2:] == ["Metadata", "TargetAssignmentMetadata"]
    assert not world.group().log.members

    consumer.join()
    consumer.leave()
    assert world.pass_time(2 * SESSION_MS) == []
