"""Streams groups (KIP-1071) by raw requests: what is refused, what the status says, what other kinds are answered."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from kafkapy.protocol.messages.streams_group_topology_description_update_request import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from tests.scenarios.conftest import serving
from tests.support.client_requests import create_topic, describe_topic, until
from tests.support.group_configs import set_group_configs
from tests.support.membership import describe_group, join_request
from tests.support.offsets import commit, committed, fetch_group
from tests.support.streams_members import (
    LEAVES_FOR_A_WHILE,
    StreamsMember,
    describe,
    joined_topics,
    reading,
    with_changelog,
)
from tests.support.wire import WireClient

STALE_TOPOLOGY, MISSING_SOURCE_TOPICS, INCORRECTLY_PARTITIONED, MISSING_INTERNAL_TOPICS = range(4)
SHUTDOWN, DELAYED = 4, 5
NOT_REQUESTED, NOT_STORED = range(2)


@pytest.fixture
def member(client: WireClient, group: str) -> Iterator[StreamsMember]:
    """A member of a group that assigns at once; the topic has two partitions."""
    set_group_configs(client, group, streams_initial_rebalance_delay_ms="0", streams_assignment_interval_ms="0")
    member = StreamsMember(client, group)
    yield member
    member.leave()


def statuses(response: Any) -> dict[int, str]:
    assert response.error_code == 0, response
    return {status.status_code: status.status_detail for status in response.status}


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": "  "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"active_tasks": None}, "ActiveTasks must be empty when (re-)joining."),
        ({"standby_tasks": [TaskIds("0", partitions=[0])]}, "StandbyTasks must be empty when (re-)joining."),
        ({"warmup_tasks": None}, "WarmupTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        (
            {"topology": reading(source_topic_regex=["a.*"])},
            "Regular expressions for source topics are not supported yet.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_join_that_says_what_it_cannot_mean_is_refused(
    client: WireClient, group: str, fields: dict[str, Any], message: str
) -> None:
    values = {"topology": reading(group), **fields}
    response = StreamsMember(client, group).join(**values)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (
            reading("__consumer_offsets"),
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
        ),
        (reading("a b"), "Topic names a b are not valid topic names."),
        (
            with_changelog("t", "c", 2),
            "Changelog topic c must have an undefined partition count, but it is set to 2.",
        ),
        (reading(), "No source topics found for subtopology 0"),
        (
            Topology(0, subtopologies=[Subtopology("0", repartition_source_topics=[TopicInfo("by-key")])]),
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic.",
        ),
    ],
    ids=("internal", "bad-name", "counted-changelog", "reads-nothing", "reads-what-nobody-writes"),
)
def test_a_topology_that_cannot_be_is_refused(client: WireClient, group: str, topology: Any, message: str) -> None:
    response = StreamsMember(client, group).join(topology)
    assert (response.error_code, response.error_message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def test_heartbeats_of_members_are_held_to_their_epoch_and_tasks(member: StreamsMember, group: str) -> None:
    member.run(reading(group))
    ahead = member.heartbeat(member_epoch=member.epoch + 1)
    behind = member.heartbeat(member_epoch=member.epoch - 1, active_tasks=[TaskIds("0", partitions=[7])])
    assert (ahead.error_code, behind.error_code) == (ErrorCode.FENCED_MEMBER_EPOCH,) * 2
    unknown = member.heartbeat(active_tasks=[TaskIds("9", partitions=[0])])
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Subtopology 9 does not exist in the topology.",
    )
    half = member.heartbeat(warmup_tasks=None)
    assert half.error_message == "If one task-type is non-null, all must be non-null."
    late = member.heartbeat(topology=reading(group))
    assert late.error_message == "Topology can only be provided when (re-)joining."
    dynamic = member.heartbeat(member_epoch=LEAVES_FOR_A_WHILE)
    assert dynamic.error_message == "InstanceId can't be null."
    below = member.heartbeat(member_epoch=-3)
    assert below.error_message == "MemberEpoch is -3, but must be greater than or equal to -2."
    other = member.join(reading(group, "other"))
    assert other.error_message == "Topology updates are not supported yet."
    stranger = StreamsMember(member.client, group, "stranger").heartbeat(member_epoch=5)
    assert stranger.error_code == ErrorCode.UNKNOWN_MEMBER_ID


# -- what the status says ---------------------------------------------------------------------------------------------


def test_status_tells_of_missing_source_topics_until_they_are_there(member: StreamsMember, group: str) -> None:
    missing = f"{group}-missing"
    assert statuses(member.join(reading(group, missing))) == {
        MISSING_SOURCE_TOPICS: f"Source topics {missing} are missing."
    }
    assert describe(member.client, group).group_state == "NotReady"
    create_topic(member.client, missing, 2)
    until(lambda: not statuses(member.heartbeat()))
    until(lambda: member.heartbeat().error_code == 0 and member.active == {"0": [0, 1]})


def test_status_tells_of_topics_that_do_not_fit_together(member: StreamsMember, group: str) -> None:
    other = f"{group}-other"
    create_topic(member.client, other, 3)
    told = statuses(member.join(joined_topics(group, other)))
    assert told == {
        INCORRECTLY_PARTITIONED: f"Following topics do not have the same number of partitions: "
        f"[{{{group}=2, {other}=3}}]"
    }


def test_internal_topics_are_made_by_the_broker(member: StreamsMember, group: str) -> None:
    changelog = f"{group}-store-changelog"
    told = statuses(member.join(with_changelog(group, changelog)))
    assert told == {MISSING_INTERNAL_TOPICS: f"Internal topics are missing: {changelog}"}
    until(lambda: not statuses(member.heartbeat()))
    until(lambda: member.heartbeat().error_code == 0 and member.active == {"0": [0, 1]})
    assert len(describe_topic(member.client, changelog).partitions) == 2


def test_status_tells_why_an_internal_topic_could_not_be_made(member: StreamsMember, group: str) -> None:
    changelog = f"{group}-store-changelog"
    topology = with_changelog(group, changelog, replication_factor=3)
    member.join(topology)
    told: list[str] = []

    def is_told() -> bool:
        told.append(statuses(member.heartbeat())[MISSING_INTERNAL_TOPICS])
        return "Creation failed" in told[-1]

    until(is_told)
    assert told[-1].startswith(f"Internal topics are missing: {changelog}; Creation failed: {changelog} (Unable to ")


def test_status_tells_of_the_initial_delay_an_older_topology_and_a_shutdown(client: WireClient, group: str) -> None:
    newer, older = StreamsMember(client, group, "newer"), StreamsMember(client, group, "older")
    assert DELAYED in statuses(newer.join(reading(group, epoch=3)))
    told = statuses(older.join(reading(group, epoch=2)))
    assert told[STALE_TOPOLOGY] == "The member's topology epoch 2 is behind the group's topology epoch 3."
    newer.heartbeat(shutdown_application=True)
    assert "newer encountered a fatal error" in statuses(older.heartbeat())[SHUTDOWN]
    newer.leave()
    older.leave()


# -- members ----------------------------------------------------------------------------------------------------------


def test_tasks_move_to_a_second_member_once_they_are_given_up(member: StreamsMember, group: str) -> None:
    member.run(reading(group))
    assert member.active == {"0": [0, 1]}
    second = StreamsMember(member.client, group, "second")
    second.join(reading(group))

    def has_shared() -> bool:
        member.heartbeat()
        second.heartbeat()
        both = [*member.active.get("0", ()), *second.active.get("0", ())]
        assert len(both) == len(set(both)), "a task that two members run"
        return len(member.active.get("0", ())) == len(second.active.get("0", ())) == 1

    until(has_shared)
    second.leave()
    until(lambda: member.heartbeat().error_code == 0 and member.active == {"0": [0, 1]})


def test_static_member_comes_back_to_its_tasks_with_another_id(client: WireClient, group: str) -> None:
    set_group_configs(client, group, streams_initial_rebalance_delay_ms="0")
    first = StreamsMember(client, group, "first", instance_id="i")
    first.run(reading(group))
    taken = StreamsMember(client, group, "again", instance_id="i")
    assert taken.join(reading(group)).error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    epoch = describe(client, group).group_epoch
    assert first.leave(LEAVES_FOR_A_WHILE).member_epoch == LEAVES_FOR_A_WHILE
    taken.join(reading(group), process_id="process of first")
    assert taken.active == {"0": [0, 1]}
    assert describe(client, group).group_epoch == epoch, "nothing is rebalanced"
    assert first.heartbeat(member_epoch=epoch).error_code == ErrorCode.FENCED_INSTANCE_ID
    taken.leave()


def test_group_is_described_with_its_topology_and_tasks(member: StreamsMember, group: str) -> None:
    member.run(reading(group))
    described = describe(member.client, group)
    (described_member,) = described.members
    (subtopology,) = described.topology.subtopologies
    assert (described.group_state, described.assignor_name) == ("Stable", "sticky")
    assert (subtopology.subtopology_id, subtopology.source_topics) == ("0", [group])
    assert [(each.subtopology_id, each.partitions) for each in described_member.assignment.active_tasks] == [
        ("0", [0, 1])
    ]
    assert described_member.process_id == "process of m"
    assert (described.topology_description, described.topology_description_status) == (None, NOT_REQUESTED)
    request = StreamsGroupDescribeRequest(group_ids=[group, "nowhere"], include_topology_description=True)
    statuses = [each.topology_description_status for each in member.client.call(request, 1).groups]
    assert statuses == [NOT_STORED, NOT_REQUESTED], "no plug-in keeps it"
    assert describe(member.client, "nowhere").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(member.client, "").error_code == ErrorCode.INVALID_GROUP_ID


def test_topology_descriptions_are_refused_without_a_plugin(member: StreamsMember, group: str) -> None:
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=group, member_id="m", topology_description=TopologyDescription()
    )
    response = member.client.call(request, 0)
    assert (response.error_code, response.error_message) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "The broker has no streams group topology description plugin configured.",
    )


# -- offsets, and other kinds of groups -------------------------------------------------------------------------------


def test_members_commit_with_their_epoch(member: StreamsMember, group: str) -> None:
    member.run(reading(group))

    def commit_at(epoch: int, member_id: str = "m", topic: str = group, version: int = 9) -> int:
        fields = {"member_id": member_id, "generation_id_or_member_epoch": epoch}
        return commit(member.client, group, topic, 5, version=version, **fields)[0]

    assert commit_at(member.epoch) == ErrorCode.NONE
    assert commit_at(member.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit_at(member.epoch, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit_at(member.epoch, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(member.client, group, group) == [5]
    fetched = fetch_group(member.client, group, group, member_id="m", member_epoch=member.epoch + 1)
    assert fetched.error_code == ErrorCode.STALE_MEMBER_EPOCH


def test_other_kinds_are_refused_a_group_with_members(member: StreamsMember, group: str) -> None:
    member.run(reading(group))
    client = member.client
    assert client.call(join_request(group), 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.call(SyncGroupRequest(group), 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, (
        "names no protocol"
    )
    named = SyncGroupRequest(group, member_id="m", protocol_type="consumer", protocol_name="range")
    assert client.call(named, 5).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.call(HeartbeatRequest(group), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    consumer = ConsumerGroupHeartbeatRequest(
        group, member_id="c", rebalance_timeout_ms=1, subscribed_topic_names=[group], topic_partitions=[]
    )
    assert client.call(consumer, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    share = ShareGroupHeartbeatRequest(group, member_id="s", subscribed_topic_names=[group])
    assert client.call(share, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe_group(client, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (deleted,) = client.call(DeleteGroupsRequest([group]), 2).results
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP
    listed = client.call(ListGroupsRequest(types_filter=["streams"]), 5).groups
    assert [(each.protocol_type, each.group_state) for each in listed if each.group_id == group] == [
        ("streams", "Stable")
    ]


def test_empty_groups_change_their_kind(member: StreamsMember, group: str) -> None:
    client = member.client
    commit(client, group, group, 7)  # a simple classic group
    member.run(reading(group))
    assert describe(client, group).group_state == "Stable"
    member.leave()
    joined = client.call(join_request(group), 9)
    assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert describe(client, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert committed(client, group, group) == [7]
    member.run(reading(group))
    member.leave()
    (deleted,) = client.call(DeleteGroupsRequest([group]), 2).results
    assert deleted.error_code == ErrorCode.NONE


def test_broker_without_the_protocol_refuses_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    protocols = {"group.coordinator.rebalance.protocols": "classic,consumer"}
    with serving(tmp_path_factory, protocols) as bootstrap, WireClient(bootstrap) as client:
        response = client.call(StreamsGroupHeartbeatRequest("g", member_id="m"), 1)
        assert (response.error_code, response.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
        assert describe(client, "g").error_code == ErrorCode.UNSUPPORTED_VERSION
