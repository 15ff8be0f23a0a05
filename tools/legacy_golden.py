"""How tests/golden/legacy_segments.tar.gz was made: by Apache Kafka 2.8.2, the last to write magic 0 and 1 on demand.

`python -m tools.legacy_golden TARGET.tar.gz` fetches it from Maven Central, runs it with a ZooKeeper on loopback,
writes a topic for each format and codec, and packs the topics' directories with what a consumer then read
(expected.jsonl).
"""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from harness.servers import free_port
from tools.maven import maven_copy

VERSION = "2.8.2"
FORMATS = {"v0": "0.9.0", "v1": "0.10.2"}
CODECS = ("none", "gzip", "snappy", "lz4")
RECORDS = 120


def topics() -> Iterator[NewTopic]:
    """Yield a topic for each format and codec, and a compacted one for each format."""
    for magic, release in FORMATS.items():
        config = {"message.format.version": release, "segment.bytes": "4096", "segment.index.bytes": "400"}
        config |= {"index.interval.bytes": "256", "retention.ms": "-1", "file.delete.delay.ms": "1"}
        for codec in CODECS:
            yield NewTopic(f"{magic}-{codec}", 1, 1, config={**config, "compression.type": "producer"})
        yield NewTopic(f"{magic}-append-time", 1, 1, config={**config, "message.timestamp.type": "LogAppendTime"})
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
        yield NewTopic(f"{magic}-compact", 1, 1, config={**config, **compacted})


@contextmanager
def apache_kafka(libs: Path, directory: Path) -> Iterator[str]:
    """Run ZooKeeper and the broker; yields the bootstrap address."""
    keeper, port = free_port(), free_port()
    properties = directory / "server.properties"
    properties.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={directory}/logs\n"
        f"zookeeper.connect=127.0.0.1:{keeper}\noffsets.topic.replication.factor=1\nlog.cleaner.enable=false\n"
    )
    java = ["java", "-cp", f"{libs}/*"]
    keeper_main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    address = ["-Dzookeeper.admin.enableServer=false", keeper_main, str(keeper), f"{directory}/keeper"]
    with (directory / "servers.log").open("wb") as log:
        zookeeper = subprocess.Popen([*java[:1], *address[:1], *java[1:], *address[1:]], stdout=log, stderr=log)
        broker = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=log)
        try:
            yield f"127.0.0.1:{port}"
        finally:
            for process in (broker, zookeeper):
                process.terminate()
                process.wait(60)


def write(bootstrap: str, topic: str) -> None:
    codec = topic.partition("-")[2]
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 10, "batch.num.messages": 10}
    producer = Producer({**settings, "compression.type": codec if codec in CODECS else "none"})
    for number in range(RECORDS):
        key = f"key-{number % 17}" if number % 7 or topic.endswith("compact") else None
        value = None if number % 13 == 5 else f"value {number} ".encode() * (number % 11 + 1)
        producer.produce(topic, value, key, timestamp=1_500_000_000_000 + number * 1000)
        if number % 10 == 9:
            producer.flush(30)
    assert producer.flush(30) == 0


def read(bootstrap: str, topic: str) -> Iterator[dict[str, object]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for _ in range(RECORDS):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        timestamp_type, timestamp_ms = message.timestamp()
        key, value = (None if part is None else part.decode() for part in (message.key(), message.value()))
        yield {"topic": topic, "offset": message.offset(), "type": timestamp_type, "timestamp": timestamp_ms,
               "key": key, "value": value}  # fmt: skip
    consumer.close()


def main(target: Path) -> None:
    directory = Path(tempfile.mkdtemp())
    maven_copy([("org.apache.kafka", "kafka_2.13", VERSION)], directory / "libs")
    with apache_kafka(directory / "libs", directory) as bootstrap:
        names = [topic.topic for topic in topics()]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for created in admin.create_topics(list(topics()), operation_timeout=60, request_timeout=60).values():
            created.result(90)
        for name in names:
            write(bootstrap, name)
        rows = [row for name in names for row in read(bootstrap, name)]
    expected = directory / "expected.jsonl"
    expected.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with tarfile.open(target, "w:gz") as archive:
        archive.add(expected, "expected.jsonl")
        for name in names:
            archive.add(directory / "logs" / f"{name}-0", f"{name}-0")
    shutil.rmtree(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
