"""Streams groups that Apache Kafka has written: kept, expired, refused to other kinds, replaced once empty."""

from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.offsets import offset_record
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.group import StreamsGroup
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.offset_commit_request import OffsetCommitRequest
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from kafkapy.protocol.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kafkapy.protocol.messages.streams_group_member_metadata_value import StreamsGroupMemberMetadataValue
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from kafkapy.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey
from kafkapy.protocol.messages.streams_group_topology_value import StreamsGroupTopologyValue
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from tests.support.consumer_groups import CLIENT, GroupWorld, error_of, image_of, names_of

SESSION_MS = 45_000


def world_with(*member_ids: str) -> GroupWorld:
    """Return a shard with the streams group "g", these members, and a committed offset of foo."""
    world = GroupWorld(image_of(foo=1))
    members = [
        CoordinatorRecord(StreamsGroupMemberMetadataKey("g", member_id=each), StreamsGroupMemberMetadataValue())
        for each in member_ids
    ]
    metadata = StreamsGroupMetadataValue(epoch=3, metadata_hash=7, validated_topology_epoch=1)
    world.load(
        offset_record("g", "foo", 0, OffsetCommitValue(5)),
        *members,
        CoordinatorRecord(StreamsGroupMetadataKey("g"), metadata),
        CoordinatorRecord(StreamsGroupTopologyKey("g"), StreamsGroupTopologyValue(epoch=1)),
    )
    return world


def join_request() -> JoinGroupRequest:
    return JoinGroupRequest(
        "g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", metadata=b"")],
    )


def test_group_with_members_refuses_all_others() -> None:
    shard = world_with("a").shard
    joined = shard.classic.join(join_request(), 9, CLIENT, 1, 0)
    assert joined.response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error_of(shard.classic.sync, SyncGroupRequest("g"), 1, 0)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(shard.classic.heartbeat, HeartbeatRequest("g"), 0)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    modern = ConsumerGroupHeartbeatRequest(
        "g", member_id="m", rebalance_timeout_ms=1, subscribed_topic_names=["foo"], topic_partitions=[]
    )
    refused = error_of(shard.consumer.heartbeat, modern, 1, CLIENT, 0)
    assert refused == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")
    stranger = OffsetCommitRequest("g", generation_id_or_member_epoch=-1, member_id="b")
    assert error_of(shard.offsets.commit, stranger, 9, 0)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    early = OffsetCommitRequest("g", generation_id_or_member_epoch=3, member_id="a")
    assert error_of(shard.offsets.commit, early, 9, 0)[0] == ErrorCode.STALE_MEMBER_EPOCH
    assert error_of(shard.delete_group, "g")[0] == ErrorCode.NON_EMPTY_GROUP


def test_group_is_listed_and_its_offsets_are_served() -> None:
    shard = world_with("a").shard
    (listed,) = shard.list_groups([], ["streams"])
    assert listed is not None
    assert (listed.group_type, listed.protocol_type, listed.group_state) == ("streams", "streams", "Assigning")
    (topic,) = shard.offsets.fetch(OffsetFetchRequestGroup("g", topics=None), require_stable=False).topics
    assert topic.partitions[0].committed_offset == 5
    assert shard.describe_group("g", 6).error_message == "Group g is not a classic group."


def test_members_are_removed_after_their_session() -> None:
    world = world_with("a")
    assert not world.pass_time(1)
    written = world.pass_time(SESSION_MS)

    assert [name.replace("StreamsGroup", "") for name in names_of(written)] == [
        "-CurrentMemberAssignment",
        "-TargetAssignmentMember",
        "-MemberMetadata",
        "Metadata",
        "TargetAssignmentMetadata",
    ]
    value = written[3].value
    assert isinstance(value, StreamsGroupMetadataValue)
    assert (value.epoch, value.metadata_hash, value.validated_topology_epoch) == (4, 7, 1)
    group = world.groups["g"]
    assert isinstance(group, StreamsGroup)
    assert (group.is_empty, group.state_name) == (True, "Empty")


def test_empty_group_becomes_a_classic_one_by_a_join_and_keeps_its_offsets() -> None:
    world = world_with()
    decision = world.shard.classic.join(join_request(), 3, CLIENT, 1, 0)
    world.commit(decision)
    assert isinstance(world.groups["g"], ClassicGroup)
    assert world.shard.offsets.fetch(OffsetFetchRequestGroup("g", topics=None), require_stable=False).topics
    world.restart()
    assert isinstance(world.groups["g"], ClassicGroup)


def test_empty_group_is_committed_to_and_deleted() -> None:
    world = world_with()
    commit = OffsetCommitRequest("g", generation_id_or_member_epoch=-1)
    assert world.shard.offsets.commit(commit, 9, 0).response.topics == []
    world.commit(world.shard.delete_group("g"))
    assert not world.groups
    world.restart()
    assert not world.groups
