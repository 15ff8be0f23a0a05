"""Which process has a task: cases of Apache Kafka's StreamsGroupTest (4.3.1) about the processes of its tasks."""

import pytest

from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.task_owners import TaskOwners
from kafkapy.group.streams.tasks import NOTHING_ASSIGNED, AssignedTasks

ROLES = ("active", "standby", "warmup")


def tasks(subtopology_id: str, active: int, standby: int, warmup: int) -> AssignedTasks:
    """Return a task in each role."""
    copies = ({subtopology_id: frozenset({number})} for number in (standby, warmup))
    return AssignedTasks({subtopology_id: {active: 10}}, *copies)


def member(process_id: str, assigned: AssignedTasks, pending: AssignedTasks = NOTHING_ASSIGNED) -> StreamsMember:
    return StreamsMember("m", process_id=process_id, assigned=assigned, pending_revocation=pending)


def processes(owners: TaskOwners, subtopology_id: str, *numbers: int) -> list[set[str]]:
    """Return the processes of an active task, a standby and a warm-up."""
    active, standby, warmup = numbers
    process_id = owners.active_process(subtopology_id, active)
    return [
        set() if process_id is None else {process_id},
        set(owners.standby_processes(subtopology_id, standby)),
        set(owners.warmup_processes(subtopology_id, warmup)),
    ]


def all_of(owners: TaskOwners) -> list[list[set[str]]]:
    return [processes(owners, "foo", 1, 2, 3), processes(owners, "bar", 4, 5, 6), processes(owners, "zar", 7, 8, 9)]


def test_a_members_tasks_follow_it_to_another_process_and_go_with_it() -> None:
    owners = TaskOwners()
    assigned, pending = tasks("foo", 1, 2, 3), tasks("bar", 4, 5, 6)
    before, after = member("process", assigned, pending), member("process1", assigned, pending)
    owners.add(before)
    assert all_of(owners) == [[{"process"}] * 3, [{"process"}] * 3, [set()] * 3]
    owners.remove(before)
    owners.add(after)
    assert all_of(owners) == [[{"process1"}] * 3, [{"process1"}] * 3, [set()] * 3]
    owners.remove(after)
    assert all_of(owners) == [[set()] * 3] * 3


def test_a_task_that_was_to_be_revoked_may_be_assigned_again() -> None:
    owners = TaskOwners()
    before = member("process", NOTHING_ASSIGNED, tasks("foo", 1, 2, 3))
    owners.add(before)
    owners.remove(before)
    owners.add(member("process1", tasks("foo", 1, 2, 3)))
    assert processes(owners, "foo", 1, 2, 3) == [{"process1"}] * 3


def test_an_active_task_belongs_to_the_process_that_got_it_last_and_copies_to_all() -> None:
    owners = TaskOwners()
    for process_id in ("process1", "process2"):
        owners.add(member(process_id, tasks("foo", 1, 2, 3)))
    assert processes(owners, "foo", 1, 2, 3) == [{"process2"}, {"process1", "process2"}, {"process1", "process2"}]


@pytest.mark.parametrize("role", range(len(ROLES)), ids=ROLES)
def test_a_process_gives_up_no_task_of_another_one(role: int) -> None:
    owners = TaskOwners()
    owners.remove(member("process1", tasks("foo", 1, 2, 3)))
    assert processes(owners, "foo", 1, 2, 3)[role] == set()
    owners.add(member("process", tasks("foo", 1, 2, 3)))
    owners.remove(member("process1", tasks("foo", 1, 2, 3)))
    assert processes(owners, "foo", 1, 2, 3)[role] == {"process"}
