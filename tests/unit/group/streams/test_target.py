"""The target assignment of a streams group: each case of Apache Kafka's TargetAssignmentBuilderTest (4.3.1).

What the assignor returns is given: what it is asked, and which records its result leads to, is tried with active tasks,
standbys and warm-ups.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kafkapy.group.streams.assignor_spec import GroupAssignment, GroupSpec, MemberSpec
from kafkapy.group.streams.configured_topology import (
    ConfiguredSubtopology,
    ConfiguredTopology,
    StatusCode,
    TopicConfigurationProblem,
)
from kafkapy.group.streams.member import StreamsMember, UserEndpoint
from kafkapy.group.streams.records import target_record
from kafkapy.group.streams.state import StreamsGroupLog
from kafkapy.group.streams.target import TargetInput, updated_view
from kafkapy.group.streams.task_offsets import MemberTaskOffsets
from kafkapy.group.streams.tasks import AssignedTasks, TasksTuple
from kafkapy.machine import SmallSteps, end_of

GROUP = "my-group"
ROLES = ("active", "standby", "warmup")
SUBTOPOLOGY = ConfiguredSubtopology(6, frozenset({"foo"}))
TOPOLOGY = ConfiguredTopology(0, {"foo": SUBTOPOLOGY, "bar": SUBTOPOLOGY})
NOT_READY = replace(TOPOLOGY, problem=TopicConfigurationProblem(StatusCode.MISSING_SOURCE_TOPICS, ""))


def tasks(role: str, *numbers: int) -> TasksTuple:
    """Return tasks of both subtopologies in one role."""
    return TasksTuple(**{role: {"foo": frozenset(numbers), "bar": frozenset(numbers)}})


def member_of(member_id: str, **fields: str | None) -> StreamsMember:
    return StreamsMember(member_id, process_id="process", user_endpoint=UserEndpoint("host", 9090), **fields)  # type: ignore[arg-type]


class Group:
    """Members with their targets, and an assignor that returns what it is told."""

    def __init__(self, **targets: TasksTuple) -> None:
        self.members = {each: member_of(each) for each in targets}
        self.targets = targets
        self.topology = TOPOLOGY
        self.offsets: dict[str, MemberTaskOffsets] = {}
        self.spec: GroupSpec | None = None
        """What the assignor was asked."""

    def changes(self, **assigned: TasksTuple) -> dict[str, TasksTuple]:
        """Return the new target of each member whose target is written, after a look at the whole result."""

        def assign(spec: GroupSpec) -> SmallSteps[GroupAssignment]:
            self.spec = spec
            yield
            return assigned

        wanted = TargetInput(self.members, self.targets, self.topology, self.offsets, {}, assign)
        result = end_of(wanted.steps())
        assert result.targets == {each: assigned.get(each, TasksTuple()) for each in self.members}
        records = result.changes(GROUP)
        written = {each: new for each, new in result.targets.items() if target_record(GROUP, each, new) in records}
        assert records == [target_record(GROUP, each, new) for each, new in written.items()]
        return written


def test_no_tasks_while_the_topology_is_not_ready() -> None:
    group = Group(a=tasks("active", 1))
    group.topology = NOT_READY
    assert group.changes() == {"a": TasksTuple()}
    assert group.spec is None, "nobody is asked"


def test_a_group_without_members_has_no_target() -> None:
    assert Group().changes() == {}


@pytest.mark.parametrize("role", ROLES)
def test_the_assignor_is_told_what_a_member_has(role: str) -> None:
    """Apache Kafka 4.3.1 tells it the target, 4.4.0 what is assigned, without the epochs, and the offsets."""
    numbers = {"foo": frozenset({1, 2, 3})}
    assigned = {role: {"foo": dict.fromkeys((1, 2, 3), 7)} if role == "active" else numbers}
    group = Group(m=tasks(role, 4))
    tags = {"zone": "a", "rack": "b"}
    group.members["m"] = replace(
        member_of("m", rack_id="rack", instance_id="instance"), client_tags=tags, assigned=AssignedTasks(**assigned)
    )
    group.offsets["m"] = MemberTaskOffsets({"foo": {1: 10}}, {"foo": {1: 20}})
    group.changes()
    assert group.spec is not None
    assert group.spec.members == {
        "m": MemberSpec(
            "process", "instance", "rack", tags, task_offsets={"foo": {1: 10}}, task_end_offsets={"foo": {1: 20}},
            **{role: numbers},
        )
    }  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_a_target_that_stays_is_not_written(role: str) -> None:
    targets = {"a": tasks(role, 1, 2, 3), "b": tasks(role, 4, 5, 6)}
    assert Group(**targets).changes(**targets) == {}


@pytest.mark.parametrize("role", ROLES)
def test_targets_that_are_swapped_are_written(role: str) -> None:
    first, second = tasks(role, 1, 2, 3), tasks(role, 4, 5, 6)
    assert Group(a=first, b=second).changes(a=second, b=first) == {"a": second, "b": first}


@pytest.mark.parametrize("role", ROLES)
def test_a_new_member_gets_a_target(role: str) -> None:
    group = Group(a=tasks(role, 1, 2, 3), b=tasks(role, 4, 5, 6))
    group.members["c"] = member_of("c")
    after = {"a": tasks(role, 1, 2), "b": tasks(role, 3, 4), "c": tasks(role, 5, 6)}
    assert group.changes(**after) == after


def test_a_new_member_without_tasks_gets_an_empty_target() -> None:
    group = Group(a=tasks("active", 1))
    group.members["b"] = member_of("b")
    assert group.changes(a=tasks("active", 1)) == {"b": TasksTuple()}


@pytest.mark.parametrize("role", ROLES)
def test_only_the_targets_that_change_are_written(role: str) -> None:
    group = Group(a=tasks(role, 1, 2), b=tasks(role, 3, 4), c=tasks(role, 5, 6))
    after = {"b": tasks(role, 3, 4, 5), "c": tasks(role, 6)}
    assert group.changes(a=tasks(role, 1, 2), **after) == after


@pytest.mark.parametrize("role", ROLES)
def test_the_others_get_what_a_member_that_left_had(role: str) -> None:
    group = Group(a=tasks(role, 1, 2), b=tasks(role, 3, 4), c=tasks(role, 5, 6))
    del group.members["c"]
    after = {"a": tasks(role, 1, 2, 3), "b": tasks(role, 4, 5, 6)}
    assert group.changes(**after) == after


def view(targets: Mapping[str, TasksTuple], updated: StreamsMember) -> Group:
    """Return a group whose members are static, with one of them as `updated`."""
    log = StreamsGroupLog(GROUP)
    log.members = {each: member_of(each, instance_id=f"instance-{each}") for each in targets}
    log.static_members = {f"instance-{each}": each for each in targets}
    log.targets = dict(targets)
    group = Group()
    members, before = updated_view(log, updated)
    group.members, group.targets = dict(members), dict(before)
    assert log.targets == targets, "the log stays as it is"
    return group


@pytest.mark.parametrize("role", ROLES)
def test_the_assignor_is_told_of_a_member_as_it_is_updated(role: str) -> None:
    targets = {"a": tasks(role, 1, 2, 3), "b": tasks(role, 4, 5), "c": tasks(role, 6)}
    group = view(targets, member_of("c", instance_id="instance-c", rack_id="rack-0"))
    after = {"a": tasks(role, 1, 2), "b": tasks(role, 3, 4), "c": tasks(role, 5, 6)}
    assert group.changes(**after) == after
    assert group.spec is not None
    assert {each: spec.rack_id for each, spec in group.spec.members.items()} == {"a": None, "b": None, "c": "rack-0"}


@pytest.mark.parametrize("role", ROLES)
def test_a_static_member_comes_back_to_the_target_of_its_instance(role: str) -> None:
    """Apache Kafka's caller renames the target before it builds the next one, and writes it with the replacement."""
    targets = {"a": tasks(role, 1, 2), "b": tasks(role, 3, 4), "c": tasks(role, 5, 6)}
    group = view(targets, member_of("c2", instance_id="instance-c"))
    assert group.targets == {"a": targets["a"], "b": targets["b"], "c2": targets["c"]}
    assert group.changes(a=targets["a"], b=targets["b"], c2=targets["c"]) == {}
    assert group.spec is not None
    assert group.spec.members.keys() == {"a", "b", "c2"}
