"""Tasks by the assignor `sticky`: each case of Apache Kafka's StickyTaskAssignorTest (4.3.1).

A topology is written as `SUBTOPOLOGY:NUMBER OF TASKS`, tasks as `SUBTOPOLOGY:PARTITION,...`, a member with the tasks
that it had as `MEMBER PROCESS ACTIVE TASKS | STANDBYS`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import field

import pytest

from kafkapy.dataclass import dataclass
from kafkapy.group.streams.assignor_spec import (
    AssignmentConfigs,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    SubtopologySpec,
)
from kafkapy.group.streams.assignors import ASSIGNORS
from kafkapy.group.streams.sticky_assignor import assign_steps, assign_sticky
from kafkapy.group.streams.tasks import Tasks
from tests.support.streams_groups import Task, each_task

FOUR_OF_THREE = "a:4 b:4 c:4"
FIRST_OF_FOUR_OF_THREE = "1 p1 a:1 b:2,3 | a:0 b:1 c:0,1,3"
SECOND_OF_FOUR_OF_THREE = "2 p2 a:0 b:1 c:2 | a:1,2,3 b:0,2,3 c:0,1,3"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    topology: str
    members: tuple[str, ...]
    standbys: int | None = None
    """None: the tasks have no state, so that they cannot have a standby."""
    active_counts: Mapping[str, int] = field(default_factory=dict)
    """By member, or several members of a process."""
    active: Mapping[str, str] = field(default_factory=dict)
    standby: Mapping[str, str] = field(default_factory=dict)
    keeps: Mapping[str, str] = field(default_factory=dict)
    """Active tasks that are among those of a member."""
    gets_only: Mapping[str, str] = field(default_factory=dict)
    """Tasks which a member's active ones are among."""
    max_tasks: int | None = None
    """Of a member, active ones and standbys together."""


def new(*names: str) -> tuple[str, ...]:
    """Return members, each in a process of its own, that had no tasks."""
    return tuple(f"{name} process{name}" for name in names)


def even(count: int, *names: str) -> dict[str, int]:
    return dict.fromkeys(names, count)


