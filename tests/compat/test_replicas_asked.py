"""Brokers of both kinds, side by side: what followers answer, and how a broker names log.dirs that are relative."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nodes import ThreeNodes
from harness.servers import ApacheKafka, Kafkapy, Server
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.compat.conftest import new_server
from tests.support import java_tools, topics
from tests.support.client_requests import batch_of, describe_topic, produce, until
from tests.support.eventually import eventually
from tests.support.migrating import served_by
from tests.support.wire import WireClient

pytestmark = pytest.mark.long

TOPIC, RECORDS = "asked", 7
CONSUMER, DEBUGGING = -1, -2
EARLIEST, LATEST = -2, -1
NONE, NOT_LEADER = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeNodes]:
    kinds = [Kafkapy, ApacheKafka, Kafkapy]
    nodes = ThreeNodes(kinds, tmp_path, {"offsets.topic.replication.factor": "1"}, heap="400m")
    for node in nodes.nodes:
        node.format_arguments = served_by(kinds)
    with nodes:
        yield nodes


def listed(node: Server, replica_id: int, timestamp: int) -> tuple[int, int]:
    """Return the error code and the offset."""
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id, topics=[ListOffsetsTopic(TOPIC, partitions=[partition])])
    with WireClient(node.bootstrap) as client:
        ((response,),) = [topic.partitions for topic in client.call(request, 7).topics]
    return response.error_code, response.offset


@pytest.mark.ours
@pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`")
def test_followers_of_both_kinds_list_offsets_for_who_debugs(cluster: ThreeNodes) -> None:
    """A leader of each kind, and followers of both or ours."""
    topics.create(cluster.bootstrap, TOPIC, replicas=3)
    with WireClient(cluster.nodes[0].bootstrap) as client:
        leader = describe_topic(client, TOPIC).partitions[0].leader_id
    with WireClient(cluster.by_id[leader].bootstrap) as client:
        # its answer may come before it has learned of the topic
        until(lambda: produce(client, TOPIC, batch_of(RECORDS)).error_code == NONE)
    for node_id, node in cluster.by_id.items():
        eventually(lambda node=node: listed(node, DEBUGGING, LATEST) == (NONE, RECORDS))
        assert listed(node, DEBUGGING, EARLIEST) == (NONE, 0)
        expected = (NONE, RECORDS) if node_id == leader else (NOT_LEADER, -1)
        assert listed(node, CONSUMER, LATEST) == expected


def test_relative_log_dirs_are_named_absolutely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = new_server(tmp_path / "first", {"log.dirs": "first,more/second"})
    with server, WireClient(server.bootstrap) as client:
        results = client.call(DescribeLogDirsRequest(topics=None), 4).results
    assert {each.log_dir: each.error_code for each in results} == {
        str(tmp_path / name): NONE for name in ("first", "more/second")
    }
