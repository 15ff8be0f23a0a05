"""The topology that members send and the log keeps: cases of Apache Kafka's tests of 4.3.1 about it.

StreamsTopologyTest, TopologyMetadataTest, and those of StreamsCoordinatorRecordHelpersTest about the topology.
"""

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.assignor_spec import SubtopologySpec
from kafkapy.group.streams.configured_topology import ConfiguredInternalTopic, ConfiguredSubtopology, ConfiguredTopology
from kafkapy.group.streams.describe import described_group
from kafkapy.group.streams.records import topology_record
from kafkapy.group.streams.topology import StreamsTopology, stored_topology
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages import streams_group_heartbeat_request as heartbeat
from kafkapy.protocol.messages import streams_group_topology_value as stored
from kafkapy.protocol.messages.streams_group_describe_response import Subtopology as DescribedSubtopology
from kafkapy.protocol.messages.streams_group_describe_response import TopicInfo as DescribedTopic
from kafkapy.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey
from tests.support.consumer_groups import image_of
from tests.support.streams_groups import StreamsShard
from tests.support.streams_logs import metadata

REQUEST = heartbeat.Topology(
    42,
    subtopologies=[
        heartbeat.Subtopology(
            "1",
            source_topics=["source-2", "repartition-2", "source-1", "repartition-1"],
            source_topic_regex=["regex"],
            repartition_sink_topics=["repartition-3"],
            repartition_source_topics=[
                heartbeat.TopicInfo(
                    "repartition-2",
                    partitions=4,
                    replication_factor=3,
                    topic_configs=[heartbeat.KeyValue("key-1", value="value-1")],
                ),
                heartbeat.TopicInfo("repartition-1"),
            ],
            state_changelog_topics=[
                heartbeat.TopicInfo("changelog-2", replication_factor=2),
                heartbeat.TopicInfo("changelog-1", topic_configs=[heartbeat.KeyValue("key-2", value="value-2")]),
            ],
            copartition_groups=[
                heartbeat.CopartitionGroup(source_topics=[0], repartition_source_topics=[0]),
                heartbeat.CopartitionGroup(source_topic_regex=[0]),
            ],
        ),
        heartbeat.Subtopology(
            "2",
            source_topics=["source-3", "repartition-3"],
            repartition_source_topics=[heartbeat.TopicInfo("repartition-3")],
            state_changelog_topics=[heartbeat.TopicInfo("changelog-3")],
        ),
    ],
)
VALUE = stored.StreamsGroupTopologyValue(
    epoch=42,
    subtopologies=[
        stored.Subtopology(
            "1",
            source_topics=["source-2", "repartition-2", "source-1", "repartition-1"],
            source_topic_regex=["regex"],
            repartition_sink_topics=["repartition-3"],
            repartition_source_topics=[
                stored.TopicInfo(
                    "repartition-2",
                    partitions=4,
                    replication_factor=3,
                    topic_configs=[stored.TopicConfig("key-1", value="value-1")],
                ),
                stored.TopicInfo("repartition-1"),
            ],
            state_changelog_topics=[
                stored.TopicInfo("changelog-2", replication_factor=2),
                stored.TopicInfo("changelog-1", topic_configs=[stored.TopicConfig("key-2", value="value-2")]),
            ],
            copartition_groups=[
                stored.CopartitionGroup(source_topics=[0], repartition_source_topics=[0]),
                stored.CopartitionGroup(source_topic_regex=[0]),
            ],
        ),
        stored.Subtopology(
            "2",
            source_topics=["source-3", "repartition-3"],
            repartition_source_topics=[stored.TopicInfo("repartition-3")],
            state_changelog_topics=[stored.TopicInfo("changelog-3")],
        ),
    ],
)


def test_a_requests_topology_is_kept_with_all_that_it_says() -> None:
    assert stored_topology(REQUEST) == VALUE
    record = topology_record("g", stored_topology(REQUEST))
    assert (record.key, record.value) == (StreamsGroupTopologyKey("g"), VALUE)


