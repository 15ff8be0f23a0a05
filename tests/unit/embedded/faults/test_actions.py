"""Events at a moment that a test chooses, and how clients take them."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka.errors import KafkaError as PythonKafkaError

from kafkapy.embedded.faults import worlds
from kafkapy.group.classic.state import ClassicGroupLog
from kafkapy.testing import ActingFaults, Broker, Cluster, FaultError

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(properties={"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}) as running:
        running.create_topics("orders", "payments", partitions=2)
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    properties = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}
    with Cluster(3, in_process=True, properties=properties) as running:
        running.create_topics("orders", partitions=2)
        yield running


def produce(servers: str, topic: str, value: bytes = b"value") -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == [None]


def begin(servers: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("payments", b"in a transaction", partition=0)
    producer.flush(TIMEOUT_S)
    return producer


@pytest.mark.parametrize("event", ["fence_producer", "abort_transaction"])
def test_a_producer_that_lost_its_transaction_cannot_commit(broker: Broker, event: str) -> None:
    producer = begin(broker.bootstrap_servers, f"lost-by-{event}")
    getattr(broker.faults, event)(f"lost-by-{event}")
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "isolation.level": "read_committed"}
    consumer = Consumer({**config, "enable.partition.eof": True})
    consumer.assign([TopicPartition("payments", 0, 0)])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    assert message.error() is not None
    assert message.error().name() == "_PARTITION_EOF", "the record was aborted"


def joined(servers: str, protocol: str, group: str) -> tuple[Consumer, list[str]]:
    """Return a member of a group that has its partitions, and what it is told of them."""
    events: list[str] = []
    config: dict[str, object] = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    config |= {"group.protocol": protocol} if protocol == "consumer" else {"heartbeat.interval.ms": 100}
    consumer = Consumer({**config, "client.id": "service-1", "log_level": 0})
    consumer.subscribe(
        ["orders"],
        on_assign=lambda _consumer, partitions: events.append("assigned"),
        on_revoke=lambda _consumer, partitions: events.append("revoked"),
        on_lost=lambda _consumer, partitions: events.append("lost"),
    )
    poll_until(consumer, lambda: bool(events))
    return consumer, events


def poll_until(consumer: Consumer, is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline
        consumer.poll(0.05)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_expires_loses_its_partitions_and_joins_again(broker: Broker, protocol: str) -> None:
    group = f"expiring-{protocol}"
    consumer, events = joined(broker.bootstrap_servers, protocol, group)
    assert broker.faults.expire_member(group, client_id="service-*")
    poll_until(consumer, lambda: events[-1] == "assigned" and len(events) > 1)
    assert events[1] == "lost"
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_rebalance_reaches_the_members(broker: Broker, protocol: str) -> None:
    group = f"rebalanced-{protocol}"
    consumer, events = joined(broker.bootstrap_servers, protocol, group)
    before = epoch_of(broker, group)
    broker.faults.rebalance(group)
    if protocol == "classic":
        poll_until(consumer, lambda: events[1:] == ["revoked", "assigned"])
    assert epoch_of(broker, group) > before
    produce(broker.bootstrap_servers, "orders")
    poll_until(consumer, lambda: len(consumer.assignment()) == 2)
    consumer.close()


def epoch_of(broker: Broker, group: str) -> int:
    services = broker._running.services
    assert services is not None
    log = services.groups.host_of(group).shard.groups[group].log
    return log.generation if isinstance(log, ClassicGroupLog) else log.group_epoch


def test_a_coordinator_that_is_lost_is_found_again(broker: Broker) -> None:
    consumer, _ = joined(broker.bootstrap_servers, "classic", "moving")
    broker.faults.lose_coordinator(group="moving")
    committed = consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    assert committed[0].error is None
    consumer.close()
    producer = begin(broker.bootstrap_servers, "moving")
    broker.faults.lose_coordinator(transactional_id="moving")
    producer.commit_transaction(TIMEOUT_S)


def test_a_leader_moves_and_producers_follow(cluster: Cluster) -> None:
    produce(cluster.bootstrap_servers, "orders")
    before = cluster.leader_of("orders", 0)
    after = cluster.faults.move_leader("orders", 0)
    assert after != before
    assert cluster.leader_of("orders", 0) == after
    produce(cluster.bootstrap_servers, "orders")
    assert cluster.faults.move_leader("orders", 0, to=before) == before


def test_a_leader_does_not_move_to_a_broker_that_is_stopped(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    other = cluster.faults.move_leader("orders", 0)
    back = cluster.faults.move_leader("orders", 0)
    cluster.stop(other)
    monkeypatch.setattr(worlds, "LEADS_S", 0.5)
    with pytest.raises(FaultError, match=f"broker {other} does not lead orders-0 after 0.5 s: "):
        cluster.faults.move_leader("orders", 0, to=other)
    assert cluster.leader_of("orders", 0) == back
    monkeypatch.undo()
    cluster.start(other)
    assert cluster.faults.move_leader("orders", 0, to=other) == cluster.leader_of("orders", 0) == other


def test_a_coordinator_moves_to_another_broker(cluster: Cluster) -> None:
    consumer, _ = joined(cluster.bootstrap_servers, "classic", "moving")
    before = {key: cluster.leader_of("__consumer_offsets", key) for key in (0, 1)}
    cluster.faults.lose_coordinator(group="moving")
    after = {key: cluster.leader_of("__consumer_offsets", key) for key in (0, 1)}
    assert sum(before[key] != after[key] for key in before) == 1
    assert consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)[0].error is None
    consumer.close()


def test_a_record_that_is_corrupt_is_not_read(broker: Broker) -> None:
    broker.create_topics("damaged", partitions=1)
    for value in (b"first", b"second", b"third"):
        produce(broker.bootstrap_servers, "damaged", value)
    broker.faults.corrupt("damaged", 0, 1)
    consumer = KafkaConsumer("damaged", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    found: list[bytes] = []
    with pytest.raises(PythonKafkaError, match=r"CRC|[Cc]orrupt"):
        read_forever(consumer, found)
    consumer.close()
    assert found == [b"first"]


def read_forever(consumer: KafkaConsumer, found: list[bytes]) -> None:
    while True:
        for records in consumer.poll(timeout_ms=1000).values():
            found.extend(record.value for record in records)


MISUSES: list[tuple[Callable[[ActingFaults], object], str]] = [
    (lambda faults: faults.move_leader("ordres"), "there is no topic 'ordres'; there are: .*orders"),
    (lambda faults: faults.move_leader("orders", 2), "topic orders has no partition 2: it has 2"),
    (lambda faults: faults.move_leader("orders", 0), "orders-0 has no other replica to lead it: Cluster"),
    (lambda faults: faults.expire_member("nobody"), "there is no group 'nobody'; there are: "),
    (lambda faults: faults.rebalance("nobody"), "there is no group 'nobody'"),
    (lambda faults: faults.expire_member("known"), "group 'known' has no member of a client '.': |there are: none"),
    (lambda faults: faults.abort_transaction("nobody"), "transactional id 'nobody' has no open transaction"),
    (lambda faults: faults.fence_producer("nobody"), "there is no transactional id 'nobody'; there are: known"),
    (lambda faults: faults.lose_coordinator(), "name either a group or a transactional_id"),
    (lambda faults: faults.corrupt("orders", 0, 10_000), "orders-0 has no offset 10000: its offsets are 0 to"),
    (lambda faults: faults.corrupt("orders", 0, 0, node_id=7), "node 7 does not run here"),
]


@pytest.mark.parametrize(("misuse", "text"), MISUSES)
def test_what_cannot_happen_is_refused_by_name(
    broker: Broker, misuse: Callable[[ActingFaults], object], text: str
) -> None:
    begin(broker.bootstrap_servers, "known").commit_transaction(TIMEOUT_S)
    produce(broker.bootstrap_servers, "orders")
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "known", "log_level": 0}
    consumer = Consumer(config)
    consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    consumer.close()
    with pytest.raises(FaultError, match=text):
        misuse(broker.faults)


async def test_events_in_an_async_block_name_the_way() -> None:
    async with Broker() as broker:
        broker.faults.clear()
        with pytest.raises(FaultError, match="nobody coordinates"):
            await asyncio.to_thread(broker.faults.rebalance, "none")
        await broker.create_topics_async("orders", partitions=1)
        with pytest.raises(RuntimeError, match=r"await asyncio\.to_thread"):
            broker.faults.corrupt("orders")
