"""What a failing test shows of the requests that it has recorded: its own alone."""

import subprocess
import sys
from pathlib import Path

TESTS = """
from confluent_kafka import Producer


def test_first(kafka_broker, kafka_topic):
    kafka_broker.requests.on()
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "client.id": "first"})
    producer.produce(kafka_topic, b"x")
    producer.flush(60)
    assert kafka_broker.requests.matching("Produce", client_id="first")


def test_second(kafka_broker, kafka_topic):
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "client.id": "second"})
    producer.list_topics(timeout=60)
    assert not kafka_broker.requests.matching("Metadata", client_id="second")
"""


def test_requests_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "test_service.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    shown = done.stdout.partition("Kafka requests")[2]
    assert "by second (127.0.0.1:" in shown
    assert "first" not in shown
