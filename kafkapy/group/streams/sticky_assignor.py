"""The assignor `sticky` of streams groups: tasks stay where they ran or have their state, in balance. Pure.

Active tasks go to the members that ran them, then to those with a standby or with the most of the task's state, as long
as the member is below its quota; the rest to the process with the fewest tasks per member, and in it to the member with
the fewest. Standbys of stateful tasks follow in the same way, each in a process that has no copy of the task yet; if
there is none, fewer standbys than configured are assigned.

The result is Apache Kafka's for the same input, task by task (tests/golden/streams_assignments.txt.gz). Kafka's result
depends on the order of its hash maps and priority queues, hence hash_order.py and java_queue.py. Racks, tags and
warm-up tasks do not change it: 4.4.0 passes them to assignors, and `sticky` ignores them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kafkapy.group.hash_order import hash_of_text, in_order_of_computing, natural_order
from kafkapy.group.streams.assignor_spec import GroupAssignment, GroupSpec, MemberSpec
from kafkapy.group.streams.java_queue import JavaQueue
from kafkapy.group.streams.process_state import ProcessState
from kafkapy.group.streams.tasks import TaskId, Tasks, TasksTuple
from kafkapy.machine import SmallSteps, end_of

NAME: Final = "sticky"
TASKS_PER_STEP: Final = 200
"""A millisecond or two."""
MEMBERS_PER_STEP: Final = 20
"""Members whose tasks are collected in a step, if they have ten on average. One with more has steps of its own."""


def assign_sticky(spec: GroupSpec) -> GroupAssignment:
    """Return the active and standby tasks of every member."""
    return end_of(assign_steps(spec))


def assign_steps(spec: GroupSpec) -> SmallSteps[GroupAssignment]:
    """Like assign_sticky(), in steps of some TASKS_PER_STEP tasks, which take a millisecond or two."""
    if not spec.members:
        return {}
    assignment = _Assignment(spec)
    yield from assignment.prepare()
    yield from assignment.assign_active()
    if spec.configs.num_standby_replicas > 0:
        yield from assignment.assign_standby()
    return (yield from assignment.result())


class _Quota:
    """How many tasks a member may get from those that had it: their number divided among members, rounded up."""

    __slots__ = ("_members", "_tasks", "per_member")

    def __init__(self, tasks: int, members: int) -> None:
        assert members > 0, "nobody to divide tasks among"
        self._tasks, self._members = tasks, members
        self.per_member = -(-tasks // members)

    def on_added(self, task_count: int) -> None:
        """Divide the rest among the others if a member, which has so many tasks now, has its quota."""
        if task_count == self.per_member:
            self._members -= 1
            self._tasks -= task_count
            assert self._members >= 0, "more members have their quota than there are"
            assert self._tasks >= 0, "more tasks were given than there are"
            self.per_member = -(-self._tasks // self._members) if self._members > 0 else 0


class _Assignment:
    """One run."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        members = spec.members
        self._standby_count = spec.configs.num_standby_replicas
        counts = {
            each: spec.subtopologies[each].number_of_tasks for each in sorted(spec.subtopologies, key=natural_order)
        }
        stateful = {each: count for each, count in counts.items() if spec.subtopologies[each].is_stateful}
        self._active_tasks, self._stateful_tasks = _TasksInOrder(counts), _TasksInOrder(stateful)
        self._active_quota = _Quota(self._active_tasks.count, len(members))
        all_count = self._active_tasks.count + self._stateful_tasks.count * self._standby_count
        self._quota = _Quota(all_count, len(members))
        self._processes: dict[str, ProcessState] = {}
        for member_id, member in members.items():
            self._processes.setdefault(member.process_id, ProcessState()).add_member(member_id)
        self._had_active: dict[TaskId, str] = {}
        self._had_state: dict[TaskId, list[str]] = {}

    def prepare(self) -> SmallSteps[None]:
        """Find out what each member had."""
        seen_count = 0
        for member_id, member in self._spec.members.items():
            for task in _tasks_of(member.active):
                self._had_active[task] = member_id
                seen_count += 1
                if seen_count % TASKS_PER_STEP == 0:
                    yield
        self._had_state = yield from _members_with_state(self._spec.members.items())

    def assign_active(self) -> SmallSteps[None]:
        rest = []
        # 1. A task stays with the member that runs it.
        for count, task in enumerate(self._active_tasks.by_partition()):
            if count % TASKS_PER_STEP == 0:
                yield
            member_id = self._had_active.get(task)
            if member_id is None or not self._is_below(member_id, self._active_quota):
                rest.append(task)
            else:
                self._add_active(member_id, task)
        left = set()
        # 2. Others go to a member that has their state, as a standby or from an earlier run.
        for count, task in enumerate(rest):
            if count % TASKS_PER_STEP == 0:
                yield
            member_id = self._least_loaded(self._had_state.get(task, ()))
            if member_id is None or not self._is_below(member_id, self._active_quota):
                left.add(task)
            else:
                self._add_active(member_id, task)
        # 3. The rest is spread over the processes by load. As in Kafka, the quota does not hold here.
        queue = self._processes_by_load()
        for count, task in enumerate(self._active_tasks.by_subtopology() if left else ()):
            if count % TASKS_PER_STEP == 0:
                yield
            if task in left:
                process = queue.poll()
                self._on_active(process.add_to_least_loaded(task, is_active=True))
                queue.add(process.load, process)
        given_count = sum(len(tasks) for process in self._processes.values() for tasks in process.active.values())
        assert given_count == self._active_tasks.count, "a task runs in one member"

    def assign_standby(self) -> SmallSteps[None]:
        missing: dict[TaskId, int] = {}
        for count, task in enumerate(reversed(list(self._stateful_tasks.by_partition()))):
            if count % TASKS_PER_STEP == 0:
                yield
            missing[task] = self._standby_count - self._add_standbys_that_had_it(task)
            assert missing[task] >= 0, f"{task} has more standbys than are configured"
        queue = self._processes_by_load()
        for count, task in enumerate(reversed(list(self._stateful_tasks.by_subtopology()))):
            if count % TASKS_PER_STEP == 0:
                yield
            for _ in range(missing[task]):
                if not self._add_standby(queue, task):
                    break

    def result(self) -> SmallSteps[GroupAssignment]:
        assigned: dict[str, TasksTuple] = {}
        for member_id, member in self._spec.members.items():
            process = self._processes[member.process_id]
            active, standby = process.active.get(member_id, ()), process.standby.get(member_id, ())
            active_tasks = yield from _by_subtopology(active)
            standby_tasks = yield from _by_subtopology(standby)
            assigned[member_id] = TasksTuple(active_tasks, standby_tasks)
            if len(assigned) % MEMBERS_PER_STEP == 0:
                yield
        return assigned

    def _process(self, member_id: str) -> ProcessState:
        return self._processes[self._spec.members[member_id].process_id]

    def _is_below(self, member_id: str, quota: _Quota) -> bool:
        return self._process(member_id).member_task_counts[member_id] < quota.per_member

    def _add_active(self, member_id: str, task: TaskId) -> None:
        self._on_active(self._process(member_id).add_task(member_id, task, is_active=True))

    def _on_active(self, task_count: int) -> None:
        self._active_quota.on_added(task_count)
        self._quota.on_added(task_count)

    def _least_loaded(self, member_ids: Iterable[str], standby: TaskId | None = None) -> str | None:
        """Return the first member, or a later one if both it and its process have less to do.

        `standby`: leave out members of processes that have this task.
        """
        found: str | None = None
        process_load = member_load = 0.0
        for member_id in member_ids:
            process = self._process(member_id)
            if standby is not None and process.has_task(standby):
                continue
            count = process.member_task_counts[member_id]
            if found is None or (process.load < process_load and count < member_load):
                found, process_load, member_load = member_id, process.load, count
        return found

    def _processes_by_load(self) -> JavaQueue[ProcessState]:
        """Return all processes, the one with the fewest tasks per member first."""
        calls = [member.process_id for member in self._spec.members.values()]
        process_ids = in_order_of_computing(calls, hash_of_text, len(calls))
        assert len(process_ids) == len(self._processes), "a process is queued once"
        queue: JavaQueue[ProcessState] = JavaQueue()
        for process_id in process_ids:
            process = self._processes[process_id]
            queue.add(process.load, process)
        return queue

    def _add_standbys_that_had_it(self, task: TaskId) -> int:
        """Assign standbys of a task to the members that ran it or have its state; return how many."""
        for count in range(self._standby_count):
            member_id = self._had_active.get(task)
            if (
                member_id is None
                or self._process(member_id).has_task(task)
                or not self._is_below(member_id, self._quota)
            ):
                member_id = self._least_loaded(self._had_state.get(task, ()), task)
                if member_id is None or not self._is_below(member_id, self._quota):
                    return count
            self._quota.on_added(self._process(member_id).add_task(member_id, task, is_active=False))
        return self._standby_count

    def _add_standby(self, queue: JavaQueue[ProcessState], task: TaskId) -> bool:
        """Assign a standby to the process with the fewest tasks that has no copy; return whether there is one."""
        polled = [queue.poll()]
        while polled[-1].has_task(task) and queue:
            polled.append(queue.poll())
        found = not polled[-1].has_task(task)
        if found:
            self._quota.on_added(polled[-1].add_to_least_loaded(task, is_active=False))
        for process in reversed(polled):
            queue.add(process.load, process)
        return found


