"""The decision of a StreamsGroupHeartbeat: Apache Kafka 4.4.0's steps in its order, on which the records depend.

Member, topology, group epoch, target, the member's next step towards it. Soft state of the group changes at once. If
the heartbeat creates the group, its soft state is lost, as in Kafka, except for the delay of the first assignment.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision, GroupRequestContext, ParkedResponse
from kafkapy.group.long_work import LongWorkError, Results, result_of
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.shared_rules import check_static_member, may_assign
from kafkapy.group.streams.assignor_spec import TaskAssignor
from kafkapy.group.streams.checks import (
    changes_nothing,
    check_epoch,
    check_instance_is_free,
    check_size,
    check_tasks,
    known_member,
)
from kafkapy.group.streams.configured_topology import ConfiguredTopology, StatusCode
from kafkapy.group.streams.decision import CLIENT_TAGS_SINCE, HeartbeatResult
from kafkapy.group.streams.group import StreamsGroup
from kafkapy.group.streams.member import JOIN_EPOCH, LEAVE_STATIC_EPOCH, StreamsMember, UserEndpoint
from kafkapy.group.streams.reconcile import Owned, reconcile
from kafkapy.group.streams.records import (
    current_record,
    member_record,
    member_tombstones,
    metadata_record,
    target_epoch_record,
    target_record,
    topology_record,
)
from kafkapy.group.streams.removal import removal_records
from kafkapy.group.streams.settings import RACK_TAGS, StreamsSettings
from kafkapy.group.streams.state import NO_TOPOLOGY_EPOCH, GroupState
from kafkapy.group.streams.target import NewTarget, TargetInput, Targets, updated_view
from kafkapy.group.streams.tasks import EMPTY_TASKS, AssignedTasks, ReportedTasks, TasksTuple, task_ids
from kafkapy.group.streams.topic_configuration import TopologyInput
from kafkapy.group.streams.topology import StreamsTopology, stored_topology
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from kafkapy.protocol.messages.streams_group_heartbeat_request import TaskIds as ReportedIds
from kafkapy.protocol.messages.streams_group_heartbeat_response import Status, StreamsGroupHeartbeatResponse, TaskIds

INITIAL_DELAY: Final = "Assignment delayed due to the configured initial rebalance delay."
ASSIGNMENT_INTERVAL: Final = "Assignment delayed due to the configured assignment interval."


class _Update(Enum):
    """Whether the group epoch is bumped, and the reason."""

    NONE = 0
    REFINED = 1
    """The member gets tasks of the same target epoch."""
    RECOMPUTE = 2


class Heartbeat:
    """The decision of one heartbeat, of a member that is not leaving."""

    def __init__(
        self,
        group: StreamsGroup,
        request: StreamsGroupHeartbeatRequest,
        context: GroupRequestContext,
        assignor: TaskAssignor,
        *,
        version: int,
        is_known: bool,
        results: Results,
    ) -> None:
        """is_known: whether the group exists already. `version`: that of the request.

        results: of long work that was done for this heartbeat.
        """
        self._group = group
        self._log = group.log
        self._request = request
        self._context = context
        self._assignor = assignor
        self._version = version
        self._is_known = is_known
        self._results = results
        self._settings: StreamsSettings = group.own_settings(context.image.configs)
        self._is_joining = request.member_epoch == JOIN_EPOCH
        self._records: list[CoordinatorRecord] = []
        self._statuses: list[Status] = []
        self._group_epoch = group.log.group_epoch
        self._replaced: StreamsMember | None = None
        """The static member with the same instance id and another member id, which this one replaces."""

    def decide(self, first_records: Sequence[CoordinatorRecord] = ()) -> GroupDecision:
        """Return the decision; `first_records` come before its own. Raises ApiError, LongWorkError."""
        self._records += first_records
        restore = self._group.restorer(self._request.member_id)
        try:
            return self._decide(restore)
        except LongWorkError:
            restore(ErrorCode.NONE)
            raise

    def _decide(self, restore: Callable[[int], list[ParkedResponse]]) -> GroupDecision:
        group, request, context = self._group, self._request, self._context
        if self._is_joining:
            check_size(self._log, request, self._settings.max_size)
        member = self._static_member() if request.instance_id is not None else self._dynamic_member()
        updated = self._updated(member)
        update = self._write_member(member, updated)
        topology = self._topology(updated)
        metadata_hash, configured = self._configured(topology)
        if metadata_hash != self._log.metadata.metadata_hash:
            update = _Update.RECOMPUTE
        self._check_reported(configured)
        update = self._bump_group_epoch(update, updated, metadata_hash, configured)
        if group.is_empty and self._settings.initial_rebalance_delay_ms > 0:
            group.timers.start_initial_delay(context.now_ms + self._settings.initial_rebalance_delay_ms)
        target_epoch, target = self._target(updated, configured, update)
        owned = _owned(request)
        after = self._reconciled(updated, target_epoch, target, owned)
        assert after.member_id == request.member_id, "the session of another member would be renewed"
        group.sessions.touch(after.member_id, context.now_ms + self._settings.session_timeout_ms)
        if request.shutdown_application:
            group.request_shutdown(after.member_id)
        response = self._response(member, after, owned, configured)
        result = HeartbeatResult(response, configured.internal_topics_to_be_created)
        return GroupDecision(result, self._records, on_failed=restore)

    # -- the member -----------------------------------------------------------------------------------------------

    def _dynamic_member(self) -> StreamsMember:
        member_id = self._request.member_id
        if self._is_joining:
            return self._log.members.get(member_id) or StreamsMember(member_id)
        member = known_member(self._log, member_id)
        check_epoch(member, self._request)
        return member

    def _static_member(self) -> StreamsMember:
        instance_id, member_id = self._request.instance_id, self._request.member_id
        assert instance_id is not None
        if not self._is_joining:
            member = check_static_member(self._log.static_member(instance_id), member_id, instance_id)
            check_epoch(member, self._request)
            return member
        existing = self._log.static_member(instance_id)
        if existing is None:
            return self._log.members.get(member_id) or StreamsMember(member_id)
        check_instance_is_free(existing, member_id)
        if existing.member_id != member_id:
            self._replaced = existing
            self._group.relabel_refined(existing.member_id, member_id)
        return self._replacing(existing, member_id)

    def _replacing(self, existing: StreamsMember, member_id: str) -> StreamsMember:
        """Return the static member with a new member id, its target and tasks."""
        group_id, target = self._group.group_id, self._log.targets.get(existing.member_id, EMPTY_TASKS)
        member = existing.joining_as(member_id)
        self._records += member_tombstones(group_id, existing.member_id)
        self._records.append(member_record(group_id, member))
        self._records.append(target_record(group_id, member_id, target))
        self._records.append(current_record(group_id, member))
        return member

    def _updated(self, member: StreamsMember) -> StreamsMember:
        """Return the member with the fields that the request sets."""
        request, client, given = self._request, self._context.client, self._request.user_endpoint
        if not self._is_joining and changes_nothing(request, client, member):
            return member
        endpoint = None if given is None else UserEndpoint(given.host, given.port)
        if endpoint is None and not self._is_joining:
            endpoint = member.user_endpoint
        timeout_ms = request.rebalance_timeout_ms
        tags = request.client_tags
        return replace(
            member,
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
            client_id=client.client_id,
            client_host=client.client_host,
            process_id=member.process_id if request.process_id is None else request.process_id,
            user_endpoint=endpoint,
            client_tags=member.client_tags if tags is None else {tag.key: tag.value for tag in tags},
        )

    def _write_member(self, member: StreamsMember, updated: StreamsMember) -> _Update:
        """Write a new or changed member. A static one causes a new target only if tasks depend on the change."""
        if updated is member or updated == member:
            return _Update.NONE
        self._records.append(member_record(self._group.group_id, updated))
        is_relevant = self._request.instance_id is None or any(
            getattr(updated, name) != getattr(member, name)
            for name in ("topology_epoch", "rack_id", "client_tags", "process_id")
        )
        return _Update.RECOMPUTE if is_relevant else _Update.NONE

    # -- the topology ---------------------------------------------------------------------------------------------

    def _topology(self, updated: StreamsMember) -> StreamsTopology:
        """Return the group's topology, that of the request if it has none. Raises INVALID_REQUEST for another one."""
        known, given = self._log.topology, self._request.topology
        value = None if given is None else stored_topology(given)
        if known is None:
            if value is None:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._records.append(topology_record(self._group.group_id, value))
            return StreamsTopology.of(value)
        is_current = value is not None and value.epoch >= known.topology_epoch
        if value is not None and is_current and not known.is_that_of(value):
            raise ApiError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        if updated.topology_epoch < known.topology_epoch:
            self._add_status(
                StatusCode.STALE_TOPOLOGY,
                f"The member's topology epoch {updated.topology_epoch} is behind the group's topology epoch "
                f"{known.topology_epoch}.",
            )
        return known

    def _configured(self, topology: StreamsTopology) -> tuple[int, ConfiguredTopology]:
        """Return the hash of the topology's topics, and the topology as configured for them."""
        group, image = self._group, self._context.image
        stored_hash, configured = self._log.metadata.metadata_hash, group.configured
        if self._log.topology is not None and configured is not None and not group.has_metadata_expired(image):
            return stored_hash, configured
        names = topology.required_topics()
        work = group.hashes.work_for(names, image) if self._context.gives_way else None
        if work is not None:
            raise LongWorkError(work)
        metadata_hash = group.hashes.of(names, image)
        if self._log.topology is None or configured is None or metadata_hash != stored_hash:
            configured = self._result_of(TopologyInput(topology, image.topics))
        return metadata_hash, configured

    def _result_of(self, work: TopologyInput | TargetInput) -> Any:
        """Return the result of the work. Raises LongWorkError if it takes long and is not done yet."""
        return result_of(work, self._results, gives_way=self._context.gives_way)

    def _check_reported(self, configured: ConfiguredTopology) -> None:
        """Keep the topology and the offsets that the member reports. Raises INVALID_REQUEST, also for unknown tasks."""
        group, request = self._group, self._request
        if configured.is_ready:
            for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
                check_tasks(configured.subtopologies or {}, tasks)
        if request.task_offsets is not None or request.task_end_offsets is not None:
            group.keep_offsets(request.member_id, group.offsets_of(request.member_id).updated(request))
        group.configured = configured

    # -- the group epoch and the target ---------------------------------------------------------------------------

    def _bump_group_epoch(
        self, update: _Update, updated: StreamsMember, metadata_hash: int, configured: ConfiguredTopology
    ) -> _Update:
        """Bump the epoch if members, topology, topics or configuration have changed. Return the reason."""
        group, log, configs = self._group, self._log, self._settings.assignment_configs
        validated_epoch = configured.topology_epoch if configured.is_ready else NO_TOPOLOGY_EPOCH
        if validated_epoch != log.metadata.validated_topology_epoch or configs != log.assignment_configs:
            update = _Update.RECOMPUTE
        if update is _Update.NONE and log.state is GroupState.STABLE:
            target = log.targets.get(updated.member_id, EMPTY_TASKS)
            if not _is_same(target, updated.assigned):
                # The target is unchanged and not reached by the member: warm-up tasks may be ready to become active.
                update = _Update.REFINED
        if update is not _Update.NONE:
            self._group_epoch += 1
            group.settings.counts.streams_rebalances += 1
            self._records.append(
                metadata_record(
                    log,
                    group_epoch=self._group_epoch,
                    metadata_hash=metadata_hash,
                    validated_topology_epoch=validated_epoch,
                    assignment_configs=configs,
                )
            )
        group.metadata_checked(self._context.image, self._group_epoch)
        return update

    def _target(
        self, updated: StreamsMember, configured: ConfiguredTopology, update: _Update
    ) -> tuple[int, TasksTuple]:
        """Return the target epoch and the member's target, recomputed if the group epoch is ahead of it."""
        group, log = self._group, self._log
        was_stable = update is not _Update.RECOMPUTE and log.state is GroupState.STABLE
        target_epoch, targets = self._targets(updated, configured, is_refined=update is _Update.REFINED)
        refined_epoch, refined = group.refined_targets
        if was_stable:
            targets = log.targets
        elif refined_epoch == target_epoch:
            return target_epoch, refined.get(updated.member_id, EMPTY_TASKS)
        elif targets is None:
            targets = updated_view(log, updated)[1]
        if self._settings.num_warmup_replicas > 0 and refined_epoch != target_epoch:
            group.refined_targets = target_epoch, dict(targets)
        return target_epoch, targets.get(updated.member_id, EMPTY_TASKS)

    def _targets(
        self, updated: StreamsMember, configured: ConfiguredTopology, *, is_refined: bool
    ) -> tuple[int, Targets | None]:
        """Return the target epoch and all targets, None for those of the log."""
        log, context = self._log, self._context
        if self._group.timers.is_delayed:
            self._add_status(StatusCode.ASSIGNMENT_DELAYED, INITIAL_DELAY)
            return log.assignment_epoch, {}
        if log.assignment_epoch >= self._group_epoch:
            return log.assignment_epoch, None
        if is_refined and log.assignment_epoch >= log.group_epoch:
            self._write_target_epoch(log.assignment_timestamp_ms)
            return self._group_epoch, None
        if not may_assign(log.assignment_timestamp_ms, context.wall_ms, self._settings.assignment_interval_ms):
            self._add_status(StatusCode.ASSIGNMENT_DELAYED, ASSIGNMENT_INTERVAL)
            return log.assignment_epoch, None
        offsets, configs = dict(self._group.task_offsets), self._settings.assignment_configs
        wanted = TargetInput(*updated_view(log, updated), configured, offsets, configs, self._assignor)
        target: NewTarget = self._result_of(wanted)
        self._records += target.changes(self._group.group_id)
        self._write_target_epoch(context.wall_ms)
        return self._group_epoch, target.targets

    def _write_target_epoch(self, timestamp_ms: int) -> None:
        self._records.append(target_epoch_record(self._group.group_id, self._group_epoch, timestamp_ms))

    def _reconciled(
        self, updated: StreamsMember, target_epoch: int, target: TasksTuple, owned: Owned | None
    ) -> StreamsMember:
        after = reconcile(updated, target_epoch, target, owned, self._log.owners)
        if after is not updated and after != updated:
            self._records.append(current_record(self._group.group_id, after))
            self._group.timers.on_reconciled(after, self._context.now_ms)
        return after

    # -- the response -----------------------------------------------------------------------------------------------

    def _response(
        self, before: StreamsMember, after: StreamsMember, owned: Owned | None, configured: ConfiguredTopology
    ) -> StreamsGroupHeartbeatResponse:
        settings = self._settings
        response = StreamsGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            task_offset_interval_ms=settings.task_offset_interval_ms,
            acceptable_recovery_lag=settings.acceptable_recovery_lag,
            status=self._statuses,
        )
        has_changed = after is not before and after.assigned != before.assigned
        if self._is_joining or has_changed or _reports_others(owned, after.assigned):
            response.active_tasks = task_ids(TaskIds, after.assigned.active_partitions)
            response.standby_tasks = task_ids(TaskIds, after.assigned.standby)
            response.warmup_tasks = task_ids(TaskIds, after.assigned.warmup)
        self._add_endpoints(response, before, after, configured, has_changed=has_changed)
        if configured.problem is not None:
            self._add_status(configured.problem.status, configured.problem.message)
        if self._group.shutdown_member_id is not None:
            self._add_status(
                StatusCode.SHUTDOWN_APPLICATION,
                f"Streams group member {self._group.shutdown_member_id} encountered a fatal error and requested a "
                "shutdown for the entire application.",
            )
        self._add_missing_tags(after)
        return response

    def _add_endpoints(
        self,
        response: StreamsGroupHeartbeatResponse,
        before: StreamsMember,
        after: StreamsMember,
        configured: ConfiguredTopology,
        *,
        has_changed: bool,
    ) -> None:
        """Add the endpoints of all members if the member does not know the latest."""
        group = self._group
        if before.user_endpoint != after.user_endpoint or (has_changed and after.user_endpoint is not None):
            group.endpoint_information_epoch += 1
        if group.endpoint_information_epoch != self._request.endpoint_information_epoch:
            left_out = {after.member_id, None if self._replaced is None else self._replaced.member_id}
            others = [member for member in self._log.members.values() if member.member_id not in left_out]
            response.partitions_by_user_endpoint = group.endpoints.of(
                [*others, after], configured, self._context.image.topics
            )
        if self._is_known:
            response.endpoint_information_epoch = group.endpoint_information_epoch

    def _add_missing_tags(self, member: StreamsMember) -> None:
        tags = self._settings.assignment_configs.get(RACK_TAGS)
        if self._version < CLIENT_TAGS_SINCE or not tags:
            return
        missing = [tag for tag in tags.split(",") if tag not in member.client_tags]
        if missing:
            self._add_status(
                StatusCode.MISSING_CLIENT_TAGS,
                f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. Configure "
                "them via 'client.tag.<tagKey>' in your Streams config.",
            )

    def _add_status(self, status: StatusCode, detail: str) -> None:
        self._statuses.append(Status(int(status), status_detail=detail))