IN_THREE_PROCESSES = ("1.1 p1", "1.2 p1", "2.1 p2", "2.2 p2", "3.1 p3", "3.2 p3")
ONE_AND_TWO = ("1 p1", "2.1 p2", "2.2 p2")
CASES = [
    Case("a task for each process", "a:3", new("1", "2", "3"), active_counts=even(1, "1", "2", "3")),
    Case(
        "subtopologies are divided evenly",
        "a:3 b:3",
        IN_THREE_PROCESSES,
        active_counts=even(1, "1.1", "1.2", "2.1", "2.2", "3.1", "3.2"),
    ),
    Case(
        "subtopologies with standbys are divided evenly",
        "a:3 b:3",
        IN_THREE_PROCESSES,
        standbys=1,
        active_counts=even(1, "1.1", "1.2", "2.1", "2.2", "3.1", "3.2"),
    ),
    Case("active tasks stay", "a:3", ("1 p1 a:0", "2 p2 a:1"), keeps={"1": "a:0", "2": "a:1"}),
    Case("and so after they have moved", "a:3", ("2 p2 a:1", "3 p1 a:2"), keeps={"2": "a:1", "3": "a:2"}),
    Case(
        "one task moves to a new process",
        "a:3",
        ("1 p1 a:0,2", "2 p2 a:1", "3 p3"),
        active_counts=even(1, "1", "2", "3"),
        keeps={"2": "a:1"},
        gets_only={"1": "a:0,2", "3": "a:0,2"},
    ),
    Case("by capacity", "a:3", ONE_AND_TWO, active_counts=even(1, "1", "2.1", "2.2")),
    Case(
        "subtopologies of unequal size",
        "a:6 b:1",
        ("1 p1 a:0,1,2,3,4,5 b:0", "2 p2"),
        active_counts={"1": 4, "2": 3},
    ),
    Case(
        "more processes than tasks",
        "a:3",
        ("1 p1 a:0", "2 p2 a:2", "3 p3 a:1", "4 p4", "5 p5"),
        active={"1": "a:0", "2": "a:2", "3": "a:1", "4": "", "5": ""},
    ),
    Case(
        "more processes than tasks, which have moved",
        "a:3",
        ("1 p1", "2 p2 a:0", "3 p3", "4 p4 a:2", "5 p5 a:1"),
        active={"1": "", "2": "a:0", "3": "", "4": "a:2", "5": "a:1"},
    ),
    Case(
        "a standby becomes active",
        "a:3",
        ("1 p1 | a:2", "2 p2 | a:1", "3 p3 | a:0"),
        active={"1": "a:2", "2": "a:1", "3": "a:0"},
    ),
    Case(
        "a standby becomes active and is not one any more",
        "a:2",
        ("1 p1 | a:0", "2 p2 | a:1"),
        standbys=1,
        active={"1": "a:0", "2": "a:1"},
        standby={"1": "a:1", "2": "a:0"},
    ),
    Case(
        "by capacity when several have the standby",
        "a:3",
        ("1 p1 a:0 | a:1", "2.1 p2 a:2 | a:1", "2.2 p2"),
        active={"1": "a:0", "2.1": "a:2", "2.2": "a:1"},
    ),
    Case(
        "several standbys of a task",
        "a:3",
        ("1 p1 a:0", "2 p2 a:1", "3 p3 a:2"),
        standbys=2,
        standby={"1": "a:1,2", "2": "a:0,2", "3": "a:0,1"},
    ),
    Case("no standby beside the task itself", "a:1", new("1"), standbys=1, active={"1": "a:0"}, standby={"1": ""}),
    Case("active tasks and standbys", "a:3", new("1", "2", "3"), standbys=1),
    Case(
        "at least a task for each process",
        "a:3",
        ("1.1 p1", "1.2 p1", "1.3 p1", "2 p2", "3 p3"),
        active_counts={"1.1 1.2 1.3": 1, "2": 1, "3": 1},
    ),
    Case("a task has one owner among many", "a:3", new("1", "2", "3", "4", "5", "6")),
    Case("standbys balance active tasks", "a:3", new("1", "2", "3", "4", "5", "6"), standbys=1, max_tasks=1),
    Case("more to who has more members", "a:3 b:3 c:3 d:3", ONE_AND_TWO, active_counts={"1": 4, "2.1 2.2": 8}),
    Case(
        "from one process to all",
        "a:4",
        ("1 p1", "2 p2", "3 p3 a:0,1,2,3", "4 p4"),
        active_counts=even(1, "1", "2", "3", "4"),
    ),
    Case(
        "from one process to all, which get more than one",
        "a:4",
        ("1 p1", "2 p2", "3 p3 a:0,1,2,3"),
        active_counts={"1": 1, "2": 1, "3": 2},
    ),
    Case(
        "from one process to a larger one, of a task that is no more",
        "a:3",
        ("2 p2 a:0,3,2", "3.1 p3", "3.2 p3"),
        active_counts={"2": 1, "3.1 3.2": 2},
    ),
    Case(
        "as few tasks as possible move",
        "a:4",
        ("1 p1 a:0,2", "2 p2 a:1,3", "3 p3"),
        active_counts={"3": 1},
        gets_only={"1": "a:0,2", "2": "a:1,3"},
    ),
    Case("no task moves for new ones", "a:6", ("1 p1 a:0,1", "2 p2 a:2,3"), keeps={"1": "a:0,1", "2": "a:2,3"}),
    Case(
        "new tasks go to the new process",
        "a:6",
        ("1 p1 a:2,1", "2 p2 a:0,3", "3 p3"),
        active={"1": "a:1,2", "2": "a:0,3", "3": "a:4,5"},
    ),
    Case(
        "tasks that were not active go to the new process",
        FOUR_OF_THREE,
        (
            FIRST_OF_FOUR_OF_THREE,
            SECOND_OF_FOUR_OF_THREE,
            "3 p3 c:0,1,3 | a:2 b:2",
            "new p4 | a:0,1,2,3 b:0,1,2,3 c:0,1,2,3",
        ),
        active={"1": "a:1 b:2,3", "2": "a:0 b:1 c:2", "3": "c:0,1,3", "new": "a:2,3 b:0"},
    ),
    Case(
        "tasks that were not active go to those that come back",
        FOUR_OF_THREE,
        (FIRST_OF_FOUR_OF_THREE, SECOND_OF_FOUR_OF_THREE, "back1 b1 | c:0,1,3", "back2 b2 | a:2,3 b:0"),
        active={"1": "a:1 b:2,3", "2": "a:0 b:1 c:2", "back1": "c:0,1,3", "back2": "a:2,3 b:0"},
    ),
    Case("a task moves to a new process", "a:2", ("1 p1 a:1,2", "2 p2"), active_counts={"1": 1}),
    Case(
        "tasks move to the new process and not between the others",
        "a:6",
        ("1 p1 a:0,1,2", "2 p2 a:3,4,5", "new p3"),
        active_counts=even(2, "1", "2", "new"),
        gets_only={"1": "a:0,1,2", "2": "a:3,4,5"},
    ),
    Case(
        "nor to one that comes back",
        "a:7",
        ("1 p1 a:0,1,2,6", "2 p2 | a:3,4,5", "new p3"),
        active_counts={"1": 3, "2": 2, "new": 2},
        gets_only={"1": "a:0,1,2,6", "2": "a:3,4,5,6"},
    ),
    Case(
        "many tasks with two standbys",
        "a:100",
        new("0", "1", "2", "3", "4"),
        standbys=2,
        active_counts=even(20, "0", "1", "2", "3", "4"),
    ),
    Case(
        "an odd number of processes",
        "a:14",
        new("0", "1", "2", "3", "4", "5", "6"),
        standbys=1,
        active_counts=even(2, "0", "1", "2", "3", "4", "5", "6"),
    ),
    Case("more standbys than three processes can have", "a:6", new("0", "1", "2"), standbys=5),
    Case("many subtopologies", " ".join(f"{each}:5" for each in range(10)), new("0", "1", "2", "3"), standbys=1),
    Case("one process, three standbys", "a:10", new("1"), standbys=3, active_counts={"1": 10}, standby={"1": ""}),
    Case("more standbys than two processes can have", "a:4", new("0", "1"), standbys=5),
    Case(
        "a third process where tasks have standbys",
        "a:4",
        ("1 p1 a:0,1 | a:2,3", "2 p2 a:2,3 | a:0,1", "3 p3"),
        standbys=1,
        max_tasks=3,
    ),
    Case(
        "a standby stays below the quota",
        "a:2",
        ("1 p1 a:0 | a:1", "2 p2 a:1", "3 p3"),
        standbys=1,
        active={"1": "a:0"},
        standby={"1": "a:1"},
    ),
]


