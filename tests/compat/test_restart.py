"""What a broker process keeps over a stop and over kill -9, and what Apache Kafka's tools say of its directory."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from harness.servers import Kafkapy
from tests.compat.test_confluent_kafka import consume, produce

PROBLEMS = ("mismatch", "invalid", "Invalid", "corrupt", "Exception", "Error", "isvalid: false")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafkapy]:
    with Kafkapy(tmp_path / "data") as running:
        yield running


def create(bootstrap: str, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, 3, 1, config=settings)])[topic].result(60)


def facts(bootstrap: str, topic: str) -> tuple[object, ...]:
    """Cluster id, partitions and retention of a topic, as a client sees them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    cluster = admin.list_topics(timeout=60)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(60)
    return cluster.cluster_id, sorted(cluster.topics[topic].partitions), configs["retention.ms"].value


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda s: s.name)
def test_topics_configs_and_acknowledged_records_survive(broker, with_signal):
    create(broker.bootstrap, "kept", retention_ms="7200000")
    produce(broker.bootstrap, "kept", 500, acks="all")
    before = facts(broker.bootstrap, "kept")
    assert broker.stop(with_signal) == (-signal.SIGKILL if with_signal == signal.SIGKILL else 0)
    broker.start()
    assert facts(broker.bootstrap, "kept") == before
    assert [m.value() for m in consume(broker.bootstrap, "kept", 500)] == [b"value-%d" % n for n in range(500)]


def test_idempotent_producer_goes_on_over_kill_9(broker):
    create(broker.bootstrap, "kept")
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for n in range(300):
        producer.produce("kept", b"%d" % n, partition=0, on_delivery=lambda error, _: failures.append(error))
        if n == 150:
            producer.poll(0)
            broker.stop(signal.SIGKILL)
            broker.start()
    assert producer.flush(60) == 0
    assert not any(failures)
    assert [m.value() for m in consume(broker.bootstrap, "kept", 300)] == [b"%d" % n for n in range(300)]


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_apache_kafkas_dump_log_has_no_complaint(broker, java_tool, with_signal):
    create(broker.bootstrap, "kept", segment_bytes="1048576", segment_index_bytes="1000")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(broker.bootstrap, "kept", 3000, **{"compression.type": codec, "batch.num.messages": 50})
    broker.stop(with_signal)
    if with_signal == signal.SIGKILL:  # recovery mends what the kill left
        broker.start()
        broker.stop()
    files = sorted((broker.directory / "kept-0").glob("0*.*"))
    names = ",".join(str(file) for file in files)
    output = java_tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names)
    assert output.count("isvalid: true") >= 300
    assert output.count("| offset:") == 15_000
    for options in ([], ["--index-sanity-check"]):
        indexes = ",".join(str(file) for file in files if file.suffix in (".index", ".timeindex"))
        output += java_tool("org.apache.kafka.tools.DumpLogSegments", *options, "--files", indexes)
    assert not [line for line in output.splitlines() if any(problem in line for problem in PROBLEMS)]


def test_apache_kafkas_dump_log_reads_the_metadata_log(broker, java_tool):
    create(broker.bootstrap, "kept", retention_ms="7200000")
    broker.stop()
    log = broker.directory / "__cluster_metadata-0" / f"{0:020}.log"
    arguments = ["--cluster-metadata-decoder", "--deep-iteration", "--files", str(log)]
    output = java_tool("org.apache.kafka.tools.DumpLogSegments", *arguments)
    assert '"type":"TOPIC_RECORD"' in output
    assert '"name":"retention.ms","value":"7200000"' in output
    assert "LeaderChange" in output
    assert not [line for line in output.splitlines() if any(problem in line for problem in PROBLEMS)]
