"""Dispatch of a shard's requests and records to its KIP-848 groups: validate, find or create the group, replay.

Error messages are Kafka's, word for word: clients show them to users, who search for them.
"""

from collections.abc import Callable, Mapping, Set
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.assignors.spec import Assignment
from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.classic.join import MEMBER_ID_REQUIRED_SINCE
from kafkapy.group.consumer.group import ConsumerGroup, supported_assignors
from kafkapy.group.consumer.heartbeat import decide_heartbeat
from kafkapy.group.consumer.history import EXPIRED, consumer_history
from kafkapy.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember
from kafkapy.group.consumer.regex_resolution import decide_resolution
from kafkapy.group.consumer.state import CONSUMER_GROUP_KEYS
from kafkapy.group.consumer.subscriptions import ResolvedRegex
from kafkapy.group.decision import Client, GroupDecision, GroupRequestContext, ParkedResponse
from kafkapy.group.metadata_hash import MetadataHashes
from kafkapy.group.migration.classic_join import check_classic_join, decide_classic_join
from kafkapy.group.migration.classic_members import decide_classic_sync
from kafkapy.group.migration.removal import decide_classic_leave, decide_expiry, decide_leave
from kafkapy.group.migration.upgrade import check_upgrade, upgrade
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import MAX_NAMES, GroupSettings
from kafkapy.group.timeline_order import members_in_order
from kafkapy.metadata.image import MetadataImage, TopicImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_describe_response import Assignment as DescribedAssignment
from kafkapy.protocol.messages.consumer_group_describe_response import DescribedGroup, Member, TopicPartitions
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from kafkapy.protocol.messages.leave_group_request import MemberIdentity
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from kafkapy.protocol.primitives import Message
from kafkapy.seams import Random
from kafkapy.types import Uuid, uuid_to_string

MEMBER_ID_REQUIRED_VERSION = 1
"""The first ConsumerGroupHeartbeat whose members generate their own ids (KIP-1082)."""


class ConsumerGroups:
    """The KIP-848 groups among a shard's groups."""

    def __init__(
        self,
        groups: dict[str, Any],
        settings: GroupSettings,
        *,
        metadata: Callable[[], MetadataImage],
        random: Random,
        wall_ms: Callable[[], int],
    ) -> None:
        """`groups` is the shard's own map of groups of any type, by id."""
        self._groups = groups
        self.made: dict[str, Any] = {}
        """Groups of any type, by id, that are decided but not yet replayed."""
        self._settings = settings
        self._metadata = metadata
        self._random = random
        self._wall_ms = wall_ms
        self.hashes = MetadataHashes()
        self._is_loaded = False
        self._history = consumer_history(wall_ms)

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client: Client,
        now_ms: int,
    ) -> GroupDecision:
        """Decide ConsumerGroupHeartbeat. Raises ApiError (KIP-848's codes) without having changed anything."""
        check_heartbeat(request, version, self._settings)
        member_id = request.member_id or self._new_member_id()
        context = GroupRequestContext(client, now_ms, self._wall_ms(), self._metadata())
        group = self._groups.get(request.group_id)
        self._history.begin_decision()
        if not isinstance(group, ConsumerGroup):
            return self._first_heartbeat(group, request, member_id, context)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._with_created_group(group.group_id, decide_leave(group, request, context))
        return decide_heartbeat(group, request, member_id, context)

    def resolve_regexes(self, group_id: str, matches: Mapping[str, ResolvedRegex]) -> GroupDecision:
        """Decide what was found of a decision's `due_regexes`; nothing if the group is gone."""
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return GroupDecision()
        self._history.begin_decision()
        return decide_resolution(group, matches, self._metadata())

    def prepare_hash(self, topic: TopicImage, image: MetadataImage) -> None:
        """Compute a topic's part of the metadata hash, so that decisions find it."""
        self.hashes.prepare(topic, image)

    def _first_heartbeat(
        self,
        other: Any,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        context: GroupRequestContext,
    ) -> GroupDecision:
        """Create the group with its first member, converting the classic group of that id if `other` is one."""
        if request.member_epoch != JOIN_EPOCH or (other is not None and not isinstance(other, ClassicGroup)):
            noun = "Consumer group" if request.member_epoch > JOIN_EPOCH else "Group"
            raise _not_found(request.group_id, other, noun)
        classic: ClassicGroup | None = other
        group = self.make(request.group_id)
        records: list[CoordinatorRecord] = []
        if classic is not None:
            check_upgrade(classic, self._settings)
            records += upgrade(classic, group, context.image, context.now_ms)
        decision = decide_heartbeat(group, request, member_id, context)
        decision.records[:0] = records
        decision.made = group
        if classic is not None:
            classic.rebalance.refuse_all_parked(ErrorCode.REBALANCE_IN_PROGRESS, decision)
        return self._with_created_group(group.group_id, decision, classic, context.now_ms)

    def _with_created_group(
        self, group_id: str, decision: GroupDecision, classic: ClassicGroup | None = None, now_ms: int = 0
    ) -> GroupDecision:
        """Return the decision; the group that it creates (`made`), if any, is kept until replay puts it into the map.

        If the append fails, the group is dropped and `classic`, the group it was converted from, continues.
        """
        if decision.made is None:
            return decision
        assert decision.records, "no record would put the group into the map"
        assert group_id not in self.made, "the group made before was not replayed"
        self.made[group_id] = decision.made

        def on_failed(code: int) -> list[ParkedResponse]:
            del self.made[group_id]
            if classic is not None:
                classic.rebalance.renew_sessions(now_ms)
            return decision.parked_responses

        decision.on_failed = on_failed
        return decision

    def _new_member_id(self) -> str:
        return uuid_to_string(self._random.uuid())

    # -- members of the classic protocol --------------------------------------------------------------------------

    def classic_join(
        self, group: ConsumerGroup, request: JoinGroupRequest, version: int, client: Client, now_ms: int
    ) -> GroupDecision:
        """Decide the JoinGroup of a classic member to a non-empty group. Raises ApiError with nothing changed."""
        member_id = request.member_id or self._new_member_id()
        check_classic_join(group, request, member_id)
        needs_id = not request.member_id and request.group_instance_id is None
        if needs_id and version >= MEMBER_ID_REQUIRED_SINCE:
            return GroupDecision(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        self._history.begin_decision()
        context = GroupRequestContext(client, now_ms, self._wall_ms(), self._metadata())
        return self._with_created_group(group.group_id, decide_classic_join(group, request, member_id, context))

    def classic_sync(self, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int) -> GroupDecision:
        return decide_classic_sync(group, request, self._metadata(), now_ms)

    def classic_leave(self, group: ConsumerGroup, identities: list[MemberIdentity], now_ms: int) -> GroupDecision:
        self._history.begin_decision()
        return self._with_created_group(
            group.group_id, decide_classic_leave(group, identities, self._metadata(), now_ms)
        )

    # -- the coordinator's own ------------------------------------------------------------------------------------

    def describe(self, group_id: str, *, start: int = 0, count: int | None = None) -> DescribedGroup:
        """Return the group as ConsumerGroupDescribe shows it, with GROUP_ID_NOT_FOUND if it is not a KIP-848 group.

        start, count: which of its members are described, all if `count` is None.
        """
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            error = _not_found(group_id, group)
            return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
        image = self._metadata()
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.log.group_epoch,
            assignment_epoch=group.log.assignment_epoch,
            assignor_name=group.preferred_assignor(),
            members=[
                _described(member, group.log.targets.get(member.member_id, {}), image)
                for member in members_in_order(group.log.members, start, count)
            ],
        )

    def forget_topic(self, topic: str) -> None:
        """Drop the cached hash of a deleted topic. Groups notice the deletion at their next heartbeat."""
        self.hashes.forget(topic)

    def on_time(self, group: ConsumerGroup, now_ms: int) -> GroupDecision:
        self._history.begin_decision(EXPIRED)
        return self._with_created_group(group.group_id, decide_expiry(group, self._metadata(), now_ms))

    def on_loaded(self) -> None:
        """Start after the log was replayed and before the first request."""
        self._is_loaded = True
        groups = [group for group in self._groups.values() if isinstance(group, ConsumerGroup)]
        for group in groups:
            group.log.is_loaded = True
        self._history.load(groups)

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply a ConsumerGroup* record. The first one creates the group, the group's tombstone removes it."""
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            assert not self._is_loaded or group is None, f"{group_id} would be replaced before it is deleted"
            group = self._groups[group_id] = self.made.pop(group_id, None) or self.make(group_id)
            assert isinstance(group, ConsumerGroup)
            group.log.is_loaded = self._is_loaded
        self._history.before_replay(group, key, value)
        group.replay(key, value)
        self._history.after_replay(group, key, value)
        if group.log.is_deleted:
            del self._groups[group_id]

    def make(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._settings, self._wall_ms, self.hashes)


