"""Dispatch of a shard's requests and records to its classic groups: validate, find or create the group, replay."""

from collections.abc import Callable
from typing import Any, Final

from kafkapy.errors import ApiError
from kafkapy.group.classic.group import ClassicGroup, Join
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer_requests import ConsumerGroups
from kafkapy.group.decision import Client, GroupDecision, ParkedResponse
from kafkapy.group.group import Group
from kafkapy.group.migration.classic_members import decide_classic_heartbeat
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_groups_response import DescribedGroup
from kafkapy.protocol.messages.group_metadata_key import GroupMetadataKey
from kafkapy.protocol.messages.group_metadata_value import GroupMetadataValue
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkapy.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from kafkapy.protocol.primitives import Message
from kafkapy.seams import Random

REBALANCE_TIMEOUT_SINCE = 1
"""The first JoinGroup with a separate rebalance time-out (KIP-62)."""
STREAMS_TYPE = "streams"
BATCHED_LEAVE_SINCE = 3
"""The first LeaveGroup with a list of members (KIP-345)."""
MAX_UNJOINED: Final = 200
"""The most groups of a shard that nobody has joined yet, as they were made for a member id that MEMBER_ID_REQUIRED gave
out: 10,000 on a node with all 50 shards, 30 MB. A client joins as soon as it has its id.

Deviation: Apache Kafka keeps any number of them until it looks for expired offsets. Here the oldest one is deleted,
because a client could fill the memory; a member that joins it after that gets UNKNOWN_MEMBER_ID, and joins again."""


