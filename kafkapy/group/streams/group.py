"""A streams group (KIP-1071) that Apache Kafka has written: its id is kept from other kinds, its offsets are served.

Nobody joins it here: StreamsGroupHeartbeat is not served. Members that were loaded are removed once their session has
expired, and the empty group becomes a classic one with the first JoinGroup, as in Apache Kafka. Of the records only
members and the epoch are kept, which is what tombstones need.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.group.group import CheckPartition
from kafkapy.group.history import RebalanceHistory
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.sessions import Sessions
from kafkapy.group.shared_rules import unknown_member
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_current_member_assignment_key import StreamsGroupCurrentMemberAssignmentKey
from kafkapy.protocol.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from kafkapy.protocol.messages.streams_group_target_assignment_member_key import StreamsGroupTargetAssignmentMemberKey
from kafkapy.protocol.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from kafkapy.protocol.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from kafkapy.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey
from kafkapy.protocol.primitives import Message

GROUP_TYPE: Final = "streams"
EMPTY, STABLE = "Empty", "Stable"


class StreamsGroup:
    """One group, as replayed, with its members' sessions."""

    group_type = GROUP_TYPE
    protocol_type = GROUP_TYPE
    may_expire = True

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.history = RebalanceHistory()
        self.sessions = Sessions()
        self.members: dict[str, None] = {}
        self.metadata = StreamsGroupMetadataValue()
        self.is_deleted = False

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def member_count(self) -> int:
        return len(self.members)

    def deadline_ms(self) -> int | None:
        return self.sessions.deadline_ms()

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one StreamsGroup* record; `value` is None for a tombstone."""
        if type(key) is StreamsGroupMemberMetadataKey:
            if value is None:
                self.members.pop(key.member_id, None)
            else:
                self.members[key.member_id] = None
            self.sessions.on_replay(key.member_id, is_member=value is not None)
        elif type(key) is StreamsGroupMetadataKey:
            if value is None:
                self.is_deleted = True
            else:
                assert type(value) is StreamsGroupMetadataValue
                self.metadata = value

    # -- requests of others -------------------------------------------------------------------------------------------

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, version: int, is_transactional: bool
    ) -> CheckPartition | None:
        """Allow it to those who are no members, in an empty group. Raises UNKNOWN_MEMBER_ID."""
        if generation < 0 and not self.members:
            return None
        raise unknown_member(self.group_id, member_id)

    def on_offset_commit(self, member_id: str, now_ms: int) -> None:
        """Do nothing: a commit does not renew a session here."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is not None or member_epoch >= 0:
            raise unknown_member(self.group_id, member_id)

    def check_offset_delete(self) -> None:
        """Always allow it: topics of a group with members are refused one by one (is_subscribed_to)."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether there are members: which topics they read is in their topology, which is not read here."""
        return bool(self.members)

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def check_deletion(self) -> None:
        if self.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    # -- records ------------------------------------------------------------------------------------------------------

    def removal_records(self, member_ids: Sequence[str]) -> list[CoordinatorRecord]:
        """Return the tombstones of members, each with a next epoch of the group."""
        records: list[CoordinatorRecord] = []
        epoch = self.metadata.epoch
        for member_id in member_ids:
            epoch += 1
            records += [CoordinatorRecord(key, None) for key in self._member_keys(member_id)]
            records.append(CoordinatorRecord(StreamsGroupMetadataKey(self.group_id), self._metadata_at(epoch)))
        if member_ids and len(member_ids) == len(self.members):
            target = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
            records.append(CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(self.group_id), target))
        return records

    def tombstone_records(self) -> Iterable[CoordinatorRecord]:
        """Return the tombstones that delete the group, which has no members, without those of its offsets."""
        assert not self.members, f"streams group {self.group_id} is to be deleted with members"
        keys: list[Message] = [
            StreamsGroupTargetAssignmentMetadataKey(self.group_id),
            StreamsGroupTopologyKey(self.group_id),
            StreamsGroupMetadataKey(self.group_id),
        ]
        return [CoordinatorRecord(key, None) for key in keys]

    def _member_keys(self, member_id: str) -> Iterator[Message]:
        yield StreamsGroupCurrentMemberAssignmentKey(self.group_id, member_id=member_id)
        yield StreamsGroupTargetAssignmentMemberKey(self.group_id, member_id=member_id)
        yield StreamsGroupMemberMetadataKey(self.group_id, member_id=member_id)

    def _metadata_at(self, epoch: int) -> StreamsGroupMetadataValue:
        before = self.metadata
        return StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=before.metadata_hash,
            validated_topology_epoch=before.validated_topology_epoch,
            last_assignment_configs=before.last_assignment_configs,
            stored_description_topology_epoch=before.stored_description_topology_epoch,
            failed_description_topology_epoch=before.failed_description_topology_epoch,
        )
