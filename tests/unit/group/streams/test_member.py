"""A member of a streams group and its records: cases of Apache Kafka's StreamsGroupMemberTest (4.3.1)."""

from dataclasses import replace

from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.describe import described_group
from kafkapy.group.streams.group import StreamsGroup
from kafkapy.group.streams.member import StreamsMember, UserEndpoint
from kafkapy.group.streams.records import current_record, member_record, target_record
from kafkapy.group.streams.tasks import NOTHING_ASSIGNED, AssignedTasks, MemberState, TasksTuple
from kafkapy.protocol.messages.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
    TaskIds,
)
from kafkapy.protocol.messages.streams_group_describe_response import Assignment, Endpoint, KeyValue, Member
from kafkapy.protocol.messages.streams_group_describe_response import TaskIds as DescribedTasks
from kafkapy.protocol.messages.streams_group_heartbeat_request import Endpoint as RequestEndpoint
from kafkapy.protocol.messages.streams_group_heartbeat_request import KeyValue as RequestTag
from kafkapy.protocol.messages.streams_group_member_metadata_value import Endpoint as StoredEndpoint
from kafkapy.protocol.messages.streams_group_member_metadata_value import KeyValue as StoredTag
from kafkapy.protocol.messages.streams_group_member_metadata_value import StreamsGroupMemberMetadataValue
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from tests.support.consumer_groups import image_of
from tests.support.streams_groups import StreamsShard, chain, request_of

METADATA = StreamsGroupMemberMetadataValue(
    instance_id="instance",
    rack_id="rack",
    client_id="client",
    client_host="host",
    rebalance_timeout_ms=5_000,
    topology_epoch=3,
    process_id="process",
    user_endpoint=StoredEndpoint("host", port=9090),
    client_tags=[StoredTag("client", value="tag")],
)
ASSIGNMENT = StreamsGroupCurrentMemberAssignmentValue(
    member_epoch=10,
    previous_member_epoch=9,
    state=int(MemberState.UNRELEASED_TASKS),
    active_tasks=[TaskIds("a", partitions=[1, 2, 3], assignment_epochs=[5, 6, 7])],
    standby_tasks=[TaskIds("b", partitions=[4, 5, 6])],
    warmup_tasks=[TaskIds("a", partitions=[7, 8, 9])],
    active_tasks_pending_revocation=[TaskIds("b", partitions=[3, 2, 1], assignment_epochs=[4, 3, 2])],
    standby_tasks_pending_revocation=[TaskIds("a", partitions=[6, 5, 4])],
    warmup_tasks_pending_revocation=[TaskIds("b", partitions=[9, 8, 7])],
)
ASSIGNED = AssignedTasks({"a": {1: 5, 2: 6, 3: 7}}, {"b": frozenset({4, 5, 6})}, {"a": frozenset({7, 8, 9})})
PENDING = AssignedTasks({"b": {3: 4, 2: 3, 1: 2}}, {"a": frozenset({4, 5, 6})}, {"b": frozenset({7, 8, 9})})
MEMBER = StreamsMember(
    "m",
    member_epoch=10,
    previous_member_epoch=9,
    state=MemberState.UNRELEASED_TASKS,
    instance_id="instance",
    rack_id="rack",
    client_id="client",
    client_host="host",
    rebalance_timeout_ms=5_000,
    topology_epoch=3,
    process_id="process",
    user_endpoint=UserEndpoint("host", 9090),
    client_tags={"client": "tag"},
    assigned=ASSIGNED,
    pending_revocation=PENDING,
)


def test_a_new_member_has_nothing() -> None:
    member = StreamsMember("m")
    assert (member.member_epoch, member.state) == (0, MemberState.STABLE)
    assert (member.instance_id, member.rack_id, member.user_endpoint) == (None, None, None)
    assert (member.client_id, member.client_host, member.process_id, member.client_tags) == ("", "", "", {})
    assert (member.rebalance_timeout_ms, member.topology_epoch) == (-1, -1)
    assert (member.assigned, member.pending_revocation) == (NOTHING_ASSIGNED, NOTHING_ASSIGNED)


