"""Replay asserts what decisions promise, once the log is loaded: a record that breaks it stops the shard at once.

A log that is being loaded may hold any records, in any combination: there the same records are replayed.
"""

import pytest

from kafkapy.group.records import CoordinatorRecord
from kafkapy.protocol.messages import consumer_group_current_member_assignment_key as consumer_current
from kafkapy.protocol.messages import consumer_group_target_assignment_member_key as consumer_target
from kafkapy.protocol.messages import share_group_current_member_assignment_key as share_current
from kafkapy.protocol.messages import share_group_target_assignment_member_key as share_target
from kafkapy.protocol.messages import streams_group_current_member_assignment_key as streams_current
from kafkapy.protocol.messages import streams_group_target_assignment_member_key as streams_target
from kafkapy.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kafkapy.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kafkapy.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from kafkapy.protocol.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from kafkapy.protocol.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from kafkapy.protocol.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kafkapy.protocol.messages.share_group_current_member_assignment_value import ShareGroupCurrentMemberAssignmentValue
from kafkapy.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from kafkapy.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from kafkapy.protocol.messages.share_group_target_assignment_member_value import ShareGroupTargetAssignmentMemberValue
from kafkapy.protocol.messages.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
)
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from kafkapy.protocol.messages.streams_group_target_assignment_member_value import (
    StreamsGroupTargetAssignmentMemberValue,
)
from tests.support.consumer_groups import GroupWorld

CONSUMER_CURRENT = CoordinatorRecord(
    consumer_current.ConsumerGroupCurrentMemberAssignmentKey("g", member_id="nobody"),
    ConsumerGroupCurrentMemberAssignmentValue(2, previous_member_epoch=1),
)
CONSUMER_TARGET = CoordinatorRecord(
    consumer_target.ConsumerGroupTargetAssignmentMemberKey("g", member_id="nobody"),
    ConsumerGroupTargetAssignmentMemberValue(),
)
CONSUMER_EPOCH = CoordinatorRecord(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(epoch=0))
CONSUMER_TARGET_EPOCH = CoordinatorRecord(
    ConsumerGroupTargetAssignmentMetadataKey("g"), ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=7)
)
CONSUMER_REGEX = CoordinatorRecord(
    ConsumerGroupRegularExpressionKey("g", regular_expression="a.*"), ConsumerGroupRegularExpressionValue()
)
SHARE_CURRENT = CoordinatorRecord(
    share_current.ShareGroupCurrentMemberAssignmentKey("g", member_id="nobody"),
    ShareGroupCurrentMemberAssignmentValue(2, previous_member_epoch=1),
)
SHARE_TARGET = CoordinatorRecord(
    share_target.ShareGroupTargetAssignmentMemberKey("g", member_id="nobody"), ShareGroupTargetAssignmentMemberValue()
)
SHARE_EPOCH = CoordinatorRecord(ShareGroupMetadataKey("g"), ShareGroupMetadataValue(epoch=0))
STREAMS_CURRENT = CoordinatorRecord(
    streams_current.StreamsGroupCurrentMemberAssignmentKey("g", member_id="nobody"),
    StreamsGroupCurrentMemberAssignmentValue(2, previous_member_epoch=1, state=1),
)
STREAMS_TARGET = CoordinatorRecord(
    streams_target.StreamsGroupTargetAssignmentMemberKey("g", member_id="nobody"),
    StreamsGroupTargetAssignmentMemberValue(),
)
STREAMS_EPOCH = CoordinatorRecord(StreamsGroupMetadataKey("g"), StreamsGroupMetadataValue(epoch=0))


@pytest.mark.parametrize(
    ("record", "broken"),
    [
        (CONSUMER_CURRENT, "nobody is assigned partitions and no member"),
        (CONSUMER_TARGET, "nobody has a target and is no member"),
        (CONSUMER_EPOCH, "g goes back to 0"),
        (CONSUMER_TARGET_EPOCH, "a target of another epoch"),
        (CONSUMER_REGEX, "nobody subscribes to a"),
        (SHARE_CURRENT, "nobody is assigned partitions and no member"),
        (SHARE_TARGET, "nobody has a target and is no member"),
        (SHARE_EPOCH, "g goes back to 0"),
        (STREAMS_CURRENT, "nobody is assigned tasks and no member"),
        (STREAMS_TARGET, "nobody has a target and is no member"),
        (STREAMS_EPOCH, "g goes back to 0"),
    ],
)
def test_a_record_that_no_decision_makes_is_replayed_only_from_a_log(record: CoordinatorRecord, broken: str) -> None:
    world = GroupWorld()

    with pytest.raises(AssertionError, match=broken):
        world.shard.replay(record, 0)

    world.load(record)

    assert "g" in world.groups
