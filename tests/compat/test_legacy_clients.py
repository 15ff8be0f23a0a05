"""Clients older than Kafka 4 speaks to, with kafkapy.legacy.clients.enable=true: Java's of 0.9, 0.10.0 and 0.10.2 as
they were released, and kafka-python pinned to what those brokers knew. New clients read what old ones wrote, and the
other way round; without the key the same requests close the connection.
"""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.admin import NewTopic

from harness.servers import Kafkapy, Server
from tools.kafka import OLD_CLIENTS, old_client_libs

pytestmark = [pytest.mark.long, pytest.mark.ours]
PATIENCE_S = 180
OLD_BROKERS = [(0, 9), (0, 10, 0), (0, 10, 1), (0, 10, 2)]
CODECS = [None, "gzip", "snappy", "lz4"]
PINNED = [(pinned, codec) for pinned in OLD_BROKERS for codec in CODECS if (pinned, codec) != ((0, 9), "lz4")]
"""Without lz4 as 0.9 framed it, for which kafka-python wants another package: Java's 0.9 has that one."""


@pytest.fixture(scope="module")
def legacy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    properties = {"kafkapy.legacy.clients.enable": "true", "group.initial.rebalance.delay.ms": "0"}
    with Kafkapy(tmp_path_factory.mktemp("legacy") / "data", properties) as server:
        yield server


def old_java(version: str, main: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """Run a verifiable client of an old release; yield the JSON lines that it prints, and end it after that."""
    libs = old_client_libs(version)
    if not libs.is_dir() or shutil.which("java") is None:
        pytest.skip("the old clients' jars or Java are missing: run `make tools`")
    command = ["java", "-cp", f"{libs}/*", f"org.apache.kafka.tools.{main}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        watchdog = threading.Timer(PATIENCE_S, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            yield from (json.loads(line) for line in process.stdout if line.startswith("{"))
        finally:
            watchdog.cancel()
            process.terminate()


def read_new(bootstrap: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Read with a client of today."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=60)
    consumer.close()
    assert all(message.error() is None for message in messages)
    return [(message.key(), message.value()) for message in messages]


@pytest.mark.parametrize("version", OLD_CLIENTS)
def test_old_java_clients_write_and_read(legacy: Server, topic: str, version: str, tmp_path: Path) -> None:
    codec = {"0.9.0.1": "lz4", "0.10.0.1": "gzip", "0.10.2.2": "snappy"}[version]
    config = tmp_path / "producer.properties"
    config.write_text(f"compression.type={codec}\n")
    target = ["--broker-list", legacy.bootstrap, "--topic", topic]
    sent = old_java(version, "VerifiableProducer", *target, "--max-messages", "500", "--producer.config", str(config))
    assert sum(1 for line in sent if line.get("name") == "producer_send_success") == 500
    assert sorted(read_new(legacy.bootstrap, topic, 500)) == sorted((None, b"%d" % n) for n in range(500))
    producer = Producer({"bootstrap.servers": legacy.bootstrap, "compression.type": "lz4"})
    for number in range(500, 800):
        producer.produce(topic, b"%d" % number, headers={"lost": b"on the way"})
    assert producer.flush(60) == 0
    group = ["--group-id", topic, "--reset-policy", "earliest", "--max-messages", "800", "--verbose"]
    values = []
    for line in old_java(version, "VerifiableConsumer", *target, *group):
        if line["name"] == "record_data":
            values.append(int(line["value"]))
        elif line["name"] == "offsets_committed":
            assert line["success"]
            if line["offsets"][0]["offset"] == 800:
                break
    assert values == list(range(800))


@pytest.mark.parametrize(("pinned", "codec"), PINNED)
def test_pinned_kafka_python_writes_and_reads(
    legacy: Server, topic: str, pinned: tuple[int, ...], codec: str | None
) -> None:
    settings = {"bootstrap_servers": legacy.bootstrap, "api_version": pinned}
    producer = KafkaProducer(**settings, compression_type=codec, acks="all")
    futures = [producer.send(topic, None if n == 7 else b"value-%d" % n, key=b"%d" % n, partition=0) for n in range(60)]
    assert [future.get(60).offset for future in futures] == list(range(60))
    producer.close()
    expected = [(b"%d" % n, None if n == 7 else b"value-%d" % n) for n in range(60)]
    assert read_new(legacy.bootstrap, topic, 60) == expected
    newer = Producer({"bootstrap.servers": legacy.bootstrap, "compression.type": codec or "none"})
    for number in range(60, 90):
        newer.produce(topic, b"value-%d" % number, b"%d" % number, partition=0)
    assert newer.flush(60) == 0
    expected += [(b"%d" % n, b"value-%d" % n) for n in range(60, 90)]
    consumer = KafkaConsumer(**settings, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    partition = PythonPartition(topic, 0)
    consumer.assign([partition])
    records = [record for _, record in zip(range(90), consumer, strict=False)]
    assert [(record.key, record.value) for record in records] == expected
    consumer.seek(partition, 71)
    assert next(consumer).offset == 71
    assert consumer.end_offsets([partition]) == {partition: 90}
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    consumer.close()


def test_pinned_kafka_python_in_a_group_goes_on_where_it_committed(legacy: Server, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=legacy.bootstrap, api_version=(0, 9))
    futures = [producer.send(topic, b"%d" % n) for n in range(20)]
    assert [future.get(60).offset for future in futures] == list(range(20))

    def read(count: int) -> list[bytes]:
        consumer = KafkaConsumer(
            topic, bootstrap_servers=legacy.bootstrap, api_version=(0, 9), group_id=topic, enable_auto_commit=False,
            auto_offset_reset="earliest", consumer_timeout_ms=60_000, max_poll_records=1,
        )  # fmt: skip
        values = [record.value for _, record in zip(range(count), consumer, strict=False)]
        consumer.commit()
        consumer.close()
        return values

    assert read(12) == [b"%d" % n for n in range(12)]
    assert read(8) == [b"%d" % n for n in range(12, 20)]


@pytest.mark.parametrize("pinned", [(0, 10, 1), (0, 10, 2)], ids=str)
def test_pinned_kafka_python_creates_and_deletes_topics(legacy: Server, topic: str, pinned: tuple[int, ...]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=legacy.bootstrap, api_version=pinned)
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()
