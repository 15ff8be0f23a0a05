"""The decision of one ShareGroupHeartbeat: a member joins, stays or leaves.

Each member names the topics that it reads. A topic's partitions are first initialised at the share coordinator, then
assigned: the group epoch is bumped once more for that. The order of the records is Apache Kafka's. Error messages are
Kafka's, word for word. Source: KIP-932, Apache Kafka 4.4.0.
"""

from collections.abc import Mapping
from dataclasses import replace

from kafkapy.errors import ApiError
from kafkapy.group.assignors.spec import Assignment
from kafkapy.group.decision import GroupRequestContext
from kafkapy.group.long_work import Results, result_of
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import MAX_NAMES, MAX_NAMES_OF_GROUP
from kafkapy.group.share.decision import InitializeStates, ShareDecision
from kafkapy.group.share.group import ShareGroup
from kafkapy.group.share.member import JOIN_EPOCH, LEAVE_EPOCH, STABLE, ShareMember
from kafkapy.group.share.records import (
    current_record,
    epoch_record,
    member_record,
    states_record,
    target_epoch_record,
    target_record,
)
from kafkapy.group.share.removal import removal_records
from kafkapy.group.share.settings import ShareTimes
from kafkapy.group.share.simple_assignor import Target
from kafkapy.group.share.state import ShareGroupLog, count_names
from kafkapy.group.share.states import NO_STATES
from kafkapy.group.share.target import NO_TARGET, TargetInput, is_assignment_pending, is_same_target, reconciled
from kafkapy.group.shared_rules import may_assign, unknown_member
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.share_group_heartbeat_response import (
    Assignment as AssignmentResponse,
)
from kafkapy.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse, TopicPartitions

FIRST_OFFSET = 0
"""Where a partition begins that is added to a topic which the group reads already: no record of it is missed."""
OFFSET_OF_GROUPS_RULE = -1
"""Have share.auto.offset.reset decide where a share partition begins, when it is first read."""


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST for a request that is invalid for any group."""
    if not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            raise _invalid("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    names = request.subscribed_topic_names
    if names is not None and len(names) > MAX_NAMES:
        raise _invalid(f"SubscribedTopicNames has {len(names)} names, more than {MAX_NAMES}.")


def decide_leave(group: ShareGroup, request: ShareGroupHeartbeatRequest, context: GroupRequestContext) -> ShareDecision:
    """Decide a heartbeat with LEAVE_EPOCH. Raises UNKNOWN_MEMBER_ID."""
    if request.member_id not in group.log.members:
        raise unknown_member(group.group_id, request.member_id)
    response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    return ShareDecision(response, removal_records(group, [request.member_id], context.image))


def decide_heartbeat(
    group: ShareGroup, request: ShareGroupHeartbeatRequest, context: GroupRequestContext, results: Results
) -> ShareDecision:
    """Decide a heartbeat of a member that joins or stays. The request has passed check_heartbeat.

    results: of long work that was done for this heartbeat. Raises ApiError, LongWorkError.
    """
    times = group.times(context.image.configs)
    member = group.log.members.get(request.member_id)
    if member is None or not _changes_nothing(group, member, request, context):
        return _Heartbeat(group, request, context, times, results).decide()
    group.sessions.touch(member.member_id, context.now_ms + times.session_timeout_ms)
    return ShareDecision(_response(member, times))


def _changes_nothing(
    group: ShareGroup, member: ShareMember, request: ShareGroupHeartbeatRequest, context: GroupRequestContext
) -> bool:
    """Whether the member has, and says, nothing new, and no partition waits for its state: nearly always."""
    log, client = group.log, context.client
    return (
        request.member_epoch == member.member_epoch == log.assignment_epoch == log.group_epoch
        and member.state == STABLE
        and request.subscribed_topic_names is None
        and request.rack_id is None
        and member.client_id == client.client_id
        and member.client_host == client.client_host
        and group.is_settled(context.image)
    )


class _Heartbeat:
    """A heartbeat in progress: each step adds records. Of the group only soft state changes here."""

    def __init__(
        self,
        group: ShareGroup,
        request: ShareGroupHeartbeatRequest,
        context: GroupRequestContext,
        times: ShareTimes,
        results: Results,
    ) -> None:
        self._group = group
        self._request = request
        self._context = context
        self._times = times
        self._results = results
        self._records: list[CoordinatorRecord] = []
        self._group_epoch = group.log.group_epoch
        self._topic_names: Mapping[str, int] = group.log.topic_names
        self._has_bumped = False

    def decide(self) -> ShareDecision:
        group, request, context = self._group, self._request, self._context
        member = self._checked_member()
        updated = self._updated(member)
        self._update_group_epoch(member, updated)
        updated = self._reconcile(updated, *self._update_target(updated))
        group.sessions.touch(updated.member_id, context.now_ms + self._times.session_timeout_ms)
        response = _response(updated, self._times)
        is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
        if is_full or updated.assigned != member.assigned:
            response.assignment = _assignment_response(updated.assigned)
        effects = self._initialize_states()
        if not self._records:
            group.mark_settled(context.image, self._topic_names)
        return ShareDecision(response, self._records, effects)

    def _checked_member(self) -> ShareMember:
        """Return the group's member or a new one. Raises the codes of KIP-932."""
        log, member_id, epoch = self._group.log, self._request.member_id, self._request.member_epoch
        member = log.members.get(member_id)
        if member is None and len(log.members) >= self._times.max_size:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {self._times.max_size} members.",
            )
        if member is None:
            if epoch != JOIN_EPOCH:
                raise unknown_member(log.group_id, member_id)
            return ShareMember(member_id)
        _check_epoch(member, epoch)
        return member

    def _updated(self, member: ShareMember) -> ShareMember:
        """Return the member with the fields that the request sets; write it if it is new or changed."""
        request, client = self._request, self._context.client
        names = request.subscribed_topic_names
        updated = replace(
            member,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
            client_id=client.client_id,
            client_host=client.client_host,
        )
        if updated == member:
            assert member.member_id in self._group.log.members, "a new member subscribes to something, and is written"
            return member
        self._records.append(member_record(self._group.group_id, updated))
        return updated

    def _update_group_epoch(self, member: ShareMember, updated: ShareMember) -> None:
        """Bump the group epoch if the subscriptions, their topics, or the partitions that have a state have changed."""
        group, log, image = self._group, self._group.log, self._context.image
        must_bump = updated.subscribed_topic_names != member.subscribed_topic_names
        if log.assignment_epoch >= log.group_epoch:
            must_bump = must_bump or is_assignment_pending(log, image)
        if not must_bump and not group.has_metadata_expired(image):
            return
        self._topic_names = _names_with(log, member, updated)
        metadata_hash = group.hashes.of(self._topic_names.keys(), image)
        if must_bump or metadata_hash != log.metadata_hash:
            self._has_bumped = True
            self._group_epoch += 1
            self._records.append(epoch_record(group.group_id, self._group_epoch, metadata_hash))
        group.metadata_checked(image, self._group_epoch)

    def _update_target(self, updated: ShareMember) -> tuple[int, Target]:
        """Return the target epoch and the member's target, recomputed if the group epoch is ahead of it."""
        log, context = self._group.log, self._context
        if log.assignment_epoch >= self._group_epoch or not self._may_assign():
            return log.assignment_epoch, log.targets.get(updated.member_id, NO_TARGET)
        wanted = TargetInput.of(log, updated, self._topic_names, context.image)
        targets: Mapping[str, Target] = result_of(wanted, self._results, gives_way=context.gives_way)
        assert updated.member_id in targets, "a target has every member"
        for member_id, target in targets.items():
            if not is_same_target(log.targets.get(member_id), target):
                self._records.append(target_record(log.group_id, member_id, target))
        self._records.append(target_epoch_record(log.group_id, self._group_epoch, context.wall_ms))
        return self._group_epoch, targets[updated.member_id]

    def _may_assign(self) -> bool:
        """Whether the target assignment may be recomputed yet (group.share.assignment.interval.ms)."""
        log = self._group.log
        return may_assign(log.assignment_timestamp_ms, self._context.wall_ms, self._times.assignment_interval_ms)

    def _reconcile(self, updated: ShareMember, target_epoch: int, target: Target) -> ShareMember:
        after = reconciled(updated, target_epoch, target, self._context.image, has_changed=self._has_bumped)
        if after != updated:
            self._records.append(current_record(self._group.group_id, after))
        return after

    def _initialize_states(self) -> list[InitializeStates]:
        """Decide to create the states of subscribed partitions that have none yet."""
        group, context = self._group, self._context
        states = group.log.states or NO_STATES
        retry_ms = self._times.initialize_retry_interval_ms
        missing = states.missing(self._topic_names, context.image, context.wall_ms, retry_ms)
        if not missing:
            return []
        self._records.append(states_record(group.group_id, states.with_initializing(missing), context.image))
        known = states.known_topics
        start_offsets = {
            topic_id: dict.fromkeys(topic.partitions, FIRST_OFFSET if topic_id in known else OFFSET_OF_GROUPS_RULE)
            for topic_id, topic in missing.items()
        }
        return [InitializeStates(group.group_id, self._group_epoch, start_offsets)]


def _check_epoch(member: ShareMember, received_epoch: int) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the member is at this epoch, joins again, or missed the last response."""
    if received_epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if received_epoch > member.member_epoch:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a greater member epoch ({received_epoch}) than the one known by the group "
            f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
        )
    if received_epoch != member.previous_member_epoch:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a smaller member epoch ({received_epoch}) than the one known by the group "
            f"coordinator ({member.member_epoch}), and it does not match the previous member epoch "
            f"({member.previous_member_epoch}). The member must abandon all its partitions and rejoin.",
        )


def _names_with(log: ShareGroupLog, member: ShareMember, updated: ShareMember) -> dict[str, int]:
    """Return how many members subscribe to each topic, with `updated` in place of `member`. Raises INVALID_REQUEST."""
    names = dict(log.topic_names)
    if member.member_id in log.members:
        count_names(names, member, -1)
    count_names(names, updated, 1)
    if MAX_NAMES_OF_GROUP < len(names) > len(log.topic_names):
        raise _invalid(f"The members of the group name {len(names)} topics, more than {MAX_NAMES_OF_GROUP}.")
    return names


def _response(member: ShareMember, times: ShareTimes) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=times.heartbeat_interval_ms,
    )


def _assignment_response(assigned: Assignment) -> AssignmentResponse:
    return AssignmentResponse(
        [TopicPartitions(topic_id, partitions=sorted(partitions)) for topic_id, partitions in sorted(assigned.items())]
    )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
