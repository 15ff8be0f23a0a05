"""ShareGroupHeartbeat: outcomes as of Apache Kafka 4.4.0, many of them cases of its GroupMetadataManagerTest."""

from dataclasses import replace

import pytest

from kafkapy.group.decision import GroupDecision
from kafkapy.group.explain import explain
from kafkapy.group.offsets import offset_record
from kafkapy.group.settings import MAX_NAMES
from kafkapy.group.share import heartbeat
from kafkapy.group.share.decision import ShareDecision
from kafkapy.group.share.member import ShareMember
from kafkapy.group.share.records import states_record
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.support.consumer_groups import WALL_START_MS, FakeConsumer, error_of, image_of, topic_id
from tests.support.share_groups import ShareWorld, assigned

FOO, BAR = topic_id("foo"), topic_id("bar")
SESSION_MS, RETRY_MS = 45_000, 30_000


def settled(*member_ids: str, partition_count: int = 6) -> ShareWorld:
    """Return a shard whose group "g" has these members of foo, all at the same epoch."""
    world = ShareWorld(image_of(foo=partition_count))
    for member_id in member_ids:
        world.join(member_id, "foo")
    world.initialize()
    for member_id in member_ids * 2:
        world.heartbeat(member_id, world.log().members[member_id].member_epoch)
    return world


# -- joining --------------------------------------------------------------------------------------------------------


def test_first_member_is_assigned_its_partitions_once_they_have_a_state() -> None:
    world = ShareWorld(image_of(foo=2))

    joined = world.join("a", "foo")

    assert (joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == ("a", 2, 5000)
    assert assigned(joined) == {}
    assert world.names_written() == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
        "StatePartitionMetadata",
    ]
    (effect,) = world.to_initialize
    assert (effect.group_id, effect.state_epoch, effect.start_offsets) == ("g", 2, {FOO: {0: -1, 1: -1}})

    beaten = world.heartbeat("a", 2)
    assert (beaten.member_epoch, assigned(beaten), world.names_written()) == (2, None, [])
    world.initialize()
    assert world.names_written() == ["StatePartitionMetadata"]

    beaten = world.heartbeat("a", 2)
    assert (beaten.member_epoch, assigned(beaten)) == (3, {"foo": [0, 1]})
    assert world.names_written() == [
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    assert world.log().members["a"] == ShareMember(
        "a",
        member_epoch=3,
        previous_member_epoch=2,
        client_id="client",
        client_host="/127.0.0.1",
        subscribed_topic_names=frozenset({"foo"}),
        assigned={FOO: frozenset({0, 1})},
    )


def test_nothing_is_written_once_all_is_assigned() -> None:
    world = settled("a")
    group = world.group()
    for _ in range(3):
        response = world.heartbeat("a", 3)
        assert (response.member_epoch, assigned(response), world.names_written()) == (3, None, [])
        assert not world.to_initialize
    assert group.is_settled(world.image)


def test_members_divide_the_partitions_and_share_them_if_there_are_too_few() -> None:
    world = settled("a", "b")
    targets = world.log().targets
    assert sorted(len(target[FOO]) for target in targets.values()) == [3, 3]

    world = settled("a", "b", "c", partition_count=1)
    assert all(target == {FOO: (0,)} for target in world.log().targets.values())


def test_topics_that_do_not_exist_are_waited_for() -> None:
    world = ShareWorld()
    assert assigned(world.join("a", "foo")) == {}
    assert not world.to_initialize

    world.image = image_of(2, foo=1)
    response = world.heartbeat("a", 2)

    assert (response.member_epoch, assigned(response)) == (3, None)
    assert [effect.start_offsets for effect in world.to_initialize] == [{FOO: {0: -1}}]
    world.initialize()
    assert assigned(world.heartbeat("a", 3)) == {"foo": [0]}


def test_member_that_joins_again_keeps_its_assignment_and_is_told_it() -> None:
    world = settled("a")
    response = world.join("a", "foo")
    assert (response.member_epoch, assigned(response)) == (3, {"foo": [0, 1, 2, 3, 4, 5]})
    assert world.names_written() == []


def test_full_request_is_answered_with_the_assignment() -> None:
    world = settled("a")
    assert assigned(world.heartbeat("a", 3, ["foo"])) == {"foo": [0, 1, 2, 3, 4, 5]}
    assert world.names_written() == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": "  "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
        (
            {"subscribed_topic_names": list(map(str, range(MAX_NAMES + 1)))},
            f"SubscribedTopicNames has {MAX_NAMES + 1} names, more than {MAX_NAMES}.",
        ),
    ],
)
def test_request_that_no_group_accepts_is_invalid(fields: dict[str, object], message: str) -> None:
    request = ShareGroupHeartbeatRequest(
        **{"group_id": "g", "member_id": "a", "subscribed_topic_names": ["foo"], **fields}  # type: ignore[arg-type]
    )
    assert error_of(ShareWorld().send, request) == (ErrorCode.INVALID_REQUEST, message)


