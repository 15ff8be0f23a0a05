"""A KIP-848 consumer group: its state, and questions about it. Requests are decided by the modules listed below.

Decide, append, replay: decisions take the group, return records and do not change the state in the log (state.py). Soft
state is kept here and changes at once: deadlines, and the metadata with which the group was last compared. It is lost
with the coordinator, as in Kafka. Driven by `runtime/coordinators/group_host.py`, through the shard.

A partition has at most one owner at any time (reconcile.py). Source: KIP-848; Apache Kafka 4.4.0 for details that the
KIP leaves open.

state.py               the replayed state of the group; member.py, records.py
timers.py              deadlines of the members
heartbeat.py           the decision of a heartbeat, with the steps of update.py
regex_resolution.py    the decision that writes what regular expressions have matched
../migration/          removal of members, requests of classic members, conversion from and to a classic group
../consumer_requests.py dispatch of a shard's requests and records to its KIP-848 groups
"""

from collections.abc import Callable, Iterable
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.group.assignors import ASSIGNORS
from kafkapy.group.consumer.member import ConsumerMember
from kafkapy.group.consumer.records import group_tombstones
from kafkapy.group.consumer.regex_schedule import RegexSchedule
from kafkapy.group.consumer.state import ConsumerGroupLog, GroupState
from kafkapy.group.consumer.subscriptions import Subscriptions
from kafkapy.group.consumer.timers import ConsumerTimers
from kafkapy.group.group import CheckPartition
from kafkapy.group.history import RebalanceHistory
from kafkapy.group.metadata_hash import MetadataHashes
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.group.shared_rules import may_assign, unknown_member
from kafkapy.metadata.image import ConfigsImage, MetadataImage, TopicsImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from kafkapy.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kafkapy.protocol.primitives import Message
from kafkapy.types import Uuid

GROUP_TYPE: Final = "consumer"
PROTOCOL_TYPE: Final = "consumer"
COMMIT_VERSION_OF_MEMBERS: Final = 9
"""The first OffsetCommit with STALE_MEMBER_EPOCH; older ones are refused for members of the consumer protocol."""


