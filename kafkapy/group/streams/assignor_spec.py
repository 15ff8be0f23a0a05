"""The input and output of a streams group's assignors: plain values by member and subtopology id.

Assignors are pure functions, and depend on the order of the mappings given: that of Java's hash maps (spec_order()) for
members, ascending ids for subtopologies.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.group.hash_order import hash_of_text, in_put_order
from kafkapy.group.streams.tasks import Tasks, TasksTuple
from kafkapy.machine import SmallSteps

TaskOffsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""By subtopology id and partition: the sum of the changelogs' offsets that a member reported."""


@dataclass(frozen=True, slots=True)
class AssignmentConfigs:
    """The group's configuration for assignors. The tags are for rack-aware ones, which `sticky` is not."""

    num_standby_replicas: int = 0
    rack_aware_assignment_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member to assign, with the tasks that it has now and the offsets up to which it has a task's state."""

    process_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)
    task_offsets: TaskOffsets = field(default_factory=dict)
    task_end_offsets: TaskOffsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubtopologySpec:
    """A subtopology to assign. A stateful one has changelogs, so that its tasks can have standbys."""

    number_of_tasks: int
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    subtopologies: Mapping[str, SubtopologySpec]
    configs: AssignmentConfigs = field(default_factory=AssignmentConfigs)


GroupAssignment: TypeAlias = Mapping[str, TasksTuple]
"""By member id, with every member."""

TaskAssignor: TypeAlias = Callable[[GroupSpec], SmallSteps[GroupAssignment]]
"""Returns the assignment, in steps of about a millisecond."""


def spec_order(member_ids: Iterable[str]) -> list[str]:
    """Return member ids in the order of GroupSpec.members."""
    return in_put_order(member_ids, hash_of_text)
