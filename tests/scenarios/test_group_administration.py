"""Groups with members as an administrator sees them, and what a broker's configuration makes of groups."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.offset_commit_request import OffsetCommitRequestPartition
from kafkapy.record.batches import batches
from kafkapy.runtime.coordinators.coordinator import java_hash
from tests.scenarios.conftest import serving
from tests.support.client_requests import create_topic, delete_topic, describe_topic, fetch, until
from tests.support.membership import (
    MEMBER_ID_REQUIRED,
    Member,
    assignment,
    describe_group,
    join_together,
    stabilize,
    subscription,
    wait_for_state,
)
from tests.support.offsets import commit, committed, delete_offsets, fetch_group, find_coordinator
from tests.support.wire import WireClient

NONE = 0
TOPIC_CONFIG = 2
GZIP = 1
OFFSETS_TOPIC = "__consumer_offsets"

NewMember = Callable[..., Member]


@pytest.fixture
def new_member(connect: Callable[[], WireClient], group: str) -> NewMember:
    return lambda **fields: Member(connect(), group, **fields)


# -- listed and described -------------------------------------------------------------------------------------------


def listed(client: WireClient, group: str, version: int = 5, **filters: list[str]) -> list[tuple[str, str, str]]:
    response = client.call(ListGroupsRequest(**filters), version)
    return [
        (each.protocol_type, each.group_state, each.group_type) for each in response.groups if each.group_id == group
    ]


@pytest.mark.parametrize("version", range(6))
def test_a_group_with_members_is_listed(new_member: NewMember, client: WireClient, group: str, version: int) -> None:
    stabilize(new_member())
    state, kind = ("Stable" if version >= 4 else ""), ("classic" if version >= 5 else "")
    assert listed(client, group, version) == [("consumer", state, kind)]


def test_a_group_is_listed_by_the_state_it_is_in(new_member: NewMember, client: WireClient, group: str) -> None:
    first, second = new_member(), new_member()

    def assert_only_in(state: str) -> None:
        states = ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling"]
        found = [each for each in states if listed(client, group, states_filter=[each])]
        assert found == [state]

    join_together(first)
    assert_only_in("CompletingRebalance")
    first.sync({first.member_id: b""})
    assert_only_in("Stable")
    second.get_id()
    second.send_join()
    wait_for_state(client, group, "PreparingRebalance")
    assert_only_in("PreparingRebalance")
    first.leave()
    assert second.receive_join().error_code == NONE
    second.leave()
    assert_only_in("Empty")


@pytest.mark.parametrize("version", range(7))
def test_a_classic_group_is_described_with_its_members(
    new_member: NewMember, client: WireClient, group: str, version: int
) -> None:
    member = new_member(instance_id="i")
    stabilize(member)
    described = describe_group(client, group, version)
    assert (described.error_code, described.error_message) == (NONE, None)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (shown,) = described.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member.member_id, "wire", "/127.0.0.1")
    assert shown.group_instance_id == ("i" if version >= 4 else None)
    assert (shown.member_metadata, shown.member_assignment) == (subscription(group), assignment(group, 0))


def test_amid_a_rebalance_members_are_shown_without_their_metadata(
    new_member: NewMember, client: WireClient, group: str
) -> None:
    first, second = new_member(), new_member()
    stabilize(first, second)
    first.send_join()
    wait_for_state(client, group, "PreparingRebalance")
    described = describe_group(client, group)
    assert described.protocol_data == ""
    shown = {each.member_id: (each.member_metadata, each.member_assignment) for each in described.members}
    assert shown == {
        first.member_id: (b"", assignment(group, 0)),
        second.member_id: (b"", assignment(group, 1)),
    }


# -- deletion -------------------------------------------------------------------------------------------------------


def test_a_group_with_members_is_not_deleted(new_member: NewMember, client: WireClient, group: str) -> None:
    member = new_member()
    stabilize(member)
    for version in range(4):
        (result,) = client.call(DeleteGroupsRequest(groups_names=[group]), version).results
        assert (result.group_id, result.error_code, result.error_message) == (group, ErrorCode.NON_EMPTY_GROUP, None)
    assert member.heartbeat() == NONE
    member.leave()
    (result,) = client.call(DeleteGroupsRequest(groups_names=[group]), 3).results
    assert result.error_code == NONE
    assert listed(client, group) == []


def test_offsets_that_a_member_wants_are_not_deleted_and_others_are(
    new_member: NewMember, client: WireClient, group: str
) -> None:
    create_topic(client, f"{group}-other")
    member = new_member()
    stabilize(member)
    member.commit(group, 1)
    member.commit(f"{group}-other", 2)
    refused = delete_offsets(client, group, group, 0, 7)
    (response,) = refused.topics
    assert sorted((each.partition_index, each.error_code) for each in response.partitions) == [
        (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    deleted = delete_offsets(client, group, f"{group}-other", 0)
    assert deleted.topics[0].partitions[0].error_code == NONE
    assert (committed(client, group, group), committed(client, group, f"{group}-other")) == ([1], [-1])


def test_nobody_knows_what_members_of_another_protocol_want(
    new_member: NewMember, client: WireClient, group: str
) -> None:
    worker = new_member(protocol_type="connect", protocols={"sessioned": b""})
    join_together(worker)
    response = delete_offsets(client, group, group, 0)
    assert (response.error_code, response.topics) == (ErrorCode.NON_EMPTY_GROUP, [])


def test_offsets_of_the_group_without_an_id_are_not_deleted_one_by_one(client: WireClient, group: str) -> None:
    find_coordinator(client, "")
    commit(client, "", group, 1)
    assert delete_offsets(client, "", group, 0).error_code == ErrorCode.INVALID_GROUP_ID
    assert committed(client, "", group) == [1]


# -- as configured --------------------------------------------------------------------------------------------------

CONFIGURED = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.segment.bytes": "1048576",
    "offsets.topic.compression.codec": str(GZIP),
    "offsets.retention.check.interval.ms": "100",
    "offset.metadata.max.bytes": "8",
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "20000",
    "group.max.size": "2",
    "group.consumer.max.size": "1",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with keys of groups that are not the defaults."""
    with serving(tmp_path_factory, CONFIGURED) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture
def admin(configured: str) -> Iterator[WireClient]:
    with WireClient(configured) as client:
        yield client


@pytest.fixture
def small_group(admin: WireClient, topic: str) -> str:
    """The test's own group on the configured broker, with a topic of the same name."""
    create_topic(admin, topic, 2)
    find_coordinator(admin, topic)
    return topic


@pytest.fixture
def members(configured: str, small_group: str) -> Iterator[NewMember]:
    with ExitStack() as stack:
        yield lambda **fields: Member(stack.enter_context(WireClient(configured)), small_group, **fields)


AT_ONCE = 3
"""The last version of JoinGroup whose members need no id first: a group of ids alone goes within 100 ms."""


@pytest.fixture
def kept_group(admin: WireClient, small_group: str) -> None:
    """The group has an offset: one without any is removed every 100 ms, and with it those who have an id only."""
    commit(admin, small_group, small_group, 1)


def test_the_offsets_topic_is_made_as_its_keys_say(admin: WireClient, small_group: str) -> None:
    assert len(describe_topic(admin, OFFSETS_TOPIC).partitions) == 3
    resource = DescribeConfigsResource(resource_type=TOPIC_CONFIG, resource_name=OFFSETS_TOPIC)
    (described,) = admin.call(DescribeConfigsRequest(resources=[resource]), 4).results
    configs = {each.name: each.value for each in described.configs}
    assert (configs["cleanup.policy"], configs["segment.bytes"]) == ("compact", "1048576")
    assert configs["compression.type"] == "producer"


def test_offsets_are_compressed_as_their_key_says(admin: WireClient, small_group: str) -> None:
    commit(admin, small_group, small_group, 1)
    response = fetch(admin, OFFSETS_TOPIC, partition=java_hash(small_group) % 3)
    assert {batch.compression for batch in batches(response.records)} == {GZIP}


def test_metadata_of_offsets_has_the_limit_of_its_key(admin: WireClient, small_group: str) -> None:
    kept = OffsetCommitRequestPartition(0, committed_offset=1, committed_metadata="x" * 8)
    refused = OffsetCommitRequestPartition(1, committed_offset=1, committed_metadata="x" * 9)
    assert commit(admin, small_group, small_group, kept, refused) == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_the_first_rebalance_waits_for_more_members(configured: str, small_group: str) -> None:
    """The second must come within the 500 ms: other groups try where the machine stood still meanwhile."""
    numbers = itertools.count()

    def both_are_in_the_first_generation() -> bool:
        group = f"{small_group}-{next(numbers)}"
        with WireClient(configured) as client, WireClient(configured) as other, WireClient(configured) as requester:
            first, second = Member(client, group), Member(other, group)
            started = time.monotonic()
            first.send_join(AT_ONCE)
            until(lambda: len(describe_group(requester, group).members) == 1)
            second.send_join(AT_ONCE)
            joined = first.receive_join()
            assert joined.generation_id == 1
            assert time.monotonic() - started >= 0.5
            return len(joined.members) == 2 and second.receive_join().generation_id == 1

    until(both_are_in_the_first_generation)


