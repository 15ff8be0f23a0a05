"""Records of streams groups, built for the log: cases of Apache Kafka's StreamsCoordinatorRecordHelpersTest (4.3.1).

Its cases about the topology are in test_topology.py. Its keys and values are written as here; that null arguments are
refused is for the type checker here.
"""

from dataclasses import replace

import pytest

from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.member import StreamsMember, UserEndpoint
from kafkapy.group.streams.records import (
    current_record,
    group_tombstones,
    member_record,
    member_tombstones,
    metadata_record,
    target_epoch_record,
    target_record,
)
from kafkapy.group.streams.state import StreamsGroupLog
from kafkapy.group.streams.tasks import AssignedTasks, MemberState, TasksTuple, tasks_of
from kafkapy.protocol.messages import streams_group_current_member_assignment_value as current
from kafkapy.protocol.messages import streams_group_member_metadata_value as metadata
from kafkapy.protocol.messages import streams_group_target_assignment_member_value as target
from kafkapy.protocol.messages.streams_group_current_member_assignment_key import StreamsGroupCurrentMemberAssignmentKey
from kafkapy.protocol.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import LastAssignmentConfig, StreamsGroupMetadataValue
from kafkapy.protocol.messages.streams_group_target_assignment_member_key import StreamsGroupTargetAssignmentMemberKey
from kafkapy.protocol.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from kafkapy.protocol.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from kafkapy.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey

MEMBER = StreamsMember(
    "m",
    member_epoch=1,
    previous_member_epoch=0,
    instance_id="instance",
    rack_id="rack",
    client_id="client",
    client_host="host",
    rebalance_timeout_ms=1_000,
    topology_epoch=1,
    process_id="process",
    user_endpoint=UserEndpoint("endpoint", 40),
    client_tags={"tag2": "value2", "tag1": "value1"},
)
VALUE = metadata.StreamsGroupMemberMetadataValue(
    instance_id="instance",
    rack_id="rack",
    client_id="client",
    client_host="host",
    rebalance_timeout_ms=1_000,
    topology_epoch=1,
    process_id="process",
    user_endpoint=metadata.Endpoint("endpoint", port=40),
    client_tags=[metadata.KeyValue("tag1", value="value1"), metadata.KeyValue("tag2", value="value2")],
)


@pytest.mark.parametrize("absent", [None, "rack_id", "instance_id", "user_endpoint"])
def test_a_member_is_written_with_its_tags_in_order(absent: str | None) -> None:
    nothing = {} if absent is None else {absent: None}
    expected = CoordinatorRecord(
        StreamsGroupMemberMetadataKey("g", member_id="m"),
        metadata.StreamsGroupMemberMetadataValue(
            **{**{name: getattr(VALUE, name) for name in VALUE.__slots__}, **nothing}
        ),
    )
    assert member_record("g", replace(MEMBER, **nothing)) == expected  # type: ignore[arg-type]


def test_a_group_epoch_is_written_with_what_it_was_decided_by() -> None:
    written = metadata_record(
        StreamsGroupLog("g"),
        group_epoch=42,
        metadata_hash=43,
        validated_topology_epoch=44,
        assignment_configs={"num.standby.replicas": "2"},
    )
    expected = StreamsGroupMetadataValue(
        epoch=42,
        metadata_hash=43,
        validated_topology_epoch=44,
        last_assignment_configs=[LastAssignmentConfig("num.standby.replicas", value="2")],
    )
    assert written == CoordinatorRecord(StreamsGroupMetadataKey("g"), expected)


