"""`broker.topics`: what stock clients have sent, as consumers that read committed records get it."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from kafkapy.record.errors import RecordsError
from kafkapy.testing import Broker, NotObserved, ObservationError, Record

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.partition("[")[0]
    broker.create_topics(name, partitions=3)
    return name


def produce(broker: Broker, topic: str, *records: tuple[bytes | None, bytes | None], **config: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **config})
    for key, value in records:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def test_records_of_the_three_python_clients(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"})
    producer.produce(topic, b'{"id": 1}', b"a", partition=0, timestamp=1_000, headers={"trace": b"7"})
    producer.flush(TIMEOUT_S)
    of_python = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type="gzip")
    of_python.send(topic, key=b"b", value=b"text", partition=1, timestamp_ms=2_000).get(TIMEOUT_S)
    of_python.close()

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as of_asyncio:
            await of_asyncio.send_and_wait(topic, key=None, value=b"\x00\xff", partition=2, timestamp_ms=3_000)

    asyncio.run(send())
    assert broker.topics[topic].records() == [
        Record(topic, 0, 0, 1_000, "a", {"id": 1}, (("trace", b"7"),), b"a", b'{"id": 1}'),
        Record(topic, 1, 0, 2_000, "b", "text", (), b"b", b"text"),
        Record(topic, 2, 0, 3_000, None, "00ff", (), None, b"\x00\xff"),
    ]
    assert [record.key for record in broker.topics[topic].records(partition=1)] == ["b"]
    assert broker.topics[topic].end_offsets() == {0: 1, 1: 1, 2: 1}
    assert topic in broker.topics
    assert topic in list(broker.topics)


def test_what_was_aborted_or_is_still_open_is_not_there(broker: Broker, topic: str) -> None:
    producers = [
        Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name}) for name in ("one", "two")
    ]
    for each in producers:
        each.init_transactions(TIMEOUT_S)
        each.begin_transaction()
    for number in range(4):  # the two transactions interleave
        producers[number % 2].produce(topic, b"first %d" % number, partition=0)
        producers[number % 2].flush(TIMEOUT_S)
    assert broker.topics[topic].records() == []
    producers[0].abort_transaction(TIMEOUT_S)
    producers[1].commit_transaction(TIMEOUT_S)
    producers[0].begin_transaction()
    producers[0].produce(topic, b"second", partition=0)
    producers[0].commit_transaction(TIMEOUT_S)
    assert [record.value for record in broker.topics[topic].records()] == ["first 1", "first 3", "second"]


def test_formats_are_those_of_consume(broker: Broker, topic: str) -> None:
    produce(broker, topic, (b"\x00\x00\x00\x07", b"\x00\x00\x00\x00\x00\x00\x00\x09"), (b"1", b"no long"))
    records = broker.topics[topic].decoded(key="integer", value="long").records()
    assert [(record.key, record.value) for record in records] == [(7, 9), ("1", "no long")]
    assert [record.error for record in records] == [None, "an integer has 4 bytes, not 1"]
    with pytest.raises(ObservationError, match="no format is called lng: auto, text"):
        broker.topics[topic].decoded(value="lng").records()
    with pytest.raises(ObservationError, match="avro needs a registry"):
        broker.topics[topic].decoded(value="avro").records()


def test_the_last_record_of_each_key(broker: Broker, topic: str) -> None:
    records = [(b"a", b"1"), (b"b", b"2"), (None, b"3"), (b"a", b"4"), (b"b", None), (b'{"y": 1, "x": 2}', b"5")]
    produce(broker, topic, *records)
    last = broker.topics[topic].last_by_key()
    assert {key: record.value for key, record in last.items()} == {"a": "4", '{"x": 2, "y": 1}': "5"}


def test_a_wait_ends_with_what_comes_later(broker: Broker) -> None:
    """The topic, too, comes while the test waits."""

    async def send_and_wait() -> list[Record]:
        waiting = asyncio.create_task(
            asyncio.to_thread(broker.topics["later"].wait_for, 2, where=lambda record: record.key == "a", timeout_s=60)
        )
        await asyncio.to_thread(broker.create_topics, "later", partitions=1)
        for key in (b"a", b"b", b"a"):
            assert not waiting.done()
            await asyncio.to_thread(produce, broker, "later", (key, b"x"))
        return await waiting

    assert [record.offset for record in asyncio.run(send_and_wait())] == [0, 2]


def test_a_wait_that_fails_shows_records_groups_and_requests(own_kafka_broker: Broker) -> None:
    own_kafka_broker.create_topics("orders", partitions=1)
    own_kafka_broker.requests.on()
    produce(own_kafka_broker, "orders", (b"k", b'{"id": 1}'), **{"client.id": "service"})
    with pytest.raises(NotObserved) as failed:
        own_kafka_broker.topics["orders"].wait_for(2, timeout_s=0.05)
    text = str(failed.value)
    assert text.startswith("after 0.05 s: orders has 1 records, not 2\n")
    assert "\n  orders-0 @0: key 'k', value {'id': 1}\n" in text
    assert "\ngroups: none\n" in text
    assert "Produce v10 of orders-0 by service" in text
    with pytest.raises(
        NotObserved, match=r"ordres has 0 records, not 1 \(.*there is no topic 'ordres'; there are: orders"
    ):
        own_kafka_broker.topics["ordres"].wait_for(1, timeout_s=0.05)


def test_delivered_once(broker: Broker, topic: str) -> None:
    orders = [b'{"id": %d}' % number for number in (1, 2, 3)]
    produce(broker, topic, *((None, order) for order in orders))
    found = broker.topics[topic].assert_delivered_once([{"id": 1}, {"id": 3}])
    assert [record.offset for record in found] == [0, 2]
    broker.topics[topic].assert_delivered_once([1, 2, 3], by=lambda record: record.value["id"])
    with pytest.raises(NotObserved, match=r"lacks \{'id': 4\}, \{'id': 5\}\n(.*\n)*.*@2: key None, value \{'id': 3\}"):
        broker.topics[topic].assert_delivered_once([{"id": 4}, {"id": 1}, {"id": 5}], timeout_s=0.05)
    produce(broker, topic, (None, orders[1]))
    with pytest.raises(NotObserved, match=rf"more than once: \{{'id': 2\}} at {topic}-0 @1 and {topic}-0 @3"):
        broker.topics[topic].assert_delivered_once([json.loads(order) for order in orders])


def test_a_lost_response_is_delivered_once_by_an_idempotent_producer(broker: Broker, topic: str) -> None:
    broker.faults.drop("Produce", when="after", topic=topic, nth=1)
    produce(broker, topic, (b"k", b"paid"), **{"enable.idempotence": True, "retry.backoff.ms": 10, "log_level": 0})
    broker.topics[topic].assert_delivered_once(["paid"])


def test_what_does_not_exist_is_named(broker: Broker, topic: str) -> None:
    with pytest.raises(ObservationError, match=r"there is no topic 'nothing'; there are: "):
        broker.topics["nothing"].records()
    with pytest.raises(ObservationError, match=rf"topic {topic} has no partition 3: it has 3"):
        broker.topics[topic].records(partition=3)
    with pytest.raises(ObservationError, match="by is 'key', 'value' or a function of a record, not 'keys'"):
        broker.topics[topic].assert_delivered_once(["v"], by="keys")  # type: ignore[arg-type]


def test_a_damaged_record_is_no_record(own_kafka_broker: Broker) -> None:
    own_kafka_broker.create_topics("orders", partitions=1)
    produce(own_kafka_broker, "orders", (None, b"one"))
    own_kafka_broker.faults.corrupt("orders", 0, 0)
    with pytest.raises(RecordsError, match="orders-0 from offset 0 on: wrong checksum"):
        own_kafka_broker.topics["orders"].records()


def test_after_records_were_deleted(broker: Broker, topic: str) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    produce(broker, topic, (None, b"one"), (None, b"two"))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 1)]).values():
        future.result(TIMEOUT_S)
    assert [record.value for record in broker.topics[topic].records()] == ["two"]


async def test_on_the_callers_loop_a_thread_asks() -> None:
    async with Broker() as broker:
        await broker.create_topics_async("orders", partitions=1)
        with pytest.raises(RuntimeError, match=r"await asyncio\.to_thread"):
            broker.topics["orders"].records()
        assert await asyncio.to_thread(broker.topics["orders"].produce, [{"id": 1}]) == 1
        (record,) = await asyncio.to_thread(broker.topics["orders"].wait_for, 1)
        assert record.value == {"id": 1}


def test_a_broker_that_does_not_run_says_so() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match="this broker is not running"):
        broker.topics["orders"].records()
