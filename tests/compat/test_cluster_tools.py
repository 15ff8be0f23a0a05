"""Apache Kafka's tools that run a cluster, against three nodes: moving partitions while records are produced."""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from harness.nodes import ThreeNodes
from harness.servers import CLUSTER_ID, ApacheKafka, Kafkapy
from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.support.eventually import eventually
from tests.support.idempotence import numbers_of
from tests.support.java_tools import JavaTools, Printed
from tests.support.wire import WireClient

pytestmark = pytest.mark.long

KIND = ApacheKafka if os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache" else Kafkapy
PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "auto.leader.rebalance.enable": "false",
}
TIMEOUT_S = 120
Tool = Callable[..., Printed]
FLAGS = ("under-replicated-partitions", "under-min-isr-partitions", "unavailable-partitions")
"""Of kafka-topics --describe."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    with ThreeNodes(KIND, tmp_path_factory.mktemp("three"), PROPERTIES) as running:
        yield running


@pytest.fixture(scope="module")
def tool(cluster: ThreeNodes, tools: JavaTools) -> Tool:
    """Run a tool against the cluster."""
    return lambda script, *arguments: tools.run(script, *_with_bootstrap(script, cluster.bootstrap, arguments))


def _with_bootstrap(script: str, bootstrap: str, arguments: Sequence[str]) -> list[str]:
    """Say where the cluster is: kafka-cluster takes that behind its command, the others before."""
    where = ["--bootstrap-server", bootstrap]
    return [*arguments, *where] if script == "kafka-cluster" else [*where, *arguments]


def create(tool: Tool, topic: str, *replicas: Sequence[int]) -> None:
    """Create a topic whose partitions have the given replicas, and wait until the first of each leads."""
    assignment = ",".join(":".join(map(str, each)) for each in replicas)
    created = tool("kafka-topics", "--create", "--topic", topic, "--replica-assignment", assignment)
    assert created.status == 0, created.text
    eventually(lambda: [each[1] for each in described(tool, topic)] == [each[0] for each in replicas])


def described(tool: Tool, topic: str) -> list[tuple[int, int, list[int], list[int]]]:
    """Return (partition, leader, replicas, ISR sorted) of each partition, as kafka-topics tells."""
    text = tool("kafka-topics", "--describe", "--topic", topic).text
    found = re.findall(r"Partition: (\d+)\tLeader: (\w+)\tReplicas: ([\d,]+)\tIsr: ([\d,]*)", text)
    return [
        (int(partition), -1 if leader == "none" else int(leader), _ids(replicas), sorted(_ids(isr)))
        for partition, leader, replicas, isr in found
    ]


def _ids(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def reassignment(directory: Path, topic: str, targets: Mapping[int, Sequence[int]]) -> list[str]:
    path = directory / "reassignment.json"
    partitions = [{"topic": topic, "partition": each, "replicas": list(ids)} for each, ids in targets.items()]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return ["--reassignment-json-file", str(path)]


class Load:
    """An idempotent producer that writes numbers to a topic until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._topic = topic
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[int] = []

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._thread.join()
        assert self._producer.flush(TIMEOUT_S) == 0

    def _run(self) -> None:
        number = 0
        while not self._is_stopped.wait(0.005):
            self._producer.produce(self._topic, str(number), on_delivery=self._note)
            self._producer.poll(0)
            number += 1

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(int(message.value()))


