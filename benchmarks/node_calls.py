"""What benchmarks ask of several nodes: topics on chosen nodes, leaders, in-sync replicas, the active controller."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.wire import call, connect
from harness.nodes import Nodes
from harness.servers import Server
from kafkapy.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

CONFIG = {"min.insync.replicas": "2"}
METADATA_VERSION = 12
TIMEOUT_S = 120


def create_on(server: Server, topic: str, assignment: list[list[int]]) -> None:
    """Create a topic with these replicas of each partition; wait until the first of each leads."""
    client = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 4})
    new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=CONFIG)
    client.create_topics([new], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
    wanted = [replicas[0] for replicas in assignment]
    wait_until(lambda: leaders_of(nodes_of(server).brokers[0], topic) == wanted, "leaders")


def nodes_of(server: Server) -> Nodes:
    assert isinstance(server, Nodes)
    return server


def active_controller(nodes: Nodes) -> int:
    """Return who leads the quorum, once it is known."""
    wait_until(lambda: quorum_leader(nodes.nodes[0]) in nodes.by_id, "an active controller")
    return quorum_leader(nodes.nodes[0])


def quorum_leader(node: Server) -> int:
    """Return who leads the quorum, as a node says; -1 where it knows nobody."""
    request = DescribeQuorumRequest([TopicData("__cluster_metadata", partitions=[PartitionData(partition_index=0)])])
    with connect(node) as connection:
        response = call(connection, request, 0)
    return int(response.topics[0].partitions[0].leader_id) if response.topics else -1


def metadata_of(node: Server, *topics: str) -> Any:
    with connect(node) as connection:
        return call(connection, MetadataRequest([MetadataRequestTopic(name=name) for name in topics]), METADATA_VERSION)


def leaders_of(node: Server, topic: str) -> list[int]:
    """Return the leader of each partition, -1 where there is none, in their order."""
    found = metadata_of(node, topic).topics[0].partitions
    return [each.leader_id for each in sorted(found, key=lambda each: each.partition_index)]


def smallest_isr(node: Server, topic: str) -> int:
    """Return the size of the smallest ISR."""
    return min((len(each.isr_nodes) for each in metadata_of(node, topic).topics[0].partitions), default=0)


def wait_until(check: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    until = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < until, f"{what} did not come"
        time.sleep(0.01)
