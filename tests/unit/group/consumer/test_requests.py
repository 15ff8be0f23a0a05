"""Requests to KIP-848 groups: what is refused with what, descriptions, commits and fetches of offsets."""

from typing import Any

import pytest

from kafkapy.group.consumer import update
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from tests.support.consumer_groups import (
    FakeConsumer,
    GroupWorld,
    error_of,
    image_of,
    reconcile,
    settled_pair,
    topic_id,
)
from tests.support.interpreter import needs_interpreter


def test_unknown_instance_and_member_and_group() -> None:
    world = GroupWorld(image_of(foo=1))
    stranger = FakeConsumer(world, "x", "foo")
    stranger.epoch = 3
    assert error_of(stranger.beat) == (ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found.")
    FakeConsumer(world, "a", "foo").join()

    assert error_of(stranger.leave) == (ErrorCode.UNKNOWN_MEMBER_ID, "Member x is not a member of group g.")
    assert error_of(stranger.beat, instance_id="j") == (ErrorCode.UNKNOWN_MEMBER_ID, "Instance id j is unknown.")


def test_full_group_takes_nobody_else() -> None:
    world = GroupWorld(image_of(foo=1), group_consumer_max_size=1)
    first = FakeConsumer(world, "a", "foo")
    first.join()

    assert error_of(FakeConsumer(world, "b", "foo").join) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The consumer group has reached its maximum capacity of 1 members.",
    )
    first.beat()


INVALID = [
    ({"member_id": ""}, "MemberId can't be empty."),
    ({"group_id": " "}, "GroupId can't be empty."),
    ({"instance_id": ""}, "InstanceId can't be empty."),
    ({"rack_id": ""}, "RackId can't be empty."),
    ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
    ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
    (
        {"subscribed_topic_names": None},
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    ({"member_epoch": -2}, "InstanceId can't be null."),
    ({"member_epoch": -3}, "MemberEpoch is invalid."),
    (
        {"subscribed_topic_names": [str(number) for number in range(5_001)]},
        "SubscribedTopicNames has 5001 names, more than 5000.",
    ),
]


@pytest.mark.parametrize(("fields", "message"), INVALID)
def test_invalid_request_says_what_to_change(fields: dict[str, Any], message: str) -> None:
    world = GroupWorld(image_of(foo=1))
    valid = {
        "group_id": "g",
        "member_id": "a",
        "rebalance_timeout_ms": 1,
        "subscribed_topic_names": ["foo"],
        "topic_partitions": [],
    }

    assert error_of(world.send, ConsumerGroupHeartbeatRequest(**{**valid, **fields})) == (
        ErrorCode.INVALID_REQUEST,
        message,
    )
    assert world.groups == {}


@needs_interpreter("it replaces a constant, which compiled code has inlined")
def test_the_names_of_all_members_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "MAX_NAMES_OF_GROUP", 3)
    world = GroupWorld(image_of(foo=1))
    first, second = FakeConsumer(world, "a", "foo", "bar"), FakeConsumer(world, "b", "foo", "other", "more")
    first.join()
    assert error_of(second.join) == (ErrorCode.INVALID_REQUEST, "The members of the group name 4 topics, more than 3.")
    FakeConsumer(world, "b", "foo", "other").join()
    first.beat()


def test_unknown_assignor_is_refused_with_the_known_ones() -> None:
    world = GroupWorld(image_of(foo=1))

    assert error_of(FakeConsumer(world, "a", "foo", server_assignor="best").join) == (
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        "ServerAssignor best is not supported. Supported assignors: uniform, range.",
    )


def test_assignor_that_most_members_request_is_used() -> None:
    world = GroupWorld(image_of(foo=2, bar=2))
    consumers = [FakeConsumer(world, name, "foo", "bar", server_assignor="range") for name in "ab"]
    consumers.append(FakeConsumer(world, "c", "foo", "bar", server_assignor="uniform"))
    for consumer in consumers:
        consumer.join()
    reconcile(*consumers)

    assert world.consumer.describe("g").assignor_name == "range"
    assert consumers[0].partitions() == [("bar", 0), ("foo", 0)]


def test_description_shows_members_with_what_they_have_and_are_to_have() -> None:
    world = GroupWorld(image_of(foo=2))
    first, second = FakeConsumer(world, "a", "foo"), FakeConsumer(world, "b", "foo", instance_id="i", rack_id="r")
    first.join()
    second.join()
    first.beat()

    described = world.consumer.describe("g")

    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 3, 3)
    members = {member.member_id: member for member in described.members}
    assert [topic.partitions for topic in members["a"].assignment.topic_partitions] == [[0, 1]]
    assert [topic.partitions for topic in members["a"].target_assignment.topic_partitions] == [[0]]
    assert (members["b"].instance_id, members["b"].rack_id, members["b"].member_type) == ("i", "r", 1)
    assert members["b"].client_host == "/127.0.0.1"


def test_unknown_group_is_described_as_not_found() -> None:
    described = GroupWorld().consumer.describe("nobody")

    assert (described.error_code, described.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group nobody not found.",
    )


def test_commit_is_checked_by_the_epoch_of_the_partitions_assignment() -> None:
    world = GroupWorld(image_of(foo=2))
    settled_pair(world)
    group = world.group()

    assert group.check_offset_commit("b", None, 3) is None
    older = group.check_offset_commit("a", None, 2)
    assert older is not None
    older("foo", topic_id("foo"), 0)
    assert error_of(older, "foo", topic_id("foo"), 1) == (
        ErrorCode.STALE_MEMBER_EPOCH,
        "Partition foo-1 is not assigned or pending revocation for member.",
    )
    too_old = group.check_offset_commit("b", None, 2)
    assert too_old is not None
    assert error_of(too_old, "foo", topic_id("foo"), 1)[0] == ErrorCode.STALE_MEMBER_EPOCH
    assert error_of(group.check_offset_commit, "a", None, 4) == (
        ErrorCode.STALE_MEMBER_EPOCH,
        "Received member epoch 4 is newer than current member epoch 3.",
    )
    assert error_of(group.check_offset_commit, "x", None, 3)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(group.check_offset_commit, "", None, -1)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(group.check_offset_commit, "a", None, 3, version=8)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert group.check_offset_commit("", None, -1, is_transactional=True) is None


def test_fetch_is_checked_by_the_member_epoch() -> None:
    world = GroupWorld(image_of(foo=2))
    FakeConsumer(world, "a", "foo").join()
    group = world.group()

    group.check_offset_fetch(None, -1)
    group.check_offset_fetch("a", 2)
    assert error_of(group.check_offset_fetch, "a", 1) == (
        ErrorCode.STALE_MEMBER_EPOCH,
        "The received member epoch 1 does not match the expected member epoch 2.",
    )
    assert error_of(group.check_offset_fetch, "x", 2)[0] == ErrorCode.UNKNOWN_MEMBER_ID


def test_anyone_may_commit_to_an_empty_group() -> None:
    world = GroupWorld(image_of(foo=2))
    consumer = FakeConsumer(world, "a", "foo")
    consumer.join()
    consumer.leave()

    assert world.group().check_offset_commit("", None, -1) is None