def tasks_of(text: str) -> dict[str, frozenset[int]]:
    pairs = (each.split(":") for each in text.split())
    return {subtopology_id: frozenset(map(int, numbers.split(","))) for subtopology_id, numbers in pairs}


def assigned(case: Case) -> GroupAssignment:
    members = {}
    for text in case.members:
        before, _, standby = text.partition("|")
        member_id, process_id, *active = before.split()
        members[member_id] = MemberSpec(process_id, active=tasks_of(" ".join(active)), standby=tasks_of(standby))
    counts = (each.split(":") for each in case.topology.split())
    has_state = case.standbys is not None
    subtopologies = {each: SubtopologySpec(int(count), has_state) for each, count in counts}
    return assign_sticky(GroupSpec(members, subtopologies, AssignmentConfigs(case.standbys or 0)))


def processes(case: Case) -> dict[str, str]:
    """Return the process of each member."""
    return dict(text.split()[:2] for text in case.members)  # type: ignore[misc]


def all_tasks(case: Case) -> set[Task]:
    counts = (each.split(":") for each in case.topology.split())
    return {(each, number) for each, count in counts for number in range(int(count))}


def merged(*tasks: Tasks) -> list[Task]:
    return sorted(task for each in tasks for task in each_task(each))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tasks_are_assigned_as_kafka_does(case: Case) -> None:
    result = assigned(case)
    for members, count in case.active_counts.items():
        assert len(merged(*(result[each].active for each in members.split()))) == count, members
    for member_id, tasks in case.active.items():
        assert result[member_id].active == tasks_of(tasks), member_id
    for member_id, tasks in case.standby.items():
        assert result[member_id].standby == tasks_of(tasks), member_id
    for member_id, tasks in case.keeps.items():
        assert set(merged(tasks_of(tasks))) <= set(merged(result[member_id].active)), member_id
    for member_id, tasks in case.gets_only.items():
        assert set(merged(result[member_id].active)) <= set(merged(tasks_of(tasks))), member_id
    if case.max_tasks is not None:
        assert max(len(merged(each.active, each.standby)) for each in result.values()) <= case.max_tasks


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_task_has_one_owner_and_its_standbys_in_other_processes(case: Case) -> None:
    result, process_of = assigned(case), processes(case)
    assert result.keys() == process_of.keys()
    assert merged(*(each.active for each in result.values())) == sorted(all_tasks(case))
    standbys = Counter(merged(*(each.standby for each in result.values())))
    possible = min(case.standbys or 0, len(set(process_of.values())) - 1)
    assert standbys == Counter(dict.fromkeys(all_tasks(case), possible) if possible else {})
    in_processes = [
        (process_of[name], each) for name in result for each in merged(result[name].active, result[name].standby)
    ]
    assert len(in_processes) == len(set(in_processes)), "twice in a process"


def test_standbys_are_spread_over_the_processes() -> None:
    case = Case("", "a:4", ("1 p1 a:0", "2 p2 a:1", "3 p3 a:2", "4 p4 a:3"), standbys=1)
    counts = [len(merged(each.standby)) for each in assigned(case).values()]
    assert max(counts) <= 2
    assert sum(count > 0 for count in counts) >= 3


@pytest.mark.parametrize("first", ["1 p1", "1 p1 a:0,1 b:0,1"], ids=["from nothing", "scaled up"])
def test_two_processes_get_one_task_and_one_standby_of_each_subtopology(first: str) -> None:
    for member in assigned(Case("", "a:2 b:2", (first, "2 p2"), standbys=1)).values():
        for tasks in (member.active, member.standby):
            assert {each: len(numbers) for each, numbers in tasks.items()} == {"a": 1, "b": 1}


def test_a_third_process_gets_an_active_task_where_tasks_have_standbys() -> None:
    (case,) = (each for each in CASES if each.name == "a third process where tasks have standbys")
    assert sorted(len(merged(each.active)) for each in assigned(case).values()) == [1, 1, 2]


def test_the_assignor_goes_by_its_name() -> None:
    assert ASSIGNORS["sticky"] is assign_steps
