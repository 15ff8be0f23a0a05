"""A snapshot's directory is one that Apache Kafka opens, with its records and offsets."""

import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kafkapy.testing import Broker
from tests.support.quick_kafka import QuickKafka

pytestmark = pytest.mark.long
TIMEOUT_S = 60


def committed(consumer: Consumer) -> int:
    """Return the committed offset, once the coordinator has loaded it."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return consumer.committed([TopicPartition("orders", 0)], TIMEOUT_S)[0].offset
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_apache_kafka_opens_a_snapshot(tmp_path: Path) -> None:
    with Broker() as broker:
        broker.create_topics("orders", partitions=1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        producer.produce("orders", b"order 1")
        assert producer.flush(TIMEOUT_S) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        consumer.close()
        snapshot = broker.snapshot()
    shutil.copytree(snapshot.data_dir, tmp_path / "kafka")
    with QuickKafka(tmp_path / "kafka") as kafka:
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "log_level": 0})
        assert committed(consumer) == 1
        consumer.assign([TopicPartition("orders", 0, 0)])
        message = consumer.poll(TIMEOUT_S)
        consumer.close()
    assert message is not None
    assert message.value() == b"order 1"
