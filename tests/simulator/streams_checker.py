"""What holds of a streams group at every moment, and what once all faults are over.

StreamsChecker looks into the group of one coordinator, ToldTasks keeps what responses of any coordinator said.
"""

from collections.abc import Iterable, Mapping

from kafkapy.group.streams.group import StreamsGroup
from kafkapy.group.streams.member import StreamsMember
from tests.simulator.cluster_checker import ViolationError
from tests.simulator.streams_members import Roles, SimulatedStreamsMember
from tests.support.streams_groups import Task, each_task


class StreamsChecker:
    """Looks at the log of a group and at its members. Methods raise ViolationError."""

    def __init__(self) -> None:
        self._group_epoch = self._assignment_epoch = 0
        self._member_epochs: dict[str, int] = {}

    def check_log(self, group: StreamsGroup) -> None:
        """No task is active in two members, nor in any role in two members of one process."""
        active: dict[Task, str] = {}
        of_process: dict[tuple[str, Task], str] = {}
        for member in group.log.members.values():
            for task in _active_tasks(member):
                owner = active.setdefault(task, member.member_id)
                if owner != member.member_id:
                    raise ViolationError(f"{owner} and {member.member_id} run {task}")
            for task in _all_tasks(member):
                owner = of_process.setdefault((member.process_id, task), member.member_id)
                if owner != member.member_id:
                    raise ViolationError(f"{owner} and {member.member_id} of {member.process_id} have {task}")

    def check_epochs(self, group: StreamsGroup) -> None:
        """Epochs never go back: the group's, the assignment's, and those of members as long as they are members."""
        log = group.log
        before = (self._group_epoch, self._assignment_epoch)
        self._group_epoch, self._assignment_epoch = log.group_epoch, log.assignment_epoch
        if self._group_epoch < before[0] or not before[1] <= self._assignment_epoch <= self._group_epoch:
            raise ViolationError(f"epochs {before} became {(self._group_epoch, self._assignment_epoch)}")
        epochs = {member_id: member.member_epoch for member_id, member in log.members.items()}
        for member_id, epoch in epochs.items():
            # below 0: a static member that has left for a while
            if 0 <= epoch < self._member_epochs.get(member_id, 0) or epoch > self._group_epoch:
                raise ViolationError(f"{member_id} went from {self._member_epochs.get(member_id)} to {epoch}")
        self._member_epochs = epochs

    def check_members(self, members: Iterable[SimulatedStreamsMember]) -> None:
        """No task is run actively by two members, as they see it themselves."""
        owners: dict[Task, str] = {}
        for member in members:
            for task in member.visible():
                owner = owners.setdefault(task, member.member_id)
                if owner != member.member_id:
                    raise ViolationError(f"{owner} and {member.member_id} both run {task}")

    def check_settled(
        self,
        group: StreamsGroup,
        running: list[SimulatedStreamsMember],
        task_counts: Mapping[str, int],
        stateful: Iterable[str],
        standby_count: int,
    ) -> None:
        """All are members of a stable group and run their targets; each task has its owner, and its standbys.

        There are `standby_count` standbys of a stateful task, or as many as other processes allow.
        """
        if group.state_name != "Stable" or set(group.log.members) != {each.member_id for each in running}:
            raise ViolationError(f"{group.state_name}, {sorted(group.log.members)}")
        wanted = sorted((each, number) for each, count in task_counts.items() for number in range(count))
        active = sorted(task for member in running for task in member.running.active)
        if active != wanted:
            raise ViolationError(f"{active} run, not {wanted}")
        copies = min(standby_count, len({member.process_id for member in running}) - 1)
        expected = sorted(task for task in wanted if task[0] in set(stateful) for _ in range(copies))
        for member in running:
            target = group.log.targets[member.member_id]
            targeted = Roles(*(set(each_task(tasks)) for tasks in (target.active, target.standby, target.warmup)))
            if member.running != targeted:
                raise ViolationError(f"{member.member_id} runs {member.running}, not its target {targeted}")
        standbys = sorted(task for member in running for task in member.running.standby)
        if standbys != expected:
            raise ViolationError(f"{standbys} have standbys, not {expected}")


class ToldTasks:
    """What responses have promised to the members of a group. Methods raise ViolationError.

    A response leaves once what it says is committed, so it holds whichever broker coordinates the group then; also if a
    former coordinator, which does not know yet that it was replaced, has given it. An `identity` is a member id, or the
    instance id of a static member.
    """

    def __init__(self) -> None:
        self.newest_epoch = 0
        self._owners: dict[tuple[int, Task], str] = {}
        self._newest: dict[Task, tuple[int, str]] = {}

    def newest_owner(self, task: Task) -> str | None:
        """Return who was told at the latest epoch to run a task."""
        found = self._newest.get(task)
        return None if found is None else found[1]

    def note_epoch(self, member_id: str, epoch: int, told_epoch: int) -> None:
        """A member that was at an epoch, 0 if it joined, was told another one."""
        if told_epoch < epoch:
            raise ViolationError(f"{member_id} was at epoch {epoch} and is told {told_epoch}")
        self.newest_epoch = max(self.newest_epoch, told_epoch)

    def note_tasks(self, identity: str, epoch: int, active: Iterable[Task]) -> None:
        """A member was told the tasks that it runs actively at an epoch: nobody else was told one of them at it."""
        for task in active:
            owner = self._owners.setdefault((epoch, task), identity)
            if owner != identity:
                raise ViolationError(f"{owner} and {identity} are told to run {task} at epoch {epoch}")
            self._newest[task] = max((epoch, identity), self._newest.get(task, (0, "")))

    def note_commit(self, identity: str, task: Task, owner: str | None) -> None:
        """A member that has not given a task up committed an offset of it. `owner`: newest_owner when it was sent."""
        if owner not in (None, identity):
            raise ViolationError(f"{identity} committed an offset of {task} after {owner} was told to run it")

    def check_coordinator(self, group_epoch: int) -> None:
        """Check a coordinator that no other has replaced: it knows what members were told."""
        if group_epoch < self.newest_epoch:
            raise ViolationError(f"the group is at epoch {group_epoch}, a member was told {self.newest_epoch}")


def _active_tasks(member: StreamsMember) -> set[Task]:
    return {task for tasks in (member.assigned, member.pending_revocation) for task in each_task(tasks.active)}


def _all_tasks(member: StreamsMember) -> set[Task]:
    copies = {
        task
        for tasks in (member.assigned, member.pending_revocation)
        for role in (tasks.standby, tasks.warmup)
        for task in each_task(role)
    }
    return _active_tasks(member) | copies
