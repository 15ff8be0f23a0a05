"""Computes a member's next step towards its target assignment: KIP-1071's reconciliation as a pure function.

First the member revokes the tasks that are not in the target, and stays at its epoch until it no longer reports them
(UNREVOKED_TASKS). Then it moves to the target's epoch and gets the tasks that are free, and the others when they are
released (UNRELEASED_TASKS). An active task is free if no member has it, and no other member of the same process has a
copy; a standby or warm-up task if no other member of the process has the task at all. A copy that becomes active in the
same member stays until the active task is assigned, so that the member always has its state. The states and transitions
are those of Apache Kafka 4.4.0's CurrentAssignmentBuilder.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace

from kafkapy.errors import ApiError
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.task_owners import TaskOwners
from kafkapy.group.streams.tasks import (
    NOTHING_ASSIGNED,
    AssignedTasks,
    MemberState,
    ReportedTasks,
    Tasks,
    TasksTuple,
)
from kafkapy.protocol.error_code import ErrorCode

IsUnreleased = Callable[[str, int], bool]
"""Called with (subtopology id, partition); returns whether the member must not get the task yet."""
TaskSets = dict[str, set[int]]


class Owned:
    """The tasks that a heartbeat reports. A member that reports none has released none."""

    def __init__(self, active: ReportedTasks, standby: ReportedTasks, warmup: ReportedTasks) -> None:
        self._kinds = (active, standby, warmup)

    @property
    def is_empty(self) -> bool:
        return not any(self._kinds)

    def is_exactly(self, tasks: AssignedTasks) -> bool:
        others = (tasks.active, tasks.standby, tasks.warmup)
        return all(
            {each: set(partitions) for each, partitions in mine.items() if partitions}
            == {each: set(partitions) for each, partitions in other.items()}
            for mine, other in zip(self._kinds, others, strict=True)
        )

    def has_any_of(self, tasks: AssignedTasks) -> bool:
        others: tuple[Mapping[str, Iterable[int]], ...] = (tasks.active, tasks.standby, tasks.warmup)
        return any(
            not partitions.isdisjoint(other.get(subtopology_id, ()))
            for mine, other in zip(self._kinds, others, strict=True)
            for subtopology_id, partitions in mine.items()
        )


def reconcile(
    member: StreamsMember, target_epoch: int, target: TasksTuple, owned: Owned | None, owners: TaskOwners
) -> StreamsMember:
    """Return the member after this heartbeat; the same object if nothing changes. Raises FENCED_MEMBER_EPOCH.

    `owned` is None if the heartbeat does not report tasks: then none counts as revoked.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    step = _Step(member, target_epoch, target, owned, owners)
    if member.state is MemberState.UNREVOKED_TASKS:
        if step.has_not_released(member.pending_revocation):
            return member
        return step.advanced(member.member_epoch + 1)
    if member.state is MemberState.UNKNOWN:
        if owned is None or not owned.is_empty:
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
        return step.advanced(target_epoch)
    return step.advanced(member.member_epoch)


class _Difference:
    """The tasks of one kind that the member keeps, must revoke, and may get now. Without partitions: absent."""

    def __init__(self, current: Tasks, target: Tasks, is_unreleased: IsUnreleased) -> None:
        self.kept: TaskSets = {}
        self.to_revoke: TaskSets = {}
        self.to_assign: TaskSets = {}
        self.has_unreleased = False
        for subtopology_id in {**target, **current}:
            mine, wanted = current.get(subtopology_id, frozenset()), target.get(subtopology_id, frozenset())
            missing = wanted - mine
            free = {each for each in missing if not is_unreleased(subtopology_id, each)}
            self.has_unreleased |= len(free) < len(missing)
            for into, partitions in (
                (self.kept, mine & wanted),
                (self.to_revoke, mine - wanted),
                (self.to_assign, free),
            ):
                if partitions:
                    into[subtopology_id] = set(partitions)

    def grant(self, subtopology_id: str, partition: int) -> None:
        """Give a task at once, although others are to be revoked first."""
        assert partition in self.to_assign.get(subtopology_id, ()), f"{subtopology_id}_{partition} is not to assign"
        _discard(self.to_assign, subtopology_id, partition)
        self.kept.setdefault(subtopology_id, set()).add(partition)


