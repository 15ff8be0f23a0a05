"""Topologies configured as by Apache Kafka; tools/record_streams_topologies.py has the format."""

import gzip
from collections.abc import Iterable, Mapping
from pathlib import Path

from kafkapy.errors import ApiError
from kafkapy.group.streams.configured_topology import ConfiguredInternalTopic, ConfiguredSubtopology
from kafkapy.group.streams.topic_configuration import configure_topology
from kafkapy.group.streams.topology import StreamsTopology
from kafkapy.protocol.messages.streams_group_topology_value import StreamsGroupTopologyValue

GOLDEN = Path(__file__).parent / "streams_topologies.txt.gz"


def internal(topics: Mapping[str, ConfiguredInternalTopic], default_factor: int = 0) -> str:
    return ",".join(
        f"{topic.name}:{topic.number_of_partitions}:{topic.replication_factor or default_factor}:"
        + ("&".join(f"{key}={value}" for key, value in topic.topic_configs.items()) or "-")
        for topic in topics.values()
    )


def names(topics: Iterable[str]) -> str:
    return ",".join(sorted(topics))


def subtopology(subtopology_id: str, each: ConfiguredSubtopology) -> str:
    return (
        f"{subtopology_id}:{each.number_of_tasks};{names(each.source_topics)};{internal(each.repartition_source_topics)};"
        f"{names(each.repartition_sink_topics)};{internal(each.state_changelog_topics)}"
    )


def answer_to(question: str) -> str:
    record, _, topics = question.partition("|")
    counts = {name: int(count) for name, _, count in (each.partition(":") for each in topics.split(",") if each)}
    value, _ = StreamsGroupTopologyValue.read(bytes.fromhex(record), 0, 0)
    try:
        configured = configure_topology(StreamsTopology.of(value), counts.get)
    except ApiError as error:
        return f"error {int(error.code)}" + (f" {error.message}" if error.message else "")
    status = "-" if configured.problem is None else f"{configured.problem.status} {configured.problem.message}"
    if configured.subtopologies is None:
        return status
    described = " ".join(subtopology(each, configured.subtopologies[each]) for each in configured.subtopologies)
    return f"{status}|{described}|{internal(configured.internal_topics_to_be_created, -1)}"


KINDS = (
    ("-|", 100),
    ("1 Source topics", 15),
    ("2 Following topics", 50),
    ("2 Existing topic", 50),
    ("2 Number of partitions", 15),
    ("3 Internal topics", 200),
    ("error 130 Failed to compute number of partitions for all repartition topics, because", 5),
    ("error 130 Failed to compute number of partitions for all repartition topics. There", 5),
    ("error 130 No source topics", 5),
    ("error -1", 10),
)
"""How an answer begins, and how many such ones there are at least: a recording without them would prove nothing."""


def test_topologies_are_configured_as_by_apache_kafka() -> None:
    answers = []
    for line in gzip.decompress(GOLDEN.read_bytes()).decode().splitlines():
        question, _, answer = line.partition("\t")
        assert answer_to(question) == answer, question
        answers.append(answer)
    for start, count in KINDS:
        assert sum(answer.startswith(start) for answer in answers) >= count, start
