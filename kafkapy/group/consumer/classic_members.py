"""Requests of classic members to a KIP-848 group: SyncGroup, Heartbeat, and the checks of JoinGroup.

The generation of a classic member is its member epoch. The answer to a heartbeat requires it to rejoin if there is a
newer target, if it has partitions to revoke, or if partitions that it waits for are free. Error messages are Kafka's,
word for word.
"""

from typing import Final

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.group.assignors.spec import EMPTY_ASSIGNMENT
from kafkapy.group.consumer.checks import check_fenced, check_size, unknown_member
from kafkapy.group.consumer.member import ConsumerMember, MemberState
from kafkapy.group.consumer.state import ConsumerGroupLog
from kafkapy.group.consumer.timers import ConsumerTimers
from kafkapy.group.decision import GroupDecision
from kafkapy.group.embedded import read_version, write_assignment
from kafkapy.group.migration.downgrade import DISABLED, migration_policy
from kafkapy.group.settings import GroupSettings
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.heartbeat_response import HeartbeatResponse
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from kafkapy.protocol.messages.sync_group_response import SyncGroupResponse

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers. Their protocol names are those of assignors."""


class ClassicMembers:
    """Decides requests of classic members, except JoinGroup itself (classic_join.py)."""

    def __init__(self, log: ConsumerGroupLog, timers: ConsumerTimers, settings: GroupSettings) -> None:
        self._log = log
        self._timers = timers
        self._settings = settings

    def check_join(self, request: JoinGroupRequest, member_id: str) -> None:
        """Raise INCONSISTENT_GROUP_PROTOCOL or GROUP_MAX_SIZE_REACHED if the classic member may not join."""
        if migration_policy(self._settings) == DISABLED:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {self._log.group_id} with the classic protocol because the group "
                "migration is disabled.",
            )
        check_size(self._log, self._settings, member_id)
        names = {protocol.name for protocol in request.protocols}
        if request.protocol_type != CONSUMER_PROTOCOL or not self._has_common_protocol(names):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")

    def _has_common_protocol(self, names: set[str]) -> bool:
        """Whether all classic members support one of these protocols."""
        for member in self._log.members.values():
            if member.uses_classic_protocol:
                names = names & {name for name, _ in member.classic_protocols}
        return bool(names)

    def sync(self, request: SyncGroupRequest, image: MetadataImage, now_ms: int) -> GroupDecision:
        """Return the member's current assignment. Raises ApiError."""
        member = self._classic_member(request.member_id, request.group_instance_id)
        self._check_generation(member, request.generation_id)
        _check_protocol(member, request)
        # A member that must still revoke has already joined for this target. It rejoins after it has revoked.
        is_behind = member.member_epoch < self._log.assignment_epoch
        if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.expect_join(member, now_ms)
            raise ApiError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A new rebalance is triggered in group {self._log.group_id} and member {member.member_id} should "
                "rejoin to catch up.",
            )
        self._timers.note_sync(member, now_ms)
        assignment = _encoded_assignment(member, image)
        return GroupDecision(
            SyncGroupResponse(
                protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
            )
        )

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> GroupDecision:
        """Renew the member's session; answer REBALANCE_IN_PROGRESS if it must rejoin. Raises ApiError."""
        member = self._classic_member(request.member_id, request.group_instance_id)
        self._check_generation(member, request.generation_id)
        self._timers.touch_session(member.member_id, now_ms, member.classic_session_timeout_ms)
        if not self._has_to_join(member):
            return GroupDecision(HeartbeatResponse())
        self._timers.expect_join(member, now_ms)
        return GroupDecision(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def _has_to_join(self, member: ConsumerMember) -> bool:
        if member.member_epoch < self._log.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        return member.state is MemberState.UNRELEASED_PARTITIONS and not self._waits_for_others(member)

    def _waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether another member still owns a partition of this member's target."""
        return any(
            partition not in member.assigned.get(topic_id, {}) and self._log.is_owned(topic_id, partition)
            for topic_id, partitions in self._log.targets.get(member.member_id, EMPTY_ASSIGNMENT).items()
            for partition in partitions
        )

    def _classic_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the classic member that sent the request. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is None:
            member = self._log.members.get(member_id)
            if member is None:
                raise unknown_member(self._log.group_id, member_id)
        else:
            member = self._log.static_member(instance_id)
            if member is None:
                message = f"Member with instance id {instance_id} is not a member of group {self._log.group_id}."
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, message)
            check_fenced(member, member_id, instance_id)
        if not member.uses_classic_protocol:
            message = f"Member {member.member_id} does not use the classic protocol."
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def _check_generation(self, member: ConsumerMember, generation: int) -> None:
        if generation != member.member_epoch:
            raise ApiError(
                ErrorCode.ILLEGAL_GENERATION,
                f"The request generation id {generation} is not equal to the member epoch {member.member_epoch} of "
                f"member {member.member_id}.",
            )


def _check_protocol(member: ConsumerMember, request: SyncGroupRequest) -> None:
    protocol_name = member.classic_protocols[0][0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol type {request.protocol_type} from member {member.member_id} request is not equal to the "
            f"group protocol type {CONSUMER_PROTOCOL}.",
        )
    if request.protocol_name not in (None, protocol_name):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol name {request.protocol_name} from member {member.member_id} request is not equal to the "
            f"protocol name {protocol_name} returned in the join response.",
        )


def _encoded_assignment(member: ConsumerMember, image: MetadataImage) -> bytes:
    assigned = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
    try:
        return write_assignment(assigned, image, read_version(member.classic_protocols[0][1]))
    except ProtocolError as error:
        message = "Malformed embedded consumer protocol in version deserialization."
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from error
