"""Reads the rebalances of streams groups from their records, for epoch_history.py."""

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from kafkapy.group.epoch_history import EpochHistory, EpochRecords
from kafkapy.group.streams.member import StreamsMember
from kafkapy.protocol.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kafkapy.protocol.messages.streams_group_member_metadata_value import StreamsGroupMemberMetadataValue
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from kafkapy.protocol.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)

EXPIRED: Final = "was not heard of for its session timeout, or did not give up tasks in time"
TOPICS_CHANGED: Final = "a topic of the topology was created or deleted or has other partitions now, or configuration"


def streams_history(wall_ms: Callable[[], int]) -> EpochHistory:
    """Return the observer of the replay of a shard's streams groups."""
    records = EpochRecords(
        member_key=StreamsGroupMemberMetadataKey,
        group_key=StreamsGroupMetadataKey,
        group_value=StreamsGroupMetadataValue,
        target_value=StreamsGroupTargetAssignmentMetadataValue,
        metadata_changed=TOPICS_CHANGED,
        has_changed_subscription=_has_changed_topology,
        instance_id_of=attrgetter("instance_id"),
    )
    return EpochHistory(records, wall_ms)


def _has_changed_topology(member: StreamsMember, value: StreamsGroupMemberMetadataValue) -> bool:
    return member.topology_epoch != value.topology_epoch
