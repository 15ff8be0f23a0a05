"""confluent-kafka (librdkafka) against a broker process."""

import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
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


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(60)
    deadline = time.monotonic() + 60
    while topic not in admin.list_topics(timeout=60).topics:  # Apache Kafka answers before its broker knows the topic
        assert time.monotonic() < deadline


def produce(bootstrap: str, topic: str, count: int, **settings: object) -> list[int]:
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for n in range(count):
        producer.produce(topic, f"value-{n}", f"key-{n}", partition=0, on_delivery=delivered, headers=[("n", str(n))])
        producer.poll(0)
    assert producer.flush(60) == 0
    return offsets


def consume(bootstrap: str, topic: str, count: int, offset: int = 0, **settings: object) -> list[object]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, 0, offset)])
    messages: list[object] = []
    deadline = time.monotonic() + 60
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(messages), 1.0):
            assert message.error() is None, message.error()
            messages.append(message)
    consumer.close()
    return messages


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["1", "all"])
def test_records_come_back_as_they_were_sent(bootstrap, admin, topic, codec, acks):
    create(admin, topic)
    offsets = produce(bootstrap, topic, 500, **{"compression.type": codec, "acks": acks})
    assert offsets == list(range(500))
    messages = consume(bootstrap, topic, 500)
    assert [(m.offset(), m.key(), m.value(), m.headers()) for m in messages] == [
        (n, b"key-%d" % n, b"value-%d" % n, [("n", b"%d" % n)]) for n in range(500)
    ]


def test_acks_0_keeps_order(bootstrap, admin, topic):
    create(admin, topic)
    produce(bootstrap, topic, 200, acks="0")
    assert [m.value() for m in consume(bootstrap, topic, 200)] == [b"value-%d" % n for n in range(200)]


def test_idempotent_producer(bootstrap, admin, topic):
    create(admin, topic)
    assert produce(bootstrap, topic, 300, **{"enable.idempotence": True}) == list(range(300))
    assert len(consume(bootstrap, topic, 300)) == 300


def test_a_message_that_is_too_large_is_refused(bootstrap, admin, topic):
    create(admin, topic, max_message_bytes="1000")
    errors = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error.code()))
    producer.flush(60)
    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_consuming_from_the_middle_of_a_batch(bootstrap, admin, topic):
    create(admin, topic)
    produce(bootstrap, topic, 100, **{"linger.ms": 500})
    assert [m.offset() for m in consume(bootstrap, topic, 58, offset=42)] == list(range(42, 100))


@pytest.mark.ours
def test_offsets_are_answered_amid_a_fetch_that_waits(bootstrap, admin, topic):
    """librdkafka asks on the connection of its fetch, as Spark's tasks do; Apache Kafka lets it wait for that."""
    create(admin, topic)
    produce(bootstrap, topic, 1)
    settings = {"fetch.wait.max.ms": 55_000, "socket.timeout.ms": 60_000}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(60) is not None
    for _ in range(5):
        consumer.poll(0.1)
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=45) == (0, 1)
    consumer.close()


def test_offsets_by_time(bootstrap, admin, topic):
    create(admin, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=1_000_000 + 1000 * n)
        producer.flush(60)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    requested = [TopicPartition(topic, 0, time_ms) for time_ms in (0, 1_004_500, 9_999_999)]
    found = [consumer.offsets_for_times([partition], 60)[0].offset for partition in requested]
    assert found == [0, 5, -1]
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 60) == (0, 10)
    consumer.close()
    latest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()})
    assert next(iter(latest.values())).result(60).offset == 9


def test_topics_are_created_listed_grown_and_deleted(admin, topic):
    create(admin, topic, 3)
    described = admin.list_topics(topic, 60).topics[topic]
    assert sorted(described.partitions) == [0, 1, 2]
    with pytest.raises(KafkaException) as raised:
        create(admin, topic, 3)
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(60)
    assert len(admin.list_topics(topic, 60).topics[topic].partitions) == 5
    admin.delete_topics([topic])[topic].result(60)
    assert topic not in admin.list_topics(timeout=60).topics


def test_topic_configs_are_described_and_altered(admin, topic):
    create(admin, topic, retention_ms="3600000")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    before = admin.describe_configs([resource])[resource].result(60)
    assert (before["retention.ms"].value, before["cleanup.policy"].value) == ("3600000", "delete")
    assert before["cleanup.policy"].is_default
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    altered = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([altered])[altered].result(60)
    after = admin.describe_configs([resource])[resource].result(60)
    assert (after["retention.ms"].value, after["cleanup.policy"].value) == ("3600000", "compact")


def test_a_bad_topic_config_is_refused(admin, topic):
    with pytest.raises(KafkaException) as raised:
        create(admin, topic, retention_ms="soon")
    assert raised.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert "retention.ms" in raised.value.args[0].str()


def test_records_are_deleted_up_to_an_offset(bootstrap, admin, topic):
    create(admin, topic)
    produce(bootstrap, topic, 50)
    partition = TopicPartition(topic, 0, 20)
    assert admin.delete_records([partition])[partition].result(60).low_watermark == 20
    messages = consume(bootstrap, topic, 30, **{"auto.offset.reset": "earliest"})
    assert messages[0].offset() == 20


def test_topic_is_auto_created_by_a_producer(bootstrap, topic):
    assert produce(bootstrap, topic, 3) == [0, 1, 2]


def test_the_cluster_describes_itself(admin, server):
    cluster = admin.describe_cluster().result(60)
    assert [(node.host, node.port) for node in cluster.nodes] == [("127.0.0.1", server.port)]
    assert cluster.cluster_id
