"""A KIP-848 consumer group: what requests and time make of it.

Decide, append, replay: `heartbeat`, `on_time` and the others return records and leave what the log describes
(consumer_state.py) as it is. What no record describes lives here and changes at once: session and rebalance deadlines,
and which metadata the group was last compared with. It is lost with the leadership, as in Kafka: a member that the new
coordinator finds in the log without a deadline gets a whole session from then on.

A partition has one owner at any time: see reconcile.py. Source: KIP-848, and Apache Kafka 4.3.1 where it is silent.
"""

from typing import Final

from kafkapy.errors import ApiError
from kafkapy.group.assignors import ASSIGNORS
from kafkapy.group.consumer_heartbeat import (
    REGEX_REFRESH_MIN_MS,
    HeartbeatDecision,
    Surroundings,
    check_static_member,
    unknown_member,
)
from kafkapy.group.consumer_members import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember, MemberState
from kafkapy.group.consumer_records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_tombstones,
    regex_tombstone,
)
from kafkapy.group.consumer_state import ConsumerGroupLog, GroupState
from kafkapy.group.decision import GroupDecision
from kafkapy.group.group import CheckPartition
from kafkapy.group.history import RebalanceHistory
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.group.subscriptions import MetadataHashes, Subscriptions
from kafkapy.metadata.image import MetadataImage, TopicsImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kafkapy.types import Uuid

GROUP_TYPE: Final = "consumer"
PROTOCOL_TYPE: Final = "consumer"
COMMIT_VERSION_OF_MEMBERS: Final = 9
"""The first OffsetCommit that knows STALE_MEMBER_EPOCH; older ones are refused to members of this protocol."""

FENCE_RETRY_MS: Final = 500
"""When an expired member is tried to be removed again, should its tombstones not have been written."""


