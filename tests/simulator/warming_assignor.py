"""An assignor that warms tasks up, which no assignor of Apache Kafka 4.4.0 does yet: what follows is there already."""

from collections.abc import Iterator, Mapping
from typing import Final

from kafkapy.group.streams.assignor_spec import GroupAssignment, GroupSpec
from kafkapy.group.streams.sticky_assignor import assign_steps
from kafkapy.group.streams.tasks import Tasks, TasksTuple
from kafkapy.machine import SmallSteps
from tests.support.streams_groups import Task

NAME: Final = "warming"


def assign_warming(spec: GroupSpec) -> SmallSteps[GroupAssignment]:
    """As `sticky`, but a task that moves to a process without a copy stays, and is warmed up there first."""
    wanted = yield from assign_steps(spec)
    owners = {task: member_id for member_id, member in spec.members.items() for task in _tasks(member.active)}
    copies = {(_process(spec, each), task) for each, member in spec.members.items() for task in _all(member)}
    copies |= {(_process(spec, each), task) for each, tasks in wanted.items() for task in _copies(tasks)}
    active = {member_id: set(_tasks(tasks.active)) for member_id, tasks in wanted.items()}
    warmup: dict[str, set[Task]] = {member_id: set() for member_id in wanted}
    for member_id, tasks in wanted.items():
        for task in _tasks(tasks.active):
            owner, process_id = owners.get(task), _process(spec, member_id)
            if owner is None or not spec.subtopologies[task[0]].is_stateful or (process_id, task) in copies:
                continue
            if any((_process(spec, owner), task) in _of(spec, each, other) for each, other in wanted.items()):
                continue
            active[member_id].discard(task)
            active[owner].add(task)
            warmup[member_id].add(task)
    return {
        each: TasksTuple(_by_subtopology(active[each]), tasks.standby, _by_subtopology(warmup[each]))
        for each, tasks in wanted.items()
    }


def _process(spec: GroupSpec, member_id: str) -> str:
    return spec.members[member_id].process_id


def _of(spec: GroupSpec, member_id: str, tasks: TasksTuple) -> set[tuple[str, Task]]:
    return {(_process(spec, member_id), task) for task in _copies(tasks)}


def _tasks(tasks: Tasks) -> Iterator[Task]:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield subtopology_id, partition


def _copies(tasks: TasksTuple) -> Iterator[Task]:
    yield from _tasks(tasks.standby)
    yield from _tasks(tasks.warmup)


def _all(member: object) -> Iterator[Task]:
    for name in ("active", "standby", "warmup"):
        yield from _tasks(getattr(member, name))


def _by_subtopology(tasks: set[Task]) -> Mapping[str, frozenset[int]]:
    return {
        each: frozenset(number for owner, number in tasks if owner == each) for each in sorted({t for t, _ in tasks})
    }
