"""Topics of one partition on a `kafkapy.Cluster`, and records for them, by confluent-kafka."""

from typing import Any

from confluent_kafka import Producer

from kafkapy import Cluster
from tests.support import topics

TIMEOUT_S = 120


def create(cluster: Cluster, topic: str, replicas: int = 3) -> None:
    topics.create(cluster.bootstrap_servers, topic, replicas=replicas)


def produce(bootstrap_servers: str, topic: str) -> Any:
    """Produce a record with acks=all; return its error."""
    results: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0})
    producer.produce(topic, b"value", on_delivery=lambda error, _: results.append(error))
    assert producer.flush(3 * TIMEOUT_S) == 0
    return results[0]