def _not_found(group_id: str, group: Any, noun: str = "Group") -> ApiError:
    """Return the error for a missing group or one of another type. `noun` begins the message: Kafka has two."""
    if group is None:
        return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{noun} {group_id} not found.")
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def is_consumer_group_record(key: Message) -> bool:
    return type(key) in CONSUMER_GROUP_KEYS


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, settings: GroupSettings) -> None:
    """Raise INVALID_REQUEST or UNSUPPORTED_ASSIGNOR for a request that is invalid for any group."""
    epoch = request.member_epoch
    needs_id = version >= MEMBER_ID_REQUIRED_VERSION or epoch > 0 or epoch == LEAVE_EPOCH
    if needs_id and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.subscribed_topic_names is not None and len(request.subscribed_topic_names) > MAX_NAMES:
        raise _invalid(f"SubscribedTopicNames has {len(request.subscribed_topic_names)} names, more than {MAX_NAMES}.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is None:
        return
    names = supported_assignors(settings)
    if request.server_assignor not in names:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(names)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _described(member: ConsumerMember, target: Assignment, image: MetadataImage) -> Member:
    """Return a member with its current assignment, including partitions it must still revoke, and its target."""
    owned: dict[Uuid, set[int]] = {}
    for partitions_by_topic in (member.assigned, member.pending_revocation):
        for topic_id, partitions in partitions_by_topic.items():
            owned.setdefault(topic_id, set()).update(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_described_partitions(owned, image),
        target_assignment=_described_partitions(target, image),
        member_type=0 if member.uses_classic_protocol else 1,
    )


def _described_partitions(owned: Mapping[Uuid, Set[int]], image: MetadataImage) -> DescribedAssignment:
    """Return the partitions by topic; deleted topics are left out."""
    return DescribedAssignment(
        [
            TopicPartitions(topic_id, topic_name=topic.name, partitions=sorted(partitions))
            for topic_id, partitions in sorted(owned.items())
            if (topic := image.topics.by_id.get(topic_id)) is not None
        ]
    )
