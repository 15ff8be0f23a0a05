"""Reads the rebalances of share groups from their records, for epoch_history.py."""

from collections.abc import Callable
from typing import Final

from kafkapy.group.epoch_history import EpochHistory, EpochRecords
from kafkapy.group.share.member import ShareMember
from kafkapy.protocol.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from kafkapy.protocol.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from kafkapy.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from kafkapy.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from kafkapy.protocol.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)

EXPIRED: Final = "was not heard of for its session timeout"
PARTITIONS_CHANGED: Final = (
    "a subscribed topic was created or deleted, has other partitions now, or their states are initialised"
)


def share_history(wall_ms: Callable[[], int]) -> EpochHistory:
    """Return the observer of the replay of a shard's share groups."""
    records = EpochRecords(
        member_key=ShareGroupMemberMetadataKey,
        group_key=ShareGroupMetadataKey,
        group_value=ShareGroupMetadataValue,
        target_value=ShareGroupTargetAssignmentMetadataValue,
        metadata_changed=PARTITIONS_CHANGED,
        has_changed_subscription=_has_changed_subscription,
        instance_id_of=_no_instance,
    )
    return EpochHistory(records, wall_ms)


def _has_changed_subscription(member: ShareMember, value: ShareGroupMemberMetadataValue) -> bool:
    return member.subscribed_topic_names != frozenset(value.subscribed_topic_names)


def _no_instance(member: ShareMember) -> str | None:
    """Members of share groups are not static."""
    return None
