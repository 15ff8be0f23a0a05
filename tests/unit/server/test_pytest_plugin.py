"""The fixtures that an install of kafkapy brings; pytest finds them by its entry point."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkapy import Broker
from tests.support.asking import partition_counts

ROOT = Path(__file__).parents[3]

TESTS = """
import pytest

seen = []

@pytest.fixture(scope="session")
def kafka_broker_properties():
    return {"num.partitions": 4}

@pytest.mark.parametrize("number", range(4))
def test_with_a_topic(kafka_broker, kafka_topic, number):
    seen.append(kafka_topic)
    assert len(set(seen)) == len(seen)
    topic = kafka_broker._running.node.controller.image.topics.by_name
    assert [*topic] == [kafka_topic]
    assert len(topic[kafka_topic].partitions) == 4
"""


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


def test_workers_of_xdist_have_a_broker_each(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "test_topics.py").write_text(TESTS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
