"""Groups of the classic protocol with stock clients: subscribe, share, commit, take over."""

import asyncio
import time

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from tests.compat.test_confluent_kafka import create, produce
from tests.support.committed import commit


def read(consumer: Consumer, count: int) -> list[int]:
    """Consume until `count` offsets of partition 0 were seen, or for a minute."""
    offsets: list[int] = []
    deadline = time.monotonic() + 60
    while len(offsets) < count and time.monotonic() < deadline:
        offsets += [m.offset() for m in consumer.consume(count - len(offsets), 1.0) if m.error() is None]
    return offsets


def subscribed(bootstrap: str, group: str, topic: str, **settings: object) -> Consumer:
    basics = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**basics, "enable.auto.commit": False, **settings})
    consumer.subscribe([topic])
    return consumer


def test_a_member_goes_on_where_the_one_before_committed(bootstrap, topic):
    create(AdminClient({"bootstrap.servers": bootstrap}), topic)
    produce(bootstrap, topic, 60)
    for first in (0, 30):
        consumer = subscribed(bootstrap, f"{topic}-group", topic)
        assert read(consumer, 30) == list(range(first, first + 30))
        commit(consumer)
        consumer.close()


def test_two_members_share_the_partitions(bootstrap, topic):
    create(AdminClient({"bootstrap.servers": bootstrap}), topic, 4)
    for strategy in ("range", "cooperative-sticky"):
        settings = {"partition.assignment.strategy": strategy}
        members = [subscribed(bootstrap, f"{topic}-{strategy}", topic, **settings) for _ in range(2)]
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for member in members:
                member.poll(0.2)
            owned = [{partition.partition for partition in member.assignment()} for member in members]
            if [len(each) for each in owned] == [2, 2]:
                break
        assert sorted(owned[0] | owned[1]) == [0, 1, 2, 3]
        for member in members:
            member.close()


def test_kafka_python_subscribes(bootstrap, topic):
    create(AdminClient({"bootstrap.servers": bootstrap}), topic)
    produce(bootstrap, topic, 20)
    settings = {"group_id": f"{topic}-group", "auto_offset_reset": "earliest", "consumer_timeout_ms": 60_000}
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, **settings)
    assert [record.offset for _, record in zip(range(20), consumer, strict=False)] == list(range(20))
    consumer.commit()
    consumer.close()


async def test_aiokafka_subscribes(bootstrap, topic):
    create(AdminClient({"bootstrap.servers": bootstrap}), topic)
    produce(bootstrap, topic, 20)
    settings = {"group_id": f"{topic}-group", "auto_offset_reset": "earliest"}
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, **settings)
    await consumer.start()
    offsets = [(await asyncio.wait_for(consumer.getone(), 60)).offset for _ in range(20)]
    await consumer.commit()
    await consumer.stop()
    assert offsets == list(range(20))


def test_java_console_consumer_in_a_group(java_tool, bootstrap, topic):
    create(AdminClient({"bootstrap.servers": bootstrap}), topic)
    produce(bootstrap, topic, 20)
    arguments = ["--topic", topic, "--group", f"{topic}-group", "--from-beginning", "--max-messages", "20"]
    output = java_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, *arguments)
    assert output.split() == [f"value-{n}" for n in range(20)]
