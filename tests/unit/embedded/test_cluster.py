"""`Cluster` has what `Broker` has: topics, logins, restarts; what cannot be is refused at once."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafkapy.errors import ApiError
from kafkapy.testing import Broker, Cluster, ClusterError

SECRETS = {"alice": "secret of alice", "bob": "secret of bob"}
AT_ONCE_S = 5


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    acls = ["allow alice all topic:*", "allow alice describe cluster"]
    with Cluster(3, in_process=True, tls=True, users=SECRETS, acls=acls) as running:
        running.create_topics("orders", partitions=2)
        yield running


def delivered(config: dict[str, str], topic: str) -> list[str | None]:
    found: list[str | None] = []
    producer = Producer({**config, "message.timeout.ms": 60_000, "log_level": 0})
    producer.produce(topic, b"one", on_delivery=lambda error, _: found.append(error.name() if error else None))
    producer.flush(60)
    return found


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_users_log_in_and_may_what_the_acls_say(secured: Cluster, mechanism: str) -> None:
    assert delivered(secured.client_config("alice", mechanism), "orders") == [None]
    admin = AdminClient(secured.client_config("bob", mechanism))
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.create_topics([NewTopic("mine", 1)])["mine"].result(60)


def test_topics_have_three_replicas_unless_told(secured: Cluster) -> None:
    secured.create_topics("alone", partitions=3, replicas=1, configs={"retention.ms": 1000})
    metadata = AdminClient(secured.client_config("alice")).list_topics(timeout=60).topics
    assert {len(each.replicas) for each in metadata["orders"].partitions.values()} == {3}
    assert [len(each.replicas) for each in metadata["alone"].partitions.values()] == [1, 1, 1]
    secured.delete_topics("alone", "there is none")
    with pytest.raises(ApiError, match="TOPIC_ALREADY_EXISTS"):
        secured.create_topics("orders")


def test_a_node_and_all_nodes_restart_with_their_records(secured: Cluster) -> None:
    before = secured.bootstrap_servers
    secured.restart()
    secured.wait_in_sync("orders")
    assert (secured.bootstrap_servers, secured.partitions().under_replicated) == (before, [])
    secured.stop(3)
    with pytest.raises(ClusterError, match=r"not in sync: orders-\d"):
        secured.wait_in_sync("orders", timeout_s=2)
    secured.restart(3)
    secured.wait_in_sync()
    assert delivered(secured.client_config("alice"), "orders") == [None]


MISUSES: list[tuple[Callable[[Cluster], object], type[Exception], str]] = [
    (lambda cluster: cluster.leader_of("ordres"), ClusterError, "there is no topic 'ordres'; there are: orders"),
    (lambda cluster: cluster.leader_of("orders", 2), ClusterError, "has no partition 2: it has 2, from 0 on"),
    (lambda cluster: cluster.wait_in_sync("ordres"), ClusterError, "there is no topic 'ordres'"),
    (lambda cluster: cluster.client_config("carol"), ValueError, "there is no user 'carol', only alice, bob"),
    (lambda cluster: cluster.client_config("alice", "GSSAPI"), ValueError, "no mechanism 'GSSAPI', only PLAIN, SCRAM"),
    (lambda cluster: Cluster(acls=["allow alice read topic:x"]), ValueError, "acls need users"),
    (lambda cluster: Broker(acls=["allow alice read topic:x"]), ValueError, "acls need users"),
    (lambda cluster: Cluster(users=SECRETS, acls=["allow eve read topic:x"]), ValueError, "the user 'eve', but users"),
    (lambda cluster: Broker(prot=1), TypeError, "Broker.. has no argument 'prot'"),  # type: ignore[call-arg]
    (lambda cluster: Cluster(port=1), TypeError, "Cluster.. has no argument 'port'"),  # type: ignore[call-arg]
]


@pytest.mark.parametrize(("misuse", "family", "text"), MISUSES)
def test_what_cannot_be_is_refused_at_once_by_name(
    secured: Cluster, misuse: Callable[[Cluster], object], family: type[Exception], text: str
) -> None:
    began = time.monotonic()
    with pytest.raises(family, match=text):
        misuse(secured)
    assert time.monotonic() - began < AT_ONCE_S


@pytest.mark.parametrize("has_proxy", [False, True])
def test_a_port_that_is_taken_names_the_argument(has_proxy: bool) -> None:
    with Broker() as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(OSError, match=f"port={port} is in use"), Broker(port=port, network_faults=has_proxy):
            pass


async def test_a_cluster_runs_in_async_with() -> None:
    async with Cluster(1, in_process=True) as cluster:
        assert cluster.broker_ids == [1]
