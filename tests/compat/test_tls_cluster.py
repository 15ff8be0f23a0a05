"""Three nodes that speak mutual TLS among each other: controllers' listener and the brokers' one, names by certificate.

The authorizer knows the nodes by their certificate's name alone: a node without it could do nothing here.
"""

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from harness.nodes import ThreeNodes
from harness.servers import ApacheKafka, Kafkapy
from tests.compat.test_cluster import KIND, PROPERTIES, TIMEOUT_S
from tests.support import topics
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.migrating import java_in_place_of
from tools.kafka import JAVA_LIBS

pytestmark = pytest.mark.long

REFUSED = "Failed authentication with 127.0.0.1" if KIND is Kafkapy else "SSL handshake failed"


def properties(directory: Path) -> dict[str, str]:
    authority = Authority()
    node = authority.issue("node", ["localhost", "127.0.0.1"]).write(directory, "node")
    (directory / "ca.pem").write_text(authority.certificate_pem)
    stranger = Authority("another CA").issue("node").write(directory, "stranger")
    assert stranger.exists()
    return {
        **PROPERTIES,
        "offsets.topic.replication.factor": "3",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "BROKERS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:CN=node",
        "allow.everyone.if.no.acl.found": "false",
        "early.start.listeners": "CONTROLLER",
    }


def started(directory: Path, kinds: list[type[Kafkapy] | type[ApacheKafka]]) -> ThreeNodes:
    settings = properties(directory)
    settings["super.users"] += ";User:ANONYMOUS"
    return ThreeNodes(kinds, directory, settings, heap="384m", more_listeners=["BROKERS"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    with started(tmp_path_factory.mktemp("mtls"), [KIND] * 3) as running:
        yield running


def create(cluster: ThreeNodes, topic: str) -> None:
    topics.create(cluster.bootstrap, topic, partitions=6, replicas=3)
    eventually(lambda: in_sync(cluster, topic) == [3] * 6)


def in_sync(cluster: ThreeNodes, topic: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    return [len(partition.isrs) for partition in found.partitions.values()]


def produce(cluster: ThreeNodes, topic: str, count: int) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 60_000})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % 6, on_delivery=lambda e, _: failures.append(e))
    assert producer.flush(TIMEOUT_S) == 0
    assert [failure for failure in failures if failure] == []


def test_replicas_follow_and_a_killed_node_is_replaced_and_comes_back(cluster: ThreeNodes) -> None:
    create(cluster, "orders")
    produce(cluster, "orders", 600)
    victim = cluster.by_id[2]
    victim.stop(signal.SIGKILL)
    eventually(lambda: in_sync(cluster, "orders") == [2] * 6)
    produce(cluster, "orders", 600)
    victim.start()
    eventually(lambda: in_sync(cluster, "orders") == [3] * 6)


def test_a_node_with_a_strangers_certificate_does_not_get_in(cluster: ThreeNodes) -> None:
    """It is refused by the others; what they serve goes on without it."""
    create(cluster, "guarded")
    victim = cluster.by_id[3]
    victim.stop()
    known = victim.properties["ssl.keystore.location"]
    trusted = victim.properties["ssl.truststore.location"]
    both = Path(known).with_name("both.pem")
    both.write_text(Path(trusted).read_text() + Path(known).with_name("stranger.pem").read_text())
    victim.properties |= {
        "ssl.keystore.location": str(Path(known).with_name("stranger.pem")),
        "ssl.truststore.location": str(both),
    }
    victim.prepare()
    victim.launch()
    log = Path(f"{victim.directory}.log")
    eventually(lambda: REFUSED in log.read_text(errors="replace"))
    produce(cluster, "guarded", 60)
    eventually(lambda: set(in_sync(cluster, "guarded")) == {2})
    victim.stop(signal.SIGKILL)


@pytest.mark.skipif(KIND is ApacheKafka, reason="Java among ours")
@pytest.mark.skipif(not JAVA_LIBS.is_dir() or shutil.which("java") is None, reason="`make tools` brings the jars")
def test_a_java_node_takes_the_place_of_one_of_ours(tmp_path: Path) -> None:
    """It speaks mutual TLS with ours, as voter, leader and follower, also when another one is gone."""
    check_java_in_place(started(tmp_path, [Kafkapy] * 3))


def check_java_in_place(cluster: ThreeNodes, prepare: Callable[[ThreeNodes], None] = lambda _: None) -> None:
    """Let Apache Kafka run on the directory of the third node, kill the first, and bring it back.

    prepare: called when the nodes run.
    """
    with cluster:
        prepare(cluster)
        _check_java_in_place(cluster)


def _check_java_in_place(cluster: ThreeNodes) -> None:
    create(cluster, "mixed")
    produce(cluster, "mixed", 600)
    replaced, killed = cluster.by_id[3], cluster.by_id[1]
    assert isinstance(replaced, Kafkapy)
    replaced.stop()
    with java_in_place_of(replaced):
        eventually(lambda: in_sync(cluster, "mixed") == [3] * 6)
        produce(cluster, "mixed", 600)
        killed.stop(signal.SIGKILL)
        eventually(lambda: in_sync(cluster, "mixed") == [2] * 6)
        produce(cluster, "mixed", 600)
        killed.start()
        eventually(lambda: in_sync(cluster, "mixed") == [3] * 6)
