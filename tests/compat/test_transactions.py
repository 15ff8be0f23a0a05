"""Transactions by librdkafka, over stops and kill -9: all of one is read, or nothing, and each input once."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from harness.servers import Server
from tests.compat.conftest import new_server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with new_server(tmp_path / "data") as running:
        yield running


def create(bootstrap: str, *topics: str, partition_count: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, partition_count, 1) for topic in topics]).values():
        created.result(60)


def transactional_producer(bootstrap: str, transactional_id: str, **config: Any) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **config})
    producer.init_transactions(60)
    return producer


def read(bootstrap: str, topic: str, *, isolation_level: str = "read_committed") -> list[bytes]:
    """Return all values of a topic, in the order of partitions and offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    partitions = sorted(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[Message] = []
    ended = 0
    while ended < len(partitions):
        message = consumer.poll(60)
        assert message is not None, "neither a record nor the end came"
        if message.error():
            ended += 1
        else:
            found.append(message)
    consumer.close()
    found.sort(key=lambda message: (message.partition(), message.offset()))
    return [message.value() for message in found]


def test_committed_records_are_read_and_aborted_ones_are_not(bootstrap, topic):
    create(bootstrap, topic)
    producer = transactional_producer(bootstrap, topic)
    for number in range(10):
        producer.begin_transaction()
        producer.produce(topic, b"%d-left" % number, partition=0)
        producer.produce(topic, b"%d-right" % number, partition=1)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    wanted = [b"%d-left" % number for number in range(0, 10, 2)] + [b"%d-right" % number for number in range(0, 10, 2)]
    assert read(bootstrap, topic) == wanted


def test_what_is_committed_is_readable_when_commit_returns(bootstrap, topic):
    create(bootstrap, topic)
    producer = transactional_producer(bootstrap, topic)
    for number in range(5):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.commit_transaction(60)
        assert len(read(bootstrap, topic)) == number + 1


def test_a_newer_producer_of_the_id_fences_the_older_and_aborts_its_transaction(bootstrap, topic):
    create(bootstrap, topic)
    older = transactional_producer(bootstrap, topic)
    older.begin_transaction()
    older.produce(topic, b"lost", partition=0)
    older.flush(60)
    newer = transactional_producer(bootstrap, topic)
    with pytest.raises(KafkaException):
        older.commit_transaction(60)
    newer.begin_transaction()
    newer.produce(topic, b"kept", partition=0)
    newer.commit_transaction(60)
    assert read(bootstrap, topic) == [b"kept"]


def copy_all(bootstrap: str, source: str, target: str, *, abort_every: int = 3) -> None:
    """Copy a topic in transactions of seven records with their offsets, aborting some and doing them again."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": target,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([source])
    producer = transactional_producer(bootstrap, target)
    copied = number = 0
    while copied < 70:
        messages = [message for message in consumer.consume(7, timeout=60) if not message.error()]
        if not messages:
            continue
        number += 1
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition())
        ends = {message.partition(): message.offset() + 1 for message in messages}
        offsets = [TopicPartition(source, partition, offset) for partition, offset in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        if number % abort_every == 0:
            producer.abort_transaction(60)
            for each in consumer.committed(consumer.assignment(), 60):
                consumer.seek(TopicPartition(source, each.partition, max(each.offset, 0)))
            continue
        producer.commit_transaction(60)
        copied += len(messages)
    consumer.close()


def test_records_and_offsets_of_a_copy_are_one(bootstrap, topic):
    source, target = f"{topic}-source", f"{topic}-target"
    create(bootstrap, source, target)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(70):
        producer.produce(source, b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0
    copy_all(bootstrap, source, target)
    assert read(bootstrap, target) == [b"%d" % number for number in (*range(0, 70, 2), *range(1, 70, 2))]


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_a_transaction_goes_on_over_a_restart_of_the_broker(broker, with_signal):
    create(broker.bootstrap, "kept")
    producer = transactional_producer(broker.bootstrap, "t")
    producer.begin_transaction()
    producer.produce("kept", b"before", partition=0)
    producer.flush(60)
    broker.stop(with_signal)
    broker.start()
    assert read(broker.bootstrap, "kept") == []
    producer.produce("kept", b"after", partition=1)
    producer.commit_transaction(60)
    assert read(broker.bootstrap, "kept") == [b"before", b"after"]


def test_a_transaction_that_nobody_ends_is_aborted_after_its_timeout(tmp_path):
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with new_server(tmp_path / "data", properties) as broker:
        create(broker.bootstrap, "kept")
        late = transactional_producer(broker.bootstrap, "late", **{"transaction.timeout.ms": 5000})
        late.begin_transaction()
        late.produce("kept", b"late", partition=0)
        late.flush(60)
        other = transactional_producer(broker.bootstrap, "other")
        other.begin_transaction()
        other.produce("kept", b"kept", partition=0)
        other.commit_transaction(60)
        while read(broker.bootstrap, "kept") != [b"kept"]:
            assert read(broker.bootstrap, "kept", isolation_level="read_uncommitted") == [b"late", b"kept"]
        with pytest.raises(KafkaException):
            late.commit_transaction(60)
