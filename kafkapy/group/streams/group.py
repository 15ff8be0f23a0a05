"""A streams group (KIP-1071): its state. The other modules of this package decide its requests.

Decide, append, replay: decisions take the group, return records and do not change the state in the log (state.py). Soft
state is kept here and changes at once: deadlines, the topology as configured for the cluster's topics, what members
have reported. It is lost with the coordinator, as in Kafka. Driven by `runtime/coordinators/group_host.py`, through the
shard.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafkapy.config.group import GroupCoordinatorConfig
from kafkapy.errors import ApiError
from kafkapy.group.decision import ParkedResponse
from kafkapy.group.group import CheckPartition
from kafkapy.group.history import RebalanceHistory
from kafkapy.group.metadata_hash import MetadataHashes
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.sessions import Sessions
from kafkapy.group.settings import GroupSettings
from kafkapy.group.shared_rules import NO_ASSIGNMENT_EPOCH
from kafkapy.group.streams.checks import known_member
from kafkapy.group.streams.configured_topology import ConfiguredTopology
from kafkapy.group.streams.endpoints import Endpoints
from kafkapy.group.streams.idle import IdleMembers
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.records import group_tombstones
from kafkapy.group.streams.settings import StreamsSettings, streams_settings
from kafkapy.group.streams.state import GroupState, StreamsGroupLog
from kafkapy.group.streams.task_offsets import NO_OFFSETS, MemberTaskOffsets
from kafkapy.group.streams.tasks import TasksTuple
from kafkapy.group.streams.timers import StreamsTimers
from kafkapy.group.streams.topology import StreamsTopology
from kafkapy.metadata.image import ConfigsImage, MetadataImage, TopicsImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_current_member_assignment_key import StreamsGroupCurrentMemberAssignmentKey
from kafkapy.protocol.messages.streams_group_describe_response import Topology
from kafkapy.protocol.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kafkapy.protocol.primitives import Message

GROUP_TYPE: Final = "streams"
MAX_OFFSETS: Final = 100_000
"""Task offsets that a group keeps: some 10 MB."""
COMMIT_VERSION_OF_MEMBERS: Final = 9
"""The first OffsetCommit with STALE_MEMBER_EPOCH."""


class StreamsGroup:
    """One group. `log` is the replayed state, `timers` has the deadlines, `history` the last rebalances."""

    group_type = GROUP_TYPE
    protocol_type = GROUP_TYPE
    may_expire = True

    def __init__(self, group_id: str, settings: GroupSettings, hashes: MetadataHashes) -> None:
        """`hashes` is shared by the groups of a shard."""
        self.group_id = group_id
        self.settings = settings
        self.hashes = hashes
        self.history = RebalanceHistory()
        self.log = StreamsGroupLog(group_id)
        self.timers = StreamsTimers(self.log)
        self.idle = IdleMembers(self.log)
        self.configured: ConfiguredTopology | None = None
        self.endpoint_information_epoch = 0
        self.endpoints = Endpoints()
        self.described_topology: tuple[ConfiguredTopology | StreamsTopology, Topology] | None = None
        """The described topology of describe.py, with its input."""
        self.shutdown_member_id: str | None = None
        """The member that has requested the shutdown of the application; each response passes it on to its member."""
        self.task_offsets: dict[str, MemberTaskOffsets] = {}
        self._offset_count = 0
        """The number of all members' offsets in task_offsets."""
        self.refined_targets: tuple[int, Mapping[str, TasksTuple]] = (NO_ASSIGNMENT_EPOCH, {})
        """A target epoch and its targets, kept if tasks may be warmed up.

        No task is: Apache Kafka 4.4.0's AssignmentRefiner returns the target as it is.

        As in Apache Kafka, a member that leaves and comes back before the next target epoch gets its tasks again.
        """
        self._checked_topics: TopicsImage | None = None
        self._checked_epoch = 0
        self._own_settings: tuple[GroupCoordinatorConfig, ConfigsImage, StreamsSettings] | None = None
        """The settings, with the configs from which they were read."""

    @property
    def state_name(self) -> str:
        return self.log.state.value

    @property
    def is_empty(self) -> bool:
        return self.log.state is GroupState.EMPTY

    @property
    def member_count(self) -> int:
        return len(self.log.members)

    @property
    def sessions(self) -> Sessions:
        return self.timers.sessions

    def deadline_ms(self) -> int | None:
        return self.timers.deadline_ms()

    def continue_history(self, history: RebalanceHistory) -> None:
        """Set the history; it starts from the replayed log."""
        assert not self.history.rebalances, f"group {self.group_id} has recorded rebalances of its own"
        self.history = history

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one StreamsGroup* record; `value` is None for a tombstone."""
        self.log.replay(key, value)
        if isinstance(key, StreamsGroupMemberMetadataKey | StreamsGroupCurrentMemberAssignmentKey):
            self.timers.on_replay(key.member_id)
            if key.member_id not in self.log.members:
                self.keep_offsets(key.member_id, NO_OFFSETS)
            if not self.log.members:
                self.shutdown_member_id = None

    # -- settings and metadata --------------------------------------------------------------------------------------

    def own_settings(self, configs: ConfigsImage) -> StreamsSettings:
        config, cached = self.settings.config, self._own_settings
        if cached is None or cached[0] is not config or cached[1] is not configs:
            cached = self._own_settings = config, configs, streams_settings(self.settings, self.group_id)
        return cached[2]

    def has_metadata_expired(self, image: MetadataImage) -> bool:
        """Whether topics changed since the group was last compared with them, or that result was not written."""
        return self._checked_topics is not image.topics or self.log.group_epoch < self._checked_epoch

    def metadata_checked(self, image: MetadataImage, group_epoch: int) -> None:
        assert group_epoch >= self.log.group_epoch, "metadata checked for an epoch that is over"
        self._checked_topics, self._checked_epoch = image.topics, group_epoch

    def offsets_of(self, member_id: str) -> MemberTaskOffsets:
        return self.task_offsets.get(member_id, NO_OFFSETS)

    def keep_offsets(self, member_id: str, offsets: MemberTaskOffsets) -> None:
        """Replace the offsets that a member has reported, as far as there is room.

        Deviation: Apache Kafka keeps all that members report. Here it is MAX_OFFSETS of a group, because a client
        would fill the memory; tasks whose offsets are not kept count as those of a member that has no copy.
        """
        self._offset_count -= self.task_offsets.pop(member_id, NO_OFFSETS).count
        count = offsets.count
        if 0 < count <= MAX_OFFSETS - self._offset_count:
            self.task_offsets[member_id] = offsets
            self._offset_count += count
        assert 0 <= self._offset_count <= MAX_OFFSETS, f"{self._offset_count} offsets are kept"

    def restorer(self, member_id: str) -> Callable[[int], list[ParkedResponse]]:
        """Return a function that restores the soft state before a heartbeat, if its records cannot be appended."""
        configured, refined, offsets = self.configured, self.refined_targets, self.offsets_of(member_id)

        def restore(_code: int) -> list[ParkedResponse]:
            self.configured, self.refined_targets = configured, refined
            self.keep_offsets(member_id, offsets)
            return []

        return restore

    def relabel_refined(self, old_member_id: str, member_id: str) -> None:
        """Move the refined target of a static member to the member id with which it rejoins."""
        epoch, targets = self.refined_targets
        if old_member_id in targets:
            relabelled = {member_id if each == old_member_id else each: tasks for each, tasks in targets.items()}
            self.refined_targets = epoch, relabelled

    def request_shutdown(self, member_id: str) -> None:
        """Request the shutdown of the application in every later response. The first requester is named."""
        if self.shutdown_member_id is None:
            self.shutdown_member_id = member_id

    # -- offsets and deletion -----------------------------------------------------------------------------------------

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, version: int, is_transactional: bool
    ) -> CheckPartition | None:
        """Return None if all partitions may be committed, else a check to call for each partition.

        A commit at an older member epoch is accepted for the sources of tasks that were assigned at that epoch or
        before. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION.
        """
        if generation < 0 and not self.log.members:
            return None
        if is_transactional and generation == -1 and not member_id and instance_id is None:
            return None
        member = known_member(self.log, member_id)
        if not is_transactional and version < COMMIT_VERSION_OF_MEMBERS:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the streams group protocol",
            )
        if generation == member.member_epoch:
            return None
        if generation > member.member_epoch:
            raise _stale(
                f"Received member epoch {generation} is newer than current member epoch {member.member_epoch}."
            )
        if self.log.topology is None:
            raise _stale("Topology is not available for offset commit validation.")
        by_source = self.log.subtopology_ids_by_source
        return lambda topic, topic_id, partition: _check_partition(member, generation, by_source, topic, partition)

    def on_offset_commit(self, member_id: str, now_ms: int) -> None:
        """Do nothing: a commit does not renew a streams member's session."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH unless the member is at that epoch.

        (None, -1) comes from a client that is not a member, which may fetch.
        """
        if member_id is None and member_epoch < 0:
            return
        member = known_member(self.log, member_id)
        if member_epoch != member.member_epoch:
            raise _stale(
                f"The received member epoch {member_epoch} does not match the expected member epoch "
                f"{member.member_epoch}."
            )

    def check_offset_delete(self) -> None:
        """Always allow it: topics of a group with members are refused one by one (is_subscribed_to)."""

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.log.members) and topic in self.log.subtopology_ids_by_source

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def check_deletion(self) -> None:
        if not self.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def tombstone_records(self) -> Iterable[CoordinatorRecord]:
        """Return the tombstones that delete the group, without those of its offsets."""
        return group_tombstones(self.group_id, self.log.members)


def _check_partition(
    member: StreamsMember,
    received_epoch: int,
    by_source: Mapping[str, str],
    topic: str,
    partition: int,
) -> None:
    """Raise STALE_MEMBER_EPOCH unless the partition's task was assigned at the received epoch or before."""
    subtopology_id = by_source.get(topic)
    if subtopology_id is None:
        raise _stale(f"Topic {topic} is not in the topology.")
    epoch = member.assignment_epoch(subtopology_id, partition)
    if epoch is None:
        raise _stale(f"Task {subtopology_id}-{partition} is not assigned or pending revocation for member.")
    if received_epoch < epoch:
        raise _stale(
            f"Received member epoch {received_epoch} is older than assignment epoch {epoch} for task "
            f"{subtopology_id}-{partition}."
        )


def _stale(message: str) -> ApiError:
    return ApiError(ErrorCode.STALE_MEMBER_EPOCH, message)
