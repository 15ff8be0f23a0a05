"""Topics for the loads, made, altered and removed by librdkafka's admin client."""

import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from harness.servers import Server

MAX_AT_ONCE = 2_000
"""Partitions made by one request: Apache Kafka writes no more than 10,000 metadata records at once."""


def create_topic(
    server: Server, topic: str, partitions: int = 1, *, replicas: int = 1, config: dict[str, str] | None = None
) -> None:
    """Create a topic and wait until all its partitions have leaders."""
    admin = _admin(server)
    new = NewTopic(topic, min(partitions, MAX_AT_ONCE), replicas, config=config or {})
    admin.create_topics([new], operation_timeout=120, request_timeout=120)[topic].result(130)
    for count in range(2 * MAX_AT_ONCE, partitions + MAX_AT_ONCE, MAX_AT_ONCE):
        more = NewPartitions(topic, min(count, partitions))
        admin.create_partitions([more], operation_timeout=120, request_timeout=120)[topic].result(130)
    until = time.monotonic() + 120
    while True:
        found = admin.list_topics(timeout=30).topics.get(topic)
        leaders = [partition.leader for partition in found.partitions.values()] if found else []
        if len(leaders) == partitions and min(leaders) >= 0:
            return
        assert time.monotonic() < until, f"topic {topic} has no leaders"
        time.sleep(0.05)


def alter_topic(server: Server, topic: str, config: dict[str, str]) -> None:
    """Set some of a topic's configs."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = _admin(server)  # the response needs it
    admin.incremental_alter_configs([resource])[resource].result(30)


def delete_topic(server: Server, topic: str) -> None:
    """Delete a topic where there is one."""
    admin = _admin(server)
    try:
        admin.delete_topics([topic])[topic].result(60)
    except KafkaException as error:
        if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
            raise


def topics_of(server: Server) -> list[str]:
    """Return the names of all topics."""
    return list(_admin(server).list_topics(timeout=30).topics)


def _admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 4, **server.client_settings})
