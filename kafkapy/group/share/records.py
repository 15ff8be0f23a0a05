"""The records of a share group, built as Apache Kafka 4.4.0 writes them: lists sorted, all values in version 0."""

from collections.abc import Iterable

from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.share.member import ShareMember
from kafkapy.group.share.simple_assignor import Target
from kafkapy.group.share.states import GroupStates
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.share_group_current_member_assignment_key import ShareGroupCurrentMemberAssignmentKey
from kafkapy.protocol.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from kafkapy.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from kafkapy.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from kafkapy.protocol.messages.share_group_state_partition_metadata_key import ShareGroupStatePartitionMetadataKey
from kafkapy.protocol.messages.share_group_target_assignment_member_key import ShareGroupTargetAssignmentMemberKey
from kafkapy.protocol.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from kafkapy.protocol.messages.share_group_target_assignment_metadata_key import ShareGroupTargetAssignmentMetadataKey
from kafkapy.protocol.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    return CoordinatorRecord(ShareGroupMemberMetadataKey(group_id, member_id=member.member_id), member.metadata_value())


def epoch_record(group_id: str, group_epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch=group_epoch, metadata_hash=metadata_hash)
    )


def target_record(group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
    """Return the record of a member's target. It keeps its order, on which the next target depends."""
    topics = [TopicPartition(topic_id, partitions=list(partitions)) for topic_id, partitions in target.items()]
    key = ShareGroupTargetAssignmentMemberKey(group_id, member_id=member_id)
    return CoordinatorRecord(key, ShareGroupTargetAssignmentMemberValue(topics))


def target_epoch_record(group_id: str, assignment_epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id),
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=assignment_epoch, assignment_timestamp=timestamp_ms),
    )


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    key = ShareGroupCurrentMemberAssignmentKey(group_id, member_id=member.member_id)
    return CoordinatorRecord(key, member.assignment_value())


def states_record(group_id: str, states: GroupStates, image: MetadataImage) -> CoordinatorRecord:
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id), states.to_value(image))


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of one member, in the order that replay requires."""
    return [
        CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """Return the tombstones of a whole group."""
    members = list(member_ids)
    return [
        *(
            CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id=member), None)
            for member in members
        ),
        *(
            CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id=member), None)
            for member in members
        ),
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id), None),
        *(CoordinatorRecord(ShareGroupMemberMetadataKey(group_id, member_id=member), None) for member in members),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id), None),
        CoordinatorRecord(ShareGroupMetadataKey(group_id), None),
    ]
