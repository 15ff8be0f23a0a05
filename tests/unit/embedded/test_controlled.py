"""Faults, events and the record of requests of a cluster whose nodes are processes, as real clients meet them."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kafkapy.testing import Cluster, ClusterError, FaultError, FaultNeverHit

pytestmark = pytest.mark.long

TIMEOUT_S = 60
PROPERTIES = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, properties=PROPERTIES, disk_faults=True) as running:
        running.create_topics("orders", partitions=3)
        yield running


@pytest.fixture(autouse=True)
def forget(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.faults.clear()
    cluster.faults.log.clear()


def produce(cluster: Cluster, *partitions: int, **settings: object) -> list[str | None]:
    """Produce a record to each partition; return what became of each."""
    found: list[str | None] = []
    config = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "retry.backoff.ms": 10, "log_level": 0}
    producer = Producer({**config, **settings})
    for partition in partitions:
        producer.produce(
            "orders", b"one", partition=partition, on_delivery=lambda error, _: found.append(error and error.name())
        )
    producer.flush(TIMEOUT_S)
    return found


def test_requests_to_all_nodes_are_counted_together(cluster: Cluster) -> None:
    fault = cluster.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=4)
    assert produce(cluster, 0, 1, 2) == [None, None, None]
    assert fault.hits == 4
    assert [hit.api for hit in cluster.faults.log] == ["Produce"] * 4
    assert {hit.client_id for hit in cluster.faults.log} == {"rdkafka"}


def test_the_third_request_of_all_is_hit(cluster: Cluster) -> None:
    cluster.faults.fail("Produce", "INVALID_RECORD", topic="orders", nth=3)
    assert [produce(cluster, partition)[0] for partition in (0, 1, 2, 0)] == [None, None, "INVALID_RECORD", None]


def test_a_lost_response_makes_no_duplicate(cluster: Cluster) -> None:
    before = cluster.topics["orders"].end_offsets()[0]
    cluster.faults.drop("Produce", when="after", topic="orders", nth=1)
    assert produce(cluster, 0, **{"enable.idempotence": True}) == [None]
    assert cluster.topics["orders"].end_offsets()[0] == before + 1


def test_a_fault_that_is_paused_or_removed_hits_nothing(cluster: Cluster) -> None:
    fault = cluster.faults.fail("Produce", "INVALID_RECORD", topic="orders")
    with cluster.faults.paused(fault):
        assert produce(cluster, 0) == [None]
    assert produce(cluster, 0) == ["INVALID_RECORD"]
    fault.remove()
    assert produce(cluster, 0) == [None]


def test_a_fault_that_never_hit_says_what_came(cluster: Cluster) -> None:
    cluster.faults.fail("Produce", "INVALID_RECORD", client_id="service-*")
    produce(cluster, 0)
    with pytest.raises(FaultNeverHit, match="there came one with client_id='rdkafka'"):
        cluster.faults.check_hit()


def test_a_node_that_is_paused_or_restarted_meets_the_faults_set_meanwhile(cluster: Cluster) -> None:
    leader = cluster.leader_of("orders", 0)
    cluster.pause(leader)
    fault = cluster.faults.fail("Produce", "INVALID_RECORD", topic="orders", partition=0)
    cluster.resume(leader)
    assert produce(cluster, 0) == ["INVALID_RECORD"]
    cluster.kill(leader)
    cluster.restart(leader)
    cluster.wait_in_sync()
    cluster.faults.move_leader("orders", 0, to=leader)
    assert produce(cluster, 0) == ["INVALID_RECORD"]
    assert fault.hits == 2


def test_requests_to_all_nodes_are_recorded(cluster: Cluster) -> None:
    cluster.requests.on()
    assert produce(cluster, 0, 1, 2) == [None, None, None]
    found = cluster.requests.matching("Produce", topic="orders")
    assert {each for request in found for each in request.partitions} == {("orders", 0), ("orders", 1), ("orders", 2)}
    assert all(request.is_answered for request in found)
    assert not [request for request in cluster.requests if request.client_id in ("1", "2", "3")], "of other nodes"
    cluster.requests.off()


def test_a_fenced_producer_and_an_aborted_transaction(cluster: Cluster) -> None:
    for event in ("fence_producer", "abort_transaction"):
        config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": event, "log_level": 0}
        producer = Producer(config)
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("orders", b"one", partition=0)
        producer.flush(TIMEOUT_S)
        getattr(cluster.faults, event)(event)
        with pytest.raises(KafkaException):
            producer.commit_transaction(TIMEOUT_S)


def test_a_member_expires_and_a_coordinator_moves(cluster: Cluster) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "service", "heartbeat.interval.ms": 100}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "log_level": 0})
    events: list[str] = []
    consumer.subscribe(
        ["orders"],
        on_assign=lambda *_: events.append("assigned"),
        on_lost=lambda *_: events.append("lost"),
    )
    poll_until(consumer, events, ["assigned"])
    member = cluster.faults.expire_member("service")
    poll_until(consumer, events, ["assigned", "lost", "assigned"])
    with pytest.raises(FaultError, match=f"group 'service' has no member '{member}'"):
        cluster.faults.expire_member("service", member_id=member)
    before = [cluster.leader_of("__consumer_offsets", each) for each in (0, 1)]
    cluster.faults.lose_coordinator(group="service")
    after = [cluster.leader_of("__consumer_offsets", each) for each in (0, 1)]
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1
    assert consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)[0].error is None
    consumer.close()


def poll_until(consumer: Consumer, events: list[str], wanted: list[str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while events != wanted:
        assert time.monotonic() < deadline, events
        consumer.poll(0.05)


def test_the_disk_of_one_node_is_full(cluster: Cluster) -> None:
    leader = cluster.leader_of("orders", 1)
    cluster.faults.fill_disk(node_id=leader)
    assert produce(cluster, 1) == [None], "once another node leads"
    assert cluster.leader_of("orders", 1) != leader
    cluster.faults.mend_disk()
    cluster.wait_in_sync()


def test_what_a_node_had_not_synced_is_lost_and_comes_from_the_others(cluster: Cluster) -> None:
    assert produce(cluster, 0, 1, 2, acks="all") == [None, None, None]
    before = cluster.topics["orders"].end_offsets()
    assert cluster.faults.lose_unsynced(node_id=2) > 0
    cluster.wait_in_sync()
    assert cluster.topics["orders"].end_offsets() == before


def test_what_cannot_happen_is_refused_by_name(cluster: Cluster) -> None:
    with pytest.raises(FaultError, match=r"there is no topic 'ordres'; there are: .*orders"):
        cluster.faults.fail("Produce", "INVALID_RECORD", topic="ordres")
    with pytest.raises(FaultError, match=r"nobody coordinates 'nobody': no client has used it|there is no group"):
        cluster.faults.rebalance("nobody")
    with pytest.raises(FaultError, match="orders-0 has no offset 10000: its offsets are 0 to"):
        cluster.faults.corrupt("orders", 0, 10_000)
    with pytest.raises(FaultError, match="node 7 does not run here; brokers that do: 1, 2, 3"):
        cluster.faults.slow_disk(ms=5, node_id=7)
    with pytest.raises(FaultError, match="node_id names the broker that crashes: one of 1, 2, 3"):
        cluster.faults.lose_unsynced()
    with pytest.raises(FaultError, match=r"nowhere is no log directory; there are: .*node-1, .*node-2, .*node-3"):
        cluster.faults.fail_disk("nowhere")
    with pytest.raises(ValueError, match="leave in_process out"):
        Cluster(1, in_process=True, disk_faults=True)


def test_a_node_that_another_process_started_has_no_faults_until_it_is_restarted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kafkapy", "cluster"]
    data_dir = tmp_path / "kept"
    with Cluster(1, data_dir=data_dir) as own:
        own.create_topics("orders")
    up = [*command, "up", "--data-dir", str(data_dir)]
    subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
    try:
        with Cluster(1, data_dir=data_dir) as other:
            with pytest.raises(ClusterError, match=r"node 1 was started by another process.*restart\(1\)"):
                other.faults.fail("Produce", "INVALID_RECORD", topic="orders")
            other.restart(1)
            other.faults.fail("Produce", "INVALID_RECORD", topic="orders", times=1)
            assert produce(other, 0) == ["INVALID_RECORD"]
            for again in ([*command, "down", "--data-dir", str(data_dir)], up):
                subprocess.run(again, check=True, stdout=subprocess.DEVNULL)
        with pytest.raises(RuntimeError, match="this cluster is not running"):
            other.kill(1)  # it has ended, though its node did not answer
    finally:
        subprocess.run([*command, "down", "--data-dir", str(data_dir)], check=False, stdout=subprocess.DEVNULL)
