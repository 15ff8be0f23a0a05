"""Rebalances as plain data, for an operator: what `kafkapy groups explain` is told.

It travels in DescribeGroups, as a tagged field that Apache Kafka does not know (KIP-482: whoever does not know a tag
passes over it). A request that carries EXPLAIN_TAG gets it with each group, consumer groups included, which
DescribeGroups otherwise does not find; nobody else ever sees it. The value is JSON:

    [{"started_at_ms": 1, "ended_at_ms": 2, "generation": 3, "reasons": ["..."],
      "members": [{"member": "...", "instance": null, "client": "...", "host": "/127.0.0.1", "has_joined": true,
                   "has_left": false, "gained": [["topic", 0]], "lost": []}]}]

ended_at_ms is null, and members is empty, while the rebalance goes on. The latest comes last. KIP-848 groups count
epochs, not generations.
"""

import json
from typing import Any, Final

from kafkapy.group.assignors.spec import Assignment
from kafkapy.group.classic.state import assigned_partitions
from kafkapy.group.history import Decode, MemberChange, Rebalance
from kafkapy.metadata.image import MetadataImage
from kafkapy.types import TopicPartition, uuid_to_string

EXPLAIN_TAG: Final = 7_000
"""Far from the tags that Kafka counts up from 0."""


def explain(group: Any, image: MetadataImage) -> bytes:
    """Return the JSON of the last rebalances of a group; None stands for one that is not there, and has none."""
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


def _decoder(image: MetadataImage) -> Decode:
    """Return what reads an assignment, of a classic member or of one by KIP-848: a group may have been both.

    A topic that is gone goes by its id in the latter.
    """

    def decode(assignment: Assignment | bytes) -> set[TopicPartition]:
        if isinstance(assignment, bytes):
            return assigned_partitions(assignment)
        found: set[TopicPartition] = set()
        for topic_id, partitions in assignment.items():
            topic = image.topics.by_id.get(topic_id)
            name = topic.name if topic is not None else uuid_to_string(topic_id)
            found.update(TopicPartition(name, partition) for partition in partitions)
        return found

    return decode
