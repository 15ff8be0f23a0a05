"""Reads the rebalances of KIP-848 groups from their records, for epoch_history.py."""

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from kafkapy.group.consumer.member import ConsumerMember
from kafkapy.group.epoch_history import EpochHistory, EpochRecords
from kafkapy.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kafkapy.protocol.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from kafkapy.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kafkapy.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)

EXPIRED: Final = "was not heard of for its session timeout, or did not give up partitions in its rebalance timeout"
TOPICS_CHANGED: Final = "a subscribed topic was created or deleted, or has other partitions or racks now"


def consumer_history(wall_ms: Callable[[], int]) -> EpochHistory:
    """Return the observer of the replay of a shard's KIP-848 groups."""
    records = EpochRecords(
        member_key=ConsumerGroupMemberMetadataKey,
        group_key=ConsumerGroupMetadataKey,
        group_value=ConsumerGroupMetadataValue,
        target_value=ConsumerGroupTargetAssignmentMetadataValue,
        metadata_changed=TOPICS_CHANGED,
        has_changed_subscription=_has_changed_subscription,
        instance_id_of=attrgetter("instance_id"),
    )
    return EpochHistory(records, wall_ms)


def _has_changed_subscription(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> bool:
    after = member.with_metadata(value)
    return (
        member.subscribed_topic_names != after.subscribed_topic_names
        or member.subscribed_topic_regex != after.subscribed_topic_regex
    )
