"""An assignor that warms tasks up.

No assignor of Apache Kafka 4.4.0 does so yet, but its coordinator already carries out such an assignment, as ours does.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kafkapy.group.streams.assignor_spec import GroupAssignment, GroupSpec, MemberSpec
from kafkapy.group.streams.sticky_assignor import assign_steps
from kafkapy.group.streams.tasks import TasksTuple
from kafkapy.machine import SmallSteps
from tests.support.streams_groups import Task, each_task

NAME: Final = "warming"


def assign_warming(spec: GroupSpec) -> SmallSteps[GroupAssignment]:
    """As `sticky`, but a task that moves to a process without a copy stays, and is warmed up there first."""
    wanted = yield from assign_steps(spec)
    owners = {task: member_id for member_id, member in spec.members.items() for task in each_task(member.active)}
    wanted_copies = {(_process(spec, each), task) for each, tasks in wanted.items() for task in _copies(tasks)}
    copies = wanted_copies | {
        (member.process_id, task)
        for member in spec.members.values()
        for task in (*each_task(member.active), *_copies(member))
    }
    active = {member_id: set(each_task(tasks.active)) for member_id, tasks in wanted.items()}
    warmup: dict[str, set[Task]] = {member_id: set() for member_id in wanted}
    for member_id, tasks in wanted.items():
        for task in each_task(tasks.active):
            owner, process_id = owners.get(task), _process(spec, member_id)
            if owner is None or not spec.subtopologies[task[0]].is_stateful:
                continue
            if (process_id, task) in copies or (_process(spec, owner), task) in wanted_copies:
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


def _copies(tasks: MemberSpec | TasksTuple) -> Iterator[Task]:
    yield from each_task(tasks.standby)
    yield from each_task(tasks.warmup)


def _by_subtopology(tasks: set[Task]) -> Mapping[str, frozenset[int]]:
    return {
        each: frozenset(number for owner, number in tasks if owner == each) for each in sorted({t for t, _ in tasks})
    }
