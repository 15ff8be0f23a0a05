"""Dispatch of a shard's requests and records to its share groups. Imported with the first of them.

Error messages are Kafka's, word for word: clients show them to users, who search for them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.decision import Client, GroupDecision, GroupRequestContext
from kafkapy.group.long_work import NO_RESULTS, Results
from kafkapy.group.metadata_hash import MetadataHashes
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.group.share.decision import ShareDecision
from kafkapy.group.share.group import ShareGroup
from kafkapy.group.share.heartbeat import check_heartbeat, decide_heartbeat, decide_leave
from kafkapy.group.share.history import EXPIRED, share_history
from kafkapy.group.share.member import JOIN_EPOCH, LEAVE_EPOCH, ShareMember
from kafkapy.group.share.offsets import decide_alter, decide_delete, decide_deleted, decide_group_deletion
from kafkapy.group.share.records import states_record
from kafkapy.group.share.removal import removal_records
from kafkapy.group.share.simple_assignor import NAME
from kafkapy.group.share.states import NO_STATES, PartitionsByTopic
from kafkapy.group.timeline_order import members_in_order
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequestTopic
from kafkapy.protocol.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
from kafkapy.protocol.messages.share_group_describe_response import Assignment as DescribedAssignment
from kafkapy.protocol.messages.share_group_describe_response import DescribedGroup, Member, TopicPartitions
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.protocol.primitives import Message
from kafkapy.types import Uuid


class ShareGroups:
    """The share groups among a shard's groups."""

    def __init__(
        self,
        groups: dict[str, Any],
        settings: GroupSettings,
        hashes: MetadataHashes,
        *,
        metadata: Callable[[], MetadataImage],
        wall_ms: Callable[[], int],
    ) -> None:
        """`groups` is the shard's own map of groups of any type, by id; `hashes` are shared with its other groups."""
        self._groups = groups
        self._settings = settings
        self._hashes = hashes
        self._metadata = metadata
        self._wall_ms = wall_ms
        self._is_loaded = False
        self._history = share_history(wall_ms)

    def heartbeat(
        self,
        request: ShareGroupHeartbeatRequest,
        client: Client,
        now_ms: int,
        *,
        gives_way: bool = False,
        results: Results = NO_RESULTS,
    ) -> ShareDecision:
        """Decide ShareGroupHeartbeat. Raises ApiError (KIP-932's codes) without having changed anything.

        gives_way: raise LongWorkError, too, if long work has to be done first. results: of what was done for it.
        """
        check_heartbeat(request)
        self._history.begin_decision()
        context = GroupRequestContext(client, now_ms, self._wall_ms(), self._metadata(), gives_way=gives_way)
        if request.member_epoch == LEAVE_EPOCH:
            return decide_leave(self._existing(request.group_id), request, context)
        group = self._groups.get(request.group_id)
        if group is None and request.member_epoch == JOIN_EPOCH:
            group = self.make(request.group_id)  # replaying the first record puts one into the map
        if not isinstance(group, ShareGroup):
            raise _not_found(request.group_id, group, "Share group")
        return decide_heartbeat(group, request, context, results)

    # -- the states of share partitions ---------------------------------------------------------------------------

    def states_initialized(self, group_id: str, partitions: PartitionsByTopic) -> ShareDecision:
        """Decide what follows once the states of these share partitions have been created: they may be assigned."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup) or not partitions:
            return ShareDecision()
        image = self._metadata()
        states = (group.log.states or NO_STATES).with_initialized(partitions, image, self._wall_ms())
        return ShareDecision(records=[states_record(group_id, states, image)])

    def states_failed(self, group_id: str, partitions: PartitionsByTopic) -> ShareDecision:
        """Decide what follows if the states could not be created: the next heartbeat tries again."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup) or not partitions:
            return ShareDecision()
        states = group.log.states
        if states is None or not states.initializing:
            return ShareDecision()
        left = states.without_initializing(partitions)
        return ShareDecision(records=[states_record(group_id, left, self._metadata())])

    def forget_topic(self, topic_id: Uuid) -> list[CoordinatorRecord]:
        """Return the records by which groups forget which partitions of a deleted topic had a state.

        The share coordinator forgets the states by itself.
        """
        records: list[CoordinatorRecord] = []
        for group in self._groups.values():
            states = group.log.states if isinstance(group, ShareGroup) else None
            if states is not None and (topic_id in states.known_topics or topic_id in states.deleting):
                records.append(states_record(group.group_id, states.without_topics({topic_id}), self._metadata()))
        return records

    # -- offsets --------------------------------------------------------------------------------------------------

    def alter_offsets(self, group_id: str, topics: Sequence[AlterShareGroupOffsetsRequestTopic]) -> ShareDecision:
        """Decide AlterShareGroupOffsets. A group that is not there is made. Raises ApiError."""
        group = self._groups.get(group_id)
        if group is None:
            group = self.make(group_id)  # replaying the record puts one into the map
        if not isinstance(group, ShareGroup):
            raise _not_found(group_id, group)
        return decide_alter(group, topics, self._metadata(), self._wall_ms())

    def delete_offsets(self, group_id: str, topic_names: Sequence[str]) -> ShareDecision:
        """Decide DeleteShareGroupOffsets, as far as it comes before the deletion of the states. Raises ApiError."""
        return decide_delete(self._existing(group_id), topic_names, self._metadata())

    def offsets_deleted(
        self, group_id: str, response: DeleteShareGroupOffsetsResponse, topics: Mapping[Uuid, str]
    ) -> ShareDecision:
        """Decide what comes after the deletion of the states of these topics, whose names are given."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return ShareDecision(response)
        return decide_deleted(group, response, topics, self._metadata())

    def begin_deletion(self, group_id: str) -> ShareDecision:
        """Decide what comes before the deletion of a group: that of its states. Raises ApiError."""
        return decide_group_deletion(self._existing(group_id), self._metadata())

    def initialized_partitions(self, group_id: str) -> dict[Uuid, frozenset[int]]:
        """Return the share partitions that have a state, of existing topics; none of a group of another kind."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup) or group.log.states is None:
            return {}
        existing = self._metadata().topics.by_id
        return {
            topic_id: topic.partitions
            for topic_id, topic in group.log.states.initialized.items()
            if topic_id in existing
        }

    # -- the coordinator's own ------------------------------------------------------------------------------------

    def describe(self, group_id: str, *, start: int = 0, count: int | None = None) -> DescribedGroup:
        """Return the group as ShareGroupDescribe shows it, with GROUP_ID_NOT_FOUND if it is not a share group.

        start, count: which of its members are described, all if `count` is None.
        """
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            error = _not_found(group_id, group)
            return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
        image = self._metadata()
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.log.group_epoch,
            assignment_epoch=group.log.assignment_epoch,
            assignor_name=NAME,
            members=[_described(member, image) for member in members_in_order(group.log.members, start, count)],
        )

    # -- time and replay -----------------------------------------------------------------------------------

    def on_time(self, group: ShareGroup, now_ms: int) -> GroupDecision:
        """Decide the removal of the members whose session has expired."""
        self._history.begin_decision(EXPIRED)
        image = self._metadata()
        timeout_ms = group.times(image.configs).session_timeout_ms
        late = group.sessions.late_members(group.log.members, now_ms, timeout_ms)
        return GroupDecision(records=removal_records(group, late, image))

    def on_loaded(self) -> None:
        """Start after the log was replayed and before the first request."""
        self._is_loaded = True
        groups = [group for group in self._groups.values() if isinstance(group, ShareGroup)]
        for group in groups:
            group.log.is_loaded = True
        self._history.load(groups)

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply a ShareGroup* record. The first one creates the group, the group's tombstone removes it."""
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            if value is None:
                return
            assert not self._is_loaded or group is None, f"{group_id} would be replaced before it is deleted"
            group = self._groups[group_id] = self.make(group_id)
            group.log.is_loaded = self._is_loaded
        self._history.before_replay(group, key, value)
        group.replay(key, value)
        self._history.after_replay(group, key, value)
        if group.log.is_deleted:
            del self._groups[group_id]

    def _existing(self, group_id: str) -> ShareGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            raise _not_found(group_id, group)
        return group

    def make(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id, self._settings, self._wall_ms, self._hashes)


def _not_found(group_id: str, group: Any, noun: str = "Group") -> ApiError:
    """Return the error for a missing group or one of another type. `noun` begins the message: Kafka has two."""
    if group is None:
        return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{noun} {group_id} not found.")
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")


def _described(member: ShareMember, image: MetadataImage) -> Member:
    """Return a member with its assignment; deleted topics are left out."""
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=DescribedAssignment(
            [
                TopicPartitions(topic_id, topic_name=topic.name, partitions=sorted(partitions))
                for topic_id, partitions in sorted(member.assigned.items())
                if (topic := image.topics.by_id.get(topic_id)) is not None
            ]
        ),
    )