def decide_leave(group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> GroupDecision:
    """Decide the leave of a member. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    log, member_id = group.log, request.member_id
    if request.shutdown_application:
        group.request_shutdown(member_id)
    if request.instance_id is None:
        member = known_member(log, member_id)
    else:
        existing = log.static_member(request.instance_id)
        member = check_static_member(existing, member_id, request.instance_id)
    response = StreamsGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch, status=[])
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
        records = [current_record(log.group_id, member.left_for_a_while())]
    else:
        records = removal_records(log, [member_id])
    return GroupDecision(HeartbeatResult(response), records)


def decide_delayed_target(
    group: StreamsGroup, context: GroupRequestContext, assignor: TaskAssignor, results: Results
) -> GroupDecision:
    """Decide the first assignment once its delay is over. Without a configured topology the next heartbeat does.

    Raises LongWorkError.
    """
    log, configured = group.log, group.configured
    settings = group.own_settings(context.image.configs)
    # Computing a large target takes a while: members may have left or joined meanwhile.
    is_due = bool(log.members) and log.group_epoch > log.assignment_epoch and not group.timers.is_delayed
    is_allowed = may_assign(log.assignment_timestamp_ms, context.wall_ms, settings.assignment_interval_ms)
    if configured is None or not is_due or not is_allowed:
        return GroupDecision()
    members, targets, offsets = dict(log.members), dict(log.targets), dict(group.task_offsets)
    wanted = TargetInput(members, targets, configured, offsets, log.assignment_configs, assignor)
    target: NewTarget = result_of(wanted, results, gives_way=context.gives_way)
    records = target.changes(group.group_id)
    records.append(target_epoch_record(group.group_id, log.group_epoch, context.wall_ms))
    return GroupDecision(records=records)


def _is_same(target: TasksTuple, assigned: AssignedTasks) -> bool:
    wanted, active = target.active, assigned.active
    if len(wanted) != len(active) or target.standby != assigned.standby or target.warmup != assigned.warmup:
        return False
    for subtopology_id, partitions in wanted.items():
        assigned_partitions = active.get(subtopology_id)
        if assigned_partitions is None or assigned_partitions.keys() != partitions:
            return False
    return True


def _owned(request: StreamsGroupHeartbeatRequest) -> Owned | None:
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Owned(_reported(request.active_tasks), _reported(request.standby_tasks), _reported(request.warmup_tasks))


def _reports_others(owned: Owned | None, assigned: AssignedTasks) -> bool:
    """Whether the member reports other tasks than it has: it may not have received them.

    Deviation: Apache Kafka tells a member its tasks only when they change. Here they are sent again if it reports other
    tasks, as a stock client does after a failed request, because with a lost response it would never run what it was
    assigned, or be fenced because it revokes nothing.
    """
    return owned is not None and not owned.is_exactly(assigned)


def _reported(tasks: Sequence[ReportedIds]) -> ReportedTasks:
    """Return a kind of tasks. Raises UNKNOWN_SERVER_ERROR, as Kafka, for a subtopology that is reported twice."""
    by_id = {each.subtopology_id: set(each.partitions) for each in tasks}
    if len(by_id) < len(tasks):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return by_id
