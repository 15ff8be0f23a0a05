"""A streams group in a cluster of kafkapy's nodes and Apache Kafka's: its coordinator moves between them, and back.

The cluster has the levels of features with which Apache Kafka formats; none is lowered. The next coordinator waits
for the tasks that the one before it has told a member to revoke, and an application with exactly_once_v2 runs on: its
counts are those of the words.
"""

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from harness.nodes import Kind, ThreeNodes
from harness.servers import ApacheKafka, Kafkapy, PreviousKafka
from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest
from tests.compat.test_kafka_streams import Feed
from tests.compat.test_streams_groups import COUNT, PATIENT, new_instance, read_until
from tests.support import java_tools, topics
from tests.support.client_requests import metadata, until
from tests.support.copying import only_soaked
from tests.support.features import feature_levels
from tests.support.migrating import served_by
from tests.support.offsets import coordinator_of
from tests.support.streams_handover import GROUP, HANDOVER_KEYS, PARTITIONS, TOPIC, Handover
from tests.support.streams_members import describe
from tests.support.wire import WireClient
from tools.kafka import STREAMS_LIBS

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

OFFSETS = "__consumer_offsets"
PROPERTIES = {
    **HANDOVER_KEYS,
    "broker.session.timeout.ms": "20000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
MOVES = (2, 1, 3, 2, 3, 1)
"""The coordinator after each: each kind hands over to each other one, both ways."""
of_both_releases = pytest.mark.parametrize(
    "cluster",
    [
        pytest.param([Kafkapy, ApacheKafka, Kafkapy], id="4.4.0"),
        pytest.param([Kafkapy, ApacheKafka, PreviousKafka], id="4.4.0-and-4.3.1"),
    ],
    indirect=True,
)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ThreeNodes]:
    kinds: Sequence[Kind] = request.param
    nodes = ThreeNodes(kinds, tmp_path, PROPERTIES, heap="256m")
    for node in nodes.nodes:
        node.format_arguments = served_by(kinds)
    with nodes:
        yield nodes


def version_of(cluster: ThreeNodes) -> int:
    """Return the version of StreamsGroupHeartbeat that all nodes have."""
    return 0 if any(isinstance(node, PreviousKafka) for node in cluster.nodes) else 1


def move_coordinator(cluster: ThreeNodes, node_id: int) -> None:
    """Let a node lead the only partition of the committed offsets."""
    others = [each for each in (1, 2, 3) if each != node_id]
    with WireClient(cluster.nodes[0].bootstrap) as client:
        placed = ReassignableTopic(OFFSETS, partitions=[ReassignablePartition(0, replicas=[node_id, *others])])
        response = client.call(AlterPartitionReassignmentsRequest(topics=[placed]), 1)
        assert (response.error_code, response.responses[0].partitions[0].error_code) == (0, 0)

        def leads() -> bool:
            client.call(ElectLeadersRequest(election_type=0, topic_partitions=None), 2)
            return bool(metadata(client, OFFSETS).topics[0].partitions[0].leader_id == node_id)

        until(leads)


@of_both_releases
def test_each_coordinator_waits_for_the_tasks_that_another_has_called_back(cluster: ThreeNodes) -> None:
    with WireClient(cluster.nodes[0].bootstrap) as client:
        until(lambda: coordinator_of(client, GROUP) > 0)  # which makes the topic of committed offsets
        assert feature_levels(client)["streams.version"] == 1
    handover = Handover(version_of(cluster))
    topics.create(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replicas=3)
    for node_id in MOVES:
        move_coordinator(cluster, node_id)
        with WireClient(cluster.by_id[node_id].bootstrap) as client:
            handover.go_on(client)


@only_soaked  # a minute each; test_swap_streams.py has an application go on in CI
@of_both_releases
def test_application_goes_on_while_its_coordinator_moves(cluster: ThreeNodes, tmp_path: Path) -> None:
    if not STREAMS_LIBS.is_dir():
        pytest.skip("Kafka Streams' jars are missing: run `make tools`")
    topics.create(cluster.bootstrap, "words", "word-counts", partitions=2, replicas=3)
    with ExitStack() as stack:
        feed = stack.enter_context(closing(Feed(cluster.bootstrap)))
        instances = [
            stack.enter_context(closing(new_instance(cluster.bootstrap, tmp_path / name, *PATIENT))) for name in "ab"
        ]
        read_until(feed, COUNT, instances, sending=True)
        for turn, node_id in enumerate(MOVES, start=2):
            move_coordinator(cluster, node_id)
            read_until(feed, turn * COUNT, instances, sending=True)
            with WireClient(cluster.by_id[node_id].bootstrap) as client:
                until(lambda: len(describe(client, "counting", 0).members) == 2 * len(instances))
        cluster.by_id[1].stop(signal.SIGKILL)
        read_until(feed, feed.read + COUNT, instances, sending=True)
        read_until(feed, feed.sent.total(), instances, sending=False)
        feed.read_counts()
        assert not [each.printed() for each in instances if each.has_ended()]
        assert feed.counts == {word: list(range(1, count + 1)) for word, count in feed.sent.items()}
