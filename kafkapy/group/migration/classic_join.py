"""The JoinGroup of a classic member to a non-empty KIP-848 group: it joins or rejoins (KIP-848).

The request is not parked: the member is reconciled with its target at once, and responses to its heartbeats say when to
rejoin. The subscription (from version 1) reports the partitions that the member owns, and so which it has revoked.
Members with an older version own nothing when they join, because they use eager assignors.
"""

from dataclasses import replace

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.group.classic.state import CONSUMER_PROTOCOL
from kafkapy.group.consumer.checks import check_size
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer.member import ConsumerMember
from kafkapy.group.consumer.state import ConsumerGroupLog
from kafkapy.group.consumer.update import MemberUpdate, replace_static
from kafkapy.group.decision import Client, GroupDecision, GroupRequestContext
from kafkapy.group.embedded import by_topic_id, read_subscription
from kafkapy.group.migration.downgrade import can_downgrade, downgrade
from kafkapy.group.migration.policy import is_disabled
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.shared_rules import check_static_member
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_member_metadata_value import ClassicMemberMetadata, ClassicProtocol
from kafkapy.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse


def check_classic_join(group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> None:
    """Raise INCONSISTENT_GROUP_PROTOCOL or GROUP_MAX_SIZE_REACHED if the classic member may not join.

    Error messages are Kafka's, word for word.
    """
    if is_disabled(group.settings):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration is "
            "disabled.",
        )
    check_size(group.log, group.settings, member_id)
    names = {protocol.name for protocol in request.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL or not _has_common_protocol(group.log, names):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")


def _has_common_protocol(log: ConsumerGroupLog, names: set[str]) -> bool:
    """Whether all classic members support one of these protocols."""
    for member in log.members.values():
        if member.uses_classic_protocol:
            names = names & {name for name, _ in member.classic_protocols}
    return bool(names)


def decide_classic_join(
    group: ConsumerGroup, request: JoinGroupRequest, member_id: str, context: GroupRequestContext
) -> GroupDecision:
    """Decide a JoinGroup that has passed check_classic_join. Raises ApiError.

    `member_id` is the request's own, or one generated for it.
    """
    subscription = _subscription(request)
    replaced = group.log.static_member(request.group_instance_id)
    member, records = _subscribe(group.log, request, member_id, replaced)
    update = MemberUpdate(
        group,
        context,
        member=member,
        updated=_with_request(member, request, subscription, context.client),
        reported=by_topic_id(subscription.owned_partitions, context.image),
        records=records,
    )
    update.update_subscription()
    # before the assignment: a group that becomes a classic one is assigned by its leader
    decision = _maybe_downgrade(group, update, replaced, context)
    if decision is None:
        update.update_assignment()
        assert update.updated.member_id == member_id, f"the session of another member than {member_id} would be renewed"
        decision = GroupDecision(records=update.records)
        group.timers.on_join(
            update.updated.member_id,
            context.now_ms,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
        )
    decision.response = JoinGroupResponse(
        generation_id=update.updated.member_epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=request.protocols[0].name,
        member_id=update.updated.member_id,
    )
    return decision


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """Return the member's subscription, from its first protocol: it is the same in all of them."""
    try:
        return read_subscription(request.protocols[0].metadata)
    except ProtocolError as error:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "Malformed embedded consumer protocol in subscription deserialization.",
        ) from error


def _subscribe(
    log: ConsumerGroupLog, request: JoinGroupRequest, member_id: str, replaced: ConsumerMember | None
) -> tuple[ConsumerMember, list[CoordinatorRecord]]:
    """Return the group's member, a new one, or the replacement of a static member with the records of that."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return log.members.get(member_id, ConsumerMember(member_id)), []
    if request.member_id:
        return check_static_member(replaced, member_id, instance_id), []
    if replaced is None:
        return ConsumerMember(member_id), []
    return replace_static(log, replaced, member_id)


def _with_request(
    member: ConsumerMember, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, client: Client
) -> ConsumerMember:
    """Return the member updated with the fields that the request sets."""
    protocols = [ClassicProtocol(protocol.name, metadata=protocol.metadata) for protocol in request.protocols]
    updated = replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=client.client_id,
        client_host=client.client_host,
        classic_metadata=ClassicMemberMetadata(request.session_timeout_ms, supported_protocols=protocols),
    )
    return member if updated == member else updated


def _maybe_downgrade(
    group: ConsumerGroup, update: MemberUpdate, replaced: ConsumerMember | None, context: GroupRequestContext
) -> GroupDecision | None:
    """Return the conversion to a classic group if this join replaces the last member of the consumer protocol."""
    if replaced is None or replaced.uses_classic_protocol:
        return None
    others = [member for member in group.log.members.values() if member is not replaced]
    if not can_downgrade(group.settings, [*others, update.updated]):
        return None
    is_stale = group.log.assignment_epoch < update.group_epoch
    target = group.log.target_of(update.updated)
    if not is_stale:
        update.reconcile_to(group.log.assignment_epoch, target)
    # Apache Kafka only rebalances if is_stale. Partitions that members still wait for have no owner there.
    waits = any(not member.is_reconciled_to(group.log.assignment_epoch) for member in others)
    reason = f"only members of the classic protocol are left: {replaced.instance_id} came back with it"
    decision = downgrade(
        group,
        [*((member, group.log.targets.get(member.member_id, {})) for member in others), (update.updated, target)],
        removed_ids=[*(member.member_id for member in others), update.updated.member_id],
        rebalance_reason=reason if is_stale or waits else None,
        image=context.image,
        now_ms=context.now_ms,
    )
    decision.records[:0] = update.records
    return decision
