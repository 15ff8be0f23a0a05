"""What a process is assigned while tasks are: cases of Apache Kafka's ProcessStateTest (4.3.1).

Whether a process has room, and which of two has more, is its load here: tasks per member.
"""

import pytest

from kafkapy.group.streams.process_state import ProcessState
from kafkapy.group.streams.tasks import TaskId

TASK, OTHER = TaskId("a", 0), TaskId("a", 1)


def process_of(*member_ids: str) -> ProcessState:
    process = ProcessState()
    for member_id in member_ids:
        process.add_member(member_id)
    return process


@pytest.mark.parametrize("is_active", [True, False])
def test_a_member_gets_a_task(is_active: bool) -> None:
    process = process_of("m")
    assert (process.has_task(TASK), process.load, process.member_task_counts) == (False, 0, {"m": 0})
    assert process.add_task("m", TASK, is_active=is_active) == 1
    assert (process.has_task(TASK), process.load, process.member_task_counts) == (True, 1, {"m": 1})
    assert (process.active, process.standby) == (({"m": {TASK}}, {}) if is_active else ({}, {"m": {TASK}}))


def test_a_process_has_active_tasks_and_standbys() -> None:
    process = process_of("m")
    process.add_task("m", TASK, is_active=True)
    process.add_task("m", OTHER, is_active=False)
    assert (process.has_task(TASK), process.has_task(OTHER)) == (True, True)
    assert (process.active, process.standby, process.load) == ({"m": {TASK}}, {"m": {OTHER}}, 2)


def test_a_process_with_more_members_is_less_loaded_by_as_many_tasks() -> None:
    small, large = process_of("m"), process_of("m", "n")
    for process in (small, large):
        process.add_to_least_loaded(TASK, is_active=True)
    assert (small.load, large.load) == (1, 0.5)
    large.add_to_least_loaded(OTHER, is_active=True)
    assert sorted(large.member_task_counts.values()) == [1, 1], "the other member gets the second task"
