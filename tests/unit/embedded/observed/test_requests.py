"""`broker.requests`: what a stock client has asked, in a ring that is off unless it is turned on."""

import pytest
from confluent_kafka import Consumer, Producer

from kafkapy.testing import Broker, NotObserved, ObservationError, Request

TIMEOUT_S = 60


def produce(broker: Broker, count: int, **config: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "service", **config})
    for number in range(count):
        producer.produce("orders", b"%d" % number, partition=0)
        producer.flush(TIMEOUT_S)


def consume(broker: Broker, count: int) -> None:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    for _ in range(count):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.fixture
def broker(own_kafka_broker: Broker) -> Broker:
    own_kafka_broker.create_topics("orders", partitions=2)
    return own_kafka_broker


def test_who_asked_what(broker: Broker) -> None:
    broker.requests.on()
    produce(broker, 2)
    consume(broker, 2)
    first, second = broker.requests.matching("Produce", client_id="service")
    assert (first.topics, first.partitions, first.errors) == (("orders",), (("orders", 0),), ())
    assert (first.principal, first.is_answered) == ("User:ANONYMOUS", True)
    assert first.connection == second.connection
    commit = broker.requests.matching("OffsetCommit", group="readers")[0]
    assert commit.partitions == (("orders", 0),)
    fetched = broker.requests.matching("Fetch", topic="orders")
    assert set(fetched[-1].partitions) == {("orders", 0), ("orders", 1)}, "those of its session"
    assert broker.requests.matching("JoinGroup", group="others") == []
    assert broker.requests.wait_for(1, "LeaveGroup", group="readers")


def test_an_error_and_a_lost_response_are_as_the_client_met_them(broker: Broker) -> None:
    broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", nth=1)
    broker.requests.on()
    broker.faults.drop("Produce", when="before", topic="orders", nth=2)
    produce(broker, 1, **{"retry.backoff.ms": 10, "log_level": 0})
    first, second, third = broker.requests.matching("Produce")
    assert (first.errors, first.is_answered) == (("NOT_LEADER_OR_FOLLOWER",), True)
    assert (second.errors, second.is_answered) == ((), False)
    assert (third.errors, third.is_answered) == ((), True)
    assert broker.requests.matching(error="NOT_LEADER_OR_FOLLOWER") == [first]
    assert str(second).startswith("Produce v10 of orders-0 by service (127.0.0.1:")
    assert ": not answered, " in str(second)


def test_it_is_off_bounded_and_forgets(broker: Broker) -> None:
    produce(broker, 1)
    assert (list(broker.requests), broker.requests.is_on) == ([], False)
    with pytest.raises(ObservationError, match=r"requests\.on\(\) before what is tested"):
        broker.requests.matching("Produce")
    broker.requests.on(most=3)
    produce(broker, 5)
    assert [request.api for request in broker.requests] == ["Produce"] * 3
    broker.requests.clear()
    assert len(broker.requests) == 0
    broker.requests.off()
    produce(broker, 1)
    broker.requests.on()
    assert len(broker.requests) == 0


def test_it_goes_on_after_a_restart(broker: Broker) -> None:
    broker.requests.on()
    broker.restart()
    produce(broker, 1)
    assert len(broker.requests.matching("Produce", topic="orders")) == 1


def test_what_the_test_itself_looks_at_is_no_request(broker: Broker) -> None:
    broker.requests.on()
    broker.topics["orders"].records()
    broker.topics["orders"].produce([{"id": 1}])
    assert list(broker.groups) == []
    assert list(broker.requests) == []


def test_a_wait_that_fails_shows_the_last_requests(broker: Broker) -> None:
    broker.requests.on()
    produce(broker, 1)
    with pytest.raises(
        NotObserved, match=r"0 requests match, not 1; the last of all:\n(.*\n)*  Produce v10 of orders-0"
    ):
        broker.requests.wait_for(1, "EndTxn", timeout_s=0.05)
    with pytest.raises(ObservationError, match="there is no API 'Prodcue'; is it Produce"):
        broker.requests.matching("Prodcue")
    with pytest.raises(ObservationError, match="most is a number from 1 on, not 0"):
        broker.requests.on(most=0)


def test_a_request_is_a_value() -> None:
    names = {"client_id": None, "principal": "User:a", "connection": "h:1", "is_answered": True, "ms": 1.0}
    about = {"partitions": (), "topics": ("a", "b"), "groups": (), "transactional_ids": ("tx",), "errors": ("X",)}
    assert str(Request(api="EndTxn", version=4, **names, **about)) == "EndTxn v4 of a, b, tx by None (h:1): X, 1.0 ms"  # type: ignore[arg-type]