class _TasksInOrder:
    """The tasks of some subtopologies, in both orders, without sorting them."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        """`counts`: of tasks, by subtopology id, in ascending order."""
        self._counts = counts
        self.count = sum(counts.values())

    def by_subtopology(self) -> Iterator[TaskId]:
        for subtopology_id, count in self._counts.items():
            for partition in range(count):
                yield TaskId(subtopology_id, partition)

    def by_partition(self) -> Iterator[TaskId]:
        """Yield the tasks by partition, those of one partition by subtopology."""
        left, partition = list(self._counts.items()), 0
        while left:
            for subtopology_id, count in left:
                if partition < count:
                    yield TaskId(subtopology_id, partition)
            partition += 1
            left = [each for each in left if partition < each[1]]


def _tasks_of(tasks: Tasks) -> Iterator[TaskId]:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield TaskId(subtopology_id, partition)


def _members_with_state(members: Iterable[tuple[str, MemberSpec]]) -> SmallSteps[dict[TaskId, list[str]]]:
    """Return the members that have a task's state: first those with a standby, then by the offset, largest first."""
    ranked: dict[TaskId, list[tuple[bool, int, str]]] = {}
    seen_count = 0
    for member_id, member in members:
        for task, has_standby in _states_of(member):
            offset = member.task_offsets.get(task.subtopology_id, {}).get(task.partition, 0)
            ranked.setdefault(task, []).append((not has_standby, -offset, member_id))
            seen_count += 1
            if seen_count % TASKS_PER_STEP == 0:
                yield
    in_order: dict[TaskId, list[str]] = {}
    for task, candidates in ranked.items():
        in_order[task] = [member_id for _, _, member_id in sorted(candidates, key=lambda each: each[:2])]
        seen_count += len(candidates)
        if seen_count >= TASKS_PER_STEP:
            seen_count = 0
            yield
    return in_order


def _states_of(member: MemberSpec) -> Iterator[tuple[TaskId, bool]]:
    """Yield the tasks whose state a member has, and whether as a standby."""
    for task in _tasks_of(member.standby):
        yield task, True
    for subtopology_id, offsets in member.task_offsets.items():
        standbys = member.standby.get(subtopology_id, frozenset())
        for partition in offsets:
            if partition not in standbys:
                yield TaskId(subtopology_id, partition), False


def _by_subtopology(tasks: Iterable[TaskId]) -> SmallSteps[Tasks]:
    partitions: dict[str, set[int]] = {}
    for count, task in enumerate(tasks, 1):
        partitions.setdefault(task.subtopology_id, set()).add(task.partition)
        if count % TASKS_PER_STEP == 0:
            yield
    return {subtopology_id: frozenset(each) for subtopology_id, each in partitions.items()}
