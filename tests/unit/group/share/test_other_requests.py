"""A share group that Apache Kafka has written: it is kept, and requests of other kinds of groups are refused as there.

The responses are those of 4.4.0: OffsetMetadataManager, GroupMetadataManager and ShareGroup.
"""

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.assignors.spec import Assignment
from kafkapy.group.decision import GroupDecision
from kafkapy.group.offsets import offset_record
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.share.group import ShareGroup
from kafkapy.group.share.member import ShareMember
from kafkapy.group.share.records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    states_record,
    target_epoch_record,
    target_record,
)
from kafkapy.group.share.states import GroupStates, TopicStates
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkapy.protocol.messages.offset_commit_request import OffsetCommitRequest
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.protocol.messages.offset_delete_request import OffsetDeleteRequest
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from kafkapy.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from tests.support.consumer_groups import CLIENT, WALL_START_MS, GroupWorld, error_of, image_of, names_of, topic_id
from tests.support.share_groups import ShareWorld

ASSIGNED: Assignment = {topic_id("foo"): frozenset({0, 1})}
TARGET = {topic_id("foo"): (0, 1)}
IMAGE = image_of(foo=2)
SESSION_MS = 45_000


def world_with(*member_ids: str) -> GroupWorld:
    """Return a shard with the share group "g", which has these members of the topic foo."""
    world = GroupWorld(IMAGE)
    states = GroupStates({}, {topic_id("foo"): TopicStates("foo", frozenset({0, 1}))})
    records = [epoch_record("g", 2, 7), states_record("g", states, IMAGE)]
    for member_id in member_ids:
        joined = ShareMember(member_id, subscribed_topic_names=frozenset({"foo"}), client_id="c", client_host="/h")
        records += [
            member_record("g", joined),
            target_record("g", member_id, TARGET),
            current_record("g", joined.moved_to(2, ASSIGNED)),
        ]
    world.commit(GroupDecision(records=[*records, target_epoch_record("g", 2, WALL_START_MS)]))
    return world


def share_group(world: GroupWorld) -> ShareGroup:
    group = world.groups["g"]
    assert isinstance(group, ShareGroup)
    return group


def join_request(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        "g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", metadata=b"")],
    )


def test_a_partition_that_a_foreign_log_names_twice_is_in_the_target_once() -> None:
    """The assignor counts how many members have each partition."""
    world = ShareWorld(image_of(foo=2))
    for member_id in "ab":
        world.join(member_id, "foo")
    world.initialize()
    twice = target_record("g", "a", {topic_id("foo"): (1, 0, 1)})
    world.commit(GroupDecision(records=[twice]))
    assert world.log().targets["a"] == {topic_id("foo"): (1, 0)}
    assert world.log().targeted() == {topic_id("foo"): {0, 1}}


def test_group_is_loaded_from_its_records() -> None:
    world = world_with("a", "b")

    world.restart()

    log = share_group(world).log
    assert (log.group_epoch, log.assignment_epoch, log.metadata_hash) == (2, 2, 7)
    assert log.assignment_timestamp_ms == WALL_START_MS
    assert log.topic_names == {"foo": 2}
    assert log.targets == {"a": TARGET, "b": TARGET}
    assert log.members["a"] == ShareMember(
        "a",
        member_epoch=2,
        previous_member_epoch=0,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=frozenset({"foo"}),
        assigned=ASSIGNED,
    )
    assert log.states is not None
    assert log.states.initialized[topic_id("foo")].partitions == {0, 1}


def test_tombstones_remove_a_member_and_then_the_group() -> None:
    world = world_with("a")
    world.commit(GroupDecision(records=member_tombstones("g", "a")))
    group = share_group(world)
    assert (group.is_empty, group.log.targets, group.log.topic_names) == (True, {}, {})

    decision = world.shard.delete_group("g")

    names = [name.removeprefix("-ShareGroup") for name in names_of(world.commit(decision))]
    assert names == ["TargetAssignmentMetadata", "StatePartitionMetadata", "Metadata"]
    assert "g" not in world.groups
    world.restart()
    assert "g" not in world.groups


def test_tombstones_without_a_group_are_passed_over() -> None:
    world = GroupWorld()
    world.commit(GroupDecision(records=member_tombstones("g", "a")))
    assert not world.groups


JOINED = ShareMember("a", subscribed_topic_names=frozenset({"foo"}), client_id="c", client_host="/h")


@pytest.mark.parametrize(
    "record",
    [
        member_record("g", JOINED),
        epoch_record("g", 1, 2),
        target_record("g", "a", TARGET),
        target_epoch_record("g", 5, WALL_START_MS),
        current_record("g", JOINED.moved_to(5, ASSIGNED)),
        states_record("g", GroupStates({}, {}), IMAGE),
        *group_tombstones("g", ["a"]),
    ],
    ids=lambda record: ("-" if record.value is None else "") + type(record.key).__name__,
)
def test_each_record_of_a_partly_compacted_log_is_replayed_without_the_others(record: CoordinatorRecord) -> None:
    world = GroupWorld(IMAGE)
    world.load(record, record)
    assert ("g" in world.groups) == (record.value is not None)


