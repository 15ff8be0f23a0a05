"""The assignor of share groups against Apache Kafka's responses (format: tools/record_assignments.py)."""

import gzip
from pathlib import Path

from kafkapy.group.share.simple_assignor import ShareGroupSpec, ShareMemberSpec, assign_simply
from kafkapy.types import Uuid
from tools.record_assignments import TOPIC_ID_FACTOR

GOLDEN = Path(__file__).parent / "share_assignments.txt.gz"
Assigned = dict[Uuid, frozenset[int]]


def topic_id(topic: str) -> Uuid:
    number = int(topic) + 1
    return (number * TOPIC_ID_FACTOR % 2**64 << 64 | number).to_bytes(16, "big")


def partitions_of(text: str) -> Assigned:
    found: Assigned = {}
    for each in filter(None, text.split(",")):
        topic, _, partition = each.partition(":")
        more = set() if partition == "-" else {int(partition)}
        found[topic_id(topic)] = found.get(topic_id(topic), frozenset()) | more
    return found


def spec_of(topics: str, members: list[str]) -> ShareGroupSpec:
    lists = {topic_id(topic): each for topic, _, each in (topic.split(":") for topic in topics.split(","))}
    specs: dict[str, ShareMemberSpec] = {}
    subscribed: dict[Uuid, None] = {}
    for member in members:
        member_id, _, names, owned = member.split(";")
        topic_ids = list(map(topic_id, names.split(",")))
        subscribed |= dict.fromkeys(topic_ids)
        had = {topic_id: sorted(partitions) for topic_id, partitions in partitions_of(owned).items()}
        specs[member_id] = ShareMemberSpec(frozenset(topic_ids), had)
    assignable = {each: [int(partition) for partition in lists[each].split(".") if partition] for each in subscribed}
    return ShareGroupSpec(specs, assignable, len({spec.topic_ids for spec in specs.values()}) == 1)


def test_share_groups_are_assigned_as_by_apache_kafka() -> None:
    groups = gzip.decompress(GOLDEN.read_bytes()).decode().splitlines()
    assert len(groups) > 600
    for group in groups:
        question, _, response = group.partition("\t")
        _, topics, *members = question.split("|")
        expected = {
            member_id: partitions_of(owned)
            for member_id, _, owned in (member.partition("=") for member in response.split("|"))
        }
        targets = assign_simply(spec_of(topics, members))
        assigned = {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in target.items()}
            for member_id, target in targets.items()
        }
        assert assigned == expected, question
