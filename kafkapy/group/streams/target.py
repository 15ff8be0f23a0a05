"""The target assignment of a streams group: the input of the assignor, and the records of its result."""

from collections.abc import Mapping
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.assignor_spec import AssignmentConfigs, GroupSpec, MemberSpec, TaskAssignor, spec_order
from kafkapy.group.streams.configured_topology import ConfiguredTopology
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.records import target_record
from kafkapy.group.streams.settings import RACK_TAGS, STANDBY_REPLICAS
from kafkapy.group.streams.state import StreamsGroupLog
from kafkapy.group.streams.task_offsets import NO_OFFSETS, MemberTaskOffsets
from kafkapy.group.streams.tasks import EMPTY_TASKS, TasksTuple
from kafkapy.machine import SmallSteps

LARGE: Final = 500
"""Tasks, members and offsets together, from which on a target is computed in steps: some 3 ms."""
MEMBERS_PER_STEP: Final = 100

Members = Mapping[str, StreamsMember]
Targets = Mapping[str, TasksTuple]


def updated_view(log: StreamsGroupLog, updated: StreamsMember) -> tuple[Members, Targets]:
    """Return the members and targets with a member as `updated`. It replaces the static member of its instance."""
    members, targets = dict(log.members), dict(log.targets)
    members[updated.member_id] = updated
    replaced = log.static_members.get(updated.instance_id) if updated.instance_id is not None else None
    if replaced is not None and replaced != updated.member_id:
        members.pop(replaced, None)
        target = targets.pop(replaced, None)
        if target is not None:
            targets[updated.member_id] = target
    return members, targets


@dataclass(frozen=True, slots=True)
class TargetInput:
    """The input of a target assignment, with the previous targets."""

    members: Members
    targets: Targets
    topology: ConfiguredTopology
    offsets: Mapping[str, MemberTaskOffsets]
    configs: Mapping[str, str]
    assignor: TaskAssignor

    @property
    def is_large(self) -> bool:
        subtopologies = (self.topology.subtopologies or {}) if self.topology.is_ready else {}
        tasks = sum(each.number_of_tasks for each in subtopologies.values())
        offsets = sum(each.count for each in self.offsets.values())
        return tasks + len(self.members) + offsets >= LARGE

    def is_same(self, other: Any) -> bool:
        return type(other) is TargetInput and self == other

    def steps(self) -> SmallSteps["NewTarget"]:
        """Return the steps to the target of each member: no tasks as long as the topology is not ready."""
        in_order = spec_order(self.members)
        yield
        if not self.topology.is_ready:
            return NewTarget(self, dict.fromkeys(in_order, EMPTY_TASKS))
        specs: dict[str, MemberSpec] = {}
        for count, member_id in enumerate(in_order, 1):
            specs[member_id] = _spec(self.members[member_id], self.offsets.get(member_id, NO_OFFSETS))
            if count % MEMBERS_PER_STEP == 0:
                yield
        assignment = yield from self.assignor(GroupSpec(specs, self.topology.specs(), _configs(self.configs)))
        assert assignment.keys() <= specs.keys(), "tasks of members that there are not"
        return NewTarget(self, {each: assignment.get(each, EMPTY_TASKS) for each in in_order})


class NewTarget:
    """The targets that were computed."""

    __slots__ = ("_before", "targets")

    def __init__(self, wanted: TargetInput, targets: Targets) -> None:
        assert targets.keys() == wanted.members.keys(), "a target has every member"
        self._before = wanted.targets
        self.targets = targets

    def changes(self, group_id: str) -> list[CoordinatorRecord]:
        """Return the records of the members whose target has changed."""
        return [
            target_record(group_id, member_id, target)
            for member_id, target in self.targets.items()
            if self._before.get(member_id) != target
        ]


def _spec(member: StreamsMember, offsets: MemberTaskOffsets) -> MemberSpec:
    return MemberSpec(
        member.process_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_tags=member.client_tags,
        active=member.assigned.active_partitions,
        standby=member.assigned.standby,
        warmup=member.assigned.warmup,
        task_offsets=offsets.offsets,
        task_end_offsets=offsets.end_offsets,
    )


def _configs(configs: Mapping[str, str]) -> AssignmentConfigs:
    tags = configs.get(RACK_TAGS, "")
    return AssignmentConfigs(int(configs.get(STANDBY_REPLICAS, "0")), tuple(tags.split(",")) if tags else ())
