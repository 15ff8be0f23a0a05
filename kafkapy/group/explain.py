"""The last rebalances of a group as JSON, for `kafkapy groups explain`.

The JSON is a tagged field of DescribeGroups that Apache Kafka does not know; clients skip unknown tags (KIP-482). If
the request carries EXPLAIN_TAG, the response has the field for each group, including consumer groups, which
DescribeGroups does not find otherwise. Responses to other requests never have it. The value:

    [{"started_at_ms": 1, "ended_at_ms": 2, "generation": 3, "reasons": ["..."],
      "members": [{"member": "...", "instance": null, "client": "...", "host": "/127.0.0.1", "has_joined": true,
                   "has_left": false, "gained": [["topic", 0]], "lost": []}]}]

While a rebalance is in progress, ended_at_ms is null and members is empty. The latest rebalance comes last. For KIP-848
and later kinds of groups, `generation` is the group epoch. Of a streams group, a subtopology stands for the topic.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkapy.group.assignors.spec import Assignment
from kafkapy.group.classic.state import assigned_partitions
from kafkapy.group.history import Decode, MemberChange, Rebalance
from kafkapy.metadata.image import MetadataImage
from kafkapy.types import TopicPartition, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.group.streams.tasks import TasksTuple

EXPLAIN_TAG: Final = 7_000
"""Far above the tags that Kafka uses, which it numbers from 0."""
IN_FLIGHT_TAG: Final = 7_001
"""Asks for what kafkapy.share.explain tells, as another field of the same response."""


def explain(group: Any, image: MetadataImage) -> bytes:
    """Return the last rebalances of a group as JSON. `group` is None if it does not exist: the list is empty then."""
    rebalances: list[dict[str, Any]] = []
    if group is not None:
        decode = _decoder(image)
        rebalances = [_rebalance(each, decode) for each in group.history.rebalances]
    return json.dumps(rebalances, separators=(",", ":")).encode()


def _rebalance(rebalance: Rebalance, decode: Decode) -> dict[str, Any]:
    has_ended = rebalance.ended_at_ms is not None
    return {
        "started_at_ms": rebalance.started_at_ms,
        "ended_at_ms": rebalance.ended_at_ms,
        "generation": rebalance.generation,
        "reasons": rebalance.reasons,
        "members": [_change(change) for change in rebalance.changes(decode)] if has_ended else [],
    }


def _change(change: MemberChange) -> dict[str, Any]:
    member = change.member
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "has_joined": change.has_joined,
        "has_left": change.has_left,
        "gained": change.gained,
        "lost": change.lost,
    }


def _tasks(assignment: "TasksTuple") -> set[TopicPartition]:
    roles = (("", assignment.active), ("standby ", assignment.standby), ("warm-up ", assignment.warmup))
    return {
        TopicPartition(f"{role}{subtopology_id}", partition)
        for role, tasks in roles
        for subtopology_id, partitions in tasks.items()
        for partition in partitions
    }


def _decoder(image: MetadataImage) -> Decode:
    """Return a function that decodes the assignment of a member of any kind of group: a group may change its kind.

    A deleted topic in a KIP-848 assignment is shown by its id; a task of a streams group by its subtopology and role.
    """

    def decode(assignment: "Assignment | TasksTuple | bytes") -> set[TopicPartition]:
        if isinstance(assignment, bytes):
            return assigned_partitions(assignment)
        if not isinstance(assignment, Mapping):
            return _tasks(assignment)
        found: set[TopicPartition] = set()
        for topic_id, partitions in assignment.items():
            topic = image.topics.by_id.get(topic_id)
            name = topic.name if topic is not None else uuid_to_string(topic_id)
            found.update(TopicPartition(name, partition) for partition in partitions)
        return found

    return decode
