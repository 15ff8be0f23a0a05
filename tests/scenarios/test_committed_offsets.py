"""Committed offsets without membership: simple consumers, admin clients, what they are told and what is kept."""

import pytest

from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.offset_commit_request import OffsetCommitRequestPartition
from kafkapy.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.support.client_requests import create_topic, delete_topic, describe_topic, until
from tests.support.offsets import commit, committed, delete_offsets, fetch_group, find_coordinator
from tests.support.wire import WireClient

OFFSET_METADATA_TOO_LARGE = 12
UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_NOT_AVAILABLE = 15
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
INVALID_REQUEST = 42
GROUP_ID_NOT_FOUND = 69
UNKNOWN_TOPIC_ID = 100
NO_ID = bytes(16)


# -- FindCoordinator ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_a_coordinator_is_found_with_the_error_message_none(client: WireClient, group: str, version: int) -> None:
    response = client.call(FindCoordinatorRequest(key=group), version)
    assert (response.error_code, response.node_id) == (0, 1)
    assert response.error_message == ("NONE" if version >= 1 else "")


def test_several_coordinators_are_found_at_once(client: WireClient, group: str) -> None:
    response = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group, "other"]), 4)
    assert [(each.key, each.error_code, each.node_id) for each in response.coordinators] == [
        (group, 0, 1),
        ("other", 0, 1),
    ]
    assert response.coordinators[0].error_message == ""


def test_share_coordinators_are_unknown_before_version_6(client: WireClient) -> None:
    response = client.call(FindCoordinatorRequest(key_type=2, coordinator_keys=["g:t:0"]), 5)
    assert response.coordinators[0].error_code == INVALID_REQUEST


def test_the_offsets_topic_is_made_as_configured(client: WireClient, group: str) -> None:
    topic = describe_topic(client, "__consumer_offsets")
    assert topic.is_internal
    assert len(topic.partitions) == 50


# -- OffsetCommit and OffsetFetch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 10))
def test_what_is_committed_is_fetched(client: WireClient, group: str, version: int) -> None:
    position = OffsetCommitRequestPartition(0, committed_offset=42, committed_metadata="here")
    if version >= 6:
        position.committed_leader_epoch = 3
    assert commit(client, group, group, position, version=version) == [0]
    (response,) = fetch_group(client, group, group).topics
    (fetched,) = response.partitions
    assert (fetched.committed_offset, fetched.metadata, fetched.error_code) == (42, "here", 0)
    assert fetched.committed_leader_epoch == (3 if version >= 6 else -1)


@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_fetches_one_partition_that_has_an_offset_and_one_that_has_none(
    client: WireClient, group: str, version: int
) -> None:
    assert commit(client, group, group, 7) == [0]
    assert committed(client, group, group, partitions=(0, 1), version=version) == [7, -1]


@pytest.mark.parametrize("version", [2, 5, 7, 8, 9])
def test_no_topics_means_all_that_the_group_has(client: WireClient, group: str, version: int) -> None:
    assert commit(client, group, group, 7, OffsetCommitRequestPartition(1, committed_offset=9)) == [0, 0]
    (response,) = fetch_group(client, group, version=version).topics
    assert response.name == group
    assert sorted((each.partition_index, each.committed_offset) for each in response.partitions) == [(0, 7), (1, 9)]


def test_topics_are_committed_and_fetched_by_id(client: WireClient, group: str) -> None:
    topic_id = describe_topic(client, group).topic_id
    assert commit(client, group, topic_id, 5) == [0]
    (response,) = fetch_group(client, group, topic_id).topics
    assert (response.topic_id, response.partitions[0].committed_offset) == (topic_id, 5)
    (response,) = fetch_group(client, group, version=10).topics
    assert (response.topic_id, response.partitions[0].committed_offset) == (topic_id, 5)


def test_an_unknown_topic_id_is_refused(client: WireClient, group: str) -> None:
    unknown = b"0123456789abcdef"
    assert commit(client, group, unknown, 5) == [UNKNOWN_TOPIC_ID]
    (response,) = fetch_group(client, group, unknown).topics
    assert (response.partitions[0].error_code, response.partitions[0].committed_offset) == (UNKNOWN_TOPIC_ID, -1)


def test_unknown_topics_and_partitions_are_refused_and_the_others_committed(client: WireClient, group: str) -> None:
    assert commit(client, group, "nowhere", 1) == [UNKNOWN_TOPIC_OR_PARTITION]
    codes = commit(client, group, group, OffsetCommitRequestPartition(9, committed_offset=1), 4)
    assert sorted(codes) == [0, UNKNOWN_TOPIC_OR_PARTITION]
    assert committed(client, group, group, partitions=(0, 9)) == [4, -1]


def test_metadata_has_a_limit(client: WireClient, group: str) -> None:
    kept = OffsetCommitRequestPartition(0, committed_offset=1, committed_metadata="x" * 4096)
    refused = OffsetCommitRequestPartition(1, committed_offset=1, committed_metadata="x" * 4097)
    assert commit(client, group, group, kept, refused) == [0, OFFSET_METADATA_TOO_LARGE]
    assert committed(client, group, group, partitions=(0, 1)) == [1, -1]


def test_null_metadata_is_fetched_as_an_empty_string(client: WireClient, group: str) -> None:
    commit(client, group, group, OffsetCommitRequestPartition(0, committed_offset=1, committed_metadata=None))
    (response,) = fetch_group(client, group, group).topics
    assert response.partitions[0].metadata == ""


def test_a_group_without_an_id_may_commit(client: WireClient, group: str) -> None:
    find_coordinator(client, "")
    assert commit(client, "", group, 3) == [0]
    assert committed(client, "", group) == [3]


