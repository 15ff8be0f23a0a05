"""Topologies with the cluster's topics: cases of Apache Kafka's tests of 4.3.1 about them, each with all other rules.

RepartitionTopicsTest, ChangelogTopicsTest, CopartitionedTopicsEnforcerTest and InternalTopicManagerTest; thousands of
random topologies, recorded from Apache Kafka, are in tests/golden/test_streams_topologies.py.
"""

from collections.abc import Mapping, Sequence

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.streams.configured_topology import (
    ConfiguredInternalTopic,
    ConfiguredSubtopology,
    ConfiguredTopology,
    StatusCode,
)
from kafkapy.group.streams.topic_configuration import configure_topology
from kafkapy.group.streams.topology import StreamsTopology
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_topology_value import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)

LOOPS = (
    "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
    "that cannot be resolved."
)
NOBODY_WRITES = (
    "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
    "never used as a sink topic."
)


def topics_of(names: Sequence[str]) -> list[TopicInfo]:
    """Return internal topics, written as NAME or NAME:PARTITIONS."""
    pairs = (each.partition(":") for each in names)
    return [TopicInfo(name, partitions=int(count or 0)) for name, _, count in pairs]


def reads(
    number: int = 0,
    *sources: str,
    repartition: Sequence[str] = (),
    writes: Sequence[str] = (),
    changelogs: Sequence[str] = (),
    is_copartitioned: bool = False,
) -> Subtopology:
    """Return a subtopology; one that is copartitioned has all that it reads in one group."""
    group = CopartitionGroup(list(range(len(sources))), repartition_source_topics=list(range(len(repartition))))
    return Subtopology(
        str(number),
        source_topics=list(sources),
        repartition_source_topics=topics_of(repartition),
        repartition_sink_topics=list(writes),
        state_changelog_topics=topics_of(changelogs),
        copartition_groups=[group] if is_copartitioned else [],
    )


def configured(topics: Mapping[str, int], *subtopologies: Subtopology) -> ConfiguredTopology:
    record = StreamsGroupTopologyValue(epoch=3, subtopologies=list(subtopologies))
    return configure_topology(StreamsTopology.of(record), topics.get)


def counts(topics: Mapping[str, int], *subtopologies: Subtopology) -> dict[str, int]:
    """Return the partitions of each internal topic that is to be made."""
    made = configured(topics, *subtopologies).internal_topics_to_be_created
    return {name: topic.number_of_partitions for name, topic in made.items()}


def problem(topics: Mapping[str, int], *subtopologies: Subtopology) -> tuple[StatusCode, str]:
    """Return what is in the way of a topology, of which nothing is configured then."""
    found = configured(topics, *subtopologies)
    assert found.problem is not None
    assert (found.subtopologies, found.internal_topics_to_be_created, found.is_ready) == (None, {}, False)
    return found.problem.status, found.problem.message


def refusal(topics: Mapping[str, int], *subtopologies: Subtopology) -> tuple[int, str | None]:
    with pytest.raises(ApiError) as caught:
        configured(topics, *subtopologies)
    return caught.value.code, caught.value.message


# -- repartition topics -----------------------------------------------------------------------------------------------

SOURCES = {"source1": 3, "source2": 3}


def test_a_repartition_topic_has_the_partitions_that_it_names() -> None:
    first, second = reads(0, *SOURCES, writes=["r"]), reads(1, repartition=["r:4"])
    assert counts(SOURCES, first, second) == {"r": 4}


def test_source_topics_that_are_missing_are_named() -> None:
    first, second = reads(0, *SOURCES, writes=["r"]), reads(1, repartition=["r:4"])
    assert problem({"source2": 3}, first, second) == (
        StatusCode.MISSING_SOURCE_TOPICS,
        "Source topics source1 are missing.",
    )


def test_a_loop_and_what_nobody_writes_are_refused() -> None:
    invalid = ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert refusal(SOURCES, reads(0, repartition=["r"], writes=["r"])) == (invalid, LOOPS)
    assert refusal(SOURCES, reads(0, repartition=["r"])) == (invalid, NOBODY_WRITES)


def test_a_repartition_topic_gets_the_most_partitions_that_its_writer_reads() -> None:
    first = reads(0, "source1", repartition=["r2:2"], writes=["r1", "r"])
    assert counts(SOURCES, first, reads(1, repartition=["r1:4", "r"])) == {"r1": 4, "r2": 2, "r": 3}
    first = reads(0, "source1", repartition=["r1:4"], writes=["r"])
    assert counts(SOURCES, first, reads(1, repartition=["r"], writes=["r1"])) == {"r1": 4, "r": 4}


def test_a_topology_without_internal_topics_makes_none() -> None:
    found = configured(SOURCES, reads(0, "source1"))
    assert (found.internal_topics_to_be_created, found.is_ready) == ({}, True)


