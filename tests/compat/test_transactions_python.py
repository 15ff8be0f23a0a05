"""Transactions by kafka-python and aiokafka, which stop at the versions before KIP-890."""

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PyTopicPartition

from tests.compat.test_transactions import create, read


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})
    (position,) = consumer.committed([TopicPartition(topic, 0)], 60)
    consumer.close()
    return int(position.offset)


def test_kafka_python(bootstrap, topic):
    create(bootstrap, topic)
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, partition=0)
        if number % 2:
            producer.abort_transaction()
            continue
        offsets = {PyTopicPartition(topic, 0): OffsetAndMetadata(number, "", -1)}
        producer.send_offsets_to_transaction(offsets, f"{topic}-group")
        producer.commit_transaction()
    producer.close()
    assert read(bootstrap, topic) == [b"0", b"2"]
    assert committed_offset(bootstrap, f"{topic}-group", topic) == 2


async def test_aiokafka(bootstrap, topic):
    create(bootstrap, topic)

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    await producer.start()
    for number in range(4):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"%d" % number, partition=0)
        if number % 2:
            await producer.abort_transaction()
            continue
        await producer.send_offsets_to_transaction({AioTopicPartition(topic, 0): number}, f"{topic}-group")
        await producer.commit_transaction()
    await producer.stop()
    assert read(bootstrap, topic) == [b"0", b"2"]
    assert committed_offset(bootstrap, f"{topic}-group", topic) == 2
