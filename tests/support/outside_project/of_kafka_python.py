"""What a team asks of Kafka by kafka-python."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

TIMEOUT_S = 60


def send(servers: str, topic: str, *values: bytes, **settings: Any) -> list[Any]:
    producer = KafkaProducer(bootstrap_servers=servers, **settings)
    sent = [producer.send(topic, value, partition=0).get(TIMEOUT_S) for value in values]
    producer.close()
    return sent


def take(consumer: KafkaConsumer, count: int) -> list[bytes]:
    return [next(consumer).value for _ in range(count)]


def new_consumer(servers: str, *topics: str, **settings: Any) -> KafkaConsumer:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "consumer_timeout_ms": TIMEOUT_S * 1000}
    return KafkaConsumer(*topics, bootstrap_servers=servers, **{**defaults, **settings})


def test_a_record_has_its_place(servers: str, topic: str) -> None:
    first, second = send(servers, topic, b"one", b"two")
    assert (first.partition, first.offset, second.offset) == (0, 0, 1)


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_records_arrive(servers: str, topic: str, codec: str | None) -> None:
    send(servers, topic, b"one", b"two", compression_type=codec)
    consumer = new_consumer(servers, topic)
    assert take(consumer, 2) == [b"one", b"two"]
    consumer.close()


def test_key_and_headers_arrive(servers: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    producer.send(topic, b"value", key=b"key", headers=[("a", b"1")]).get(TIMEOUT_S)
    producer.close()
    consumer = new_consumer(servers, topic)
    record = next(consumer)
    consumer.close()
    assert (record.key, list(record.headers)) == (b"key", [("a", b"1")])


def test_a_group_goes_on_where_it_has_committed(servers: str, topic: str, group: str) -> None:
    send(servers, topic, b"one", b"two", b"three")
    for expected in ([b"one", b"two"], [b"three"]):
        consumer = new_consumer(servers, topic, group_id=group)
        assert take(consumer, len(expected)) == expected
        consumer.commit()
        consumer.close()


def test_a_consumer_seeks(servers: str, topic: str) -> None:
    send(servers, topic, b"one", b"two")
    consumer = new_consumer(servers)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 1)
    assert take(consumer, 1) == [b"two"]
    assert consumer.end_offsets([partition]) == {partition: 2}
    consumer.close()


def test_partitions_are_known(servers: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3)
    consumer = new_consumer(servers)
    assert consumer.partitions_for_topic(topic) == {0, 1, 2}
    consumer.close()


def test_topics_are_listed(servers: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    assert topic in admin.list_topics()
    admin.close()
