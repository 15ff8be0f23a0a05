"""Requests of classic members to a KIP-848 group: SyncGroup and Heartbeat; classic_join.py has JoinGroup.

The generation of a classic member is its member epoch. The response to a heartbeat requires it to rejoin if there is a
newer target, if it has partitions to revoke, or if partitions that it waits for are free. Error messages are Kafka's,
word for word.
"""

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.group.assignors.spec import EMPTY_ASSIGNMENT
from kafkapy.group.classic.state import CONSUMER_PROTOCOL
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer.member import ConsumerMember, MemberState
from kafkapy.group.consumer.state import ConsumerGroupLog
from kafkapy.group.decision import GroupDecision
from kafkapy.group.embedded import read_version, write_assignment
from kafkapy.group.shared_rules import check_fenced, unknown_member
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.heartbeat_response import HeartbeatResponse
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from kafkapy.protocol.messages.sync_group_response import SyncGroupResponse


def decide_classic_sync(
    group: ConsumerGroup, request: SyncGroupRequest, image: MetadataImage, now_ms: int
) -> GroupDecision:
    """Return the member's current assignment. Raises ApiError."""
    member = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    _check_protocol(member, request)
    # A member that must still revoke has already joined for this target. It rejoins after it has revoked.
    is_behind = member.member_epoch < group.log.assignment_epoch
    if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
        group.timers.expect_join(member, now_ms)
        raise ApiError(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"A new rebalance is triggered in group {group.log.group_id} and member {member.member_id} should "
            "rejoin to catch up.",
        )
    group.timers.on_sync(member, now_ms)
    assignment = _encoded_assignment(member, image)
    return GroupDecision(
        SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        )
    )


def decide_classic_heartbeat(group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> GroupDecision:
    """Renew the member's session; answer REBALANCE_IN_PROGRESS if it must rejoin. Raises ApiError."""
    member = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    group.timers.touch_session(member.member_id, now_ms, member.classic_session_timeout_ms)
    if not _has_to_join(group.log, member):
        return GroupDecision(HeartbeatResponse())
    group.timers.expect_join(member, now_ms)
    return GroupDecision(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))


def _has_to_join(log: ConsumerGroupLog, member: ConsumerMember) -> bool:
    if member.member_epoch < log.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(log, member)


def _waits_for_others(log: ConsumerGroupLog, member: ConsumerMember) -> bool:
    """Whether another member still owns a partition of this member's target."""
    return any(
        partition not in member.assigned.get(topic_id, {}) and log.is_owned(topic_id, partition)
        for topic_id, partitions in log.targets.get(member.member_id, EMPTY_ASSIGNMENT).items()
        for partition in partitions
    )


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the classic member that sent the request. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is None:
        member = group.log.members.get(member_id)
        if member is None:
            raise unknown_member(group.log.group_id, member_id)
    else:
        member = group.log.static_member(instance_id)
        if member is None:
            message = f"Member with instance id {instance_id} is not a member of group {group.log.group_id}."
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        check_fenced(member, member_id, instance_id)
    if not member.uses_classic_protocol:
        message = f"Member {member.member_id} does not use the classic protocol."
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member


def _check_generation(member: ConsumerMember, generation: int) -> None:
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
