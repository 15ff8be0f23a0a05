"""One ConsumerGroupHeartbeat decided, by the steps of update.py.

Regular expressions are resolved last: a member is assigned what they match in its next heartbeat, and until then has
the topics that it subscribes to by name. Kafka resolves them on another thread meanwhile. Deviation: a new expression
is resolved at once, if it is not one of many (regex_schedule.py); Kafka waits until the group's last resolution is
REFRESH_MIN_MS old.

Source: KIP-848; version 1 lets the member make its id (KIP-1082) and subscribe by regular expression.
"""

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
from kafkapy.group.consumer.records import regex_record
from kafkapy.group.consumer.subscriptions import resolve
from kafkapy.group.consumer.update import MemberUpdate, Surroundings
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
        self, group: "ConsumerGroup", request: ConsumerGroupHeartbeatRequest, member_id: str, around: Surroundings
    ) -> None:
        super().__init__(group, around, _reported(request))
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
        group.timers.touch_session(self._updated.member_id, self._around.now_ms)
        response = ConsumerGroupHeartbeatResponse(
            member_id=self._updated.member_id,
            member_epoch=self._updated.member_epoch,
            heartbeat_interval_ms=group.settings.consumer_heartbeat_interval_ms(group.group_id),
        )
        if self._is_full_request() or self._updated.assigned != member.assigned:
            response.assignment = _assignment_answer(self._updated)
        self._resolve_regexes()
        return GroupDecision(response, self._records)

    def _subscribe(self, member_id: str) -> ConsumerMember:
        """Return the member as the group knows it, a new one, or one that takes a departed static member's place."""
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
        """Return the member with what the request sets; what it leaves out stays as it was."""
        request, client = self._request, self._around.client
        names = request.subscribed_topic_names
        regex = request.subscribed_topic_regex
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

    def _is_regex_resolved(self) -> bool:
        """Whether the topics of the member's expression are known, if it has one: else the group's epoch waits."""
        regex = self._updated.subscribed_topic_regex
        return not regex or regex in self._subscriptions.resolved

    def _resolve_regexes(self) -> None:
        """Match the expressions that need it against the topics there are; raise the epoch if any matches others."""
        subscriptions, around = self._subscriptions, self._around
        if not subscriptions.regexes:
            return
        due = self._group.due_regexes(subscriptions, around.image, around.wall_ms)
        if not due:
            return
        matches = resolve(due, around.image, around.wall_ms, around.may_describe)
        has_changed = False
        subscriptions = self._subscriptions = subscriptions.copy()
        for regex, resolved in matches.items():
            before = subscriptions.resolved.get(regex)
            has_changed = has_changed or resolved.topics != (before.topics if before is not None else frozenset())
            subscriptions.resolved[regex] = resolved
            self._records.append(regex_record(self._group.group_id, regex, resolved))
        self._update_group_epoch(has_changed)

    def _is_full_request(self) -> bool:
        """Whether the member wants its assignment in any case: it joins, or has told everything after an error."""
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
