"""Clients react to each fault as they do to what it stands for."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

from kafkapy.testing import Broker, Cluster, Faults
from tests.support.topic_contents import offsets

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(running: Broker) -> Broker:
    """The broker of the module, with topics without records."""
    running.delete_topics("orders", "other")
    running.create_topics("orders", "other", partitions=2)
    return running


def produce(broker: Broker, *, topic: str = "orders", **settings: object) -> list[str | int]:
    """Produce a record by librdkafka; return its offset, or the name of its error."""
    found: list[str | int] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "retry.backoff.ms": 1, **settings}
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        found.append(error.name() if error is not None else message.offset() or 0)

    producer.produce(topic, b"value", partition=0, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    return found


def records(broker: Broker, topic: str = "orders") -> int:
    """Return how many records partition 0 has."""
    return offsets(broker.client_config(), topic)[1]


def test_an_error_that_may_be_retried_is(broker: Broker) -> None:
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=2)
    assert (produce(broker), produce(broker, topic="other")) == ([0], [0])
    assert (fault.hits, [hit.parts for hit in broker.faults.log]) == (2, [("orders-0",)] * 2)


def test_an_error_that_may_not_be_retried_reaches_the_program(broker: Broker) -> None:
    broker.faults.fail("Produce", "INVALID_RECORD", partition=0, times=1)
    assert (produce(broker), records(broker)) == (["INVALID_RECORD"], 0)


def test_a_response_that_is_lost_makes_a_duplicate_unless_idempotent(broker: Broker) -> None:
    broker.faults.drop("Produce", when="after", nth=1)
    produce(broker)
    assert records(broker) == 2
    broker.faults.drop("Produce", when="after", nth=1)
    produce(broker, **{"enable.idempotence": True})
    assert records(broker) == 3


@pytest.mark.parametrize("kind", ["drop", "truncate"])
def test_a_request_that_is_lost_is_sent_again(broker: Broker, kind: str) -> None:
    fault = broker.faults.add(kind, "Produce", nth=1)
    assert produce(broker) == [0 if kind == "drop" else 1]
    assert fault.hits == 1


def test_acks_0_loses_its_connection(broker: Broker) -> None:
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", nth=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": 0, "log_level": 0})
    producer.produce("orders", b"lost", partition=0)
    producer.flush(TIMEOUT_S)
    assert records(broker) == 0
    assert fault.hits == 1


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_LEADER_EPOCH", "KAFKA_STORAGE_ERROR"])
def test_a_fetch_that_fails_is_repeated(broker: Broker, error: str) -> None:
    fault = broker.faults.fail("Fetch", error, topic="orders", partition=0, times=2)
    produce(broker)
    assert consumed(broker) == b"value"
    assert fault.hits == 2


@pytest.mark.parametrize("kind", ["drop", "truncate"])
def test_a_fetch_whose_response_is_lost_is_repeated(broker: Broker, kind: str) -> None:
    broker.faults.add(kind, "Fetch", nth=1)
    produce(broker)
    assert consumed(broker) == b"value"


def consumed(broker: Broker, topic: str = "orders") -> bytes | None:
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "fetch.error.backoff.ms": 1,
        "log_level": 0,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def test_a_delayed_response_is_late(broker: Broker) -> None:
    broker.faults.delay("Produce", ms=400, nth=1)
    began = time.monotonic()
    assert produce(broker) == [0]
    assert time.monotonic() - began >= 0.4


def test_a_commit_of_a_fenced_member_fails(broker: Broker) -> None:
    broker.faults.fail("OffsetCommit", "UNKNOWN_MEMBER_ID", group="mine", times=1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "mine", "log_level": 0})
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    assert consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)[0].error is None
    consumer.close()


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("OffsetFetch", "NOT_COORDINATOR"),
    ],
)
def test_a_group_forms_in_spite_of(broker: Broker, api: str, error: str) -> None:
    fault = broker.faults.fail(api, error, group="forming-*", nth=1)
    produce(broker)
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"forming-{api}",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**config, "log_level": 0})
    consumer.subscribe(["orders"])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    assert fault.hits == 1


def test_metadata_without_a_leader_is_asked_again(broker: Broker) -> None:
    fault = broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="other", times=2)
    assert produce(broker, topic="other", **{"topic.metadata.refresh.fast.interval.ms": 10}) == [0]
    assert fault.hits == 2


def test_an_admins_request_fails_for_the_topic_alone(broker: Broker) -> None:
    broker.faults.fail("CreateTopics", "POLICY_VIOLATION", topic="forbidden*", times=1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    results = admin.create_topics([NewTopic("forbidden", 1), NewTopic("allowed", 1)])
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        results["forbidden"].result(TIMEOUT_S)
    results["allowed"].result(TIMEOUT_S)
    broker.delete_topics("allowed")


def transact(broker: Broker, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", b"in a transaction", partition=0)
    return producer


def test_an_end_of_a_transaction_whose_response_is_lost_is_done_once(broker: Broker) -> None:
    fault = broker.faults.drop("EndTxn", when="after", transactional_id="once", times=1)
    transact(broker, "once").commit_transaction(TIMEOUT_S)
    assert (fault.hits, records(broker)) == (1, 2)  # the record and its marker


def test_a_fenced_producer_is_told_so(broker: Broker) -> None:
    broker.faults.fail("EndTxn", "INVALID_PRODUCER_EPOCH", transactional_id="fen*", times=1)
    producer = transact(broker, "fenced")
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()


def test_a_transaction_adds_its_partitions_again(broker: Broker) -> None:
    fault = broker.faults.fail("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS", transactional_id="again", times=2)
    transact(broker, "again").commit_transaction(TIMEOUT_S)
    assert fault.hits == 2


async def test_aiokafka_retries_what_may_be_retried(broker: Broker) -> None:
    produced = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=2)
    fetched = broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="orders", nth=1)
    lost = broker.faults.drop("Produce", when="after", topic="orders", nth=3)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True)
    await producer.start()
    sent = await asyncio.wait_for(producer.send_and_wait("orders", b"value", partition=0), TIMEOUT_S)
    await producer.stop()
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    record = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
    await consumer.stop()
    assert (sent.offset, record.value) == (0, b"value")
    assert (produced.hits, fetched.hits, lost.hits) == (2, 1, 1)
    assert await asyncio.to_thread(records, broker) == 1


def test_kafka_python_retries_what_may_be_retried_and_raises_the_rest(broker: Broker) -> None:
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=2)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1)
    assert producer.send("orders", b"value", partition=0).get(TIMEOUT_S).offset == 0
    broker.faults.fail("Produce", "MESSAGE_TOO_LARGE", topic="orders", times=1)
    with pytest.raises(PythonKafkaError, match="MessageSizeTooLarge"):
        producer.send("orders", b"value", partition=0).get(TIMEOUT_S)
    producer.close()
    assert fault.hits == 2


def test_users_behind_a_login_meet_faults_too() -> None:
    with Broker(users={"alice": "secret"}) as broker:
        broker.create_topics("orders", partitions=1)
        config = broker.client_config("alice")
        config.pop("bootstrap.servers")
        assert produce(broker, **config) == [0]
        fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=1)
        assert produce(broker, **config) == [1]
        assert fault.hits == 1
        assert broker.faults.log[0].principal == "User:alice"


def test_faults_outlive_a_restart(broker: Broker) -> None:
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=1)
    broker.restart()
    assert produce(broker) == [0]
    assert fault.hits == 1


def test_the_brokers_of_a_cluster_meet_faults_but_not_those_of_each_other() -> None:
    with Cluster(3, in_process=True) as cluster:
        cluster.create_topics("orders", partitions=1)
        faults: Faults = cluster.faults
        faults.fail("Fetch", "KAFKA_STORAGE_ERROR", topic="orders", may_miss=True)
        fault = faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=2)
        found: list[Callable[[], str] | None] = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
        producer.produce("orders", b"value", on_delivery=lambda error, _: found.append(error))
        producer.flush(TIMEOUT_S)
        assert found == [None], "followers have fetched it"
        assert fault.hits == 2
        cluster.wait_in_sync("orders")