def numbers_in(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Read a topic to its end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    requested = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
    total = sum(consumer.get_watermark_offsets(each, timeout=TIMEOUT_S)[1] for each in requested)
    consumer.assign(requested)
    found: list[int] = []
    while len(found) < total:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        found.append(int(message.value()))
    consumer.close()
    return found


def test_partitions_move_while_records_are_produced(cluster: ThreeNodes, tool: Tool, tmp_path: Path) -> None:
    create(tool, "moved", [1, 2], [1, 3])
    targets = reassignment(tmp_path, "moved", {0: [2, 3], 1: [3, 2]})

    with Load(cluster.bootstrap, "moved") as load:
        eventually(lambda: len(load.acknowledged) > 100)
        begun = tool("kafka-reassign-partitions", *targets, "--execute")
        eventually(lambda: "still in progress" not in tool("kafka-reassign-partitions", *targets, "--verify").text)
        count = len(load.acknowledged)
        eventually(lambda: len(load.acknowledged) > count + 100)

    assert begun.text.endswith("Successfully started partition reassignments for moved-0,moved-1\n")
    ended = tool("kafka-reassign-partitions", *targets, "--verify")
    assert ended.text.startswith(
        "Status of partition reassignment:\n"
        "Reassignment of partition moved-0 is completed.\n"
        "Reassignment of partition moved-1 is completed.\n"
    )
    eventually(lambda: [each[2:] for each in described(tool, "moved")] == [([2, 3], [2, 3]), ([3, 2], [2, 3])])
    assert sorted(set(numbers_in(cluster.bootstrap, "moved", 2))) == sorted(load.acknowledged)
    assert numbers_of([cluster.nodes[1].directory], ["moved-0", "moved-1"]) == sorted(load.acknowledged)
    left = cluster.nodes[0].directory
    eventually(lambda: not list(left.glob("moved-*")))


def test_a_reassignment_that_cannot_end_is_listed_and_cancelled(
    cluster: ThreeNodes, tool: Tool, tmp_path: Path
) -> None:
    """The tool does not begin what this is about, as it asks for the new replica's broker first."""
    create(tool, "stuck", [1, 2])
    targets = [*reassignment(tmp_path, "stuck", {0: [3, 1]}), "--preserve-throttles"]
    cluster.nodes[2].stop()
    try:
        eventually(lambda: is_reassigned(cluster.nodes[0].bootstrap, "stuck", [3, 1]))
        listed = tool("kafka-reassign-partitions", "--list").text
        running = tool("kafka-reassign-partitions", *targets, "--verify").text
        cancelled = tool("kafka-reassign-partitions", *targets, "--cancel").text
    finally:
        cluster.nodes[2].start()

    assert listed == "Current partition reassignments:\nstuck-0: replicas: 3,1,2. adding: 3. removing: 2.\n"
    assert "Reassignment of partition stuck-0 is still in progress." in running
    assert "Successfully cancelled partition reassignment for: stuck-0" in cancelled
    eventually(lambda: [each[2] for each in described(tool, "stuck")] == [[1, 2]])
    assert tool("kafka-reassign-partitions", "--list").text == "No partition reassignments found.\n"


def is_reassigned(bootstrap: str, topic: str, replicas: list[int]) -> bool:
    """Ask for other replicas of partition 0; not yet while another controller is elected."""
    topics = [ReassignableTopic(topic, partitions=[ReassignablePartition(0, replicas=replicas)])]
    with WireClient(bootstrap) as client:
        response = client.call(AlterPartitionReassignmentsRequest(topics=topics), 1)
    return response.error_code == 0 and response.responses[0].partitions[0].error_code == 0


def test_the_preferred_replica_is_elected(cluster: ThreeNodes, tool: Tool, tmp_path: Path) -> None:
    create(tool, "elected", [1, 2], [2, 1])
    targets = reassignment(tmp_path, "elected", {0: [2, 1]})
    tool("kafka-reassign-partitions", *targets, "--execute")
    eventually(lambda: [each[:3] for each in described(tool, "elected")] == [(0, 1, [2, 1]), (1, 2, [2, 1])])
    of_topic = ["--election-type", "preferred", "--topic", "elected"]

    elected = tool("kafka-leader-election", *of_topic, "--partition", "0")
    again = tool("kafka-leader-election", *of_topic, "--partition", "0")
    unknown = tool("kafka-leader-election", *of_topic, "--partition", "7")
    nothing = tool("kafka-leader-election", "--election-type", "unclean", "--all-topic-partitions")

    assert elected.text == "Successfully completed leader election (PREFERRED) for partitions elected-0\n"
    assert again.text == "Valid replica already elected for partitions elected-0\n"
    assert unknown.status == 1
    assert "No such partition as elected-7" in unknown.text
    assert (nothing.status, nothing.text) == (0, "")
    eventually(lambda: [each[1] for each in described(tool, "elected")] == [2, 2])


def test_a_reassignment_to_unknown_brokers_is_refused(cluster: ThreeNodes, tool: Tool, tmp_path: Path) -> None:
    create(tool, "refused", [1])
    refused = tool("kafka-reassign-partitions", *reassignment(tmp_path, "refused", {0: [9]}), "--execute")

    assert refused.status == 1
    assert "Unknown broker id 9" in refused.text


def test_a_broker_that_is_gone_is_unregistered_and_comes_back_by_a_start(cluster: ThreeNodes, tool: Tool) -> None:
    def ids(*options: str) -> list[str]:
        return [line.split()[0] for line in tool("kafka-cluster", "list-endpoints", *options).text.splitlines()]

    eventually(lambda: ids() == ["ID", "1", "2", "3"])
    cluster.nodes[2].stop()
    try:
        refused = tool("kafka-cluster", "unregister", "--id", "9")
        done = tool("kafka-cluster", "unregister", "--id", "3")
        eventually(lambda: ids("--include-fenced-brokers") == ["ID", "1", "2"])
    finally:
        cluster.nodes[2].start()

    assert done.text == "Broker 3 is no longer registered.\n"
    assert "Broker ID 9 is not currently registered" in refused.text
    eventually(lambda: ids() == ["ID", "1", "2", "3"])
    assert tool("kafka-cluster", "cluster-id").text == f"Cluster ID: {CLUSTER_ID}\n"


def test_features_are_described_lowered_and_raised(tool: Tool) -> None:
    lowered = tool("kafka-features", "downgrade", "--feature", "group.version=0")
    eventually(lambda: finalized(tool).get("group.version") == "0")  # asked of a broker, which hears of it later
    between = tool("kafka-features", "describe").text
    dry = tool("kafka-features", "upgrade", "--feature", "group.version=1", "--dry-run")
    raised = tool("kafka-features", "upgrade", "--feature", "group.version=1")
    refused = tool("kafka-features", "downgrade", "--metadata", "4.0-IV0")
    disabled = tool("kafka-features", "disable", "--feature", "transaction.version", "--dry-run")

    assert lowered == (0, "group.version was downgraded to 0.\n")
    assert dry == (0, "group.version can be upgraded to 1.\n")
    assert raised == (0, "group.version was upgraded to 1.\n")
    assert disabled == (0, "transaction.version can be disabled.\n")
    assert (refused.status, "Refusing to perform the requested downgrade" in refused.text) == (1, True)
    ranges = re.findall(r"^Feature: group.version .*MinVersion: (\S+) .*MaxVersion: (\S+) ", between, re.MULTILINE)
    assert ranges == [("0", "1")]
    eventually(lambda: finalized(tool).items() >= {("group.version", "1"), ("metadata.version", "4.4-IV2")})


def finalized(tool: Tool) -> dict[str, str]:
    """Return the finalized level of each feature."""
    text = tool("kafka-features", "describe").text
    return dict(re.findall(r"^Feature: (\S+) .* FinalizedVersionLevel: (\S+) ", text, re.MULTILINE))


def test_partitions_that_miss_replicas_are_shown(cluster: ThreeNodes, tool: Tool) -> None:
    create(tool, "two", [1, 3])
    create(tool, "one", [3])
    tool(
        "kafka-topics",
        "--create",
        "--topic",
        "strict",
        "--replica-assignment",
        "1:3",
        "--config",
        "min.insync.replicas=2",
    )

    def shown(which: str) -> set[str]:
        text = tool("kafka-topics", "--describe", f"--{which}").text
        return set(re.findall(r"^\tTopic: (two|one|strict)\s", text, re.MULTILINE))

    eventually(lambda: [shown(which) for which in FLAGS] == [set()] * len(FLAGS))
    cluster.nodes[2].stop()
    try:
        eventually(lambda: [shown(which) for which in FLAGS] == [{"two", "one", "strict"}, {"strict", "one"}, {"one"}])
    finally:
        cluster.nodes[2].start()
    eventually(lambda: [shown(which) for which in FLAGS] == [set()] * len(FLAGS))


def test_static_voters_become_those_of_the_log_and_may_change(cluster: ThreeNodes, tool: Tool) -> None:
    """The last test: the cluster is another one afterwards."""
    upgrade = ["upgrade", "--feature", "kraft.version=1"]
    eventually(lambda: tool("kafka-features", *upgrade) == (0, "kraft.version was upgraded to 1.\n"))

    described = tool("kafka-metadata-quorum", "describe", "--replication").text
    directories = dict(re.findall(r"^(\d)\s+(\S{22})\s+\d+ .*(?:Leader|Follower)", described, re.MULTILINE))
    assert sorted(directories) == ["1", "2", "3"]
    assert "AAAAAAAAAAAAAAAAAAAAAA" not in directories.values()
    voter = ["--controller-id", "3", "--controller-directory-id", directories["3"]]
    reported = f"Removed  KRaft controller 3 with directory id {directories['3']}\n|VoterNotFound"
    eventually(lambda: re.search(reported, tool("kafka-metadata-quorum", "remove-controller", *voter).text))
