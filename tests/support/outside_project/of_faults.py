"""What a team's service does when Kafka fails, and what it left: of kafkapy alone, skipped against another broker."""

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from kafkapy.testing import Broker

TIMEOUT_S = 60


def pay(broker: Broker, topic: str, *values: bytes, **settings: Any) -> list[str]:
    reports: list[str] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10, **settings})
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: reports.append(error.name() if error else "done")
        )
    producer.flush(TIMEOUT_S)
    return reports


def test_a_lost_response_pays_once(broker: Broker, topic: str) -> None:
    broker.faults.drop("Produce", when="after", topic=topic, nth=1)
    assert pay(broker, topic, b"1", b"2", **{"enable.idempotence": True, "log_level": 0}) == ["done", "done"]
    broker.topics[topic].assert_delivered_once(["1", "2"])


def test_a_leader_that_has_moved_is_found(broker: Broker, topic: str) -> None:
    broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, times=2)
    assert pay(broker, topic, b"1") == ["done"]


@pytest.mark.parametrize("error", ["INVALID_RECORD", "TOPIC_AUTHORIZATION_FAILED"])
def test_what_is_refused_is_reported(broker: Broker, topic: str, error: str) -> None:
    broker.faults.fail("Produce", error, topic=topic, times=1)
    assert pay(broker, topic, b"1") == [error]


def test_a_slow_broker_is_not_waited_for(broker: Broker, topic: str) -> None:
    broker.faults.delay("Produce", ms=2_000, topic=topic)
    assert pay(broker, topic, b"1", **{"message.timeout.ms": 300, "log_level": 0}) == ["_MSG_TIMED_OUT"]


def test_a_fenced_producer_stops(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"1", partition=0)
    producer.flush(TIMEOUT_S)
    broker.faults.fence_producer(topic)
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    assert broker.topics[topic].records() == []


def test_a_member_whose_session_ends_reads_on(broker: Broker, topic: str, group: str) -> None:
    broker.topics[topic].produce([{"id": 1}, {"id": 2}])
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert consumer.poll(TIMEOUT_S) is not None
    (member,) = broker.groups[group].wait_for_members(1)
    broker.faults.expire_member(group)
    while [each.member_id for each in _members(broker, group)] in ([], [member.member_id]):
        consumer.poll(0.1)
    consumer.close()
    broker.groups[group].wait_for_state("Empty")


def _members(broker: Broker, group: str) -> list[Any]:
    return [each for each in broker.groups[group].members if each.assignment]
