"""`Cluster.partition` and `heal` between processes: in both directions, or in one; clients reach all nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kafkapy import Cluster
from kafkapy.server.cluster.plan import ClusterError
from kafkapy.server.cluster.queries import asking, partitions
from tests.support.eventually import eventually
from tests.support.replicated_topics import TIMEOUT_S, create, produce

pytestmark = pytest.mark.ours
PROPERTIES = {
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "replica.lag.time.max.ms": 2000,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.request.timeout.ms": 1000,
    "min.insync.replicas": 2,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, properties=PROPERTIES) as running:
        yield running


def metadata_of(cluster: Cluster, node_ids: list[int], topic: str) -> tuple[int, set[int]]:
    """Return the leader of partition 0 and its ISR, as these nodes tell."""
    bootstrap = ",".join(cluster.address_of(node_id) for node_id in node_ids)
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=TIMEOUT_S)
    partition = found.topics[topic].partitions.get(0)  # None: it has not heard of the topic yet
    return (-1, set()) if partition is None else (partition.leader, set(partition.isrs))


def others_than(cluster: Cluster, alone: int) -> list[int]:
    return [node_id for node_id in cluster.broker_ids if node_id != alone]


def test_the_majority_goes_on_without_the_leader_that_was_cut_off(cluster: Cluster) -> None:
    create(cluster, "cut")
    assert produce(cluster.bootstrap_servers, "cut") is None
    alone = cluster.leader_of("cut")
    others = others_than(cluster, alone)
    cluster.partition({alone}, others)
    eventually(lambda: metadata_of(cluster, others, "cut") in [(leader, set(others)) for leader in others])
    reachable = ",".join(cluster.address_of(node_id) for node_id in others)
    assert produce(reachable, "cut") is None
    host, port = cluster.address_of(alone).split(":")
    leaders = partitions(asking((host, int(port)))).leaders
    assert leaders["cut"][0] == alone, "clients reach it, and it has not heard of its successor"
    cluster.heal()
    eventually(lambda: not cluster.partitions().under_replicated)
    assert produce(cluster.bootstrap_servers, "cut") is None


def test_a_leader_that_is_not_heard_is_replaced_though_it_hears_the_others(cluster: Cluster) -> None:
    create(cluster, "unheard")
    alone = cluster.leader_of("unheard")
    others = others_than(cluster, alone)
    cluster.partition({alone}, others, one_way=True)
    eventually(lambda: metadata_of(cluster, others, "unheard") in [(leader, set(others)) for leader in others])
    cluster.heal()
    eventually(lambda: not cluster.partitions().under_replicated)
    assert produce(cluster.bootstrap_servers, "unheard") is None


def test_a_broker_that_was_added_can_be_cut_off_too(cluster: Cluster) -> None:
    added = cluster.add()
    create(cluster, "on-four", replicas=4)
    others = others_than(cluster, added)
    cluster.partition({added}, others)
    eventually(lambda: metadata_of(cluster, others, "on-four")[1] == set(others))
    cluster.heal()
    eventually(lambda: not cluster.partitions().under_replicated)


def test_only_what_can_be_partitioned_is(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="there is no node 7"):
        cluster.partition({7}, {1})
    kept = Cluster(1, data_dir=tmp_path / "kept")
    with kept, pytest.raises(ClusterError, match="temporary directory"):
        kept.partition({1})
    with Cluster(1, in_process=True) as one_process, pytest.raises(ClusterError, match="both directions only"):
        one_process.partition({1}, one_way=True)
