"""A member of a share group, and its records in `__consumer_offsets`.

A ShareMember is immutable: a request derives the next one and writes its records, and only replay puts it into the
group. Members have no instance id and own nothing: a partition may be assigned to several at once.
"""

from dataclasses import field, replace
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.group.assignors.spec import EMPTY_ASSIGNMENT, Assignment
from kafkapy.protocol.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from kafkapy.protocol.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
NO_PREVIOUS_EPOCH: Final = -1
STABLE: Final = 0
"""The only state of a member, in its record and in Kafka: it owns nothing that it had to give up first."""


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member. Before its first assignment its epoch is JOIN_EPOCH."""

    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = NO_PREVIOUS_EPOCH
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    state: int = STABLE
    assigned: Assignment = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.member_epoch == target_epoch and self.state == STABLE

    def moved_to(self, member_epoch: int, assigned: Assignment) -> "ShareMember":
        """Return the member with the assignment of this epoch; its previous epoch stays valid for one heartbeat."""
        return replace(
            self,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            state=STABLE,
            assigned=assigned,
        )

    # -- records --------------------------------------------------------------------------------------------------

    def metadata_value(self) -> ShareGroupMemberMetadataValue:
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.subscribed_topic_names),
        )

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> "ShareMember":
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
        )

    def assignment_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned_partitions=[
                TopicPartitions(topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(self.assigned.items())
            ],
        )

    def with_assignment(self, value: ShareGroupCurrentMemberAssignmentValue) -> "ShareMember":
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=value.state,
            assigned={topic.topic_id: frozenset(topic.partitions) for topic in value.assigned_partitions},
        )

    def without_assignment(self) -> "ShareMember":
        """Return the member after the tombstone of its assignment; that of its metadata follows."""
        return replace(self, member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, assigned=EMPTY_ASSIGNMENT)