def test_a_target_is_written_in_order() -> None:
    tasks = TasksTuple({"b": frozenset({3, 1}), "a": frozenset({2})}, {"c": frozenset({6, 4})}, {"d": frozenset({7})})
    expected = target.StreamsGroupTargetAssignmentMemberValue(
        active_tasks=[target.TaskIds("a", partitions=[2]), target.TaskIds("b", partitions=[1, 3])],
        standby_tasks=[target.TaskIds("c", partitions=[4, 6])],
        warmup_tasks=[target.TaskIds("d", partitions=[7])],
    )
    key = StreamsGroupTargetAssignmentMemberKey("g", member_id="m")
    assert target_record("g", "m", tasks) == CoordinatorRecord(key, expected)
    assert TasksTuple(*map(tasks_of, (expected.active_tasks, expected.standby_tasks, expected.warmup_tasks))) == tasks


@pytest.mark.parametrize("role", ["active", "standby", "warmup"])
def test_a_target_of_one_kind_has_none_of_the_others(role: str) -> None:
    tasks = TasksTuple(**{role: {"1": frozenset({1, 2, 3})}})
    ids = [target.TaskIds("1", partitions=[1, 2, 3])]
    assert target_record("g", "m", tasks).value == target.StreamsGroupTargetAssignmentMemberValue(
        **{f"{role}_tasks": ids}
    )


def test_a_target_epoch_is_written_with_its_time() -> None:
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=42, assignment_timestamp=12_345)
    expected = CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey("g"), value)
    assert target_epoch_record("g", 42, 12_345) == expected


def test_an_assignment_is_written_with_the_epochs_of_active_tasks() -> None:
    standby, warmup = {"2": frozenset({6, 5, 4})}, {"3": frozenset({9, 8, 7})}
    member = replace(
        MEMBER,
        assigned=AssignedTasks({"1": {3: 12, 1: 10, 2: 11}}, standby, warmup),
        pending_revocation=AssignedTasks({"1": {1: 5, 2: 6, 3: 7}}, standby, warmup),
    )
    standby_ids, warmup_ids = [current.TaskIds("2", partitions=[4, 5, 6])], [current.TaskIds("3", partitions=[7, 8, 9])]
    expected = current.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=1,
        previous_member_epoch=0,
        state=1,
        active_tasks=[current.TaskIds("1", partitions=[1, 2, 3], assignment_epochs=[10, 11, 12])],
        standby_tasks=standby_ids,
        warmup_tasks=warmup_ids,
        active_tasks_pending_revocation=[current.TaskIds("1", partitions=[1, 2, 3], assignment_epochs=[5, 6, 7])],
        standby_tasks_pending_revocation=standby_ids,
        warmup_tasks_pending_revocation=warmup_ids,
    )
    key = StreamsGroupCurrentMemberAssignmentKey("g", member_id="m")
    assert current_record("g", member) == CoordinatorRecord(key, expected)
    nothing = current.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=1, previous_member_epoch=0, state=int(MemberState.STABLE)
    )
    assert current_record("g", MEMBER) == CoordinatorRecord(key, nothing)


def test_epochs_that_do_not_fit_their_tasks_are_the_members() -> None:
    tasks = [current.TaskIds("1", partitions=[1, 2, 3], assignment_epochs=[10, 11])]
    value = current.StreamsGroupCurrentMemberAssignmentValue(member_epoch=100, state=1, active_tasks=tasks)
    assert MEMBER.with_assignment(value).assigned.active == {"1": {1: 100, 2: 100, 3: 100}}


def test_tombstones_have_the_keys_of_what_they_delete() -> None:
    member_keys = [
        StreamsGroupCurrentMemberAssignmentKey("g", member_id="m"),
        StreamsGroupTargetAssignmentMemberKey("g", member_id="m"),
        StreamsGroupMemberMetadataKey("g", member_id="m"),
    ]
    assert member_tombstones("g", "m") == [CoordinatorRecord(key, None) for key in member_keys]
    group_keys = [
        StreamsGroupTargetAssignmentMetadataKey("g"),
        StreamsGroupMetadataKey("g"),
        StreamsGroupTopologyKey("g"),
    ]
    assert group_tombstones("g", []) == [CoordinatorRecord(key, None) for key in group_keys]
