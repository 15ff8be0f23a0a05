"""The assignor `sticky` of streams groups: tasks stay where they ran or have their state, in balance. Pure.

Active tasks go to the members that ran them, then to those with a standby or with the most of the task's state, as long
as the member is below its quota; the rest to the process with the fewest tasks per member, and in it to the member with
the fewest. Standbys of stateful tasks follow in the same way, each in a process that has no copy of the task yet; if
there is none, fewer standbys than configured are assigned.

The result is Apache Kafka's for the same input, task by task (tests/golden/streams_assignments.txt.gz). Kafka's result
depends on the order of its hash maps and priority queues, hence hash_order.py and java_queue.py. Racks, tags and
warm-up tasks do not change it: 4.4.0 passes them to assignors, and `sticky` ignores them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kafkapy.group.hash_order import hash_of_text, in_order_of_computing, natural_order
from kafkapy.group.streams.assignor_spec import GroupAssignment, GroupSpec, MemberSpec
from kafkapy.group.streams.java_queue import JavaQueue
from kafkapy.group.streams.process_state import ProcessState
from kafkapy.group.streams.tasks import TaskId, Tasks, TasksTuple

NAME: Final = "sticky"


def assign_sticky(spec: GroupSpec) -> GroupAssignment:
    """Return the active and standby tasks of every member."""
    if not spec.members:
        return {}
    assignment = _Assignment(spec)
    assignment.assign_active()
    if spec.configs.num_standby_replicas > 0:
        assignment.assign_standby()
    return assignment.result()


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
        self._active_tasks = list(_task_ids(spec, stateful_only=False))
        self._stateful_tasks = list(_task_ids(spec, stateful_only=True))
        self._active_quota = _Quota(len(self._active_tasks), len(members))
        all_count = len(self._active_tasks) + len(self._stateful_tasks) * self._standby_count
        self._quota = _Quota(all_count, len(members))
        self._processes: dict[str, ProcessState] = {}
        for member_id, member in members.items():
            self._processes.setdefault(member.process_id, ProcessState()).add_member(member_id)
        self._had_active = {
            task: member_id for member_id, member in members.items() for task in _tasks_of(member.active)
        }
        self._had_state = _members_with_state(members.items())

    def assign_active(self) -> None:
        by_partition = sorted(self._active_tasks, key=lambda task: (task.partition, natural_order(task.subtopology_id)))
        rest = []
        for task in by_partition:
            member_id = self._had_active.get(task)
            if member_id is None or not self._is_below(member_id, self._active_quota):
                rest.append(task)
            else:
                self._add_active(member_id, task)
        left = []
        for task in rest:
            member_id = self._least_loaded(self._had_state.get(task, ()))
            if member_id is None or not self._is_below(member_id, self._active_quota):
                left.append(task)
            else:
                self._add_active(member_id, task)
        queue = self._processes_by_load()
        left.sort(key=lambda task: (natural_order(task.subtopology_id), task.partition))
        for task in left:
            process = queue.poll()
            self._on_active(process.add_to_least_loaded(task, is_active=True))
            queue.add(process.load, process)
        given_count = sum(len(tasks) for process in self._processes.values() for tasks in process.active.values())
        assert given_count == len(self._active_tasks), "a task runs in one member"

    def assign_standby(self) -> None:
        tasks = sorted(
            self._stateful_tasks, key=lambda task: (task.partition, natural_order(task.subtopology_id)), reverse=True
        )
        missing = [(task, self._standby_count - self._add_standbys_that_had_it(task)) for task in tasks]
        missing.sort(key=lambda each: (natural_order(each[0].subtopology_id), each[0].partition), reverse=True)
        queue = self._processes_by_load()
        for task, missing_count in missing:
            for _ in range(missing_count):
                if not self._add_standby(queue, task):
                    break

    def result(self) -> GroupAssignment:
        assigned = {}
        for member_id, member in self._spec.members.items():
            process = self._processes[member.process_id]
            active, standby = process.active.get(member_id, ()), process.standby.get(member_id, ())
            assigned[member_id] = TasksTuple(_by_subtopology(active), _by_subtopology(standby))
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
        queue: JavaQueue[ProcessState] = JavaQueue()
        for process_id in in_order_of_computing(calls, hash_of_text, len(calls)):
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


def _task_ids(spec: GroupSpec, *, stateful_only: bool) -> Iterator[TaskId]:
    for subtopology_id, subtopology in spec.subtopologies.items():
        if subtopology.is_stateful or not stateful_only:
            for partition in range(subtopology.number_of_tasks):
                yield TaskId(subtopology_id, partition)


def _tasks_of(tasks: Tasks) -> Iterator[TaskId]:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield TaskId(subtopology_id, partition)


def _members_with_state(members: Iterable[tuple[str, MemberSpec]]) -> dict[TaskId, list[str]]:
    """Return the members that have a task's state: first those with a standby, then by the offset, largest first."""
    ranked: dict[TaskId, list[tuple[bool, int, str]]] = {}
    for member_id, member in members:
        standbys = set(_tasks_of(member.standby))
        offsets = {
            TaskId(subtopology_id, partition): offset
            for subtopology_id, by_partition in member.task_offsets.items()
            for partition, offset in by_partition.items()
        }
        for task in standbys:
            ranked.setdefault(task, []).append((False, -offsets.get(task, 0), member_id))
        for task, offset in offsets.items():
            if task not in standbys:
                ranked.setdefault(task, []).append((True, -offset, member_id))
    return {
        task: [member_id for _, _, member_id in sorted(candidates, key=lambda each: each[:2])]
        for task, candidates in ranked.items()
    }


def _by_subtopology(tasks: Iterable[TaskId]) -> Tasks:
    partitions: dict[str, set[int]] = {}
    for task in tasks:
        partitions.setdefault(task.subtopology_id, set()).add(task.partition)
    return {subtopology_id: frozenset(each) for subtopology_id, each in partitions.items()}