class ClassicGroups:
    """The classic groups among a shard's groups."""

    def __init__(
        self,
        groups: dict[str, Any],
        consumer: ConsumerGroups,
        settings: GroupSettings,
        has_offsets: Callable[[str], bool],
        *,
        random: Random,
        wall_ms: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """`groups` is the shard's own map of groups of any type by id; `has_offsets` tells whether a group has some.

        `consumer` decides the requests that classic members send to KIP-848 groups.
        """
        self._groups = groups
        self._made = consumer.made
        self._consumer = consumer
        self._settings = settings
        self._random = random
        self._wall_ms = wall_ms
        self._now_ms = now_ms
        self._has_offsets = has_offsets
        self._unjoined: dict[str, None] = {}
        """Groups that nobody had joined when they were made, oldest first."""
        self._is_loaded = False
        self._removals: dict[str, int] = {}
        """While the log is loading: by removed KIP-848 group, the offset of the tombstone that removed it."""
        self._converted: set[str] = set()
        """While the log is loading: groups whose latest record is the one that converted them from a KIP-848 group."""

    # -- requests -------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, version: int, client: Client, token: int, now_ms: int) -> GroupDecision:
        """Decide JoinGroup. Raises ApiError without having changed anything."""
        check_join(request, version, self._settings)
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            try:
                return self._consumer.classic_join(group, request, version, client, now_ms)
            except ApiError as error:
                return GroupDecision(JoinGroupResponse(error_code=error.code))  # without a member id, as in Kafka
        join = Join(request, version=version, client=client, token=token, now_ms=now_ms, new_uuid=self._random.uuid())
        if isinstance(group, ClassicGroup):
            return group.join(join)
        if group is not None and not isinstance(group, ConsumerGroup) and not _may_be_replaced(group):
            return GroupDecision(JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if request.member_id:
            # Apache Kafka drops an empty KIP-848 group here without writing a record; here the group stays.
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        replaced = list(group.tombstone_records()) if group is not None else []
        return self._join_first(join, replaced)

    def _join_first(self, join: Join, replaced: list[CoordinatorRecord]) -> GroupDecision:
        """Create the group; its record has no members yet. `replaced` are the tombstones of a group of another type."""
        group = self.make_simple(join.request.group_id)
        decision = group.join(join)
        assert not decision.records
        assert not decision.parked_responses
        decision.records = [*replaced, *self._tombstones_of_oldest_unjoined(), group.log.creation_record()]
        assert group.group_id not in self._made, "the group made before was not replayed"
        self._made[group.group_id] = group

        def on_failed(code: int) -> list[ParkedResponse]:
            del self._made[group.group_id]
            return [ParkedResponse(join.token, ApiError(code))]

        decision.on_failed = on_failed
        return decision

    def _tombstones_of_oldest_unjoined(self) -> list[CoordinatorRecord]:
        """Return the records that make room for another group."""
        while len(self._unjoined) >= MAX_UNJOINED:
            oldest = next(iter(self._unjoined))
            group = self._groups.get(oldest)
            if isinstance(group, ClassicGroup) and group.is_unjoined and not self._has_offsets(oldest):
                return list(group.tombstone_records())
            del self._unjoined[oldest]
        return []

    def sync(self, request: SyncGroupRequest, token: int, now_ms: int) -> GroupDecision:
        """Decide SyncGroup. Raises ApiError without having changed anything."""
        check_group_id(request.group_id)
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return group.sync(request, token, now_ms)
        if isinstance(group, ConsumerGroup):
            return self._consumer.classic_sync(group, request, now_ms)
        raise _unknown(request.group_id)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> GroupDecision:
        """Decide Heartbeat. Raises ApiError without having changed anything."""
        check_group_id(request.group_id)
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return group.heartbeat(request, now_ms)
        if isinstance(group, ConsumerGroup):
            return decide_classic_heartbeat(group, request, now_ms)
        raise _unknown(request.group_id)

    def leave(self, request: LeaveGroupRequest, version: int, now_ms: int) -> GroupDecision:
        """Decide LeaveGroup. At any version the response has one error code per member. Raises ApiError."""
        check_group_id(request.group_id)
        identities = request.members if version >= BATCHED_LEAVE_SINCE else [MemberIdentity(request.member_id)]
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return group.leave(identities, now_ms)
        if isinstance(group, ConsumerGroup):
            return self._consumer.classic_leave(group, identities, now_ms)
        code = ErrorCode.UNKNOWN_MEMBER_ID
        members = [
            MemberResponse(each.member_id, group_instance_id=each.group_instance_id, error_code=code)
            for each in identities
        ]
        return GroupDecision(LeaveGroupResponse(members=members))

    def describe(self, group_id: str) -> DescribedGroup:
        """Return the group as DescribeGroups shows it. Raises GROUP_ID_NOT_FOUND if it is not a classic group."""
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ClassicGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return group.describe()

    def on_time(self, group: ClassicGroup, now_ms: int) -> GroupDecision:
        return group.on_time(now_ms)

    # -- replay ---------------------------------------------------------------------------------------------------

    def make_simple(self, group_id: str) -> ClassicGroup:
        """Return a group without members, such as one that only has offsets."""
        return ClassicGroup(group_id, self._settings, self._wall_ms)

    def on_loaded(self, now_ms: int) -> None:
        """Start after the log was replayed and before the first request."""
        assert not self._made, "requests are decided once the log is loaded"
        self._is_loaded = True
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                group.on_loaded(now_ms, is_converted=group.group_id in self._converted)
                if group.is_unjoined:
                    self._unjoined[group.group_id] = None
        self._removals.clear()
        self._converted.clear()

    def on_removal(self, group_id: str, record_offset: int) -> None:
        """Follow the removal of a KIP-848 group. If it was converted, the classic group's record is the next one."""
        if not self._is_loaded:
            self._removals[group_id] = record_offset

    def replay(self, key: GroupMetadataKey, value: Message | None, record_offset: int) -> None:
        """Apply a GroupMetadata record: one that was just decided here, or any record while the log is loading."""
        if value is None:
            self._converted.discard(key.group)
            self._delete(key.group)
            return
        assert isinstance(value, GroupMetadataValue)
        # A group that a decision has made is there from its first record on: if the append fails, there is none.
        made = self._made.pop(key.group, None)
        if made is not None:
            assert isinstance(made, ClassicGroup)
            assert key.group not in self._groups, f"{key.group} would be replaced before it is deleted"
            self._groups[key.group] = made
            self._unjoined[key.group] = None
            return
        group = self._groups.get(key.group)
        if self._is_loaded and isinstance(group, ClassicGroup):
            group.log.replay_metadata(value)
            return
        group = self._groups[key.group] = self.make_simple(key.group)
        group.log.load_metadata(value)
        if self._is_loaded:
            group.on_loaded(self._now_ms())
        elif self._removals.pop(key.group, None) == record_offset - 1:
            self._converted.add(key.group)
        else:
            self._converted.discard(key.group)

    def _delete(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            group.die()
            del self._groups[group_id]
            self._unjoined.pop(group_id, None)


def _may_be_replaced(group: Group) -> bool:
    """Whether a group of another kind becomes a classic one by a first JoinGroup: an empty streams group."""
    return group.group_type == STREAMS_TYPE and group.is_empty


def _unknown(group_id: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")


def check_join(request: JoinGroupRequest, version: int, settings: GroupSettings) -> None:
    """Raise ApiError for a request that is invalid for any group; set the rebalance time-out of a version 0 request."""
    check_group_id(request.group_id)
    config = settings.config
    shortest_ms, longest_ms = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not shortest_ms <= request.session_timeout_ms <= longest_ms:
        message = f"session.timeout.ms must be {shortest_ms} to {longest_ms}, not {request.session_timeout_ms}"
        raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT, message)
    if version < REBALANCE_TIMEOUT_SINCE:
        request.rebalance_timeout_ms = request.session_timeout_ms


def check_group_id(group_id: str) -> None:
    """Raise INVALID_GROUP_ID for the empty group id, which is only valid for offsets, from old clients."""
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