# -- changelogs -------------------------------------------------------------------------------------------------------


def test_a_subtopology_that_reads_nothing_is_refused() -> None:
    message = "No source topics found for subtopology 0"
    assert refusal({}, reads(0)) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


@pytest.mark.parametrize(
    ("subtopology", "made"),
    [
        (reads(0, repartition=["r:3"], writes=["sink"]), {"r": 3}),
        (reads(0, "source", writes=["sink"]), {}),
        (reads(0, "source", repartition=["r:3"], writes=["sink"]), {"r": 3}),
        (reads(0, "source", changelogs=["changelog"]), {"changelog": 3}),
        (reads(0, "source", changelogs=["source"]), {}),
        (reads(0, "source", changelogs=["source", "changelog"]), {"changelog": 3}),
    ],
    ids=("only repartition", "only sources", "no state", "state", "a source as changelog", "both"),
)
def test_changelogs_have_a_partition_for_each_task(subtopology: Subtopology, made: dict[str, int]) -> None:
    assert counts({"source": 3}, subtopology) == made


# -- copartitioned topics ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sources", "repartition", "made"),
    [
        ({"s1": 2, "s2": 2}, ["r1"], {"r1": 2}),
        ({}, ["r1:10", "r2:10"], {"r1": 10, "r2": 10}),
        ({"s1": 2}, ["r1:2"], {"r1": 2}),
        ({}, ["r1:2", "r2", "r3:2"], {"r1": 2, "r2": 2, "r3": 2}),
    ],
    ids=("as the sources", "alike", "like the source", "as those that name theirs"),
)
def test_topics_that_are_copartitioned_get_equal_counts(
    sources: dict[str, int], repartition: list[str], made: dict[str, int]
) -> None:
    """What writes the repartition topics reads five partitions."""
    writer = reads(1, "upstream", writes=["r1", "r2", "r3"])
    together = reads(0, *sources, repartition=repartition, is_copartitioned=True)
    assert counts({"upstream": 5, **sources}, together, writer) == made


def test_repartition_topics_alone_get_the_most_partitions_of_all() -> None:
    upstream = {"s1": 1, "s2": 15, "s3": 5}
    writers = [reads(number, f"s{number}", writes=[f"r{number}"]) for number in (1, 2, 3)]
    together = reads(0, repartition=["r1", "r2", "r3"], is_copartitioned=True)
    assert counts(upstream, together, *writers) == {"r1": 15, "r2": 15, "r3": 15}


@pytest.mark.parametrize(
    ("sources", "repartition", "message"),
    [
        ({"s1": 2, "s2": 1}, [], "Following topics do not have the same number of partitions: [{s1=2, s2=1}]"),
        ({}, ["r1:10", "r2:5"], "Following topics do not have the same number of partitions: [{r1=10, r2=5}]"),
        (
            {"s1": 2},
            ["r1:10"],
            "Number of partitions [10] of repartition topic [r1] doesn't match number of partitions [2] of the source "
            "topic.",
        ),
    ],
    ids=("sources", "repartition topics", "a source and a repartition topic"),
)
def test_topics_that_are_not_copartitioned_are_named(
    sources: dict[str, int], repartition: list[str], message: str
) -> None:
    together = reads(0, *sources, repartition=repartition, is_copartitioned=True)
    assert problem(sources, together) == (StatusCode.INCORRECTLY_PARTITIONED_TOPICS, message)


# -- all together -----------------------------------------------------------------------------------------------------


def test_a_topology_is_configured_and_its_missing_topics_are_to_be_made() -> None:
    first = reads(1, "source1", writes=["r"], changelogs=["changelog1"])
    first.state_changelog_topics[0].topic_configs = [TopicConfig("cleanup.policy", value="compact")]
    second = reads(2, "source2", repartition=["r"], changelogs=["changelog2"], is_copartitioned=True)
    second.repartition_source_topics[0].replication_factor = 3
    changelog1 = ConfiguredInternalTopic("changelog1", 2, None, {"cleanup.policy": "compact"})
    repartition = ConfiguredInternalTopic("r", 2, 3)
    found = configured({"source1": 2, "source2": 2, "changelog2": 2}, first, second)
    assert found.internal_topics_to_be_created == {"r": repartition, "changelog1": changelog1}
    changelog2 = ConfiguredInternalTopic("changelog2", 2)
    assert found.subtopologies == {
        "1": ConfiguredSubtopology(2, frozenset({"source1"}), {}, frozenset({"r"}), {"changelog1": changelog1}),
        "2": ConfiguredSubtopology(
            2, frozenset({"source2"}), {"r": repartition}, frozenset(), {"changelog2": changelog2}
        ),
    }
    assert found.problem is not None
    assert found.problem.status is StatusCode.MISSING_INTERNAL_TOPICS
