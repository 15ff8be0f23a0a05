"""`broker.groups`: members, assignments and lag, as the stock clients of each kind of group make them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from kafka import KafkaConsumer

from kafkapy.testing import Broker, NotObserved, ObservationError, TopicPartition
from tests.support.client_requests import describe_topic, until
from tests.support.group_configs import set_group_configs
from tests.support.share_members import LEAVES, ShareMember
from tests.support.wire import WireClient

TIMEOUT_S = 60
ACCEPT = 1


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topics("orders", partitions=2)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(6):
            producer.produce("orders", b"%d" % number, partition=number % 2)
        assert producer.flush(TIMEOUT_S) == 0
        yield broker


@contextmanager
def consuming(broker: Broker, group: str, **config: object) -> Iterator[Consumer]:
    """A consumer of "orders" that has read all of it, and committed nothing."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "client.id": f"{group}-client",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )
    consumer.subscribe(["orders"])
    try:
        count = 0
        while count < 6:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            assert message.error() is None, message.error()
            count += 1
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_assignment_and_lag(broker: Broker, protocol: str) -> None:
    group = broker.groups[f"of-{protocol}"]
    with consuming(broker, group.group_id, **{"group.protocol": protocol}) as consumer:
        (member,) = group.wait_for_members(1)
        assert (member.client_id, member.host) == (f"of-{protocol}-client", "/127.0.0.1")
        assert group.assignment == {member.member_id: [("orders", 0), ("orders", 1)]}
        assert group.type == protocol
        assert group.wait_for_state("Stable") == "Stable"
        assert group.lags == {("orders", 0): 3, ("orders", 1): 3}, "nothing is committed: all of it counts"
        consumer.commit(offsets=[ClientPartition("orders", 0, 3), ClientPartition("orders", 1, 1)], asynchronous=False)
        assert group.committed == {("orders", 0): 3, ("orders", 1): 1}
        assert (group.lags, group.lag) == ({("orders", 0): 0, ("orders", 1): 2}, 2)
        group.wait_for_lag(2)
        with pytest.raises(NotObserved) as failed:
            group.wait_for_lag(timeout_s=0.05)
        assert f"{protocol}, Stable; lag 2 (orders-0 0, orders-1 2); of-{protocol}-client (" in str(failed.value)
        consumer.commit(offsets=[ClientPartition("orders", 1, 3)], asynchronous=False)
        group.wait_for_lag()
    assert group.wait_for_state("Empty") == "Empty"
    assert group.members == []
    assert group.lag == 0


def test_a_group_of_kafka_python(broker: Broker) -> None:
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=broker.bootstrap_servers, group_id="of-kafka-python", auto_offset_reset="earliest"
    )
    assert next(iter(consumer)).topic == "orders"
    (member,) = broker.groups["of-kafka-python"].wait_for_members(1)
    assert member.assignment == (("orders", 0), ("orders", 1))
    consumer.close()


def test_two_members_share(broker: Broker) -> None:
    with consuming(broker, "shared"):
        second = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "shared", "client.id": "second"})
        second.subscribe(["orders"])
        with pytest.raises(NotObserved, match="group shared has not 3 members with an assignment: classic, "):
            broker.groups["shared"].wait_for_members(3, timeout_s=0.05)
        second.close()


def test_a_group_that_has_only_committed(broker: Broker) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "assigned"})
    consumer.commit(offsets=[ClientPartition("orders", 1, 2)], asynchronous=False)
    consumer.close()
    assert broker.groups["assigned"].lags == {("orders", 1): 1}
    assert "assigned" in broker.groups
    assert "assigned" in list(broker.groups)


def test_a_group_that_does_not_exist_is_named(broker: Broker) -> None:
    with pytest.raises(ObservationError, match=r"there is no group 'nobody'; there are: "):
        _ = broker.groups["nobody"].lag
    with pytest.raises(NotObserved, match=r"a lag of at most 0: there is no group 'nobody'"):
        broker.groups["nobody"].wait_for_lag(timeout_s=0.05)
    assert "nobody" not in broker.groups


def test_a_share_group(broker: Broker) -> None:
    group = broker.groups["queue"]
    with consuming(broker, "first"):
        pass  # the topic of coordinators is created for a client that looks for one
    with WireClient(broker.bootstrap_servers) as client:
        set_group_configs(client, "queue", share_auto_offset_reset="earliest")
        member = ShareMember(client, "queue", describe_topic(client, "orders").topic_id)
        member.join("orders")
        (found,) = group.wait_for_members(1)
        assert (group.type, found.member_id) == ("share", "m")
        assert found.assignment == (("orders", 0), ("orders", 1))
        until(lambda: member.fetch().error_code == 0 and bool(group.lags))
        assert group.lags[TopicPartition("orders", 0)] == 3
        assert group.committed[TopicPartition("orders", 0)] == 0
        member.fetch((0, 2, (ACCEPT,)))
        until(lambda: group.lags[TopicPartition("orders", 0)] == 0)
        member.heartbeat(member_epoch=LEAVES)
    assert group.wait_for_state("Empty") == "Empty"