def test_a_member_is_read_from_its_records() -> None:
    metadata = StreamsMember("m").with_metadata(METADATA)
    assert metadata == replace(
        MEMBER,
        member_epoch=0,
        previous_member_epoch=0,
        state=MemberState.STABLE,
        assigned=NOTHING_ASSIGNED,
        pending_revocation=NOTHING_ASSIGNED,
    )
    assert metadata.with_assignment(ASSIGNMENT) == MEMBER
    assert StreamsMember("m").with_assignment(ASSIGNMENT).with_metadata(METADATA) == MEMBER


def test_what_a_member_writes_is_read_again() -> None:
    assert MEMBER.metadata_value() == METADATA
    assert (
        StreamsMember("m").with_metadata(MEMBER.metadata_value()).with_assignment(MEMBER.assignment_value()) == MEMBER
    )


def test_tasks_without_epochs_were_assigned_at_the_members() -> None:
    """Apache Kafka before 4.3 wrote none."""
    for epochs in (None, []):
        tasks = [TaskIds("a", partitions=[1, 2], assignment_epochs=epochs)]
        value = StreamsGroupCurrentMemberAssignmentValue(member_epoch=10, state=1, active_tasks=tasks)
        assert StreamsMember("m").with_assignment(value).assigned.active == {"a": {1: 10, 2: 10}}


def test_a_heartbeat_changes_of_a_member_what_it_says() -> None:
    keys = {"group_streams_initial_rebalance_delay_ms": 0, "group_streams_assignment_interval_ms": 0}
    shard = StreamsShard(image_of(**{"in": 1}), **keys)
    joined = shard.heartbeat(request_of("m", chain(False), rack_id="rack", client_tags=[RequestTag("a", value="b")]))
    before = shard.streams_group().log.members["m"]
    shard.heartbeat(request_of("m", None, member_epoch=joined.response.member_epoch, process_id=None))
    assert shard.streams_group().log.members["m"] == before
    request = request_of(
        "m",
        None,
        member_epoch=before.member_epoch,
        rack_id="new rack",
        process_id="new process",
        user_endpoint=RequestEndpoint("new host", port=9090),
        client_tags=[RequestTag("a", value="b"), RequestTag("c", value="d")],
    )
    request.rebalance_timeout_ms = 6_000
    shard.heartbeat(request)
    after = shard.streams_group().log.members["m"]
    assert after == replace(
        before,
        rack_id="new rack",
        process_id="new process",
        user_endpoint=UserEndpoint("new host", 9090),
        client_tags={"a": "b", "c": "d"},
        rebalance_timeout_ms=6_000,
        member_epoch=before.member_epoch + 1,
        previous_member_epoch=before.member_epoch,
    )


def described(*targets: TasksTuple) -> Member:
    shard = StreamsShard(image_of())
    metadata = CoordinatorRecord(StreamsGroupMetadataKey("g"), StreamsGroupMetadataValue(epoch=10))
    records = [target_record("g", "m", target) for target in targets]
    shard.load(metadata, member_record("g", MEMBER), current_record("g", MEMBER), *records)
    group: StreamsGroup = shard.streams_group()
    (member,) = described_group(group, group.log.members.values(), "sticky", has_topology=False).members
    return member


def test_a_member_is_described_with_its_tasks_and_its_target() -> None:
    target = TasksTuple({"a": frozenset({16, 17})}, {"b": frozenset({13, 14})}, {"c": frozenset({10, 11})})
    assert described(target) == Member(
        member_id="m",
        member_epoch=10,
        instance_id="instance",
        rack_id="rack",
        client_id="client",
        client_host="host",
        topology_epoch=3,
        process_id="process",
        user_endpoint=Endpoint("host", port=9090),
        client_tags=[KeyValue("client", value="tag")],
        assignment=Assignment(
            [DescribedTasks("a", partitions=[1, 2, 3])],
            standby_tasks=[DescribedTasks("b", partitions=[4, 5, 6])],
            warmup_tasks=[DescribedTasks("a", partitions=[7, 8, 9])],
        ),
        target_assignment=Assignment(
            [DescribedTasks("a", partitions=[16, 17])],
            standby_tasks=[DescribedTasks("b", partitions=[13, 14])],
            warmup_tasks=[DescribedTasks("c", partitions=[10, 11])],
        ),
    )


def test_a_member_without_a_target_is_described_with_an_empty_one() -> None:
    assert described().target_assignment == Assignment()