@pytest.mark.parametrize("members", [(), ("a",)], ids=["empty", "with a member"])
def test_joins_of_other_kinds_are_refused(members: tuple[str, ...]) -> None:
    world = world_with(*members)
    classic = world.shard.classic
    for member_id in ("", "x"):
        joined = classic.join(join_request(member_id), 9, CLIENT, 1, 0)
        assert (joined.response.error_code, joined.response.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        assert not joined.records

    for epoch in (0, 1, -1, -2):
        request = ConsumerGroupHeartbeatRequest(
            "g",
            member_id="x",
            member_epoch=epoch,
            instance_id="i" if epoch == -2 else None,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["foo"],
            topic_partitions=[],
        )
        refused = error_of(world.consumer.heartbeat, request, 1, CLIENT, 0)
        assert refused == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")


def test_requests_of_members_of_other_kinds_are_refused() -> None:
    classic = world_with("a").shard.classic

    assert error_of(classic.sync, SyncGroupRequest("g", member_id="a"), 1, 0)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(classic.heartbeat, HeartbeatRequest("g", member_id="a"), 0)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    left = classic.leave(LeaveGroupRequest("g", members=[MemberIdentity("a")]), 5, 0)
    assert [member.error_code for member in left.response.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert not left.records


@pytest.mark.parametrize("epoch", [-1, 2])
def test_offsets_are_neither_committed_nor_deleted(epoch: int) -> None:
    offsets = world_with("a").shard.offsets
    refused = (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")

    for version in (8, 9):
        commit = OffsetCommitRequest("g", generation_id_or_member_epoch=epoch, member_id="a")
        assert error_of(offsets.commit, commit, version, 0) == refused
    for version in (5, 6):
        transactional = TxnOffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id="a")
        assert error_of(offsets.commit_in_transaction, transactional, version) == refused
    assert error_of(offsets.delete, OffsetDeleteRequest("g")) == refused


def test_no_offset_is_committed() -> None:
    offsets = world_with("a").shard.offsets
    topics = [OffsetFetchRequestTopics("foo", partition_indexes=[0])]

    fetched = offsets.fetch(OffsetFetchRequestGroup("g", member_id="a", topics=topics), require_stable=True)

    (partition,) = fetched.topics[0].partitions
    assert (fetched.error_code, partition.error_code, partition.committed_offset) == (0, 0, -1)
    assert not offsets.fetch(OffsetFetchRequestGroup("g"), require_stable=True).topics


def test_group_is_listed_and_not_described_as_a_classic_one() -> None:
    shard = world_with("a").shard

    (listed,) = shard.list_groups(["stable"], ["share"])
    assert listed is not None
    assert (listed.protocol_type, listed.group_state, listed.group_type) == ("share", "Stable", "share")
    assert list(shard.list_groups([], ["consumer"])) == [None]
    described = shard.describe_group("g", 5)
    assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Dead")
    described = shard.describe_group("g", 6)
    assert (described.error_code, described.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a classic group.",
    )
    assert shard.consumer.describe("g").error_message == "Group g is not a consumer group."


def test_group_with_members_is_not_deleted() -> None:
    with pytest.raises(ApiError) as refused:
        world_with("a").shard.delete_group("g")
    assert refused.value.code == ErrorCode.NON_EMPTY_GROUP


def test_empty_group_does_not_expire() -> None:
    world = world_with()
    assert not world.shard.expire("g", []).records


def test_members_that_a_new_coordinator_loads_have_a_session_before_they_are_removed() -> None:
    world = world_with("a", "b")
    world.restart()
    assert not world.pass_time(1)
    assert not world.pass_time(SESSION_MS - 1)

    written = world.pass_time(1)

    names = [name.replace("ShareGroup", "") for name in names_of(written)]
    removal = ["-CurrentMemberAssignment", "-TargetAssignmentMember", "-MemberMetadata", "Metadata"]
    assert names == [*removal, *removal, "TargetAssignmentMetadata"]
    log = share_group(world).log
    assert (log.group_epoch, log.assignment_epoch, log.assignment_timestamp_ms) == (4, 4, 0)
    assert not log.members


def test_groups_own_session_timeout_counts() -> None:
    world = world_with("a")
    world.group_configs["g"] = {"share.session.timeout.ms": "50000"}
    assert not world.pass_time(1)
    assert not world.pass_time(50_000 - 1)
    assert world.pass_time(1)


def test_group_in_a_log_replaces_a_simple_group_that_has_offsets() -> None:
    world = GroupWorld(IMAGE)
    world.commit(GroupDecision(records=[offset_record("g", "foo", 0, OffsetCommitValue(5))]))

    world.load(epoch_record("g", 2, 0))

    assert share_group(world).is_empty
