"""What a team asks of Kafka by confluent-kafka."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

TIMEOUT_S = 60
WRITTEN_MS = int(time.time() * 1000) - 60_000
"""Not so old that retention deletes the records."""


def produce(servers: str, topic: str, *values: bytes | None, **settings: Any) -> list[Any]:
    """Produce to partition 0; return the reports of delivery."""
    reports: list[Any] = []
    key, headers = settings.pop("key", None), settings.pop("headers", None)
    producer = Producer({"bootstrap.servers": servers, **settings})
    for value in values:
        producer.produce(
            topic,
            value,
            key,
            headers=headers,
            partition=0,
            on_delivery=lambda error, each: reports.append(error or each),
        )
    assert producer.flush(TIMEOUT_S) == 0
    return reports


def new_consumer(servers: str, group: str, **settings: Any) -> Consumer:
    defaults = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer({"bootstrap.servers": servers, "group.id": group, **defaults, **settings})


def take(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message)
    return found


def read(servers: str, topic: str, **settings: Any) -> list[bytes | None]:
    """Return all values of partition 0 as a consumer gets them."""
    consumer = new_consumer(servers, "reading", **{"enable.partition.eof": True, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            return found
        found.append(message.value())


def test_a_delivery_is_reported_with_its_offset(servers: str, topic: str) -> None:
    reports = produce(servers, topic, b"one", b"two")
    assert [(each.partition(), each.offset()) for each in reports] == [(0, 0), (0, 1)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_arrive(servers: str, topic: str, codec: str) -> None:
    values = [b"%d" % number * 20 for number in range(100)]
    produce(servers, topic, *values, **{"compression.type": codec, "linger.ms": 50})
    assert read(servers, topic) == values


def test_key_headers_and_time_arrive(servers: str, topic: str, group: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"value", b"key", timestamp=WRITTEN_MS + 123, headers=[("a", b"1"), ("a", None)])
    producer.flush(TIMEOUT_S)
    consumer = new_consumer(servers, group)
    consumer.subscribe([topic])
    (message,) = take(consumer, 1)
    consumer.close()
    assert (message.key(), message.headers()) == (b"key", [("a", b"1"), ("a", None)])
    assert message.timestamp() == (1, WRITTEN_MS + 123)


def test_a_null_value_stays_null(servers: str, topic: str) -> None:
    produce(servers, topic, None, b"", key=b"k")
    assert read(servers, topic) == [None, b""]


def test_a_record_that_is_too_large_is_refused(servers: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"max.message.bytes": "1000"})
    (error,) = produce(servers, topic, b"x" * 2_000)
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_key_has_one_partition(servers: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(4)
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    partitions: dict[bytes, set[int]] = {}
    for number in range(40):
        key = b"key-%d" % (number % 5)
        producer.produce(
            topic, b"x", key, on_delivery=lambda _, each: partitions.setdefault(each.key(), set()).add(each.partition())
        )
    producer.flush(TIMEOUT_S)
    assert {key: len(found) for key, found in partitions.items()} == {b"key-%d" % number: 1 for number in range(5)}


def test_a_group_goes_on_where_it_has_committed(servers: str, topic: str, group: str) -> None:
    produce(servers, topic, b"one", b"two", b"three")
    for expected in ([b"one", b"two"], [b"three"]):
        consumer = new_consumer(servers, group)
        consumer.subscribe([topic])
        assert [message.value() for message in take(consumer, len(expected))] == expected
        consumer.commit(asynchronous=False)
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_members_share_the_partitions(
    servers: str, new_topic: Callable[..., str], group: str, protocol: str
) -> None:
    topic = new_topic(4)
    members = [new_consumer(servers, group, **{"group.protocol": protocol}) for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    deadline = time.monotonic() + TIMEOUT_S
    while sorted(len(member.assignment()) for member in members) != [2, 2]:
        assert time.monotonic() < deadline
        for member in members:
            assert member.poll(0.1) is None
    for member in members:
        member.close()


def test_a_consumer_seeks(servers: str, topic: str, group: str) -> None:
    produce(servers, topic, b"one", b"two", b"three")
    consumer = new_consumer(servers, group)
    consumer.assign([TopicPartition(topic, 0, 2)])
    assert [message.value() for message in take(consumer, 1)] == [b"three"]
    consumer.seek(TopicPartition(topic, 0, 1))
    assert [message.value() for message in take(consumer, 2)] == [b"two", b"three"]
    consumer.close()


def test_offsets_are_found_by_time(servers: str, topic: str, group: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(3):
        producer.produce(topic, b"x", timestamp=WRITTEN_MS + number * 1_000)
        producer.flush(TIMEOUT_S)
    consumer = new_consumer(servers, group)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, WRITTEN_MS + 500)], TIMEOUT_S)
    assert found.offset == 1
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, 3)
    consumer.close()


def transactional(servers: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    return producer


def test_what_is_committed_is_read(servers: str, topic: str) -> None:
    producer = transactional(servers, topic)
    producer.begin_transaction()
    producer.produce(topic, b"paid", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    assert read(servers, topic) == [b"paid"]


def test_what_is_aborted_is_not_read(servers: str, topic: str) -> None:
    producer = transactional(servers, topic)
    producer.begin_transaction()
    producer.produce(topic, b"refunded", partition=0)
    producer.flush(TIMEOUT_S)
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"paid", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    assert read(servers, topic) == [b"paid"]
    assert read(servers, topic, **{"isolation.level": "read_uncommitted"}) == [b"refunded", b"paid"]


def test_offsets_are_part_of_a_transaction(servers: str, new_topic: Callable[..., str], group: str) -> None:
    orders, invoices = new_topic(), new_topic()
    produce(servers, orders, b"one", b"two")
    consumer = new_consumer(servers, group)
    consumer.subscribe([orders])
    producer = transactional(servers, invoices)
    producer.begin_transaction()
    for message in take(consumer, 2):
        producer.produce(invoices, message.value(), partition=0)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    assert consumer.committed([TopicPartition(orders, 0)], TIMEOUT_S)[0].offset == 2
    consumer.close()
    assert read(servers, invoices) == [b"one", b"two"]


def test_a_second_producer_fences_the_first(servers: str, topic: str) -> None:
    first = transactional(servers, topic)
    first.begin_transaction()
    first.produce(topic, b"first", partition=0)
    first.flush(TIMEOUT_S)
    transactional(servers, topic)
    with pytest.raises(KafkaException) as failed:
        first.commit_transaction(TIMEOUT_S)
    assert failed.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    assert read(servers, topic) == []


def test_a_topic_exists_once(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    (future,) = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    with pytest.raises(KafkaException) as failed:
        future.result(TIMEOUT_S)
    assert failed.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_a_config_is_altered_and_described(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(TIMEOUT_S)
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    assert described.result(TIMEOUT_S)["retention.ms"].value == "60000"


def test_a_topic_gets_more_partitions(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    (future,) = admin.create_partitions([NewPartitions(topic, 3)]).values()
    future.result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S  # a broker learns of it after the controller has answered
    while len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) != 3:
        assert time.monotonic() < deadline


def test_records_are_deleted(servers: str, topic: str) -> None:
    produce(servers, topic, b"one", b"two")
    admin = AdminClient({"bootstrap.servers": servers})
    (future,) = admin.delete_records([TopicPartition(topic, 0, 1)]).values()
    assert future.result(TIMEOUT_S).low_watermark == 1
    (listed,) = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}).values()
    assert listed.result(TIMEOUT_S).offset == 1


def test_a_group_is_described_reset_and_deleted(servers: str, topic: str, group: str) -> None:
    produce(servers, topic, b"one", b"two")
    consumer = new_consumer(servers, group)
    consumer.subscribe([topic])
    take(consumer, 2)
    consumer.commit(asynchronous=False)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": servers})
    assert group in [each.group_id for each in admin.list_consumer_groups().result(TIMEOUT_S).valid]
    request = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])]
    (altered,) = admin.alter_consumer_group_offsets(request).values()
    assert altered.result(TIMEOUT_S).topic_partitions[0].offset == 1
    (deleted,) = admin.delete_consumer_groups([group]).values()
    deleted.result(TIMEOUT_S)
    assert group not in [each.group_id for each in admin.list_consumer_groups().result(TIMEOUT_S).valid]
