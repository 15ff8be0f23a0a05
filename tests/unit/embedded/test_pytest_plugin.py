"""The fixtures that an install of kafkapy brings; pytest finds them by its entry point. pytest-xdist: test_pages.py."""

import socket
import sys
from collections.abc import Callable

import pytest

from kafkapy import Broker
from tests.support.client_requests import partition_counts


def test_the_fixture_is_a_running_broker(kafka_broker: Broker) -> None:
    host, port = kafka_broker.bootstrap_servers.split(":")
    socket.create_connection((host, int(port)), 5).close()


@pytest.mark.kafka_topic(partitions=2)
def test_a_topic_is_the_tests_own(kafka_broker: Broker, kafka_topic: str) -> None:
    assert kafka_topic.startswith("test_a_topic_is_the_tests_own-")
    assert partition_counts(kafka_broker.bootstrap_servers)[kafka_topic] == 2


@pytest.mark.parametrize("name", ["a/b c", "...", "ü" * 300])
def test_a_topic_has_a_name_that_is_allowed(kafka_broker: Broker, kafka_topic: str, name: str) -> None:
    assert partition_counts(kafka_broker.bootstrap_servers)[kafka_topic] == 1


def test_a_broker_of_the_tests_own(kafka_broker: Broker, own_kafka_broker: Broker) -> None:
    assert own_kafka_broker.cluster_id != kafka_broker.cluster_id
    own_kafka_broker.kill()


def test_brokers_with_properties(new_kafka_broker: Callable[..., Broker]) -> None:
    brokers = [new_kafka_broker(properties={"num.partitions": count}) for count in (2, 3)]
    for broker in brokers:
        broker.create_topics("orders")
    assert [partition_counts(each.bootstrap_servers) for each in brokers] == [{"orders": 2}, {"orders": 3}]


def test_the_asserts_of_the_broker_are_not_rewritten(kafka_broker: Broker) -> None:
    assert "@pytest_ar" in globals()
    rewritten = [name for name, module in sys.modules.items() if "@pytest_ar" in vars(module)]
    loaded = {"kafkapy", "kafkapy.compiled", "kafkapy.version", "kafkapy.embedded", "kafkapy.embedded.pytest_plugin"}
    assert {name for name in rewritten if name.split(".")[0] == "kafkapy"} <= loaded
