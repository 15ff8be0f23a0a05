"""Topics of one partition on a `kafkapy.Cluster`, and records for them, by confluent-kafka."""

from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kafkapy import Cluster
from tests.support.eventually import eventually
from tests.support.quorum_tool import is_created

TIMEOUT_S = 120


def create(cluster: Cluster, topic: str, replicas: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    eventually(lambda: is_created(admin, topic, 1, replicas))  # a broker may be fenced on a busy machine


def produce(bootstrap_servers: str, topic: str) -> Any:
    """Produce a record with acks=all; return its error."""
    results: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0})
    producer.produce(topic, b"value", on_delivery=lambda error, _: results.append(error))
    assert producer.flush(3 * TIMEOUT_S) == 0
    return results[0]
