"""`Cluster(in_process=True, clock="virtual")`: one time for all nodes, which stay in sync while a test moves it on."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from kafkapy.testing import ClockError, Cluster

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    properties = {
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "offsets.retention.minutes": 6 * 60,
    }
    with Cluster(3, in_process=True, clock="virtual", properties=properties) as running:
        yield running


def controllers_and_leaders(cluster: Cluster, topic: str) -> tuple[int, list[int]]:
    return cluster.controller, [cluster.leader_of(topic, partition) for partition in range(3)]


@pytest.mark.long
def test_a_week_passes_for_all_nodes_and_nobody_is_taken_for_dead(cluster: Cluster) -> None:
    cluster.create_topics("kept", partitions=3, configs={"retention.ms": -1})
    cluster.create_topics("deleted", partitions=3, configs={"retention.ms": 3_600_000})
    for topic in ("kept", "deleted"):
        cluster.topics[topic].produce([{"id": number} for number in range(30)])
    before, now = controllers_and_leaders(cluster, "kept"), cluster.clock.now()
    cluster.clock.advance("7d")
    assert (cluster.clock.now() - now).days == 7
    assert controllers_and_leaders(cluster, "kept") == before
    assert cluster.partitions().under_replicated == []
    assert len(cluster.topics["kept"].records()) == 30
    assert cluster.topics["deleted"].records() == []
    cluster.topics["deleted"].produce([{"id": 31}])
    assert [record.value for record in cluster.topics["deleted"].records()] == [{"id": 31}]


@pytest.mark.long
def test_committed_offsets_expire(cluster: Cluster) -> None:
    cluster.create_topics("read", partitions=1)
    cluster.topics["read"].produce([{"id": 1}])
    consumer = Consumer({**cluster.client_config(), "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["read"])
    assert consumer.poll(TIMEOUT_S) is not None
    consumer.commit(asynchronous=False)
    consumer.close()
    cluster.groups["readers"].wait_for_state("Empty")
    cluster.clock.advance("5h")
    assert "readers" in cluster.groups
    cluster.clock.advance("2h")
    assert "readers" not in cluster.groups


def test_an_open_transaction_is_aborted_at_its_time_out(cluster: Cluster) -> None:
    cluster.create_topics("paid", partitions=1)
    producer = Producer({**cluster.client_config(), "transactional.id": "tx", "transaction.timeout.ms": 60_000})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("paid", b"1", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    cluster.clock.advance("5m")
    admin = AdminClient(cluster.client_config())
    assert "paid" in admin.list_topics(timeout=TIMEOUT_S).topics
    assert cluster.topics["paid"].records() == []
    assert cluster.topics["paid"].end_offsets() == {0: 2}, "the record and the marker: nothing is open"


async def test_in_an_async_block() -> None:
    import asyncio

    async with Cluster(1, in_process=True, clock="virtual") as cluster:
        before = cluster.clock.now()
        await asyncio.to_thread(cluster.clock.advance, "1h")
        assert (cluster.clock.now() - before).seconds >= 3_600


def test_other_clusters_have_the_systems_time() -> None:
    with pytest.raises(ValueError, match="in_process=True"):
        Cluster(3, clock="virtual")
    with Cluster(1, in_process=True) as cluster, pytest.raises(ClockError, match="the system's clock is not moved"):
        cluster.clock.advance("1s")