@pytest.mark.parametrize(("version", "code"), [(8, ILLEGAL_GENERATION), (9, GROUP_ID_NOT_FOUND)])
def test_a_generation_of_a_group_that_is_not_there_is_refused(
    client: WireClient, group: str, version: int, code: int
) -> None:
    fields = {"generation_id_or_member_epoch": 1, "member_id": "somebody"}
    assert commit(client, group, group, 3, version=version, **fields) == [code]


def test_a_member_of_an_empty_group_is_unknown(client: WireClient, group: str) -> None:
    commit(client, group, group, 3)
    fields = {"generation_id_or_member_epoch": 1, "member_id": "somebody"}
    assert commit(client, group, group, 4, **fields) == [UNKNOWN_MEMBER_ID]
    assert committed(client, group, group) == [3]


def test_several_groups_are_fetched_at_once(client: WireClient, group: str) -> None:
    other = f"{group}-other"
    find_coordinator(client, other)
    commit(client, group, group, 1)
    commit(client, other, group, 2)
    requested = [
        OffsetFetchRequestGroup(
            group_id, topics=[OffsetFetchRequestTopics(group, topic_id=NO_ID, partition_indexes=[0])]
        )
        for group_id in (group, other, "nobody")
    ]
    response = client.call(OffsetFetchRequest(groups=requested, require_stable=True), 8)
    found = {
        each.group_id: (each.error_code, each.topics[0].partitions[0].committed_offset) for each in response.groups
    }
    assert found == {group: (0, 1), other: (0, 2), "nobody": (0, -1)}


def test_a_group_that_is_not_there_has_no_topics(client: WireClient, group: str) -> None:
    response = fetch_group(client, "not-there")
    assert (response.error_code, response.topics) == (0, [])


# -- deletion -------------------------------------------------------------------------------------------------------


def test_offsets_are_deleted_one_by_one(client: WireClient, group: str) -> None:
    commit(client, group, group, 1, OffsetCommitRequestPartition(1, committed_offset=2))
    response = delete_offsets(client, group, group, 0)
    assert (response.error_code, response.topics[0].partitions[0].error_code) == (0, 0)
    assert committed(client, group, group, partitions=(0, 1)) == [-1, 2]


def test_offsets_of_unknown_partitions_and_groups_are_not_deleted(client: WireClient, group: str) -> None:
    commit(client, group, group, 1)
    response = delete_offsets(client, group, group, 7)
    assert response.topics[0].partitions[0].error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert delete_offsets(client, "not-there", group, 0).error_code == GROUP_ID_NOT_FOUND


def test_a_deleted_group_has_no_offsets(client: WireClient, group: str) -> None:
    commit(client, group, group, 1)
    response = client.call(DeleteGroupsRequest(groups_names=[group, group]), 2)
    assert [(each.group_id, each.error_code) for each in response.results] == [(group, 0)]
    assert committed(client, group, group) == [-1]
    response = client.call(DeleteGroupsRequest(groups_names=[group]), 2)
    assert response.results[0].error_code == GROUP_ID_NOT_FOUND


def test_offsets_go_with_their_topic(client: WireClient, group: str) -> None:
    commit(client, group, group, 1)
    delete_topic(client, group)
    until(lambda: fetch_group(client, group).topics == [])
    create_topic(client, group, 2)
    assert committed(client, group, group) == [-1]


# -- ListGroups and DescribeGroups ----------------------------------------------------------------------------------


def _listed(client: WireClient, group: str, version: int = 5, **filters: list[str]) -> list[tuple[str, str, str]]:
    response = client.call(ListGroupsRequest(**filters), version)
    assert response.error_code == 0
    return [
        (each.protocol_type, each.group_state, each.group_type) for each in response.groups if each.group_id == group
    ]


def test_a_simple_group_is_listed_as_an_empty_classic_one(client: WireClient, group: str) -> None:
    assert _listed(client, group) == []
    commit(client, group, group, 1)
    assert _listed(client, group) == [("", "Empty", "classic")]
    assert _listed(client, group, 4) == [("", "Empty", "")]


def test_groups_are_listed_by_state_and_type(client: WireClient, group: str) -> None:
    commit(client, group, group, 1)
    assert len(_listed(client, group, states_filter=["empty", "Stable"])) == 1
    assert _listed(client, group, states_filter=["Stable"]) == []
    assert len(_listed(client, group, types_filter=["CLASSIC"])) == 1
    assert _listed(client, group, types_filter=["consumer"]) == []
    assert _listed(client, group, types_filter=["nonsense"]) == []


@pytest.mark.parametrize("version", range(7))
def test_a_simple_group_is_described(client: WireClient, group: str, version: int) -> None:
    commit(client, group, group, 1)
    (described,) = client.call(DescribeGroupsRequest(groups=[group]), version).groups
    assert (described.error_code, described.group_state, described.protocol_type) == (0, "Empty", "")
    assert described.members == []


@pytest.mark.parametrize(("version", "code"), [(0, 0), (5, 0), (6, GROUP_ID_NOT_FOUND)])
def test_an_unknown_group_is_dead(client: WireClient, group: str, version: int, code: int) -> None:
    (described,) = client.call(DescribeGroupsRequest(groups=["not-there"]), version).groups
    assert (described.error_code, described.group_state) == (code, "Dead")
    assert described.error_message == ("Group not-there not found." if code else None)


def test_authorized_operations_of_a_group_are_returned_when_requested(client: WireClient, group: str) -> None:
    commit(client, group, group, 1)
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    (described,) = client.call(request, 5).groups
    assert described.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
