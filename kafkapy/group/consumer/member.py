"""A member of a KIP-848 group, and its records in `__consumer_offsets`.

A ConsumerMember is immutable: a request derives the next one and writes its records, and only replay puts it into the
group. Each partition is kept with the epoch at which it was assigned (KIP-1251); offset commits at an older member
epoch are checked against that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import IntEnum
from typing import Any, Final, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kafkapy.protocol.messages.consumer_group_current_member_assignment_value import (
    TopicPartitions as CurrentTopicPartitions,
)
from kafkapy.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from kafkapy.types import Uuid

JOIN_EPOCH: Final = 0
"""The member epoch of a heartbeat that joins or rejoins."""
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member leaves temporarily: its partitions stay reserved for its instance id until the session expires."""

OwnedPartitions: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""By topic id: each partition and the epoch at which it was assigned."""


class MemberState(IntEnum):
    """A member's progress towards its target assignment; the values are those in the records."""

    STABLE = 0
    """It has the assignment of its epoch's target."""
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions before it moves to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is at the target's epoch, and other members still own some of its partitions."""
    UNKNOWN = 127
    """Written by a later version; the member must rejoin."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member as its records in the log describe it: what it told of itself, and what it has and must give up."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    server_assignor: str | None = None
    assigned: OwnedPartitions = field(default_factory=dict)
    pending_revocation: OwnedPartitions = field(default_factory=dict)
    classic_metadata: ClassicMemberMetadata | None = None
    """The session time-out and protocols of a classic member's JoinGroup; None for other members."""

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic_metadata is not None

    @property
    def classic_session_timeout_ms(self) -> int:
        """The session time-out of a classic member's JoinGroup."""
        assert self.classic_metadata is not None
        return self.classic_metadata.session_timeout_ms

    @property
    def classic_protocols(self) -> tuple[tuple[str, bytes], ...]:
        """(name, metadata) of each protocol (assignor) that a classic member supports."""
        assert self.classic_metadata is not None
        return tuple((protocol.name, protocol.metadata) for protocol in self.classic_metadata.supported_protocols)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def moved_to(self, member_epoch: int, **changes: Any) -> "ConsumerMember":
        """Return the member at another epoch, with its current epoch as the previous one."""
        return replace(self, member_epoch=member_epoch, previous_member_epoch=self.member_epoch, **changes)

    def renamed(self, member_id: str) -> "ConsumerMember":
        """Return the replacement of a static member: the same but for a new id, at JOIN_EPOCH."""
        assert self.instance_id is not None, "only static members are replaced"
        return replace(self, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)

    def departed(self) -> "ConsumerMember":
        """Return a static member that left temporarily. Its partitions count as assigned at epoch 0."""
        assert self.instance_id is not None, "nobody comes back for the partitions of a dynamic member"
        assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in self.assigned.items()}
        return replace(self, member_epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending_revocation={})

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """Return the epoch at which a partition, assigned or to be revoked, was assigned; None if it is neither."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.subscribed_topic_names),
            subscribed_topic_regex=self.subscribed_topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=self.classic_metadata,
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic_metadata=value.classic_member_metadata,
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=int(self.state),
            assigned_partitions=_to_record(self.assigned),
            partitions_pending_revocation=_to_record(self.pending_revocation),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ConsumerMember":
        known = value.state in (0, 1, 2)
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_from_record(value.assigned_partitions, value.member_epoch),
            pending_revocation=_from_record(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_assignment(self) -> "ConsumerMember":
        """Return the member after the tombstone of its assignment; that of its metadata follows."""
        return replace(
            self,
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            assigned={},
            pending_revocation={},
        )


def _to_record(owned: OwnedPartitions) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[partition] for partition in sorted(partitions)],
        )
        for topic_id, partitions in sorted(owned.items())
    ]


def _from_record(topics: Iterable[CurrentTopicPartitions], member_epoch: int) -> OwnedPartitions:
    """Return partitions with their epochs. Records from before 4.3 have none: the member's epoch is used."""
    owned: dict[Uuid, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or []
        if len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned
