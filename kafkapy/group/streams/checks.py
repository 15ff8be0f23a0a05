"""Checks of heartbeats of streams groups; whether a heartbeat changes its member, or reports anything.

Error messages are Kafka's, word for word.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from kafkapy.errors import ApiError
from kafkapy.group.decision import Client
from kafkapy.group.shared_rules import unknown_member, unreleased_instance
from kafkapy.group.streams.configured_topology import ConfiguredSubtopology
from kafkapy.group.streams.member import JOIN_EPOCH, LEAVE_STATIC_EPOCH, StreamsMember
from kafkapy.group.streams.state import StreamsGroupLog
from kafkapy.group.streams.topology import check_changelog_topics, check_source_topic_regexes
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, TaskIds, TaskOffset

MAX_ID_CHARACTERS: Final = 100_000
"""Characters of the subtopology ids for whose tasks a member reports offsets."""
TASK_KINDS: Final = 3
INCOMPLETE_TASKS = "If one task-type is non-null, all must be non-null."


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY for a request that is invalid for any group."""
    if request.topology is not None:
        check_source_topic_regexes(request.topology)
    for name, text in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            _invalid(f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        _invalid("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        _invalid(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    absent = [request.active_tasks, request.standby_tasks, request.warmup_tasks].count(None)
    if absent not in (0, TASK_KINDS):
        _invalid(INCOMPLETE_TASKS)
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        _invalid("Topology can only be provided when (re-)joining.")
    for offsets in (request.task_offsets, request.task_end_offsets):
        if offsets:
            _check_offsets(offsets)


def _check_offsets(offsets: Sequence[TaskOffset]) -> None:
    """Raise INVALID_REQUEST for subtopology ids that take much memory.

    Deviation: Apache Kafka keeps the offsets of any subtopologies that a member names. Here more than
    MAX_ID_CHARACTERS in their ids are refused, because the group keeps them for as long as the member is in it.
    """
    if sum(map(len, {each.subtopology_id for each in offsets})) > MAX_ID_CHARACTERS:
        _invalid(f"The task offsets name subtopologies with more than {MAX_ID_CHARACTERS} characters in their ids.")


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        _invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            _invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        _invalid("Topology must be non-null when (re-)joining.")
    check_changelog_topics(request.topology)


def check_size(log: StreamsGroupLog, request: StreamsGroupHeartbeatRequest, max_size: int) -> None:
    """Raise GROUP_MAX_SIZE_REACHED if the group is full and the member is not in it yet."""
    is_in = request.instance_id in log.static_members or request.member_id in log.members
    if not is_in and len(log.members) >= max_size:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The streams group has reached its maximum capacity of {max_size} members.",
        )


def known_member(log: StreamsGroupLog, member_id: str | None) -> StreamsMember:
    """Return the member. Raises UNKNOWN_MEMBER_ID."""
    member = log.members.get(member_id) if member_id is not None else None
    if member is None:
        raise unknown_member(log.group_id, member_id)
    return member


def check_instance_is_free(existing: StreamsMember, member_id: str) -> None:
    """Raise UNRELEASED_INSTANCE_ID unless the static member has left temporarily, so that another may replace it."""
    if existing.member_epoch != LEAVE_STATIC_EPOCH:
        raise unreleased_instance(existing, member_id)


def check_epoch(member: StreamsMember, request: StreamsGroupHeartbeatRequest) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the member is at this epoch, joins again, or missed the last response.

    A member that missed it is at the previous epoch, and reports only tasks that are assigned to it.
    """
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    is_ahead = epoch > member.member_epoch
    if not is_ahead and epoch == member.previous_member_epoch and _has_all(member, request):
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {'greater' if is_ahead else 'smaller'} member epoch ({epoch}) than the one "
        f"known by the group coordinator ({member.member_epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _has_all(member: StreamsMember, request: StreamsGroupHeartbeatRequest) -> bool:
    assigned = member.assigned
    return all(
        tasks is not None
        and all(each.subtopology_id in owned and owned[each.subtopology_id] >= set(each.partitions) for each in tasks)
        for tasks, owned in (
            (request.active_tasks, assigned.active_partitions),
            (request.standby_tasks, assigned.standby),
            (request.warmup_tasks, assigned.warmup),
        )
    )


def check_tasks(subtopologies: Mapping[str, ConfiguredSubtopology], tasks: Sequence[TaskIds] | None) -> None:
    """Raise INVALID_REQUEST if a member reports tasks that are not in the topology."""
    for each in tasks or ():
        subtopology = subtopologies.get(each.subtopology_id)
        if subtopology is None:
            _invalid(f"Subtopology {each.subtopology_id} does not exist in the topology.")
        count = subtopology.number_of_tasks
        for partition in each.partitions:
            if not 0 <= partition < count:
                _invalid(
                    f"Task {partition} for subtopology {each.subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {count}"
                )


def _invalid(message: str) -> NoReturn:
    raise ApiError(ErrorCode.INVALID_REQUEST, message)


def changes_nothing(request: StreamsGroupHeartbeatRequest, client: Client, member: StreamsMember) -> bool:
    """Whether the request changes no field of the member, as most do: faster than to make and compare a copy."""
    return (
        client.client_id == member.client_id
        and client.client_host == member.client_host
        and request.topology is None
        and request.user_endpoint is None
        and request.client_tags is None
        and request.instance_id in (None, member.instance_id)
        and request.rack_id in (None, member.rack_id)
        and request.process_id in (None, member.process_id)
        and request.rebalance_timeout_ms in (-1, member.rebalance_timeout_ms)
    )


def reports_nothing(request: StreamsGroupHeartbeatRequest, client: Client, member: StreamsMember) -> bool:
    """Whether the request says only that the member is alive, at its epoch: most do. It passes check_heartbeat."""
    return (
        request.member_epoch == member.member_epoch
        and member.member_epoch > JOIN_EPOCH
        and request.active_tasks is None
        and request.standby_tasks is None
        and request.warmup_tasks is None
        and request.task_offsets is None
        and request.task_end_offsets is None
        and not request.shutdown_application
        and request.topology is None
        and request.user_endpoint is None
        and request.client_tags is None
        and request.rack_id is None
        and request.process_id is None
        and request.rebalance_timeout_ms == -1
        and request.instance_id == member.instance_id
        and client.client_id == member.client_id
        and client.client_host == member.client_host
    )
