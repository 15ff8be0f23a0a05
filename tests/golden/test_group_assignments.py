"""The assignors against Apache Kafka's own answers (tools/record_assignments.py, which tells the format)."""

import gzip
from pathlib import Path

from kafkapy.group.assignors import ASSIGNORS
from kafkapy.group.assignors.spec import GroupSpec, MemberSpec
from kafkapy.types import Uuid

GOLDEN = Path(__file__).parent / "group_assignments.txt.gz"
Shares = dict[str, set[tuple[int, int]]]


def topic_id(topic: str) -> Uuid:
    return (int(topic) + 1).to_bytes(16, "big")


def partitions_of(text: str) -> list[tuple[str, int]]:
    return [
        (topic, int(partition)) for topic, _, partition in (each.partition(":") for each in text.split(",") if each)
    ]


def spec_of(counts: str, members: list[str]) -> GroupSpec:
    specs: dict[str, MemberSpec] = {}
    for member in members:
        member_id, instance_id, topics, owned = member.split(";")
        had: dict[Uuid, frozenset[int]] = {}
        for topic, partition in partitions_of(owned):
            had[topic_id(topic)] = had.get(topic_id(topic), frozenset()) | {partition}
        ids = frozenset(topic_id(topic) for topic in topics.split(","))
        specs[member_id] = MemberSpec(ids, instance_id or None, had)
    subscribed = frozenset().union(*(spec.topic_ids for spec in specs.values()))
    partition_counts = {topic_id(topic): count for topic, count in partitions_of(counts)}
    is_homogeneous = len({spec.topic_ids for spec in specs.values()}) == 1
    return GroupSpec(specs, {each: partition_counts[each] for each in subscribed}, is_homogeneous)


def test_groups_are_assigned_as_by_apache_kafka() -> None:
    groups = gzip.decompress(GOLDEN.read_bytes()).decode().splitlines()
    assert len(groups) > 600
    for group in groups:
        question, _, answer = group.partition("\t")
        assignor, counts, *members = question.split("|")
        assigned = ASSIGNORS[assignor](spec_of(counts, members))
        shares: Shares = {
            member_id: {
                (int.from_bytes(topic, "big") - 1, partition)
                for topic, partitions in topics.items()
                for partition in partitions
            }
            for member_id, topics in assigned.items()
            if topics
        }
        expected: Shares = {}
        for member in answer.split("|"):
            member_id, _, owned = member.partition("=")
            if owned:
                expected[member_id] = {(int(topic), partition) for topic, partition in partitions_of(owned)}
        assert shares == expected, question
