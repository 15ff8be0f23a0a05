"""aiokafka and kafka-python against a broker process: assign, produce, admin."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_aiokafka_reads_what_it_wrote(bootstrap, topic, codec):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, enable_idempotence=True)
    await producer.start()
    for n in range(100):
        await producer.send(topic, b"value-%d" % n, key=b"%d" % n, partition=0)
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([AioTopicPartition(topic, 0)])
    records = [await asyncio.wait_for(consumer.getone(), 60) for _ in range(100)]
    await consumer.stop()
    read = [(record.offset, record.key, record.value) for record in records]
    assert read == [(n, b"%d" % n, b"value-%d" % n) for n in range(100)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_reads_what_it_wrote(bootstrap, topic, codec):
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, acks="all")
    futures = [producer.send(topic, b"value-%d" % n, key=b"%d" % n, partition=0) for n in range(100)]
    assert [future.get(60).offset for future in futures] == list(range(100))
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    records = [record for _, record in zip(range(100), consumer, strict=False)]
    assert [(r.offset, r.key, r.value) for r in records] == [(n, b"%d" % n, b"value-%d" % n) for n in range(100)]
    assert consumer.end_offsets([partition]) == {partition: 100}
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    consumer.close()


def test_kafka_python_administers_topics(bootstrap, topic):
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 2
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()
