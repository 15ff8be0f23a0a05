"""The decision of one ConsumerGroupHeartbeat, with the steps of update.py.

Regular expressions are matched after the heartbeat (runtime/coordinators/regex_matching.py), so the topics that they
match are assigned in a later one; until then the member has the topics that it subscribes to by name. Deviation: Apache
Kafka matches them on another thread, a new one once the group's last resolution is REFRESH_MIN_MS old. Here a new one
is matched at once (regex_schedule.py), because it is matched in turns.

Source: KIP-848; from version 1 members generate their ids (KIP-1082) and may subscribe by regular expression.
"""

from collections.abc import Set
from dataclasses import replace

from kafkapy.group.consumer.checks import (
    check_instance_is_free,
    check_member_epoch,
    check_size,
)
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer.member import JOIN_EPOCH, ConsumerMember, MemberState
from kafkapy.group.consumer.reconcile import Reported
from kafkapy.group.consumer.subscriptions import Subscriptions
from kafkapy.group.consumer.update import MemberUpdate, replace_static
from kafkapy.group.decision import Client, GroupDecision, GroupRequestContext
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.shared_rules import check_static_member, unknown_member
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import (
    Assignment as AssignmentResponse,
)
from kafkapy.protocol.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kafkapy.types import Uuid


def decide_heartbeat(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str, context: GroupRequestContext
) -> GroupDecision:
    """Decide a heartbeat of a member that joins or stays; `member_id` is the request's own, or one generated for it.

    The request has passed check_heartbeat (consumer_requests.py). Raises ApiError with the codes of KIP-848.
    """
    member = group.log.members.get(member_id)
    if member is not None and _changes_nothing(group, member, request, context):
        timeout_ms, interval_ms = group.times_ms(context.image.configs)
        group.timers.touch_session(member_id, context.now_ms, timeout_ms)
        epoch = member.member_epoch
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms
        )
        return GroupDecision(response)
    return decide_change(group, request, member_id, context)


def _changes_nothing(
    group: ConsumerGroup, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, context: GroupRequestContext
) -> bool:
    """Whether a heartbeat is one of a member that has, and says, nothing new: nearly all are. Saves 20 of 115 calls."""
    log, client = group.log, context.client
    return (
        request.member_epoch == member.member_epoch == log.assignment_epoch == log.group_epoch
        and member.state is MemberState.STABLE
        and request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id is None
        and member.instance_id is None
        and member.client_id == client.client_id
        and member.client_host == client.client_host
        and member.classic_metadata is None
        and not log.subscriptions.regexes
        and not group.has_metadata_expired(context.image)
    )


def decide_change(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str, context: GroupRequestContext
) -> GroupDecision:
    """Like decide_heartbeat, for a request that may change something."""
    check_size(group.log, group.settings, member_id)
    reported = _reported(request)
    member, records = _subscribe(group, request, member_id, reported)
    updated = _with_request(member, request, context.client)
    update = MemberUpdate(group, context, member=member, updated=updated, reported=reported, records=records)
    update.update_subscription()
    update.update_assignment()
    assert update.updated.member_id == member_id, f"the session of another member than {member_id} would be renewed"
    session_timeout_ms, heartbeat_interval_ms = group.times_ms(context.image.configs)
    group.timers.touch_session(update.updated.member_id, context.now_ms, session_timeout_ms)
    response = ConsumerGroupHeartbeatResponse(
        member_id=update.updated.member_id,
        member_epoch=update.updated.member_epoch,
        heartbeat_interval_ms=heartbeat_interval_ms,
    )
    if _is_full(request) or update.updated.assigned != member.assigned:
        response.assignment = _assignment_response(update.updated)
    return GroupDecision(response, update.records, due_regexes=_due_regexes(group, update.subscriptions, context))


def _subscribe(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str, reported: Reported | None
) -> tuple[ConsumerMember, list[CoordinatorRecord]]:
    """Return the group's member, a new one, or the replacement of a static member that has left temporarily.

    The records are those of the replacement.
    """
    if request.instance_id is None:
        return _dynamic_member(group, request, member_id, reported), []
    existing = group.log.static_member(request.instance_id)
    if request.member_epoch != JOIN_EPOCH:
        existing = check_static_member(existing, member_id, request.instance_id)
        check_member_epoch(existing, request.member_epoch, reported)
        return existing, []
    if existing is None:
        return group.log.members.get(member_id, ConsumerMember(member_id)), []
    check_instance_is_free(existing, member_id)
    return replace_static(group.log, existing, member_id)


def _dynamic_member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str, reported: Reported | None
) -> ConsumerMember:
    member = group.log.members.get(member_id)
    if member is not None:
        check_member_epoch(member, request.member_epoch, reported)
        return member
    if request.member_epoch != JOIN_EPOCH:
        raise unknown_member(group.group_id, member_id)
    return ConsumerMember(member_id)


def _with_request(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> ConsumerMember:
    """Return the member updated with the fields that the request sets."""
    if _leaves_as_is(member, request, client):
        return member
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


def _leaves_as_is(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> bool:
    """Whether the request sets no field of the member, as most heartbeats."""
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


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether to send the assignment in any case: the member joins, or sends all its fields after an error."""
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1 and has_subscription and request.topic_partitions is not None
    )


def _due_regexes(group: ConsumerGroup, subscriptions: Subscriptions, context: GroupRequestContext) -> Set[str]:
    """Return the expressions that are to be matched now."""
    if not subscriptions.regexes:
        return frozenset()
    return group.due_regexes(subscriptions, context.image, context.wall_ms)


def _reported(request: ConsumerGroupHeartbeatRequest) -> Reported | None:
    if request.topic_partitions is None:
        return None
    owned: dict[Uuid, set[int]] = {}
    for topic in request.topic_partitions:
        owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return owned


def _assignment_response(member: ConsumerMember) -> AssignmentResponse:
    return AssignmentResponse(
        [
            TopicPartitions(topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(member.assigned.items())
        ]
    )
