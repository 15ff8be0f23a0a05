"""What an assignor is given and what it returns: plain values by topic id.

Assignors are pure functions. Racks are not in the spec: the assignors of Apache Kafka 4.3.1 take no notice of them
(racks only make the group's metadata hash change, see subscriptions.py).
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
    """A member as an assignor sees it. `assignment` is its last target assignment: what stickiness keeps."""

    topic_ids: frozenset[Uuid]
    instance_id: str | None = None
    assignment: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group to assign. Members are visited in the order of their ids, so that equal groups get equal assignments.

    `partition_counts` holds every topic that a member is subscribed to. `is_homogeneous`: all subscribe to the same.
    """

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[Uuid, int]
    is_homogeneous: bool


GroupAssignment: TypeAlias = Mapping[str, Assignment]
"""By member id; a member that is absent is assigned nothing."""

Assignor: TypeAlias = Callable[[GroupSpec], GroupAssignment]
