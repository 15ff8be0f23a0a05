"""A quorum of one grows to three and back by kafka-metadata-quorum, and a node joins by itself (KIP-853)."""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from harness.servers import ApacheKafka, Kafkapy, Server, free_port
from tests.support import topics
from tests.support.eventually import eventually
from tests.support.java_tools import JavaTools
from tests.support.quorum_tool import QuorumTool

pytestmark = pytest.mark.long

KIND = ApacheKafka if os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache" else Kafkapy
TIMEOUT_S = 120


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Server]]:
    """Three nodes, each broker and controller, of which the first forms a quorum; the first one runs."""
    ports = [free_port() for _ in range(3)]
    made = [node(tmp_path, node_id, ports) for node_id in (1, 2, 3)]
    try:
        for each in made:
            each.prepare()
        made[0].start()
        yield made
    finally:
        for each in made:
            each.stop()


def node(directory: Path, node_id: int, controller_ports: list[int]) -> Server:
    server = KIND(directory / f"node-{node_id}")
    server.properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{server.port},CONTROLLER://127.0.0.1:{controller_ports[node_id - 1]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in controller_ports),
        "offsets.topic.replication.factor": "1",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    if KIND is ApacheKafka:
        server.properties["controller.quorum.voters"] = ""
    server.format_arguments = ("--standalone",) if node_id == 1 else ("--no-initial-controllers",)
    return server


def values(bootstrap: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    requested = TopicPartition("kept", 0, 0)
    count = consumer.get_watermark_offsets(requested, timeout=TIMEOUT_S)[1]
    consumer.assign([requested])
    found = [consumer.poll(TIMEOUT_S).value() for _ in range(count)]
    consumer.close()
    return found


def produce(bootstrap: str) -> list[bytes]:
    topics.create(bootstrap, "kept", replica_assignment=[[1]])
    producer = Producer({"bootstrap.servers": bootstrap})
    expected = [f"{number}".encode() for number in range(200)]
    for value in expected:
        producer.produce("kept", value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return expected


def test_a_quorum_of_one_grows_to_three_and_back(nodes: list[Server], tools: JavaTools) -> None:
    first, second, third = nodes
    quorum = QuorumTool(tools, first.bootstrap)
    expected = produce(first.bootstrap)
    for each in (second, third):
        each.start()
    eventually(lambda: sorted(quorum.replicas()) == [1, 2, 3])
    assert quorum.voters() == [1]

    for each in (second, third):
        added = eventually(lambda each=each: re.search("Added controller .*|DuplicateVoter.*", quorum.add(each)))
        assert added
    assert eventually(lambda: quorum.voters() == [1, 2, 3])
    eventually(lambda: "DuplicateVoterException" in quorum.add(third))

    first.stop(signal.SIGKILL)
    quorum.bootstrap = f"{second.bootstrap},{third.bootstrap}"
    topics.create(quorum.bootstrap, "after")
    first.start()
    eventually(lambda: quorum.replicas().get(1, ("", ""))[1] == "Follower")

    for node_id in (2, 3):
        assert eventually(
            lambda node_id=node_id: re.search("Removed +KRaft controller|VoterNotFound", quorum.remove(node_id))
        )
    quorum.bootstrap = first.bootstrap
    eventually(lambda: quorum.voters() == [1])
    for each in (second, third):
        each.stop()
    eventually(lambda: values(first.bootstrap) == expected)
    first.stop()
    first.start()
    eventually(lambda: values(first.bootstrap) == expected)
    eventually(lambda: quorum.voters() == [1])


def test_a_node_joins_by_itself_and_removes_its_former_directory(nodes: list[Server], tools: JavaTools) -> None:
    first, second, _ = nodes
    quorum = QuorumTool(tools, first.bootstrap)
    joining: Any = second
    joining.properties["controller.quorum.auto.join.enable"] = "true"
    second.prepare()
    second.start()
    eventually(lambda: quorum.voters() == [1, 2])
    before = eventually(lambda: quorum.directory_of(2))

    third: Any = nodes[2]
    third.properties["controller.quorum.auto.join.enable"] = "true"
    third.prepare()
    third.start()
    eventually(lambda: quorum.voters() == [1, 2, 3])
    second.stop()
    shutil.rmtree(second.directory)
    second.prepare()
    second.start()

    eventually(lambda: quorum.voters() == [1, 2, 3] and quorum.directory_of(2) not in ("", before))