class ConsumerGroup(ConsumerGroupLog):
    def __init__(self, group_id: str, settings: GroupSettings, hashes: MetadataHashes | None = None) -> None:
        """`hashes` is what the groups of a shard share, so that a topic is hashed once for all of them."""
        super().__init__(group_id)
        self.settings = settings
        self.hashes = hashes or MetadataHashes()
        self.history = RebalanceHistory()
        self._sessions: dict[str, int] = {}
        self._rebalances: dict[str, tuple[int, int]] = {}
        """By member id: the epoch that a member has to leave, and until when."""
        self._earliest_deadline_ms: int | None = None
        """No deadline is earlier; 0 makes on_time look for members without one, None says that there is none."""
        self._checked_topics: TopicsImage | None = None
        self._checked_epoch = 0
        self._matched_topics: frozenset[str] | None = None

    @property
    def group_type(self) -> str:
        return GROUP_TYPE

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_dead(self) -> bool:
        return self.state is GroupState.DEAD

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions.topics()

    # Requests

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, member_id: str, around: Surroundings) -> GroupDecision:
        """Decide a heartbeat; `member_id` is the request's own, or one made for it (version 0).

        The request is valid in itself (consumer_requests.py). Raises ApiError with the codes of KIP-848.
        """
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request, around.image)
        return HeartbeatDecision(self, request, member_id, around).decide()

    def _leave(self, request: ConsumerGroupHeartbeatRequest, image: MetadataImage) -> GroupDecision:
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = self.members.get(request.member_id)
            if member is None:
                raise unknown_member(self.group_id, request.member_id)
        else:
            existing = self.static_member(request.instance_id)
            member = check_static_member(existing, request.member_id, request.instance_id)
            if request.member_epoch == LEAVE_STATIC_EPOCH:
                return GroupDecision(response, [current_record(self.group_id, member.departed())])
        return GroupDecision(response, self._fence([member], image))

    def _fence(self, members: list[ConsumerMember], image: MetadataImage) -> list[CoordinatorRecord]:
        """Return what removes members: their tombstones, those of expressions nobody else has, and the next epoch."""
        records: list[CoordinatorRecord] = []
        left = self.subscriptions.copy()
        for member in members:
            records += member_tombstones(self.group_id, member.member_id)
            left.remove(member.subscribed_topic_names, member.subscribed_topic_regex)
        records += [regex_tombstone(self.group_id, regex) for regex in left.forget_unused()]
        metadata_hash = self.hashes.of(left.topics(), image)
        records.append(epoch_record(self.group_id, self.group_epoch + 1, metadata_hash))
        return records

    # Time

    def deadline_ms(self) -> int | None:
        """Return when on_time wants to be called (monotonic), None when nobody is in the group; may be early."""
        return self._earliest_deadline_ms

    def on_time(self, now_ms: int, image: MetadataImage) -> GroupDecision:
        """Remove the members whose session, or whose time to give partitions up, is over."""
        if self._earliest_deadline_ms is None or now_ms < self._earliest_deadline_ms:
            return GroupDecision()
        self._forget_strangers()
        for member in self.members.values():
            self._give_deadlines(member, now_ms)
        expired = [member for member in self.members.values() if self._has_expired(member, now_ms)]
        records = self._fence(expired, image) if expired else []
        for member in expired:
            self._sessions[member.member_id] = now_ms + FENCE_RETRY_MS
            self._rebalances.pop(member.member_id, None)
        deadlines = [*self._sessions.values(), *(until_ms for _, until_ms in self._rebalances.values())]
        self._earliest_deadline_ms = min(deadlines, default=None)
        return GroupDecision(records=records)

    def touch_session(self, member_id: str, now_ms: int) -> None:
        """Let the member's session begin again: it has just been heard of."""
        until_ms = now_ms + self.settings.consumer_session_timeout_ms(self.group_id)
        self._wake_by(until_ms)
        self._sessions[member_id] = until_ms

    def start_rebalance_timer(self, member: ConsumerMember, now_ms: int) -> None:
        """Give the member its rebalance timeout to leave the epoch that it is at."""
        until_ms = now_ms + member.rebalance_timeout_ms
        self._wake_by(until_ms)
        self._rebalances[member.member_id] = member.member_epoch, until_ms

    def stop_rebalance_timer(self, member_id: str) -> None:
        self._rebalances.pop(member_id, None)

    def _wake_by(self, deadline_ms: int) -> None:
        earliest_ms = self._earliest_deadline_ms
        self._earliest_deadline_ms = deadline_ms if earliest_ms is None else min(earliest_ms, deadline_ms)

    def _forget_strangers(self) -> None:
        """Drop deadlines of members that never came to be, or have left, and of epochs that members have left."""
        self._sessions = {member_id: until for member_id, until in self._sessions.items() if member_id in self.members}
        self._rebalances = {
            member_id: (epoch, until_ms)
            for member_id, (epoch, until_ms) in self._rebalances.items()
            if (member := self.members.get(member_id)) is not None
            and member.state is MemberState.UNREVOKED_PARTITIONS
            and member.member_epoch == epoch
        }

    def _give_deadlines(self, member: ConsumerMember, now_ms: int) -> None:
        """Start the timers that a member from the log has not had here yet."""
        if member.member_id not in self._sessions:
            self.touch_session(member.member_id, now_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.member_id not in self._rebalances:
            self.start_rebalance_timer(member, now_ms)

    def _has_expired(self, member: ConsumerMember, now_ms: int) -> bool:
        rebalance = self._rebalances.get(member.member_id)
        return now_ms >= self._sessions[member.member_id] or (rebalance is not None and now_ms >= rebalance[1])

    def _put(self, before: ConsumerMember | None, after: ConsumerMember) -> None:
        super()._put(before, after)
        if after.member_id not in self._sessions:
            self._earliest_deadline_ms = 0

    def _remove(self, member: ConsumerMember) -> None:
        super()._remove(member)
        self._sessions.pop(member.member_id, None)
        self._rebalances.pop(member.member_id, None)

    # Metadata

    def has_metadata_expired(self, image: MetadataImage) -> bool:
        """Whether topics changed since the group was last compared with them (or that comparison was never written)."""
        return self._checked_topics is not image.topics or self.group_epoch < self._checked_epoch

    def metadata_checked(self, image: MetadataImage, group_epoch: int) -> None:
        self._checked_topics, self._checked_epoch = image.topics, group_epoch

    def subscriptions_with(self, before: ConsumerMember | None, after: ConsumerMember) -> Subscriptions:
        """Return what the group subscribes to once `after` stands where `before` does."""
        subscriptions = self.subscriptions.copy()
        if before is not None:
            subscriptions.remove(before.subscribed_topic_names, before.subscribed_topic_regex)
        subscriptions.add(after.subscribed_topic_names, after.subscribed_topic_regex)
        subscriptions.forget_unused()
        return subscriptions

    def due_regexes(self, subscriptions: Subscriptions, image: MetadataImage, wall_ms: int) -> set[str]:
        """Return the expressions to match: new ones at once, all where topics came or the last time is long ago."""
        unresolved = subscriptions.regexes.keys() - subscriptions.resolved.keys()
        if not subscriptions.resolved:
            self._matched_topics = frozenset(image.topics.by_name)
            return unresolved
        age_ms = wall_ms - min(resolved.timestamp_ms for resolved in subscriptions.resolved.values())
        is_old = age_ms > self.settings.config.group_consumer_regex_refresh_interval_ms
        if not is_old and (age_ms <= REGEX_REFRESH_MIN_MS or not self._has_new_topics(image)):
            return unresolved
        self._matched_topics = frozenset(image.topics.by_name)
        return set(subscriptions.regexes)

    def _has_new_topics(self, image: MetadataImage) -> bool:
        matched = self._matched_topics
        return matched is None or any(name not in matched for name in image.topics.by_name)

    # Assignment

    def may_assign(self, wall_ms: int) -> bool:
        """Whether the last target assignment is old enough for another (group.consumer.assignment.interval.ms)."""
        interval_ms = self.settings.consumer_assignment_interval_ms(self.group_id)
        last_ms = self.assignment_timestamp_ms
        return last_ms == 0 or interval_ms == 0 or wall_ms >= last_ms + interval_ms

    def preferred_assignor(self, before: ConsumerMember | None = None, after: ConsumerMember | None = None) -> str:
        """Return the assignor that most members ask for, `after` in place of `before`; else the first configured."""
        counts = self.assignor_counts()
        if before is not None and before.server_assignor is not None:
            counts[before.server_assignor] -= 1
        if after is not None and after.server_assignor is not None:
            counts[after.server_assignor] = counts.get(after.server_assignor, 0) + 1
        names = supported_assignors(self.settings)
        asked = [name for name in names if counts.get(name, 0) > 0]
        return max(asked, key=lambda name: counts[name], default=names[0])

    # Offsets and deletion

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        member_epoch: int,
        *,
        version: int = COMMIT_VERSION_OF_MEMBERS,
        is_transactional: bool = False,
    ) -> CheckPartition | None:
        """Return None where the whole commit is fine, else what each of its partitions has to pass.

        A commit at an older epoch is fine for a partition that the member has had since then. Raises UNKNOWN_MEMBER_ID,
        STALE_MEMBER_EPOCH (ILLEGAL_GENERATION for members of the classic protocol), UNSUPPORTED_VERSION.
        """
        if member_epoch < 0 and not self.members:
            return None
        if is_transactional and member_epoch == -1 and not member_id and instance_id is None:
            return None
        member = self._known_member(member_id)
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
        """Raise UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH unless the member is at that epoch; None, -1 is nobody."""
        if member_id is None and member_epoch < 0:
            return
        member = self._known_member(member_id)
        if member_epoch != member.member_epoch:
            kind = "generation id" if member.uses_classic_protocol else "member epoch"
            raise _stale(
                member,
                f"The received {kind} {member_epoch} does not match the expected member epoch {member.member_epoch}.",
            )

    def on_offset_commit(self, member_id: str, now_ms: int) -> None:
        """Do nothing: members of this protocol stay by their heartbeats alone."""

    def check_offset_delete(self) -> None:
        """Allow it at any time; the topics that members subscribe to are refused one by one (is_subscribed_to)."""

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """Return when an offset began to be unused (KIP-211): with its commit, whatever the group's state is."""
        return commit_timestamp_ms

    def check_deletion(self) -> None:
        if not self.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def tombstone_records(self) -> list[CoordinatorRecord]:
        """Return what deletes the group."""
        return group_tombstones(self.group_id, list(self.members), list(self.subscriptions.resolved))

    def _known_member(self, member_id: str | None) -> ConsumerMember:
        member = self.members.get(member_id) if member_id is not None else None
        if member is None:
            raise unknown_member(self.group_id, member_id)
        return member


def supported_assignors(settings: GroupSettings) -> list[str]:
    """Return the configured assignors by their names; class names of Kafka's own are understood."""
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