def test_a_topology_is_read_from_its_record() -> None:
    topology = StreamsTopology.of(VALUE)
    assert topology.topology_epoch == 42
    assert dict(topology.subtopologies) == {each.subtopology_id: each for each in VALUE.subtopologies}


def test_subtopologies_of_one_id_are_refused() -> None:
    """Apache Kafka's map of them throws, which the client is told as an unknown error."""
    twice = heartbeat.Subtopology("2", source_topics=["other"])
    with pytest.raises(ApiError) as caught:
        stored_topology(heartbeat.Topology(0, subtopologies=[twice, REQUEST.subtopologies[1]]))
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_topology_requires_all_topics_that_it_reads_or_keeps_state_in() -> None:
    kinds = ("source", "repartition", "changelog")
    assert StreamsTopology.of(VALUE).required_topics() == {f"{kind}-{number}" for kind in kinds for number in (1, 2, 3)}


def test_each_topic_that_is_read_has_its_subtopology() -> None:
    assert StreamsTopology.of(VALUE).subtopology_ids_by_source() == {
        "source-1": "1",
        "source-2": "1",
        "repartition-1": "1",
        "repartition-2": "1",
        "source-3": "2",
        "repartition-3": "2",
    }


def described(value: stored.StreamsGroupTopologyValue) -> tuple[int, list[DescribedSubtopology]]:
    shard = StreamsShard(image_of())
    shard.load(metadata(1, image_of()), topology_record("g", value))
    topology = described_group(shard.streams_group(), [], "sticky", has_topology=True).topology
    assert topology is not None
    return topology.epoch, list(topology.subtopologies or ())


def test_a_topology_is_described_with_its_topics_in_order() -> None:
    epoch, (first, second) = described(VALUE)
    assert (epoch, first.subtopology_id, second.subtopology_id) == (42, "1", "2")
    assert first.source_topics == ["repartition-1", "repartition-2", "source-1", "source-2"]
    assert first.repartition_sink_topics == ["repartition-3"]
    assert [each.name for each in first.repartition_source_topics] == ["repartition-1", "repartition-2"]
    repartition = first.repartition_source_topics[1]
    assert (repartition.partitions, repartition.replication_factor) == (4, 3)
    assert [(each.key, each.value) for each in repartition.topic_configs] == [("key-1", "value-1")]
    assert [each.name for each in first.state_changelog_topics] == ["changelog-1", "changelog-2"]
    assert second == DescribedSubtopology(
        "2",
        source_topics=["repartition-3", "source-3"],
        repartition_source_topics=[DescribedTopic("repartition-3")],
        state_changelog_topics=[DescribedTopic("changelog-3")],
    )


def test_a_topology_without_subtopologies_is_described_without_them() -> None:
    assert described(stored.StreamsGroupTopologyValue(epoch=0)) == (0, [])


def test_a_topology_that_is_deleted_is_not_described() -> None:
    shard = StreamsShard(image_of())
    written = topology_record("g", VALUE)
    shard.load(metadata(1, image_of()), written, CoordinatorRecord(written.key, None))
    assert described_group(shard.streams_group(), [], "sticky", has_topology=True).topology is None


def test_an_assignor_is_told_the_tasks_and_whether_they_have_state() -> None:
    changelog = {"changelog": ConfiguredInternalTopic("changelog", 4)}
    topology = ConfiguredTopology(
        0,
        {
            "1": ConfiguredSubtopology(4, frozenset({"source"}), state_changelog_topics=changelog),
            "2": ConfiguredSubtopology(3, frozenset({"other"})),
        },
    )
    assert topology.specs() == {"1": SubtopologySpec(4, is_stateful=True), "2": SubtopologySpec(3, is_stateful=False)}
    assert ConfiguredTopology(0, None).specs() == {}
