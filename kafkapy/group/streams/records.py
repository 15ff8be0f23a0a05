"""The records of a streams group, built as Apache Kafka 4.4.0 writes them: lists sorted, all values in version 0."""

from collections.abc import Iterable, Mapping

from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.state import StreamsGroupLog
from kafkapy.group.streams.tasks import TasksTuple, task_ids
from kafkapy.protocol.messages.streams_group_current_member_assignment_key import StreamsGroupCurrentMemberAssignmentKey
from kafkapy.protocol.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import LastAssignmentConfig, StreamsGroupMetadataValue
from kafkapy.protocol.messages.streams_group_target_assignment_member_key import StreamsGroupTargetAssignmentMemberKey
from kafkapy.protocol.messages.streams_group_target_assignment_member_value import (
    StreamsGroupTargetAssignmentMemberValue,
    TaskIds,
)
from kafkapy.protocol.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from kafkapy.protocol.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from kafkapy.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey
from kafkapy.protocol.messages.streams_group_topology_value import StreamsGroupTopologyValue


def member_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    key = StreamsGroupMemberMetadataKey(group_id, member_id=member.member_id)
    return CoordinatorRecord(key, member.metadata_value())


def current_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    key = StreamsGroupCurrentMemberAssignmentKey(group_id, member_id=member.member_id)
    return CoordinatorRecord(key, member.assignment_value())


def metadata_record(
    log: StreamsGroupLog,
    *,
    group_epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    assignment_configs: Mapping[str, str],
) -> CoordinatorRecord:
    """Return the record of a next group epoch. What is known of topology descriptions stays as it is in the log."""
    assert group_epoch > log.group_epoch, f"{log.group_id} would stay at {log.group_epoch}"
    value = StreamsGroupMetadataValue(
        epoch=group_epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[
            LastAssignmentConfig(key, value=value) for key, value in sorted(assignment_configs.items())
        ],
        stored_description_topology_epoch=log.metadata.stored_description_topology_epoch,
        failed_description_topology_epoch=log.metadata.failed_description_topology_epoch,
    )
    return CoordinatorRecord(StreamsGroupMetadataKey(log.group_id), value)


def target_record(group_id: str, member_id: str, target: TasksTuple) -> CoordinatorRecord:
    key = StreamsGroupTargetAssignmentMemberKey(group_id, member_id=member_id)
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=task_ids(TaskIds, target.active),
        standby_tasks=task_ids(TaskIds, target.standby),
        warmup_tasks=task_ids(TaskIds, target.warmup),
    )
    return CoordinatorRecord(key, value)


def target_epoch_record(group_id: str, assignment_epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        StreamsGroupTargetAssignmentMetadataKey(group_id),
        StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=assignment_epoch, assignment_timestamp=timestamp_ms),
    )


def topology_record(group_id: str, value: StreamsGroupTopologyValue) -> CoordinatorRecord:
    assert value.epoch >= 0, "a negative epoch means that there is no topology"
    return CoordinatorRecord(StreamsGroupTopologyKey(group_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of one member, in the order that replay requires."""
    return [
        CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """Return the tombstones of a whole group."""
    members = list(member_ids)
    return [
        *(
            CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id, member_id=each), None)
            for each in members
        ),
        *(CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id, member_id=each), None) for each in members),
        CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id), None),
        *(CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id, member_id=each), None) for each in members),
        CoordinatorRecord(StreamsGroupMetadataKey(group_id), None),
        CoordinatorRecord(StreamsGroupTopologyKey(group_id), None),
    ]
