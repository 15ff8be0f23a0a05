"""The range assignor: each member gets a consecutive range of each topic's partitions, in the order of the members.

Topics with the same partition count and the same subscribers are co-partitioned: a member has the same partitions of
each. Static members come first, by instance id, so that a member that rejoins with a new id gets the same range.
Balance is per topic, and the previous assignment is ignored.
"""

from kafkapy.group.assignors.spec import GroupAssignment, GroupSpec
from kafkapy.types import Uuid


def assign_ranges(spec: GroupSpec) -> GroupAssignment:
    """Assign ranges of equal length; the first ones are longer by one if the count does not divide evenly."""
    assigned: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in spec.members}
    for topic_id, subscribers in _subscribers_by_topic(spec).items():
        quota, extra = divmod(spec.partition_counts[topic_id], len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + quota + (index < extra)
            if start < end:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
        assert start == spec.partition_counts[topic_id], "the ranges leave partitions out"
    return assigned


def _subscribers_by_topic(spec: GroupSpec) -> dict[Uuid, list[str]]:
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in sorted(spec.members, key=lambda member_id: _rank(spec, member_id)):
        for topic_id in spec.members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    return subscribers


def _rank(spec: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = spec.members[member_id].instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)
