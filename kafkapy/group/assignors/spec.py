"""The input and output of assignors: plain values by topic id.

Assignors are pure functions. Racks are not in the spec: the assignors of Apache Kafka 4.3.1 ignore them (racks only
change the group's metadata hash, see subscriptions.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.types import Uuid

Assignment: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id; a topic without partitions is absent."""

EMPTY_ASSIGNMENT: Final[Assignment] = {}


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member to assign. `assignment` is its last target assignment, which a sticky assignor preserves."""

    topic_ids: frozenset[Uuid]
    instance_id: str | None = None
    assignment: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group to assign. Assignors visit members in the order of their ids, so that equal groups get equal assignments.

    `partition_counts` has every topic that a member subscribes to. `is_homogeneous`: all members subscribe to the same
    topics.
    """

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[Uuid, int]
    is_homogeneous: bool


GroupAssignment: TypeAlias = Mapping[str, Assignment]
"""By member id; a member that is absent is assigned nothing."""

Assignor: TypeAlias = Callable[[GroupSpec], GroupAssignment]
