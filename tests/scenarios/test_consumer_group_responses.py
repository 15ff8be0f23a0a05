"""KIP-848 groups as a client sees them: every refusal with its message, epochs, static members, offsets of members."""

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from tests.support.client_requests import describe_topic
from tests.support.membership import Member, describe_group
from tests.support.offsets import commit, committed, delete_offsets, fetch_group
from tests.support.wire import WireClient

NONE = 0
LEAVES, LEAVES_FOR_A_WHILE = -1, -2

Beat = Callable[..., Any]


@pytest.fixture
def beat(client: WireClient, group: str) -> Beat:
    """Send a ConsumerGroupHeartbeat, from a member "m" unless another is named, and return the response."""

    def send(member_epoch: int, version: int = 1, **fields: Any) -> Any:
        joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [group], "topic_partitions": []}
        values = {"group_id": group, "member_id": "m", **(joining if member_epoch == 0 else {}), **fields}
        return client.call(ConsumerGroupHeartbeatRequest(member_epoch=member_epoch, **values), version)

    return send


REFUSED = [
    ({"group_id": ""}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
    ({"group_id": " "}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
    ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
    ({"instance_id": ""}, ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
    ({"rack_id": " "}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
    ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
    ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
    (
        {"rebalance_timeout_ms": -1},
        ErrorCode.INVALID_REQUEST,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining."),
    (
        {"topic_partitions": [TopicPartitions(b"0123456789abcdef", partitions=[0])]},
        ErrorCode.INVALID_REQUEST,
        "TopicPartitions must be empty when (re-)joining.",
    ),
    (
        {"subscribed_topic_names": None},
        ErrorCode.INVALID_REQUEST,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    (
        {"server_assignor": "nope"},
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        "ServerAssignor nope is not supported. Supported assignors: uniform, range.",
    ),
    ({"member_epoch": 5}, ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group {group} not found."),
    ({"member_epoch": LEAVES}, ErrorCode.GROUP_ID_NOT_FOUND, "Group {group} not found."),
]


@pytest.mark.parametrize(("fields", "code", "message"), REFUSED, ids=range(len(REFUSED)))
def test_a_heartbeat_that_says_what_it_cannot_mean_is_refused_and_leaves_no_group(
    client: WireClient, group: str, beat: Beat, fields: dict[str, Any], code: int, message: str
) -> None:
    response = beat(**{"member_epoch": 0, **fields})
    assert (response.error_code, response.error_message) == (code, message.format(group=group))
    assert (response.member_id, response.member_epoch, response.assignment) == (None, 0, None)
    assert describe_group(client, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("regex", ["((", "*", "a(?=b)", "[", r"(a)\1"], ids=range(5))
def test_an_expression_that_is_none_of_re2_is_refused(beat: Beat, regex: str) -> None:
    response = beat(0, subscribed_topic_names=None, subscribed_topic_regex=regex)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    start = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: "
    assert response.error_message.startswith(start)
    assert len(response.error_message) > len(start)


def test_before_version_1_the_coordinator_makes_the_member_id(beat: Beat) -> None:
    response = beat(0, version=0, member_id="")
    assert (response.error_code, len(response.member_id)) == (NONE, 22)
    assert beat(LEAVES, member_id=response.member_id).error_code == NONE


def test_a_member_joins_lives_and_leaves(client: WireClient, group: str, beat: Beat) -> None:
    joined = beat(0)
    assert (joined.error_code, joined.member_id, joined.heartbeat_interval_ms) == (NONE, "m", 5_000)
    (owned,) = joined.assignment.topic_partitions
    assert (owned.topic_id, owned.partitions) == (describe_topic(client, group).topic_id, [0, 1])
    stays = beat(joined.member_epoch)
    assert (stays.member_epoch, stays.assignment) == (joined.member_epoch, None)
    left = beat(LEAVES)
    assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (NONE, LEAVES, 0)
    again = beat(joined.member_epoch)
    assert (again.error_code, again.error_message) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member m is not a member of group {group}.",
    )


@pytest.mark.parametrize(("step", "word"), [(1, "greater"), (-1, "smaller")])
def test_a_member_at_another_epoch_is_fenced(beat: Beat, step: int, word: str) -> None:
    epoch = beat(0).member_epoch
    response = beat(epoch + step)
    assert (response.error_code, response.error_message) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {word} member epoch ({epoch + step}) than the one known by the group "
        f"coordinator ({epoch}). The member must abandon all its partitions and rejoin.",
    )
    assert beat(epoch).error_code == NONE


def test_an_instance_belongs_to_one_member_until_that_has_gone(beat: Beat) -> None:
    epoch = beat(0, instance_id="i").member_epoch
    second = beat(0, member_id="n", instance_id="i")
    assert (second.error_code, second.error_message) == (
        ErrorCode.UNRELEASED_INSTANCE_ID,
        "Static member n with instance id i cannot join the group because the instance id is owned by m member.",
    )
    unknown = beat(epoch, instance_id="j")
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Instance id j is unknown.",
    )
    assert beat(LEAVES_FOR_A_WHILE, instance_id="i").member_epoch == LEAVES_FOR_A_WHILE
    assert beat(0, member_id="n", instance_id="i").assignment.topic_partitions[0].partitions == [0, 1]
    first = beat(epoch, instance_id="i")
    assert (first.error_code, first.error_message) == (
        ErrorCode.FENCED_INSTANCE_ID,
        "Static member m with instance id i was fenced by member n.",
    )


def test_a_member_joins_again_as_a_static_one_that_has_left_for_a_while(
    client: WireClient, group: str, beat: Beat
) -> None:
    beat(0)
    beat(0, member_id="n", instance_id="i")
    assert beat(LEAVES_FOR_A_WHILE, member_id="n", instance_id="i").error_code == NONE
    again = beat(0, instance_id="i", subscribed_topic_names=[group, "another"])
    assert again.error_code == NONE
    assert beat(again.member_epoch, instance_id="i").error_code == NONE
    (described,) = client.call(ConsumerGroupDescribeRequest([group]), 1).groups
    assert [(each.member_id, each.instance_id) for each in described.members] == [("m", "i")]


# -- offsets --------------------------------------------------------------------------------------------------------


def test_members_commit_at_their_epoch(client: WireClient, group: str, beat: Beat) -> None:
    epoch = beat(0).member_epoch

    def code(offset: int, member_epoch: int, member_id: str = "m", version: int = 9) -> int:
        fields = {"member_id": member_id, "generation_id_or_member_epoch": member_epoch}
        return commit(client, group, group, offset, version=version, **fields)[0]

    assert code(7, epoch) == NONE
    assert code(8, epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert code(8, -1) == ErrorCode.STALE_MEMBER_EPOCH
    assert code(8, epoch, "other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(8, -1, "") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(8, epoch, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert committed(client, group, group) == [7]


def test_members_fetch_their_offsets_at_their_epoch(client: WireClient, group: str, beat: Beat) -> None:
    epoch = beat(0).member_epoch
    assert fetch_group(client, group, group, member_id="m", member_epoch=epoch).error_code == NONE
    stale = fetch_group(client, group, group, member_id="m", member_epoch=epoch + 1)
    assert (stale.error_code, stale.topics) == (ErrorCode.STALE_MEMBER_EPOCH, [])
    assert fetch_group(client, group, member_id="m", member_epoch=-1).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_group(client, group, group, member_id="o", member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_group(client, group, group).error_code == NONE


def test_what_a_group_with_members_uses_is_not_deleted(client: WireClient, group: str, beat: Beat) -> None:
    beat(0)
    response = delete_offsets(client, group, group, 0)
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    response = client.call(DeleteGroupsRequest(groups_names=[group]), 2)
    assert response.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    beat(LEAVES)
    assert client.call(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == NONE


# -- described ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described_with_its_members(client: WireClient, group: str, beat: Beat, version: int) -> None:
    epoch = beat(0, rack_id="r", instance_id="i").member_epoch
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    (described,) = client.call(request, version).groups
    assert (described.error_code, described.group_state, described.assignor_name) == (NONE, "Stable", "uniform")
    assert (described.group_epoch, described.assignment_epoch) == (epoch, epoch)
    assert described.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    (member,) = described.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", epoch)
    assert (member.client_id, member.client_host) == ("wire", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([group], "")
    assert member.member_type == (1 if version >= 1 else -1)
    for assigned in (member.assignment, member.target_assignment):
        assert [(each.topic_name, each.partitions) for each in assigned.topic_partitions] == [(group, [0, 1])]


def test_other_groups_are_not_described(client: WireClient, group: str) -> None:
    commit(client, group, group, 1)
    request = ConsumerGroupDescribeRequest(group_ids=["", "nobody", group])
    refused = {each.group_id: (each.error_code, each.error_message) for each in client.call(request, 1).groups}
    assert refused == {
        "": (ErrorCode.INVALID_GROUP_ID, None),
        "nobody": (ErrorCode.GROUP_ID_NOT_FOUND, "Group nobody not found."),
        group: (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} is not a consumer group."),
    }


def test_classic_requests_do_not_know_its_members(client: WireClient, group: str, beat: Beat) -> None:
    classic = Member(client, group)
    classic.member_id, classic.generation = "m", beat(0).member_epoch
    assert classic.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert classic.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    described = describe_group(client, group)
    assert (described.error_code, described.error_message, described.group_state) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group} is not a classic group.",
        "Dead",
    )
