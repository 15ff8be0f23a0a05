"""What a broker tells Prometheus: asked over HTTP, read by Prometheus' own parser."""

import time
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from harness.servers import Kafkapy, free_port

pytestmark = pytest.mark.ours
RECORDS, KEYS = 1000, 10


def scrape(port: int) -> dict[str, float]:
    """Return the samples by name and, in braces, their labels' values."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as response:
        text = response.read().decode()
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def clean_a_topic(bootstrap: str) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "5000", "min.cleanable.dirty.ratio": "0.01"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("keys", 1, 1, config=config)])["keys"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    now_ms = int(time.time() * 1000)
    for number in range(RECORDS):
        producer.produce("keys", b"value", f"{number % KEYS}", timestamp=now_ms - 10_000)
    assert producer.flush(30) == 0
    producer.produce("keys", b"value", b"of the next segment", timestamp=now_ms)
    assert producer.flush(30) == 0


def test_a_cleaning_is_told_of(tmp_path: Path) -> None:
    port = free_port()
    properties = {"kafkapy.metrics.port": str(port), "log.cleaner.backoff.ms": "100"}
    with Kafkapy(tmp_path / "data", properties) as broker:
        before = scrape(port)
        assert before["kafka_log_logcleaner_last_clean_records_read"] == 0
        assert before[f"kafka_log_logcleanermanager_uncleanable_partitions_count{{{tmp_path / 'data'}}}"] == 0
        assert before["kafka_server_replicamanager_partitionswithlatetransactionscount"] == 0
        assert before["kafka_server_transaction_coordinator_metrics_partition_load_time_max"] == 0
        assert before["kafka_server_group_coordinator_metrics_partition_load_time_max"] == 0
        clean_a_topic(broker.bootstrap)
        until = time.monotonic() + 60
        while not (found := scrape(port))["kafka_log_logcleaner_last_clean_records_read"]:
            assert time.monotonic() < until, found
            time.sleep(0.1)
    assert found["kafka_log_logcleaner_last_clean_records_read"] == RECORDS
    assert found["kafka_log_logcleaner_last_clean_records_kept"] == KEYS
    assert 0 < found["kafka_log_logcleaner_cleaner_recopy_percent"] < 100 * KEYS / RECORDS + 10


def test_a_taken_port_stops_the_start(tmp_path: Path) -> None:
    port = free_port()
    properties = {"kafkapy.metrics.port": str(port)}
    message = f"cannot serve metrics on 127.0.0.1:{port}: Address already in use"
    with Kafkapy(tmp_path / "first", properties), pytest.raises(RuntimeError, match=message):
        Kafkapy(tmp_path / "second", properties).start()
