"""The decision of one ConsumerGroupHeartbeat, with the steps of update.py.

Regular expressions are matched after the heartbeat (runtime/regex_matching.py), so the topics that they match are
assigned in a later one; until then the member has the topics that it subscribes to by name. Kafka matches them on
another thread. Deviation: a new expression is matched at once (regex_schedule.py); Kafka waits until the group's last
resolution is REFRESH_MIN_MS old.

Source: KIP-848; from version 1 members generate their ids (KIP-1082) and may subscribe by regular expression.
"""

from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkapy.group.consumer.checks import (
    check_instance_is_free,
    check_member_epoch,
    check_size,
    check_static_member,
    unknown_member,
)
from kafkapy.group.consumer.member import JOIN_EPOCH, ConsumerMember
from kafkapy.group.consumer.reconcile import Reported
from kafkapy.group.consumer.update import MemberUpdate, RequestContext
from kafkapy.group.decision import GroupDecision
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import (
    Assignment as AssignmentAnswer,
)
from kafkapy.protocol.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.group.consumer.group import ConsumerGroup


class HeartbeatDecision(MemberUpdate):
    def __init__(
        self, group: "ConsumerGroup", request: ConsumerGroupHeartbeatRequest, member_id: str, context: RequestContext
    ) -> None:
        super().__init__(group, context, _reported(request))
        self._request = request
        check_size(group.log, group.settings, member_id)
        self._member = self._subscribe(member_id)
        self._updated = self._with_request(self._member)

    def decide(self) -> GroupDecision:
        group, member = self._group, self._member
        names_changed = self._write_metadata()
        regex_changed = self._update_regex()
        self._update_group_epoch(names_changed or (regex_changed and self._is_regex_resolved()))
        target_epoch, target = self._update_target()
        self._reconcile(target_epoch, target, names_changed or regex_changed)
        group.timers.touch_session(self._updated.member_id, self._context.now_ms)
        response = ConsumerGroupHeartbeatResponse(
            member_id=self._updated.member_id,
            member_epoch=self._updated.member_epoch,
            heartbeat_interval_ms=group.settings.consumer_heartbeat_interval_ms(group.group_id),
        )
        if self._is_full_request() or self._updated.assigned != member.assigned:
            response.assignment = _assignment_answer(self._updated)
        return GroupDecision(response, self._records, due_regexes=self._due_regexes())

    def _subscribe(self, member_id: str) -> ConsumerMember:
        """Return the group's member, a new one, or the replacement of a static member that has left temporarily."""
        request, group = self._request, self._group
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = group.log.members.get(member_id)
            if member is None:
                if not joins:
                    raise unknown_member(group.group_id, member_id)
                return ConsumerMember(member_id)
            check_member_epoch(member, request.member_epoch, self._reported)
            return member
        existing = group.log.static_member(request.instance_id)
        if not joins:
            existing = check_static_member(existing, member_id, request.instance_id)
            check_member_epoch(existing, request.member_epoch, self._reported)
            return existing
        if existing is None:
            return group.log.members.get(member_id, ConsumerMember(member_id))
        check_instance_is_free(existing, member_id)
        return self._replace_static(existing, member_id)

    def _with_request(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member updated with the fields that the request sets."""
        request, client = self._request, self._context.client
        names = request.subscribed_topic_names
        regex = request.subscribed_topic_regex
        if self._leaves_as_is(member):
            return member
        updated = replace(
            member,
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
            ),
            server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
            subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
            subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
            client_id=client.client_id,
            client_host=client.client_host,
            classic_metadata=None,
        )
        return member if updated == member else updated

    def _leaves_as_is(self, member: ConsumerMember) -> bool:
        """Whether the request sets no field of the member, as most heartbeats."""
        request, client = self._request, self._context.client
        return (
            request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.rebalance_timeout_ms == -1
            and request.server_assignor is None
            and request.rack_id is None
            and request.instance_id in (None, member.instance_id)
            and member.client_id == client.client_id
            and member.client_host == client.client_host
            and member.classic_metadata is None
        )

    def _is_regex_resolved(self) -> bool:
        """Whether the member's expression, if any, is resolved. If not, the group epoch is bumped once it is."""
        regex = self._updated.subscribed_topic_regex
        return not regex or regex in self._subscriptions.resolved

    def _due_regexes(self) -> Set[str]:
        """Return the expressions that are to be matched now."""
        subscriptions, context = self._subscriptions, self._context
        if not subscriptions.regexes:
            return frozenset()
        return self._group.due_regexes(subscriptions, context.image, context.wall_ms)

    def _is_full_request(self) -> bool:
        """Whether to send the assignment in any case: the member joins, or sends all its fields after an error."""
        request = self._request
        has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        return request.member_epoch == JOIN_EPOCH or (
            request.rebalance_timeout_ms != -1 and has_subscription and request.topic_partitions is not None
        )


def _reported(request: ConsumerGroupHeartbeatRequest) -> Reported | None:
    if request.topic_partitions is None:
        return None
    owned: dict[Uuid, set[int]] = {}
    for topic in request.topic_partitions:
        owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return owned


def _assignment_answer(member: ConsumerMember) -> AssignmentAnswer:
    return AssignmentAnswer(
        [TopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in sorted(member.assigned.items())]
    )