def test_a_full_group_takes_nobody_else(members: NewMember) -> None:
    first, second, third = members(instance_id="a"), members(instance_id="b"), members()
    stabilize(first, second)
    response = third.join()
    assert (response.error_code, response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert first.heartbeat() == second.heartbeat() == NONE


def test_a_session_timeout_has_the_bounds_of_its_keys(members: NewMember) -> None:
    assert members().join(session_timeout_ms=99).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert members().join(session_timeout_ms=20_001).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert members().join(session_timeout_ms=20_000).error_code == MEMBER_ID_REQUIRED


@pytest.mark.usefixtures("kept_group")
def test_a_member_that_is_not_heard_of_is_out(members: NewMember, admin: WireClient, small_group: str) -> None:
    silent = members(session_timeout_ms=4_000)  # joined and synced within it on a busy machine, too
    stabilize(silent)
    until(lambda: describe_group(admin, small_group).group_state == "Empty")
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_nobody_comes_back_with_expires_with_its_session(members: NewMember) -> None:
    pending = members(session_timeout_ms=150)
    pending.get_id()
    until(lambda: pending.leave().members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID)


def heartbeat(admin: WireClient, group: str, member_id: str, member_epoch: int) -> Any:
    joining = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": [group], "topic_partitions": []}
    fields = joining if member_epoch == 0 else {}
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=member_epoch, **fields)
    return admin.call(request, 1)


def test_a_kip_848_member_that_is_not_heard_of_makes_room_in_a_full_group(admin: WireClient, small_group: str) -> None:
    assert heartbeat(admin, small_group, "silent", 0).error_code == NONE
    refused = heartbeat(admin, small_group, "other", 0)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The consumer group has reached its maximum capacity of 1 members.",
    )
    until(lambda: heartbeat(admin, small_group, "other", 0).error_code == NONE)


# -- expiry ---------------------------------------------------------------------------------------------------------


def commit_for(client: WireClient, group: str, topic: str, retention_ms: int, **fields: Any) -> None:
    """Commit with a retention time, as clients before KIP-211 do."""
    assert commit(client, group, topic, 1, version=4, retention_time_ms=retention_ms, **fields) == [NONE]


def test_an_offset_expires_at_its_commits_time_and_a_simple_group_goes_with_the_last_one(
    admin: WireClient, small_group: str
) -> None:
    commit_for(admin, small_group, small_group, 1)
    until(lambda: fetch_group(admin, small_group).topics == [])
    until(lambda: listed(admin, small_group) == [])


def test_an_offset_without_a_time_of_its_own_stays(admin: WireClient, small_group: str) -> None:
    other = f"{small_group}-gone"
    commit(admin, small_group, small_group, 1)
    commit_for(admin, other, small_group, 1)
    until(lambda: fetch_group(admin, other).topics == [])
    assert committed(admin, small_group, small_group) == [1]


def test_a_member_keeps_the_offsets_of_its_topics_only(members: NewMember, admin: WireClient, small_group: str) -> None:
    create_topic(admin, f"{small_group}-other")
    member = members()
    stabilize(member, version=AT_ONCE)
    as_member = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation}
    commit_for(admin, small_group, small_group, 1, **as_member)
    commit_for(admin, small_group, f"{small_group}-other", 1, **as_member)
    until(lambda: [topic.name for topic in fetch_group(admin, small_group).topics] == [small_group])
    assert committed(admin, small_group, small_group) == [1]
    member.leave()
    until(lambda: fetch_group(admin, small_group).topics == [])
    until(lambda: listed(admin, small_group) == [])


def test_the_group_of_a_topic_that_is_deleted_goes_with_its_offsets(admin: WireClient, small_group: str) -> None:
    commit(admin, small_group, small_group, 1)
    delete_topic(admin, small_group)
    until(lambda: listed(admin, small_group) == [])


def test_a_group_whose_members_left_and_that_committed_nothing_goes(
    members: NewMember, admin: WireClient, small_group: str
) -> None:
    member = members()
    stabilize(member, version=AT_ONCE)
    assert listed(admin, small_group) == [("consumer", "Stable", "classic")]
    member.leave()
    until(lambda: listed(admin, small_group) == [])
