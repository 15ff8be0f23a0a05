"""What a team asks of Kafka by aiokafka."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

TIMEOUT_MS = 60_000


@asynccontextmanager
async def consuming(servers: str, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=servers, **{**defaults, **settings})
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def take(consumer: AIOKafkaConsumer, count: int) -> list[bytes | None]:
    return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_MS / 1000)).value for _ in range(count)]


async def send(servers: str, topic: str, *values: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)


def test_a_record_has_its_place(servers: str, topic: str) -> None:
    async def main() -> Any:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            return await producer.send_and_wait(topic, b"value", key=b"key", headers=[("a", b"1")])

    sent = asyncio.run(main())
    assert (sent.topic, sent.partition, sent.offset) == (topic, 0, 0)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(servers: str, topic: str, acks: Any) -> None:
    async def main() -> list[bytes | None]:
        async with AIOKafkaProducer(bootstrap_servers=servers, acks=acks) as producer:
            await producer.send_and_wait(topic, b"value", partition=0)
        async with consuming(servers, topic) as consumer:
            return await take(consumer, 1)

    assert asyncio.run(main()) == [b"value"]


def test_an_idempotent_producer(servers: str, topic: str) -> None:
    async def main() -> list[bytes | None]:
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            for number in range(10):
                await producer.send(topic, b"%d" % number, partition=0)
        async with consuming(servers, topic) as consumer:
            return await take(consumer, 10)

    assert asyncio.run(main()) == [b"%d" % number for number in range(10)]


def test_a_group_goes_on_where_it_has_committed(servers: str, topic: str, group: str) -> None:
    async def main() -> None:
        await send(servers, topic, b"one", b"two", b"three")
        for expected in ([b"one", b"two"], [b"three"]):
            async with consuming(servers, topic, group_id=group) as consumer:
                assert await take(consumer, len(expected)) == expected
                await consumer.commit()
        async with consuming(servers, topic, group_id=group) as consumer:
            assert await consumer.committed(TopicPartition(topic, 0)) == 3

    asyncio.run(main())


def test_a_consumer_seeks_and_sees_the_ends(servers: str, topic: str) -> None:
    async def main() -> None:
        await send(servers, topic, b"one", b"two")
        partition = TopicPartition(topic, 0)
        async with consuming(servers) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 1)
            assert await take(consumer, 1) == [b"two"]
            assert await consumer.end_offsets([partition]) == {partition: 2}
            assert await consumer.beginning_offsets([partition]) == {partition: 0}

    asyncio.run(main())


def test_transactions(servers: str, topic: str) -> None:
    async def main() -> list[bytes | None]:
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"refunded", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(topic, b"paid", partition=0)
        async with consuming(servers, topic, isolation_level="read_committed") as consumer:
            return await take(consumer, 1)

    assert asyncio.run(main()) == [b"paid"]


def test_two_members_share_the_partitions(servers: str, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(4)

    async def main() -> None:
        async with (
            consuming(servers, topic, group_id=group) as first,
            consuming(servers, topic, group_id=group) as second,
        ):
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                while [len(first.assignment()), len(second.assignment())] != [2, 2]:
                    await asyncio.gather(first.getmany(timeout_ms=50), second.getmany(timeout_ms=50))

    asyncio.run(main())
