"""`Broker(clock="virtual")`: what is due until then is done when `advance` returns."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkapy.embedded import virtual_time
from kafkapy.embedded.virtual_time import MAX_TIMERS_KEPT, QUIET_PASSES, BrokerClock, VirtualLoop, duration_ms
from kafkapy.testing import Broker, ClockError, FaultNeverHit
from tests.support.client_requests import fetch_request, values_in
from tests.support.eventually import eventually
from tests.support.topic_contents import messages, offsets
from tests.support.wire import WireClient

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    properties = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with Broker(clock="virtual", properties=properties) as running:
        yield running


def produce(broker: Broker, topic: str, *keys: bytes) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for key in keys:
        producer.produce(topic, b"value", key, on_delivery=lambda error, _: failed.append(error))
        producer.flush(TIMEOUT_S)
    assert failed == [None] * len(keys)


def test_records_are_deleted_once_their_retention_is_over(broker: Broker) -> None:
    broker.create_topics("orders", partitions=1, configs={"retention.ms": 3_600_000})
    produce(broker, "orders", b"a", b"b")
    broker.clock.advance("30m")
    assert offsets(broker.client_config(), "orders") == (0, 2)
    broker.clock.advance("40m")
    assert offsets(broker.client_config(), "orders") == (2, 2)
    produce(broker, "orders", b"c")
    assert offsets(broker.client_config(), "orders") == (2, 3)


def test_a_fetch_that_waits_is_not_hurried(broker: Broker) -> None:
    broker.create_topics("waited-for", partitions=1)
    with WireClient(broker.bootstrap_servers) as client:
        client.send(fetch_request("waited-for", max_wait_ms=60_000, min_bytes=1), 12)
        eventually(lambda: waiting_fetches(broker) == 1, TIMEOUT_S)
        broker.clock.advance("3h")
        assert not client.has_response(0.1)
        assert waiting_fetches(broker) == 1
        produce(broker, "waited-for", b"a")
        assert values_in(client.receive().responses[0].partitions[0]) == [b"value"]


def waiting_fetches(broker: Broker) -> int:
    services = broker._running.services
    assert services is not None
    return services.replica_manager.waiting_counts["Fetch"]


def test_seven_days_take_seconds(broker: Broker) -> None:
    before, began = broker.clock.now(), time.monotonic()
    broker.clock.advance("7d")
    assert timedelta(days=7) <= broker.clock.now() - before < timedelta(days=7, minutes=5)
    assert time.monotonic() - began < TIMEOUT_S
    broker.create_topics("after-a-week", partitions=1)
    produce(broker, "after-a-week", b"a")


def test_members_that_are_silent_are_removed(broker: Broker) -> None:
    broker.create_topics("read", partitions=1)
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "members", "session.timeout.ms": 45_000}
    consumer = Consumer({**config, "log_level": 0, "auto.offset.reset": "earliest"})
    consumer.subscribe(["read"])
    deadline = time.monotonic() + TIMEOUT_S
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.05)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def member_count() -> int:
        return len(admin.describe_consumer_groups(["members"])["members"].result(TIMEOUT_S).members)

    assert member_count() == 1
    broker.clock.advance("46s")
    assert member_count() in (0, 1), "none, or the same one that has joined again"
    services = broker._running.services
    assert services is not None
    assert services.groups.host_of("members").shard.groups["members"].log.generation > 1
    consumer.close()


def test_a_transaction_that_is_open_too_long_is_aborted(broker: Broker) -> None:
    broker.create_topics("payments", partitions=1)
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "slow", "log_level": 0}
    producer = Producer(config)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("payments", b"value")
    producer.flush(TIMEOUT_S)
    broker.clock.advance("2m")
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)


def test_offsets_expire(broker: Broker) -> None:
    broker.create_topics("committed", partitions=1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "expiring"})
    consumer.commit(offsets=[TopicPartition("committed", 0, 5)], asynchronous=False)
    assert consumer.committed([TopicPartition("committed", 0)], TIMEOUT_S)[0].offset == 5
    broker.clock.advance("6d")
    assert consumer.committed([TopicPartition("committed", 0)], TIMEOUT_S)[0].offset == 5
    broker.clock.advance("2d")
    assert consumer.committed([TopicPartition("committed", 0)], TIMEOUT_S)[0].offset < 0
    consumer.close()


def test_compaction_waits_for_its_lag(broker: Broker) -> None:
    configs = {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": 3_600_000,
        "segment.ms": 60_000,
        "min.cleanable.dirty.ratio": 0,
        "message.timestamp.type": "LogAppendTime",
    }
    broker.create_topics("compacted", partitions=1, configs=configs)
    produce(broker, "compacted", b"a", b"a", b"a")
    broker.clock.advance("2m")
    produce(broker, "compacted", b"b")  # rolls the segment
    assert keys(broker) == [b"a", b"a", b"a", b"b"]
    broker.clock.advance("2h")
    assert keys(broker) == [b"a", b"b"]


def keys(broker: Broker) -> list[bytes]:
    return [message.key() or b"" for message in messages(broker.client_config(), "compacted")]


def test_time_outlives_a_restart(broker: Broker) -> None:
    broker.clock.advance("1d")
    before = broker.clock.now()
    broker.restart()
    assert broker.clock.now() >= before
    broker.clock.advance("1h")


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        ("7d", 604_800_000),
        ("1h30m", 5_400_000),
        ("500ms", 500),
        ("1.5s", 1500),
        (2, 2000),
        (timedelta(hours=1), 3_600_000),
    ],
)
def test_durations(duration: str | float | timedelta, ms: int) -> None:
    assert duration_ms(duration) == ms


@pytest.mark.parametrize("text", ["", "7", "7y", "d", "1h and a half"])
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ClockError, match="is no duration: 7d, 1h30m"):
        duration_ms(text)


async def test_clocks_that_do_not_move_say_so() -> None:
    with Broker() as broker:
        assert not broker.clock.is_virtual
        with pytest.raises(ClockError, match=r'Broker\(clock="virtual"\)'):
            broker.clock.advance("1d")
    with pytest.raises(ValueError, match="clock is 'system' or 'virtual', not 'real'"):
        Broker(clock="real")  # type: ignore[typeddict-item]
    with pytest.raises(ClockError, match="time does not go back"):
        duration_ms(-1)
    with pytest.raises(RuntimeError, match="use `with` or `async with`"):
        await Broker(clock="virtual").start()


async def test_time_moves_in_an_async_block_while_its_clients_go_on() -> None:
    async with Broker(clock="virtual") as broker:
        retention = {"retention.ms": 86_400_000, "segment.ms": 3_600_000, "message.timestamp.type": "LogAppendTime"}
        await broker.create_topics_async("kept-a-day", partitions=1, configs=retention)
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("kept-a-day", b"first")
            advancing = asyncio.ensure_future(broker.clock.advance_async("1d2h"))
            await producer.send_and_wait("kept-a-day", b"second")
            await advancing
            await producer.send_and_wait("kept-a-day", b"third")
        await broker.clock.advance_async("2h")
        async with AIOKafkaConsumer(
            "kept-a-day", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            assert (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).offset > 0
        await broker.restart_async()
        assert broker.clock.now() - datetime.now(UTC) > timedelta(days=1), "a restart keeps the time"
        snapshot = await broker.snapshot_async()
        await broker.delete_topics_async("kept-a-day")
        await broker.kill_async()
        await broker.restart_async()
    async with Broker(snapshot=snapshot) as other:
        assert await asyncio.to_thread(other.topics["kept-a-day"].end_offsets) == {0: 3}
    with pytest.raises(FaultNeverHit):
        async with Broker(clock="virtual") as broker:
            broker.faults.drop("Produce")


def test_a_broker_that_is_never_idle_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "WORK_TIMEOUT_S", 0.2)
    loop = VirtualLoop()
    calls = 0

    def busy() -> None:
        nonlocal calls
        calls += 1
        loop.call_soon(busy)

    async def main() -> None:
        busy()
        await asyncio.to_thread(BrokerClock(loop, lambda: 0, list).advance, "1h")

    with pytest.raises(ClockError, match="the broker was never idle"):
        loop.run_until_complete(main())
    loop.close()
    assert calls > QUIET_PASSES


def test_timers_that_are_over_are_forgotten() -> None:
    loop = VirtualLoop()
    waiting = [loop.call_later(3_600, print) for _ in range(10)]
    for _ in range(5 * MAX_TIMERS_KEPT):
        loop.call_later(60, print).cancel()
    assert len(loop._timers) <= 2 * len(waiting) + MAX_TIMERS_KEPT
    assert loop.next_timer() == waiting[0].when()
    loop.close()
