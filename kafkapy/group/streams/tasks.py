"""Tasks of a streams group: those of a target assignment, and those that a member has.

A task is a subtopology and a partition number. It runs actively in one member, and as a copy of its state (a standby,
or a warm-up that is to become active) in others.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import field
from enum import IntEnum
from typing import Final, Protocol, TypeAlias, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.group.hash_order import natural_order
from kafkapy.named_tuple import NamedTuple

Tasks: TypeAlias = Mapping[str, frozenset[int]]
"""Partitions by subtopology id; a subtopology without tasks is absent."""

OwnedTasks: TypeAlias = Mapping[str, Mapping[int, int]]
"""By subtopology id: each partition and the epoch at which it was assigned (KIP-1251)."""

ReportedTasks: TypeAlias = Mapping[str, Set[int]]
"""Tasks of a heartbeat; here a subtopology may have no partition."""


class TaskId(NamedTuple):
    subtopology_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology_id}_{self.partition}"


class MemberState(IntEnum):
    """A member's progress towards its target assignment; the values are those in the records."""

    STABLE = 1
    """It has the assignment of its epoch's target."""
    UNREVOKED_TASKS = 2
    """It must revoke tasks before it moves to the next epoch."""
    UNRELEASED_TASKS = 3
    """It is at the target's epoch, and other members still run some of its tasks."""
    UNKNOWN = 127
    """Written by a later version; the member must rejoin."""


@dataclass(frozen=True, slots=True)
class TasksTuple:
    """The tasks of a member's target assignment."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AssignedTasks:
    """The tasks that a member has, or those that it must still revoke."""

    active: OwnedTasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    @property
    def active_partitions(self) -> Tasks:
        """Return the active tasks without their epochs."""
        return {each: frozenset(epochs) for each, epochs in self.active.items()}

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)


class TaskIds(Protocol):
    """Tasks of a subtopology, as several messages have them, each with a class of its own."""

    subtopology_id: str
    partitions: list[int]


TaskIdsT = TypeVar("TaskIdsT")


def task_ids(new: Callable[..., TaskIdsT], tasks: Tasks) -> list[TaskIdsT]:
    """Return tasks in the form of a message, ascending; `new` is its class TaskIds."""
    return [new(each, partitions=sorted(tasks[each])) for each in sorted(tasks, key=natural_order)]


def tasks_of(ids: Iterable[TaskIds]) -> dict[str, frozenset[int]]:
    """Return the tasks of a message."""
    return {each.subtopology_id: frozenset(each.partitions) for each in ids}


EMPTY_TASKS: Final = TasksTuple()
NOTHING_ASSIGNED: Final = AssignedTasks()
