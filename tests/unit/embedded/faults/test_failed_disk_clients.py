"""A log directory that fails, as three clients meet it: its partitions are not served, those of the other one are."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import KafkaStorageError

from kafkapy.testing import Broker

TIMEOUT_S = 60
GIVE_UP_MS = 3000
ONE_REQUEST_MS = 500
"""A record for each partition goes in one request, before its response tells that some have no leader."""
PARTITIONS = range(4)
Outcomes: TypeAlias = list[bool]
"""By partition: whether a record was acknowledged."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose second log directory, which has two of the four partitions, fails; a record is in each."""
    directories = [str(tmp_path / "one"), str(tmp_path / "two")]
    with Broker(disk_faults=True, properties={"log.dirs": ",".join(directories)}) as broker:
        broker.create_topics("orders", partitions=len(PARTITIONS))
        assert by_librdkafka(broker, b"before", TIMEOUT_S * 1000) == [True] * len(PARTITIONS)
        broker.faults.fail_disk(directories[1])
        yield broker
        broker.faults.mend_disk()


def by_librdkafka(broker: Broker, value: bytes, give_up_ms: int = GIVE_UP_MS) -> Outcomes:
    found: dict[int, bool] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        found[message.partition() or 0] = error is None

    producer = Producer({**broker.client_config(), "log_level": 0, "message.timeout.ms": give_up_ms})
    for partition in PARTITIONS:
        producer.produce("orders", value, partition=partition, on_delivery=delivered)
    producer.flush(TIMEOUT_S)
    return [found[partition] for partition in PARTITIONS]


def read_by_librdkafka(broker: Broker, partition: int) -> list[bytes]:
    consumer = Consumer({**broker.client_config(), "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition("orders", partition, 0)])
    found = consumer.consume(2, TIMEOUT_S)
    consumer.close()
    return [message.value() or b"" for message in found]


def read_by_kafka_python(broker: Broker, partition: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=TIMEOUT_S * 1000)
    at = PythonTopicPartition("orders", partition)
    consumer.assign([at])
    consumer.seek(at, 0)
    found = [next(consumer).value for _ in range(2)]
    consumer.close()
    return found


def by_aiokafka(broker: Broker, value: bytes) -> Outcomes:
    async def produce() -> Outcomes:
        options = {"request_timeout_ms": GIVE_UP_MS}
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
            sent = [producer.send_and_wait("orders", value, partition=partition) for partition in PARTITIONS]
            results = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), TIMEOUT_S)
        return [not isinstance(each, BaseException) for each in results]

    return asyncio.run(produce())


def read_by_aiokafka(broker: Broker, partition: int) -> list[bytes]:
    async def read() -> list[bytes]:
        async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            at = AioTopicPartition("orders", partition)
            consumer.assign([at])
            consumer.seek(at, 0)
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(2)]

    return asyncio.run(read())


CLIENTS = [(by_librdkafka, read_by_librdkafka), (by_aiokafka, read_by_aiokafka)]


@pytest.mark.parametrize(("write", "read"), CLIENTS, ids=["librdkafka", "aiokafka"])
def test_the_partitions_of_a_failed_directory_are_not_served_and_the_others_are(
    broker: Broker, write: Callable[[Broker, bytes], Outcomes], read: Callable[[Broker, int], list[bytes]]
) -> None:
    found = write(broker, b"after")
    assert sorted(found) == [False, False, True, True]
    assert read(broker, found.index(True)) == [b"before", b"after"]


def test_kafka_python_that_does_not_try_again_raises_the_error(broker: Broker) -> None:
    """Else it waits until a leader is back: its delivery time-out does not end a batch without a leader."""
    options = {"retries": 0, "enable_idempotence": False, "linger_ms": ONE_REQUEST_MS}
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options)
    sent = [producer.send("orders", b"after", partition=partition) for partition in PARTITIONS]
    found = [_error(future) for future in sent]
    producer.close()
    assert sorted(map(str, found)) == sorted(["None", "None", str(KafkaStorageError), str(KafkaStorageError)])
    assert read_by_kafka_python(broker, found.index(None)) == [b"before", b"after"]


def _error(future: Any) -> type[Exception] | None:
    try:
        future.get(TIMEOUT_S)
    except KafkaStorageError as error:
        return type(error)
    return None