def test_different_names_of_all_members_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "MAX_NAMES_OF_GROUP", 3)
    world = ShareWorld()
    world.join("a", "1", "2")
    refused = error_of(world.join, "b", "3", "4")
    assert refused == (ErrorCode.INVALID_REQUEST, "The members of the group name 4 topics, more than 3.")
    world.join("b", "2", "3")


def test_member_beyond_the_limit_is_refused_and_members_are_not() -> None:
    world = ShareWorld(image_of(foo=1), group_share_max_size=2)
    world.join("a", "foo")
    world.join("b", "foo")
    assert error_of(world.join, "c", "foo") == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The share group has reached its maximum capacity of 2 members.",
    )
    assert world.join("b", "foo").member_epoch == 3


def test_id_of_another_kind_of_group_is_refused() -> None:
    world = ShareWorld()
    world.groups_world.commit(GroupDecision(records=[offset_record("g", "foo", 0, OffsetCommitValue(5))]))
    assert error_of(world.join, "a", "foo") == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a share group.")
    assert error_of(world.heartbeat, "a", -1) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a share group.")


# -- epochs ---------------------------------------------------------------------------------------------------------


def test_unknown_group_and_unknown_member() -> None:
    world = ShareWorld(image_of(foo=1))
    assert error_of(world.heartbeat, "a", 1) == (ErrorCode.GROUP_ID_NOT_FOUND, "Share group g not found.")
    assert error_of(world.heartbeat, "a", -1) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    world.join("a", "foo")
    for epoch in (2, -1):
        refused = error_of(world.heartbeat, "b", epoch)
        assert refused == (ErrorCode.UNKNOWN_MEMBER_ID, "Member b is not a member of group g.")


def test_epoch_ahead_or_older_than_the_previous_one_is_fenced() -> None:
    world = settled("a")
    member = world.log().members["a"]
    assert (member.previous_member_epoch, member.member_epoch) == (2, 3)
    assert error_of(world.heartbeat, "a", 4) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        "The share group member has a greater member epoch (4) than the one known by the group coordinator (3). The "
        "member must abandon all its partitions and rejoin.",
    )
    assert error_of(world.heartbeat, "a", 1) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        "The share group member has a smaller member epoch (1) than the one known by the group coordinator (3), and it "
        "does not match the previous member epoch (2). The member must abandon all its partitions and rejoin.",
    )
    assert world.heartbeat("a", 2).member_epoch == 3


# -- changes --------------------------------------------------------------------------------------------------------


def test_changed_subscription_bumps_the_epoch_and_what_is_no_longer_subscribed_goes_at_once() -> None:
    world = ShareWorld(image_of(foo=2, bar=2))
    world.join("a", "foo", "bar")
    world.initialize()
    assert assigned(world.heartbeat("a", 2)) == {"bar": [0, 1], "foo": [0, 1]}

    response = world.heartbeat("a", 3, ["bar"])

    assert (response.member_epoch, assigned(response)) == (4, {"bar": [0, 1]})
    assert world.log().topic_names == {"bar": 1}