class ConsumerGroup:
    """One group. `log` is the replayed state, `timers` has the members' deadlines, `history` the last rebalances."""

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        wall_ms: Callable[[], int],
        hashes: MetadataHashes | None = None,
    ) -> None:
        """`hashes` is shared by the groups of a shard, so that a topic is hashed once for all of them."""
        self.group_id = group_id
        self.settings = settings
        self.wall_ms = wall_ms
        self.hashes = hashes or MetadataHashes()
        self.history = RebalanceHistory()
        self.log = ConsumerGroupLog(group_id)
        self.timers = ConsumerTimers(self.log, settings)
        self._checked_topics: TopicsImage | None = None
        self._checked_epoch = 0
        self._times: tuple[object, object, tuple[int, int]] = (None, None, (0, 0))
        """The group's times, and the broker's and the groups' configs that they were read from."""
        self._regex_schedule = RegexSchedule()

    @property
    def group_type(self) -> str:
        return GROUP_TYPE

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        return self.log.state.value

    @property
    def is_empty(self) -> bool:
        return not self.log.members and not self.log.is_deleted

    @property
    def is_dead(self) -> bool:
        return self.log.state is GroupState.DEAD

    @property
    def member_count(self) -> int:
        return len(self.log.members)

    @property
    def may_expire(self) -> bool:
        return True

    def is_subscribed_to(self, topic: str) -> bool:
        return self.log.subscriptions.has(topic)

    def known_member(self, member_id: str | None) -> ConsumerMember:
        """Return the member. Raises UNKNOWN_MEMBER_ID."""
        member = self.log.members.get(member_id) if member_id is not None else None
        if member is None:
            raise unknown_member(self.group_id, member_id)
        return member

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one ConsumerGroup* record; `value` is None for a tombstone."""
        self.log.replay(key, value)
        if isinstance(key, ConsumerGroupMemberMetadataKey | ConsumerGroupCurrentMemberAssignmentKey):
            self.timers.on_replay(key.member_id)

    def continue_history(self, history: RebalanceHistory) -> None:
        """Take over a history: that of the classic group that is converted, or one that starts from the log."""
        assert not self.history.rebalances, f"group {self.group_id} has recorded rebalances of its own"
        self.history = history

    def deadline_ms(self) -> int | None:
        return self.timers.deadline_ms()

    # -- metadata -----------------------------------------------------------------------------------------------------

    def has_metadata_expired(self, image: MetadataImage) -> bool:
        """Whether topics changed since the group was last compared with them, or that result was not written."""
        return self._checked_topics is not image.topics or self.log.group_epoch < self._checked_epoch

    def metadata_checked(self, image: MetadataImage, group_epoch: int) -> None:
        assert group_epoch >= self.log.group_epoch, "metadata checked for an epoch that is over"
        self._checked_topics, self._checked_epoch = image.topics, group_epoch

    def times_ms(self, configs: ConfigsImage) -> tuple[int, int]:
        """Return the session time-out and the heartbeat interval of members."""
        config = self.settings.config
        if self._times[0] is not config or self._times[1] is not configs:
            self._times = config, configs, self.settings.consumer_times_ms(self.group_id)
        return self._times[2]

    def subscriptions_with(self, before: Iterable[ConsumerMember], after: ConsumerMember) -> Subscriptions:
        """Return the group's subscriptions with `before` replaced by `after`."""
        subscriptions = self.log.subscriptions.copy()
        for member in before:
            subscriptions.remove(member.subscribed_topic_names, member.subscribed_topic_regex)
        subscriptions.add(after.subscribed_topic_names, after.subscribed_topic_regex)
        subscriptions.forget_unused()
        return subscriptions

    def due_regexes(self, subscriptions: Subscriptions, image: MetadataImage, wall_ms: int) -> set[str]:
        """Return the regular expressions that are to be matched after this heartbeat (regex_schedule.py)."""
        interval_ms = self.settings.config.group_consumer_regex_refresh_interval_ms
        return self._regex_schedule.due(subscriptions, image, wall_ms, refresh_interval_ms=interval_ms)

    # -- assignment ---------------------------------------------------------------------------------------------------

    def may_assign(self, wall_ms: int) -> bool:
        """Whether the target assignment may be recomputed yet (group.consumer.assignment.interval.ms)."""
        interval_ms = self.settings.consumer_assignment_interval_ms(self.group_id)
        return may_assign(self.log.assignment_timestamp_ms, wall_ms, interval_ms)

    def preferred_assignor(self, before: Iterable[ConsumerMember] = (), after: ConsumerMember | None = None) -> str:
        """Return the assignor named by most members, with `after` replacing `before`; else the first configured."""
        counts = self.log.assignor_counts()
        for member in before:
            if member.server_assignor is not None:
                counts[member.server_assignor] -= 1
                assert counts[member.server_assignor] >= 0, f"{member.member_id} was not counted"
        if after is not None and after.server_assignor is not None:
            counts[after.server_assignor] = counts.get(after.server_assignor, 0) + 1
        names = supported_assignors(self.settings)
        requested = [name for name in names if counts.get(name, 0) > 0]
        return max(requested, key=lambda name: counts[name], default=names[0])

    # -- offsets and deletion -----------------------------------------------------------------------------------------

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        member_epoch: int,
        *,
        version: int = COMMIT_VERSION_OF_MEMBERS,
        is_transactional: bool = False,
    ) -> CheckPartition | None:
        """Return None if all partitions may be committed, else a check to call for each partition.

        A commit at an older member epoch is accepted for partitions that were assigned at that epoch or before. Raises
        UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (ILLEGAL_GENERATION for classic members), UNSUPPORTED_VERSION.
        """
        if member_epoch < 0 and not self.log.members:  # an operator resets offsets, or a consumer assigns itself
            return None
        # a producer without the group's metadata, as before KIP-447
        if is_transactional and member_epoch == -1 and not member_id and instance_id is None:
            return None
        member = self.known_member(member_id)
        if not is_transactional and not member.uses_classic_protocol and version < COMMIT_VERSION_OF_MEMBERS:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if member_epoch == member.member_epoch:
            return None
        if member_epoch > member.member_epoch:
            kind = "generation id" if member.uses_classic_protocol else "member epoch"
            raise _stale(
                member, f"Received {kind} {member_epoch} is newer than current member epoch {member.member_epoch}."
            )
        return lambda topic, topic_id, partition: _check_partition(member, member_epoch, topic, topic_id, partition)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH unless the member is at that epoch.

        (None, -1) comes from a client that is not a member, which may fetch. Classic members get ILLEGAL_GENERATION
        for STALE_MEMBER_EPOCH.
        """
        if member_id is None and member_epoch < 0:
            return
        member = self.known_member(member_id)
        if member_epoch != member.member_epoch:
            kind = "generation id" if member.uses_classic_protocol else "member epoch"
            raise _stale(
                member,
                f"The received {kind} {member_epoch} does not match the expected member epoch {member.member_epoch}.",
            )

    def on_offset_commit(self, member_id: str, now_ms: int) -> None:
        """Do nothing: a commit does not renew a session here."""

    def check_offset_delete(self) -> None:
        """Always allow it: topics that members subscribe to are refused one by one (is_subscribed_to)."""

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """Return the time of the commit: offsets expire by its age in any state of the group (KIP-211)."""
        return commit_timestamp_ms

    def check_deletion(self) -> None:
        if not self.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def tombstone_records(self) -> list[CoordinatorRecord]:
        """Return the tombstones that delete the group, without those of its offsets."""
        return group_tombstones(self.group_id, list(self.log.members), list(self.log.subscriptions.resolved))


def supported_assignors(settings: GroupSettings) -> list[str]:
    """Return the names of the configured assignors; Kafka's class names are accepted, too."""
    return [_assignor_name(name) for name in settings.config.group_consumer_assignors]


def _assignor_name(configured: str) -> str:
    name = configured.rpartition(".")[2].removesuffix("Assignor").lower()
    return name if name in ASSIGNORS else configured


def _check_partition(member: ConsumerMember, member_epoch: int, topic: str, topic_id: Uuid, partition: int) -> None:
    assigned_epoch = member.assignment_epoch(topic_id, partition)
    if assigned_epoch is None:
        raise _stale(member, f"Partition {topic}-{partition} is not assigned or pending revocation for member.")
    if member_epoch < assigned_epoch:
        kind = "generation id" if member.uses_classic_protocol else "member epoch"
        raise _stale(
            member,
            f"Received {kind} {member_epoch} is older than assignment epoch {assigned_epoch} for partition "
            f"{topic}-{partition}.",
        )


def _stale(member: ConsumerMember, message: str) -> ApiError:
    is_classic = member.uses_classic_protocol
    return ApiError(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH, message)
