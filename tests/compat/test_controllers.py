"""Nodes that are controllers alone, beside brokers: Kafka's tools ask them, and one that is killed is replaced."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from harness.nodes import BROKER, CONTROLLER, Nodes, Plan
from harness.servers import ApacheKafka, Kafkapy
from tests.support import topics
from tests.support.eventually import eventually
from tests.support.java_tools import JavaTools, Printed

pytestmark = pytest.mark.long

KIND = ApacheKafka if os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache" else Kafkapy
PLANS = [*(Plan(KIND, 100 + number, CONTROLLER) for number in range(3)), Plan(KIND, 1, BROKER), Plan(KIND, 2, BROKER)]
PROPERTIES = {
    "offsets.topic.replication.factor": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
TIMEOUT_S = 120
TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(PLANS, tmp_path_factory.mktemp("roles"), PROPERTIES, heap="256m") as running:
        yield running


def produce(bootstrap: str, topic: str) -> list[Any]:
    """Produce ten records with acks=all; return the errors."""
    results: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, str(number), on_delivery=lambda error, _: results.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return results


def status_of(java_tool: Callable[..., str], bootstrap: str) -> dict[str, str]:
    output = java_tool(f"{TOOLS}.MetadataQuorumCommand", "--bootstrap-controller", bootstrap, "describe", "--status")
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in output.splitlines())}


def test_clients_see_the_brokers_alone(cluster: Nodes) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    eventually(lambda: sorted(client.list_topics(timeout=TIMEOUT_S).brokers) == [1, 2])
    topics.create(cluster.bootstrap, "plain", partitions=2, replicas=2)
    assert produce(cluster.bootstrap, "plain") == [None] * 10


def test_tools_reach_the_controllers(cluster: Nodes, java_tool: Callable[..., str]) -> None:
    where = ["--bootstrap-controller", cluster.controllers_bootstrap]

    def endpoints() -> list[tuple[str, str]]:
        shown = [line.split() for line in java_tool(f"{TOOLS}.ClusterTool", "list-endpoints", *where).splitlines()[1:]]
        return sorted((row[0], row[-1]) for row in shown if row)

    eventually(lambda: endpoints() == [(str(100 + n), "controller") for n in range(3)])
    assert "metadata.version" in java_tool(f"{TOOLS}.FeatureCommand", *where, "describe")
    broker = ["--entity-type", "brokers", "--entity-name", "100"]
    java_tool("org.apache.kafka.tools.ConfigCommand", *where, *broker, "--alter", "--add-config", "max.connections=77")
    described = java_tool("org.apache.kafka.tools.ConfigCommand", *where, *broker, "--describe")
    assert "max.connections=77 sensitive=false" in described


CHANGES = [
    (["brokers", "--entity-default"], "log.cleaner.threads=2", ("controller", "server")),
    (["brokers", "--entity-name", "1"], "num.io.threads=9", ("server",)),
    (["brokers", "--entity-name", "100"], "num.network.threads=4", ("controller",)),
    (["topics", "--entity-name", "configured"], "retention.ms=123456", ("server",)),
]
"""What is told to the controllers, and of whom it is asked then."""


def test_configs_set_on_the_controllers_are_the_brokers_as_well(cluster: Nodes, tools: JavaTools) -> None:
    topics.create(cluster.bootstrap, "configured", partitions=2, replicas=2)
    bootstrap = {"controller": cluster.controllers_bootstrap, "server": cluster.bootstrap}

    def configs(where: str, entity: Sequence[str], *more: str) -> Printed:
        return tools.run("kafka-configs", f"--bootstrap-{where}", bootstrap[where], "--entity-type", *entity, *more)

    for entity, change, requested in CHANGES:
        reported = configs("controller", entity, "--alter", "--add-config", change)
        assert reported.status == 0, reported.text
        for where in requested:
            seen = lambda where=where, entity=entity: configs(where, entity, "--describe").text  # noqa: E731
            eventually(lambda seen=seen, change=change: change in seen(), what=f"{change} at the {where}")
        reported = configs("controller", entity, "--alter", "--delete-config", change.partition("=")[0])
        assert reported.status == 0, reported.text


def test_another_controller_takes_over_from_one_that_is_killed(cluster: Nodes, java_tool: Callable[..., str]) -> None:
    before = status_of(java_tool, cluster.controllers_bootstrap)
    leader = cluster.by_id[int(before["LeaderId"])]
    leader.stop(signal.SIGKILL)
    topics.create(cluster.bootstrap, "after", partitions=2, replicas=2)
    assert produce(cluster.bootstrap, "after") == [None] * 10
    after = status_of(java_tool, cluster.controllers_bootstrap)
    leader.start()
    assert after["LeaderId"] != before["LeaderId"]
    assert int(after["LeaderEpoch"]) > int(before["LeaderEpoch"])
    assert after["ClusterId"] == before["ClusterId"]