def test_changed_rack_and_client_are_written_without_a_new_epoch() -> None:
    world = settled("a")
    assert world.heartbeat("a", 3, None, rack_id="r").member_epoch == 3
    assert world.names_written() == ["MemberMetadata"]
    assert world.log().members["a"].rack_id == "r"


def test_partitions_that_are_added_to_a_known_topic_begin_at_its_start() -> None:
    world = settled("a", partition_count=1)
    world.image = image_of(2, foo=3)

    world.heartbeat("a", 3)

    assert [effect.start_offsets for effect in world.to_initialize] == [{FOO: {1: 0, 2: 0}}]
    assert world.to_initialize[0].state_epoch == 4
    world.initialize()
    assert assigned(world.heartbeat("a", 4)) == {"foo": [0, 1, 2]}


def test_deleted_topic_is_forgotten_with_its_states() -> None:
    world = settled("a")
    world.image = image_of(2)
    world.commit(world.shard.forget_topic("foo", FOO))
    assert world.names_written() == ["StatePartitionMetadata"]
    states = world.log().states
    assert states is not None
    assert not states.initialized

    response = world.heartbeat("a", 3)

    assert (response.member_epoch, assigned(response)) == (4, {})
    assert world.heartbeat("a", 4).member_epoch == 4


def test_states_of_a_deleted_topic_that_were_never_forgotten_begin_no_epoch() -> None:
    """A coordinator that was loading when the topic was deleted still has them; the topic may be made again."""
    world = settled("a")
    world.image = image_of(2)
    assert assigned(world.heartbeat("a", 3)) == {}

    assert [world.heartbeat("a", 4).member_epoch for _ in range(3)] == [4, 4, 4]
    assert world.names_written() == []


def test_target_is_computed_again_after_the_assignment_interval() -> None:
    world = ShareWorld(image_of(foo=2), group_share_assignment_interval_ms=1000)
    assert world.join("a", "foo").member_epoch == 2
    world.initialize()
    response = world.heartbeat("a", 2)
    assert (response.member_epoch, assigned(response)) == (2, None)
    assert world.names_written() == ["Metadata"]
    world.pass_time(999)
    assert world.heartbeat("a", 2).member_epoch == 2

    world.pass_time(1)

    response = world.heartbeat("a", 2)
    assert (response.member_epoch, assigned(response)) == (3, {"foo": [0, 1]})


def test_new_member_waits_for_the_assignment_interval_at_the_last_targets_epoch() -> None:
    world = settled("a")
    world.groups_world.share_config = replace(
        world.groups_world.share_config, group_share_assignment_interval_ms=15_000
    )
    response = world.join("b", "foo")
    assert (response.member_epoch, assigned(response), world.log().group_epoch) == (3, {}, 4)


def test_clock_of_an_earlier_coordinator_that_was_ahead_is_not_waited_for() -> None:
    world = ShareWorld(image_of(foo=2), group_share_assignment_interval_ms=1000)
    world.join("a", "foo")
    world.groups_world.restart(wall_ahead_ms=-60_000)
    world.initialize()
    assert assigned(world.heartbeat("a", 2)) == {"foo": [0, 1]}


# -- states ---------------------------------------------------------------------------------------------------------


def test_states_that_could_not_be_created_are_tried_with_the_next_heartbeat() -> None:
    world = ShareWorld(image_of(foo=2))
    world.join("a", "foo")
    world.fail_to_initialize()
    assert world.log().states is not None
    assert not world.log().states.initializing

    world.heartbeat("a", 2)

    assert [effect.start_offsets for effect in world.to_initialize] == [{FOO: {0: -1, 1: -1}}]


def test_states_whose_creation_was_lost_are_tried_again_after_a_while() -> None:
    world = ShareWorld(image_of(foo=1))
    world.join("a", "foo")
    world.to_initialize.clear()
    world.heartbeat("a", 2)
    assert not world.to_initialize

    world.groups_world.now_ms += RETRY_MS
    world.heartbeat("a", 2)

    assert [effect.start_offsets for effect in world.to_initialize] == [{FOO: {0: 0}}]