class _Step:
    """The member's next assignment. The active tasks keep the epochs at which they were assigned."""

    def __init__(
        self, member: StreamsMember, target_epoch: int, target: TasksTuple, owned: Owned | None, owners: TaskOwners
    ) -> None:
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._owned = owned
        self._owners = owners

    def has_not_released(self, tasks: AssignedTasks) -> bool:
        return self._owned is None or self._owned.has_any_of(tasks)

    def advanced(self, member_epoch: int) -> StreamsMember:
        assigned = self._member.assigned
        current_active = assigned.active_partitions
        active = _Difference(current_active, self._target.active, self._is_unreleased_active)
        standby = _Difference(assigned.standby, self._target.standby, self._is_unreleased_standby)
        warmup = _Difference(assigned.warmup, self._target.warmup, self._is_unreleased_warmup)
        _change_role(current_active, standby)
        _change_role(assigned.standby, warmup, standby.to_revoke)
        _change_role(assigned.warmup, standby, warmup.to_revoke)
        pending = self._pending_revocation(active, standby, warmup)
        self._keep_promoted(active, standby, warmup, is_revoking=not pending.is_empty)
        return self._next_member(member_epoch, active, standby, warmup, pending)

    def _next_member(
        self,
        member_epoch: int,
        active: _Difference,
        standby: _Difference,
        warmup: _Difference,
        pending_revocation: AssignedTasks,
    ) -> StreamsMember:
        epochs = {each: self._epochs(each, partitions) for each, partitions in active.kept.items()}
        # new tasks come with the target's epoch, after all is revoked: other members may wait for what is revoked here
        if not pending_revocation.is_empty:
            state = MemberState.UNREVOKED_TASKS
            assigned = AssignedTasks(epochs, _frozen(standby.kept), _frozen(warmup.kept))
        else:
            has_unreleased = active.has_unreleased or standby.has_unreleased or warmup.has_unreleased
            state = MemberState.UNRELEASED_TASKS if has_unreleased else MemberState.STABLE
            member_epoch = self._target_epoch
            for subtopology_id, partitions in active.to_assign.items():
                epochs.setdefault(subtopology_id, {}).update(dict.fromkeys(partitions, self._target_epoch))
            assigned = AssignedTasks(
                epochs, _frozen(standby.kept, standby.to_assign), _frozen(warmup.kept, warmup.to_assign)
            )
        revoked = pending_revocation.active
        is_apart = all(given.keys().isdisjoint(revoked.get(each, ())) for each, given in epochs.items())
        assert is_apart, "a task would be run and revoked"
        assert epochs.keys() <= self._target.active.keys(), "a member would run what its target does not have"
        return replace(
            self._member,
            state=state,
            member_epoch=member_epoch,
            previous_member_epoch=self._member.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def _epochs(self, subtopology_id: str, partitions: Iterable[int]) -> dict[int, int]:
        epochs = self._member.assigned.active[subtopology_id]
        return {partition: epochs[partition] for partition in partitions}

    def _pending_revocation(self, active: _Difference, standby: _Difference, warmup: _Difference) -> AssignedTasks:
        """Return the tasks that must still be revoked. Copies that will become active are not revoked."""
        assigned, wanted = self._member.assigned, self._target.active
        for tasks, difference in ((assigned.standby, standby), (assigned.warmup, warmup)):
            for subtopology_id, partition in _both(tasks, wanted):
                _discard(difference.to_revoke, subtopology_id, partition)
        to_revoke = AssignedTasks(
            {each: self._epochs(each, partitions) for each, partitions in active.to_revoke.items()},
            _frozen(standby.to_revoke),
            _frozen(warmup.to_revoke),
        )
        return to_revoke if self.has_not_released(to_revoke) else NOTHING_ASSIGNED

    def _keep_promoted(
        self, active: _Difference, standby: _Difference, warmup: _Difference, *, is_revoking: bool
    ) -> None:
        """Keep copies that are to become active until the active task is given."""
        assigned, wanted = self._member.assigned, self._target.active
        for tasks, difference in ((assigned.standby, standby), (assigned.warmup, warmup)):
            for subtopology_id, partition in _both(tasks, wanted):
                if is_revoking or partition not in active.to_assign.get(subtopology_id, ()):
                    difference.kept.setdefault(subtopology_id, set()).add(partition)

    # -- which tasks are free -------------------------------------------------------------------------------------

    def _is_unreleased_active(self, subtopology_id: str, partition: int) -> bool:
        return (
            self._owners.active_process(subtopology_id, partition) is not None
            or self._is_anothers_standby(subtopology_id, partition)
            or self._is_anothers_warmup(subtopology_id, partition)
        )

    def _is_unreleased_standby(self, subtopology_id: str, partition: int) -> bool:
        is_own = partition in self._member.assigned.active.get(subtopology_id, ())
        return (
            (self._is_run_here(subtopology_id, partition) and not is_own)
            or self._member.process_id in self._owners.standby_processes(subtopology_id, partition)
            or self._is_anothers_warmup(subtopology_id, partition)
        )

    def _is_unreleased_warmup(self, subtopology_id: str, partition: int) -> bool:
        return (
            self._is_run_here(subtopology_id, partition)
            or self._is_anothers_standby(subtopology_id, partition)
            or self._member.process_id in self._owners.warmup_processes(subtopology_id, partition)
        )

    def _is_run_here(self, subtopology_id: str, partition: int) -> bool:
        """Whether a member of the same process runs the task."""
        return self._owners.active_process(subtopology_id, partition) == self._member.process_id

    def _is_anothers_standby(self, subtopology_id: str, partition: int) -> bool:
        """Whether another member of the same process has the task as a standby."""
        processes = self._owners.standby_processes(subtopology_id, partition)
        return self._is_of_another(processes, self._member.assigned.standby, subtopology_id, partition)

    def _is_anothers_warmup(self, subtopology_id: str, partition: int) -> bool:
        processes = self._owners.warmup_processes(subtopology_id, partition)
        return self._is_of_another(processes, self._member.assigned.warmup, subtopology_id, partition)

    def _is_of_another(self, processes: Set[str], mine: Tasks, subtopology_id: str, partition: int) -> bool:
        return self._member.process_id in processes and partition not in mine.get(subtopology_id, ())


def _change_role(outgoing: Tasks, incoming: _Difference, to_revoke: TaskSets | None = None) -> None:
    """Give the tasks at once that the member has in another role, whose state it has already.

    `to_revoke`: those of the other role that it need not revoke then; an active task must be closed in any case.
    """
    for subtopology_id, partitions in outgoing.items():
        for partition in partitions & incoming.to_assign.get(subtopology_id, frozenset()):
            incoming.grant(subtopology_id, partition)
            if to_revoke is not None:
                _discard(to_revoke, subtopology_id, partition)


def _both(tasks: Tasks, others: Tasks) -> Iterable[tuple[str, int]]:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions & others.get(subtopology_id, frozenset()):
            yield subtopology_id, partition


def _discard(tasks: TaskSets, subtopology_id: str, partition: int) -> None:
    partitions = tasks.get(subtopology_id)
    if partitions is not None:
        partitions.discard(partition)
        if not partitions:
            del tasks[subtopology_id]


def _frozen(tasks: TaskSets, more: TaskSets | None = None) -> dict[str, frozenset[int]]:
    merged = {each: frozenset(partitions) for each, partitions in tasks.items()}
    for each, partitions in (more or {}).items():
        merged[each] = merged.get(each, frozenset()) | partitions
    return merged
