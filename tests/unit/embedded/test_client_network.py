"""A network between clients and nodes of a cluster that is cut, late or narrow, while the nodes reach each other."""

import time
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Producer

from kafkapy.testing import Cluster, ClusterError
from tests.support.eventually import eventually

pytestmark = pytest.mark.long
TIMEOUT_S: Final = 60


@pytest.fixture(scope="module", params=[False, True], ids=["processes", "in process"])
def running(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(3, network_faults=True, in_process=request.param) as cluster:
        cluster.create_topics("orders", partitions=1)
        cluster.wait_in_sync("orders")
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    assert produced(running)[0] is None
    yield running
    running.client_network.heal()


def produced(cluster: Cluster, size: int = 100, timeout_ms: int = 60_000) -> tuple[str | None, float]:
    """Return the name of the error, or None, and how many seconds it took."""
    found: list[str | None] = []
    began = time.monotonic()
    producer = Producer({**cluster.client_config(), "log_level": 0, "message.timeout.ms": timeout_ms, "acks": "all"})
    producer.produce("orders", bytes(size), on_delivery=lambda error, _: found.append(error.name() if error else None))
    producer.flush(TIMEOUT_S)
    return found[0], time.monotonic() - began


@pytest.mark.parametrize("fault", ["cut", "hold"])
def test_a_leader_out_of_reach_of_clients_goes_on_leading(cluster: Cluster, fault: str) -> None:
    leader = cluster.leader_of("orders")
    getattr(cluster.client_network, fault)(leader)
    assert produced(cluster, timeout_ms=3000)[0] == "_MSG_TIMED_OUT"
    assert cluster.leader_of("orders") == leader
    assert cluster.partitions().isr_sizes["orders"] == {0: 3}
    cluster.client_network.heal()
    assert produced(cluster)[0] is None


def test_the_others_are_reached_and_a_leader_that_moves_there_too(cluster: Cluster) -> None:
    leader = cluster.leader_of("orders")
    cluster.client_network.cut(leader)
    cluster.faults.move_leader("orders")
    assert cluster.leader_of("orders") != leader
    assert produced(cluster)[0] is None


def test_a_second_cut_keeps_the_first(cluster: Cluster) -> None:
    leader = cluster.leader_of("orders")
    cluster.client_network.cut(leader)
    cluster.client_network.cut(next(each for each in cluster.broker_ids if each != leader))
    assert produced(cluster, timeout_ms=3000)[0] == "_MSG_TIMED_OUT"


def test_bytes_arrive_later_from_every_node(cluster: Cluster) -> None:
    cluster.client_network.delay(ms=200)
    error, took_s = produced(cluster)
    assert error is None
    assert took_s >= 0.8, "two round trips at least: versions, metadata or the record"


def test_bytes_arrive_slowly_and_the_nodes_network_heals_alone(cluster: Cluster) -> None:
    cluster.client_network.limit(cluster.leader_of("orders"), bytes_per_s=200_000)
    cluster.network.heal()
    error, took_s = produced(cluster, size=200_000)
    assert error is None
    assert took_s >= 0.9


def test_nodes_reach_each_other_late_and_lose_each_other(cluster: Cluster) -> None:
    leader = cluster.leader_of("orders")
    others = {each for each in cluster.broker_ids if each != leader}
    cluster.network.delay({leader}, others, ms=300)
    error, took_s = produced(cluster)
    assert error is None
    assert took_s >= 0.3, "the followers' fetches wait for it"
    cluster.network.heal()
    lost = max(others)
    cluster.network.cut({lost}, set(cluster.broker_ids) - {lost})
    eventually(lambda: cluster.partitions().isr_sizes["orders"] == {0: 2}, what="the loss of a follower")
    assert produced(cluster)[0] is None
    cluster.network.heal()
    cluster.wait_in_sync("orders", timeout_s=TIMEOUT_S)


def test_ports_are_kept_over_a_restart_and_a_new_node_has_one(cluster: Cluster) -> None:
    before = cluster.bootstrap_servers
    cluster.restart(1)
    assert cluster.bootstrap_servers == before
    added = cluster.add()
    assert cluster.address_of(added) in cluster.bootstrap_servers
    cluster.client_network.cut(added)
    assert produced(cluster)[0] is None


def test_what_cannot_be_is_refused_by_name(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match=r"there is no broker 9: this cluster has the brokers 1, 2, 3"):
        cluster.client_network.cut(9)
    with pytest.raises(ValueError, match="ms is a number from 1 on, not 0"):
        cluster.client_network.delay(1, ms=0)
    with pytest.raises(ValueError, match="leave data_dir out"):
        Cluster(3, network_faults=True, data_dir="data")
    with pytest.raises(ValueError, match='leave clock="virtual" out'):
        Cluster(3, network_faults=True, in_process=True, clock="virtual")
    with Cluster(1, in_process=True) as plain, pytest.raises(ClusterError, match=r"Cluster\(3, network_faults=True\)"):
        plain.client_network  # noqa: B018