def test_outcome_for_a_group_that_is_gone_is_dropped() -> None:
    world = ShareWorld()
    assert not world.shard.share.states_initialized("g", {FOO: {0}}).records
    assert not world.shard.share.states_failed("g", {FOO: {0}}).records


def test_topic_that_is_subscribed_anew_while_its_states_are_being_deleted_is_kept() -> None:
    world = ShareWorld(image_of(foo=1))
    world.join("a", "foo")
    states = world.log().states
    assert states is not None
    deleting = replace(states, initializing={}, deleting=frozenset({FOO}))
    world.commit(ShareDecision(records=[states_record("g", deleting, world.image)]))

    world.heartbeat("a", 2)

    states = world.log().states
    assert states is not None
    assert (list(states.initializing), states.deleting) == ([FOO], frozenset())


# -- leaving --------------------------------------------------------------------------------------------------------


def test_member_leaves_and_the_others_take_over() -> None:
    world = settled("a", "b")
    epoch = world.log().group_epoch

    left = world.heartbeat("a", -1)

    assert (left.member_id, left.member_epoch, left.heartbeat_interval_ms) == ("a", -1, 0)
    assert world.names_written() == [
        "-CurrentMemberAssignment",
        "-TargetAssignmentMember",
        "-MemberMetadata",
        "Metadata",
    ]
    response = world.heartbeat("b", epoch)
    assert (response.member_epoch, assigned(response)) == (epoch + 1, {"foo": [0, 1, 2, 3, 4, 5]})


def test_last_member_leaves_a_group_whose_target_epoch_follows() -> None:
    world = settled("a")
    world.heartbeat("a", -1)
    assert world.names_written()[-2:] == ["Metadata", "TargetAssignmentMetadata"]
    log = world.log()
    assert (log.group_epoch, log.assignment_epoch, log.assignment_timestamp_ms) == (4, 4, 0)
    assert world.group().state_name == "Empty"
    assert assigned(world.join("b", "foo")) == {"foo": [0, 1, 2, 3, 4, 5]}


def test_silent_member_is_removed_after_its_session() -> None:
    world = settled("a", "b")
    epoch = world.log().members["b"].member_epoch
    assert not world.pass_time(SESSION_MS - 1)
    world.heartbeat("b", epoch)

    world.pass_time(1)

    assert list(world.log().members) == ["b"]
    assert world.heartbeat("b", epoch).member_epoch == epoch + 1


# -- describing -----------------------------------------------------------------------------------------------------


def test_group_is_described() -> None:
    world = settled("a")
    described = world.shard.share.describe("g")
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 3, 3)
    assert (described.assignor_name, described.error_code) == ("simple", 0)
    (member,) = described.members
    assert (member.member_id, member.member_epoch, member.client_id, member.client_host) == (
        "a",
        3,
        "client",
        "/127.0.0.1",
    )
    assert member.subscribed_topic_names == ["foo"]
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_id, topic.topic_name, topic.partitions) == (FOO, "foo", [0, 1, 2, 3, 4, 5])
    missing = world.shard.share.describe("h")
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group h not found.")
    FakeConsumer(world.groups_world, "c", "foo").join(group_id="of-consumers")
    other = world.shard.share.describe("of-consumers")
    assert (other.error_code, other.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group of-consumers is not a share group.",
    )


def test_rebalances_are_explained() -> None:
    world = settled("a")
    world.groups_world.restart()
    world.heartbeat("a", 3)
    world.join("b", "foo")
    text = explain(world.group(), world.image).decode()
    assert "member b (client client) joined" in text
    assert f'"ended_at_ms":{WALL_START_MS + 1_000}' in text


def test_state_of_a_new_coordinator_is_that_of_the_old_one() -> None:
    world = settled("a", "b")
    before = world.log()
    world.groups_world.restart()
    after = world.log()
    for name in ("group_epoch", "metadata_hash", "assignment_epoch", "members", "targets", "topic_names", "states"):
        assert getattr(after, name) == getattr(before, name), name
