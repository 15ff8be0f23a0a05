"""The records of a KIP-848 group, built as Apache Kafka 4.4.0 writes them: lists sorted, all values in version 0."""

from kafkapy.group.assignors.spec import Assignment
from kafkapy.group.consumer.member import ConsumerMember
from kafkapy.group.consumer.subscriptions import ResolvedRegex
from kafkapy.group.records import CoordinatorRecord
from kafkapy.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from kafkapy.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kafkapy.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kafkapy.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from kafkapy.protocol.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from kafkapy.protocol.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from kafkapy.protocol.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from kafkapy.protocol.messages.consumer_group_target_assignment_member_key import ConsumerGroupTargetAssignmentMemberKey
from kafkapy.protocol.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id, member_id=member.member_id), member.metadata_value()
    )


def epoch_record(group_id: str, group_epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch=group_epoch, metadata_hash=metadata_hash)
    )


def target_record(group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
    topics = [
        TopicPartition(topic_id, partitions=sorted(partitions)) for topic_id, partitions in sorted(assignment.items())
    ]
    key = ConsumerGroupTargetAssignmentMemberKey(group_id, member_id=member_id)
    return CoordinatorRecord(key, ConsumerGroupTargetAssignmentMemberValue(topics))


def target_epoch_record(group_id: str, assignment_epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id)
    return CoordinatorRecord(
        key,
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=assignment_epoch, assignment_timestamp=timestamp_ms
        ),
    )


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id=member.member_id)
    return CoordinatorRecord(key, member.assignment_value())


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = ConsumerGroupRegularExpressionValue(
        sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, regular_expression=regex), value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, regular_expression=regex), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the record that Kafka 4.0 wrote before the metadata hash was introduced."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of one member, in the order that replay requires."""
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: list[str], regexes: list[str]) -> list[CoordinatorRecord]:
    """Return the tombstones of a whole group, without those of its offsets."""
    return [
        *(
            CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id=member), None)
            for member in member_ids
        ),
        *(
            CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id=member), None)
            for member in member_ids
        ),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id), None),
        *(CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id=member), None) for member in member_ids),
        *(regex_tombstone(group_id, regex) for regex in regexes),
        partition_metadata_tombstone(group_id),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id), None),
    ]
