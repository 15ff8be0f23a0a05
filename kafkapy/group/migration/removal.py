"""Removal of members from a KIP-848 group: they leave, an administrator removes them, or they miss a deadline.

If only members of the classic protocol stay, the group is converted to a classic group (downgrade.py). If not, the
group epoch is bumped, and the next heartbeat computes a new target. Source: KIP-848.
"""

from collections.abc import Sequence

from kafkapy.errors import ApiError
from kafkapy.group.assignors.spec import EMPTY_ASSIGNMENT
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer.member import LEAVE_STATIC_EPOCH, ConsumerMember
from kafkapy.group.consumer.records import (
    current_record,
    epoch_record,
    member_tombstones,
    regex_tombstone,
    target_epoch_record,
)
from kafkapy.group.decision import GroupDecision, GroupRequestContext
from kafkapy.group.migration.downgrade import can_downgrade, downgrade
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.shared_rules import NEVER_ASSIGNED_AT_MS, check_static_member
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kafkapy.protocol.messages.leave_group_request import MemberIdentity
from kafkapy.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse


def decide_leave(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, context: GroupRequestContext
) -> GroupDecision:
    """Decide a heartbeat with LEAVE_EPOCH or LEAVE_STATIC_EPOCH. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is None:
        member = group.known_member(request.member_id)
    else:
        existing = group.log.static_member(request.instance_id)
        member = check_static_member(existing, request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            return GroupDecision(response, [current_record(group.group_id, member.departed())])
    decision = _remove(group, [member], context.image, context.now_ms)
    decision.response = response
    return decision


def decide_classic_leave(
    group: ConsumerGroup, identities: Sequence[MemberIdentity], image: MetadataImage, now_ms: int
) -> GroupDecision:
    """Decide a LeaveGroup: an error code for each member. An administrator may name any member."""
    response = LeaveGroupResponse()
    leaving: dict[str, ConsumerMember] = {}
    for identity in identities:
        code = ErrorCode.NONE.value
        try:
            member = _leaving_member(group, identity)
            leaving[member.member_id] = member
        except ApiError as error:
            code = error.code
        response.members.append(
            MemberResponse(identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
        )
    decision = _remove(group, list(leaving.values()), image, now_ms)
    decision.response = response
    return decision


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.known_member(identity.member_id)
    existing = group.log.static_member(instance_id)
    member_id = identity.member_id or (existing.member_id if existing is not None else "")
    return check_static_member(existing, member_id, instance_id)


def decide_expiry(group: ConsumerGroup, image: MetadataImage, now_ms: int) -> GroupDecision:
    """Decide the removal of the members whose deadline has passed (consumer/timers.py)."""
    return _remove(group, group.timers.late_members(now_ms), image, now_ms)


def _remove(group: ConsumerGroup, members: list[ConsumerMember], image: MetadataImage, now_ms: int) -> GroupDecision:
    """Decide the removal of members. If only classic members are left, convert the group (KIP-848)."""
    if not members:
        return GroupDecision()
    leaving = {member.member_id for member in members}
    assert len(leaving) == len(members), "a member leaves once"
    assert leaving <= group.log.members.keys(), "tombstones of members that the group has not"
    staying = [member for member in group.log.members.values() if member.member_id not in leaving]
    if not can_downgrade(group.settings, staying):
        return GroupDecision(records=_removal_records(group, members, image))
    gone = ", ".join(leaving)
    return downgrade(
        group,
        [(member, group.log.targets.get(member.member_id, EMPTY_ASSIGNMENT)) for member in staying],
        removed_ids=list(group.log.members),
        rebalance_reason=f"only members of the classic protocol are left: {gone} has gone",
        image=image,
        now_ms=now_ms,
    )


def _removal_records(
    group: ConsumerGroup, members: list[ConsumerMember], image: MetadataImage
) -> list[CoordinatorRecord]:
    """Return the tombstones of the members and of expressions no longer subscribed to, and the next epoch.

    If no member is left, the target is that of the next epoch, too: there is nothing to assign.
    """
    records: list[CoordinatorRecord] = []
    left = group.log.subscriptions.copy()
    for member in members:
        records += member_tombstones(group.group_id, member.member_id)
        left.remove(member.subscribed_topic_names, member.subscribed_topic_regex)
    records += [regex_tombstone(group.group_id, regex) for regex in left.forget_unused()]
    metadata_hash = group.hashes.of(left.topics(), image)
    group_epoch = group.log.group_epoch + 1
    records.append(epoch_record(group.group_id, group_epoch, metadata_hash))
    if len(members) == len(group.log.members):
        assert not left.names, "somebody subscribes to topics, and no member is left"
        assert not left.regexes, "somebody subscribes by an expression, and no member is left"
        records.append(target_epoch_record(group.group_id, group_epoch, NEVER_ASSIGNED_AT_MS))
    return records
