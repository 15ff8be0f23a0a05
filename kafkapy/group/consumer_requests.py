"""Where a shard's requests and records meet its KIP-848 groups: validate, find or make the group, replay, describe.

Kafka's messages, word for word: clients show them to people who search for them.
"""

from collections.abc import Callable, Mapping, Set
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.assignors.spec import Assignment
from kafkapy.group.consumer import ConsumerGroup, supported_assignors
from kafkapy.group.consumer_heartbeat import Surroundings
from kafkapy.group.consumer_history import EXPIRED, ConsumerHistory
from kafkapy.group.consumer_members import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember
from kafkapy.group.consumer_state import CONSUMER_GROUP_KEYS
from kafkapy.group.decision import Client, GroupDecision
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.group.subscriptions import MetadataHashes
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_describe_response import Assignment as DescribedAssignment
from kafkapy.protocol.messages.consumer_group_describe_response import DescribedGroup, Member, TopicPartitions
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.primitives import Message
from kafkapy.seams import Random
from kafkapy.types import Uuid, uuid_to_string

MEMBER_ID_REQUIRED_VERSION = 1
"""From here on members make their ids themselves (KIP-1082)."""


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
        """`groups` is the shard's own map: groups of all kinds by id."""
        self._groups = groups
        self._settings = settings
        self._metadata = metadata
        self._random = random
        self._wall_ms = wall_ms
        self._hashes = MetadataHashes()
        self._history = ConsumerHistory(wall_ms)

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client: Client,
        now_ms: int,
        may_describe: Callable[[str], bool] = lambda topic: True,
    ) -> GroupDecision:
        """Decide ConsumerGroupHeartbeat. Raises ApiError with the codes of KIP-848; nothing has changed then."""
        check_heartbeat(request, version, self._settings)
        noun = "Consumer group" if request.member_epoch >= JOIN_EPOCH else "Group"
        group, records = self._find_or_make(request.group_id, may_make=request.member_epoch == JOIN_EPOCH, noun=noun)
        member_id = request.member_id or uuid_to_string(self._random.uuid())
        around = Surroundings(client, now_ms, self._wall_ms(), self._metadata(), may_describe)
        self._history.begin_decision()
        decision = group.heartbeat(request, member_id, around)
        decision.records[:0] = records
        return decision

    def describe(self, group_id: str) -> DescribedGroup:
        """Return the group as ConsumerGroupDescribe shows it; one that is none of these with GROUP_ID_NOT_FOUND."""
        try:
            group, _ = self._find_or_make(group_id, may_make=False)
        except ApiError as error:
            return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
        image = self._metadata()
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.preferred_assignor(),
            members=[
                _described(member, group.targets.get(member.member_id, {}), image) for member in group.members.values()
            ],
        )

    def on_time(self, group: ConsumerGroup, now_ms: int) -> GroupDecision:
        self._history.begin_decision(EXPIRED)
        return group.on_time(now_ms, self._metadata())

    def on_loaded(self) -> None:
        """The log has been replayed and requests begin."""
        self._history.load(group for group in self._groups.values() if isinstance(group, ConsumerGroup))

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply a ConsumerGroup* record; the first one makes the group, its own tombstone removes it."""
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            group = self._groups[group_id] = self.make(group_id)
        self._history.before_replay(group, key, value)
        group.replay(key, value)
        self._history.after_replay(group, key, value)
        if group.is_deleted:
            del self._groups[group_id]

    def make(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._settings, self._hashes)

    def _find_or_make(
        self, group_id: str, *, may_make: bool, noun: str = "Group"
    ) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
        """Return the group, and what deletes an empty classic one of the same id. A new group is not in the map yet.

        `noun` begins the message that it was not found: Kafka has two.
        """
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, []
        if group is None and not may_make:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{noun} {group_id} not found.")
        if group is None:
            return self.make(group_id), []
        if may_make and group.is_empty:
            return self.make(group_id), list(group.tombstone_records())
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def is_consumer_group_record(key: Message) -> bool:
    return type(key) in CONSUMER_GROUP_KEYS


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, settings: GroupSettings) -> None:
    """Raise INVALID_REQUEST or UNSUPPORTED_ASSIGNOR for a request that no group could take."""
    epoch = request.member_epoch
    if version >= MEMBER_ID_REQUIRED_VERSION or epoch > 0 or epoch == LEAVE_EPOCH:
        _refuse_blank(request.member_id, "MemberId can't be empty.")
    _refuse_blank(request.group_id, "GroupId can't be empty.")
    _refuse_blank(request.instance_id, "InstanceId can't be empty.")
    _refuse_blank(request.rack_id, "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    names = supported_assignors(settings)
    if request.server_assignor is not None and request.server_assignor not in names:
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


def _refuse_blank(value: str | None, message: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(message)


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _described(member: ConsumerMember, target: Assignment, image: MetadataImage) -> Member:
    """Return a member with what it has, what it has still to give up counted in, and what it is to have."""
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
    """Return partitions by topic; topics that no longer exist are left out."""
    return DescribedAssignment(
        [
            TopicPartitions(topic_id, topic.name, sorted(partitions))
            for topic_id, partitions in sorted(owned.items())
            if (topic := image.topics.by_id.get(topic_id)) is not None
        ]
    )
