"""kafka-reassign-partitions.sh --throttle against three nodes: it sets the limits, they hold, it takes them away."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, PartitionMetadata

from harness.nodes import ThreeNodes
from harness.servers import ApacheKafka, Kafkapy
from tests.support import topics
from tests.support.eventually import eventually
from tests.support.java_tools import JavaTools

pytestmark = pytest.mark.long

KIND = ApacheKafka if os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache" else Kafkapy
PROPERTIES = {"offsets.topic.replication.factor": "1", "transaction.state.log.num.partitions": "1"}
TIMEOUT_S = 120
RATE = 300_000
SIZE_BYTES = 1_500_000
RATE_KEYS = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LIST_KEYS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    properties = PROPERTIES | {"replica.fetch.max.bytes": "65536"}
    with ThreeNodes(KIND, tmp_path_factory.mktemp("three"), properties) as running:
        yield running


def wait_for_configs(client: AdminClient, kind: ConfigResource.Type, name: str, wanted: dict[str, str]) -> None:
    """Wait until just these throttles are set: a broker hears of a change after the tool has its response."""
    eventually(lambda: set_configs(client, kind, name, RATE_KEYS + LIST_KEYS) == wanted, what=f"{wanted} of {name}")


def set_configs(client: AdminClient, kind: ConfigResource.Type, name: str, keys: tuple[str, ...]) -> dict[str, str]:
    """Return what is set, and not a default, of a broker's or a topic's configs."""
    (response,) = client.describe_configs([ConfigResource(kind, name)]).values()
    found = response.result(TIMEOUT_S)
    return {key: found[key].value for key in keys if key in found and not found[key].is_default}


def partition_of(client: AdminClient) -> PartitionMetadata:
    """Return what a broker tells of the partition; nothing if it has not heard of the topic yet."""
    return client.list_topics("moving").topics["moving"].partitions.get(0, PartitionMetadata())


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 20_000, "linger.ms": 5})
    for _ in range(SIZE_BYTES // 10_000):
        producer.produce(topic, bytes(10_000), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def test_a_reassignment_is_as_slow_as_its_throttle_and_leaves_none(
    cluster: ThreeNodes, tools: JavaTools, tmp_path: Path
) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics.create(cluster.bootstrap, "moving", replica_assignment=[[1]])
    eventually(lambda: partition_of(client).leader == 1)
    fill(cluster.bootstrap, "moving")
    path = tmp_path / "moves.json"
    moves = [{"topic": "moving", "partition": 0, "replicas": [2, 3]}]
    path.write_text(json.dumps({"version": 1, "partitions": moves}))
    reassign = ("kafka-reassign-partitions", "--bootstrap-server", cluster.bootstrap, "--reassignment-json-file")
    started_s = time.monotonic()
    executed = tools.run(*reassign, str(path), "--execute", "--throttle", str(RATE))
    assert executed.status == 0, executed.text
    assert f"The inter-broker throttle limit was set to {RATE} B/s" in executed.text
    for broker in ("1", "2", "3"):
        wait_for_configs(client, ConfigResource.Type.BROKER, broker, dict.fromkeys(RATE_KEYS, str(RATE)))
    listed = dict(zip(LIST_KEYS, ("0:1", "0:2,0:3"), strict=True))
    wait_for_configs(client, ConfigResource.Type.TOPIC, "moving", listed)

    def is_complete() -> bool:
        return "Reassignment of partition moving-0 is completed." in tools.run(*reassign, str(path), "--verify").text

    eventually(is_complete, 180)
    # the leader sends what two replicas have to get, so each alone is twice as fast as the throttle allows
    assert time.monotonic() - started_s > SIZE_BYTES / RATE
    wait_for_configs(client, ConfigResource.Type.TOPIC, "moving", {})
    for broker in ("1", "2", "3"):
        wait_for_configs(client, ConfigResource.Type.BROKER, broker, {})
    eventually(lambda: partition_of(client).replicas == [2, 3])
