"""The JoinGroup of a classic member to a non-empty KIP-848 group: it joins or rejoins (KIP-848).

The request is not parked: the member is reconciled with its target at once, and answers to its heartbeats say when to
rejoin. The subscription (from version 1) reports the partitions that the member owns, and so which it has revoked.
Members with an older version own nothing when they join, because they use eager assignors.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.group.consumer.checks import check_static_member
from kafkapy.group.consumer.member import ConsumerMember
from kafkapy.group.consumer.update import MemberUpdate, RequestContext
from kafkapy.group.decision import GroupDecision
from kafkapy.group.embedded import by_topic_id, read_subscription
from kafkapy.group.migration.downgrade import can_downgrade, downgrade
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_member_metadata_value import ClassicMemberMetadata, ClassicProtocol
from kafkapy.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse

if TYPE_CHECKING:
    from kafkapy.group.consumer.group import ConsumerGroup

CONSUMER_PROTOCOL = "consumer"


class ClassicJoinDecision(MemberUpdate):
    def __init__(
        self, group: "ConsumerGroup", request: JoinGroupRequest, member_id: str, context: RequestContext
    ) -> None:
        """`member_id` is the request's own, or one generated for it. Raises ApiError."""
        subscription = _subscription(request)
        super().__init__(group, context, by_topic_id(subscription.owned_partitions, context.image))
        self._request = request
        self._replaced = group.log.static_member(request.group_instance_id)
        self._member = self._subscribe(member_id)
        self._updated = self._with_request(self._member, subscription)

    def decide(self) -> GroupDecision:
        names_changed = self._write_metadata()
        has_changed = self._update_regex() or names_changed
        self._update_group_epoch(has_changed)
        decision = self._downgrade(has_changed)
        if decision is None:
            target_epoch, target = self._update_target()
            self._reconcile(target_epoch, target, has_changed)
            decision = GroupDecision(records=self._records)
            self._start_timers()
        decision.response = JoinGroupResponse(
            generation_id=self._updated.member_epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=self._request.protocols[0].name,
            member_id=self._updated.member_id,
        )
        return decision

    def _subscribe(self, member_id: str) -> ConsumerMember:
        """Return the group's member, a new one, or the replacement of a static member."""
        instance_id = self._request.group_instance_id
        if instance_id is None:
            return self._group.log.members.get(member_id, ConsumerMember(member_id))
        if self._request.member_id:
            return check_static_member(self._replaced, member_id, instance_id)
        if self._replaced is None:
            return ConsumerMember(member_id)
        return self._replace_static(self._replaced, member_id)

    def _with_request(self, member: ConsumerMember, subscription: ConsumerProtocolSubscription) -> ConsumerMember:
        request, client = self._request, self._context.client
        protocols = [ClassicProtocol(protocol.name, protocol.metadata) for protocol in request.protocols]
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
            classic_metadata=ClassicMemberMetadata(request.session_timeout_ms, protocols),
        )
        return member if updated == member else updated

    def _downgrade(self, has_subscription_changed: bool) -> GroupDecision | None:
        """Return the conversion to a classic group if this join replaces the last member of the consumer protocol."""
        group, replaced = self._group, self._replaced
        if replaced is None or replaced.uses_classic_protocol:
            return None
        others = [member for member in group.log.members.values() if member is not replaced]
        if not can_downgrade(group.settings, [*others, self._updated]):
            return None
        is_stale = group.log.assignment_epoch < self._group_epoch
        target = group.log.target_of(self._updated)
        if not is_stale:
            self._reconcile(group.log.assignment_epoch, target, has_subscription_changed)
        # Apache Kafka only rebalances if is_stale. Partitions that members still wait for have no owner there.
        waits = any(not member.is_reconciled_to(group.log.assignment_epoch) for member in others)
        reason = f"only members of the classic protocol are left: {replaced.instance_id} came back with it"
        decision = downgrade(
            group,
            [*((member, group.log.targets.get(member.member_id, {})) for member in others), (self._updated, target)],
            removed_ids=[*(member.member_id for member in others), self._updated.member_id],
            rebalance_reason=reason if is_stale or waits else None,
            image=self._context.image,
            now_ms=self._context.now_ms,
        )
        decision.records[:0] = self._records
        return decision

    def _start_timers(self) -> None:
        self._group.timers.note_join(
            self._updated.member_id,
            self._context.now_ms,
            session_timeout_ms=self._request.session_timeout_ms,
            rebalance_timeout_ms=self._request.rebalance_timeout_ms,
        )


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """Return the member's subscription, from its first protocol: it is the same in all of them."""
    try:
        return read_subscription(request.protocols[0].metadata)
    except ProtocolError as error:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Malformed embedded consumer protocol in subscription deserialization.",
        ) from error
