"""What a node tells of itself over HTTP: its metrics, read by Prometheus' own parser, its health and its build."""

import json
import time
import urllib.error
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
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        text = response.read().decode()
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def clean_a_topic(bootstrap: str) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "5000", "min.cleanable.dirty.ratio": "0.01"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("keys", 1, 1, config=config)])["keys"].result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    now_ms = int(time.time() * 1000)
    for number in range(RECORDS):
        producer.produce("keys", b"value", f"{number % KEYS}", timestamp=now_ms - 10_000)
    assert producer.flush(60) == 0
    producer.produce("keys", b"value", b"of the next segment", timestamp=now_ms)
    assert producer.flush(60) == 0


def test_a_cleaning_is_reported(tmp_path: Path) -> None:
    port = free_port()
    properties = {"kafkapy.admin.listener": f"127.0.0.1:{port}", "log.cleaner.backoff.ms": "100"}
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
    properties = {"kafkapy.admin.listener": f"127.0.0.1:{port}"}
    message = f"cannot serve kafkapy.admin.listener=127.0.0.1:{port}: Address already in use"
    with Kafkapy(tmp_path / "first", properties), pytest.raises(RuntimeError, match=message):
        Kafkapy(tmp_path / "second", properties).start()


def page(port: int, path: str) -> tuple[int, dict[str, object]]:
    """Return status and JSON."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_controller_shows_itself_and_what_it_waits_for(tmp_path: Path) -> None:
    port = free_port()
    controller = Kafkapy(tmp_path / "data")
    controller.properties = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": f"CONTROLLER://{controller.bootstrap}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controller.bootstrap},2@127.0.0.1:{free_port()}",
        "kafkapy.admin.listener": f":{port}",
    }
    with controller:
        status, body = page(port, "/readyz")
        assert status == 503, "one of two voters is no majority"
        assert body["missing"] == {"metadata": "no leader of the metadata quorum is known"}
        assert page(port, "/buildinfo")[1]["process_roles"] == ["controller"]
        reported = scrape(port)
        assert reported["kafka_controller_kafkacontroller_activecontrollercount"] == 0
        assert reported["kafka_server_raftmetrics_current_leader"] == -1
        assert reported["kafka_server_raftmetrics_number_of_voters"] == 2
