"""`@pytest.mark.kafka_faults`, what a failing test shows, and that a fault which hits nothing fails its test."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
from confluent_kafka import Producer


def produce(broker, topic):
    found = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 1})
    producer.produce(topic, b"x", on_delivery=lambda error, _: found.append(error.name() if error else None))
    producer.flush(60)
    return found


@pytest.mark.kafka_faults("fail", "Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
def test_marked(kafka_broker, kafka_topic):
    assert produce(kafka_broker, kafka_topic) == [None]
    assert [hit.api for hit in kafka_broker.faults.log] == ["Produce", "Produce"]


def test_the_next_has_no_fault(kafka_broker, kafka_topic):
    assert produce(kafka_broker, kafka_topic) == [None]
    assert list(kafka_broker.faults) == kafka_broker.faults.log == []


@pytest.mark.kafka_faults("fail", "Produce", "INVALID_RECORD")
def test_shows_what_was_hit(kafka_broker, kafka_topic):
    assert produce(kafka_broker, kafka_topic) == [None]


def test_never_hit(own_kafka_broker):
    own_kafka_broker.faults.drop("EndTxn", when="after")


@pytest.mark.kafka_faults("drop", "EndTxn", may_miss=True)
def test_may_miss(own_kafka_broker):
    pass


@pytest.mark.kafka_faults("drop", "EndTx")
def test_mistyped(own_kafka_broker):
    pass


@pytest.mark.kafka_faults()
def test_of_nothing(own_kafka_broker):
    pass


@pytest.mark.kafka_faults("drop", "EndTxn")
def test_without_a_broker():
    pass


@pytest.mark.kafka_topic(3)
def test_with_a_number_of_what(kafka_topic):
    pass
"""


def test_markers_reports_and_missed_faults(tmp_path: Path) -> None:
    (tmp_path / "test_service.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "--strict-markers", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "5 failed, 3 passed, 1 error" in done.stdout, done.stdout
    shown = done.stdout
    assert "Kafka faults" in shown
    assert "Produce fails with INVALID_RECORD: 1 hits" in shown
    assert "by rdkafka (127.0.0.1:" in shown
    assert "FaultNeverHit: never hit: EndTxn is done, and its response lost; no EndTxn came" in shown
    assert "FaultError: there is no API 'EndTx'; is it EndTxn" in shown
    assert "missing 1 required positional argument: 'kind'\nkafka_faults(kind, api, ..., **selectors): a fault" in shown
    assert "kafka_faults needs one of the fixtures own_kafka_cluster, own_kafka_broker, " in shown
    assert "@pytest.mark.kafka_topic has the keyword arguments partitions and configs" in shown
    assert "During handling of the above exception" not in shown
    for name in ("test_shows_what_was_hit", "test_never_hit", "test_mistyped"):
        assert f"FAILED test_service.py::{name}" in shown
