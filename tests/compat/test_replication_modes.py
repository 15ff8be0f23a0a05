"""Nodes stopped and killed under a producer and a group: the failure modes of Apache Kafka's test of replication.

clean and hard shutdown: SIGTERM or SIGKILL, and the node stays away until the end. clean and hard bounce: it comes
back, and whoever is the leader (or controller) then is next. What was acknowledged (acks=all, min.insync.replicas 2) is
read by the group, and all replicas are in sync in the end. In CI each mode has one target; in soaks both, more bounces,
and each security protocol, for clients and among nodes. Source: tests/kafkatest/tests/core/replication_test.py.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness.nodes import ThreeNodes
from kafkapy.errors import KafkapyError
from kafkapy.server.cluster import queries
from tests.compat.test_cluster import KIND, TIMEOUT_S
from tests.support.certificates import Authority
from tests.support.copying import IS_SOAKED
from tests.support.eventually import eventually
from tests.support.logins import PLAIN_MODULE

pytestmark = pytest.mark.long

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL") if IS_SOAKED else ("PLAINTEXT",)
BOUNCES = 5 if IS_SOAKED else 1
PARTITIONS = 3
RECORDS_PER_S = 500
LOGIN = 'username="node" password="node-secret"'
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class Mode(NamedTuple):
    """`comes_back`: the node is started again, and the next one is taken, BOUNCES times."""

    name: str
    with_signal: signal.Signals
    comes_back: bool


MODES = [
    Mode("clean shutdown", signal.SIGTERM, False),
    Mode("hard shutdown", signal.SIGKILL, False),
    Mode("clean bounce", signal.SIGTERM, True),
    Mode("hard bounce", signal.SIGKILL, True),
]


class Secured(NamedTuple):
    """Three nodes, and how clients get to them."""

    nodes: ThreeNodes
    client: dict[str, str]

    def leader_of(self, topic: str) -> int:
        partitions = self._metadata(topic).topics[topic].partitions
        return partitions[0].leader if 0 in partitions else -1

    def controller(self, _topic: str) -> int:
        """Return the leader of the quorum that any node tells, -1 if none does."""
        for node in self.nodes.nodes:
            with contextlib.suppress(OSError, KafkapyError):
                found = queries.quorum(queries.asking(("127.0.0.1", node.port)))
                if found is not None and found.leader_id > 0:
                    return found.leader_id
        return -1

    def isr_sizes(self, topic: str) -> list[int]:
        return [len(each.isrs) for each in self._metadata(topic).topics[topic].partitions.values()]

    def _metadata(self, topic: str) -> Any:
        return AdminClient(self.client).list_topics(topic, timeout=10)


def properties_for(protocol: str, directory: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the nodes' properties for a protocol among them, and the clients' settings for it."""
    listeners = f"PLAINTEXT:PLAINTEXT,BROKERS:{protocol},CONTROLLER:{protocol}"
    nodes = {**PROPERTIES, "listener.security.protocol.map": listeners, "inter.broker.listener.name": "BROKERS"}
    client = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        authority = Authority()
        node = authority.issue("node", ["localhost", "127.0.0.1"]).write(directory, "node")
        trusted = directory / "ca.pem"
        trusted.write_text(authority.certificate_pem)
        stores = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
        nodes |= {**stores, "ssl.keystore.location": str(node), "ssl.truststore.location": str(trusted)}
        client |= {"ssl.ca.location": str(trusted)}
    if protocol.startswith("SASL"):
        jaas = f'{PLAIN_MODULE} {LOGIN} user_node="node-secret";'
        nodes |= {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN"}
        nodes |= {"sasl.mechanism.controller.protocol": "PLAIN"}
        nodes |= {f"listener.name.{name}.plain.sasl.jaas.config": jaas for name in ("brokers", "controller")}
        client |= {"sasl.mechanism": "PLAIN", "sasl.username": "node", "sasl.password": "node-secret"}
    return nodes, client


@pytest.fixture(scope="module", params=PROTOCOLS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp(request.param)
    properties, client = properties_for(request.param, directory)
    with ThreeNodes(KIND, directory, properties, heap="256m", more_listeners=["BROKERS"]) as nodes:
        ports = [each.properties["listeners"].split("BROKERS://127.0.0.1:")[1].split(",")[0] for each in nodes.nodes]
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        yield Secured(nodes, {"bootstrap.servers": bootstrap, "log_level": "0", **client})


class Traffic:
    """A producer of numbered records and a group that reads them, in threads, while the block runs."""

    def __init__(self, client: dict[str, str], topic: str) -> None:
        self.acknowledged: set[int] = set()
        self.seen: set[int] = set()
        self._failures: list[object] = []
        self._client, self._topic = client, topic
        self._is_over = threading.Event()
        self._has_produced = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=run) for run in (self._produce, self._consume)]
        for thread in threads:
            thread.start()
        try:
            yield
            self._has_produced.set()
            threads[0].join(TIMEOUT_S)
            eventually(lambda: self.seen >= self.acknowledged, what="that the group has read what was acknowledged")
        finally:
            self._has_produced.set()
            self._is_over.set()
            for thread in threads:
                thread.join(TIMEOUT_S)
        assert self._failures == []

    def wait_for_progress(self) -> None:
        written, read = len(self.acknowledged), len(self.seen)
        eventually(lambda: len(self.acknowledged) > written and len(self.seen) > read, what="progress")

    def _produce(self) -> None:
        producer = Producer({**self._client, "enable.idempotence": True, "compression.type": "gzip"})
        number = 0
        while not self._has_produced.is_set():
            producer.produce(self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._note)
            number += 1
            producer.poll(1 / RECORDS_PER_S)
        if producer.flush(TIMEOUT_S):
            self._failures.append("records are neither acknowledged nor refused")

    def _note(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failures.append(error)
        else:
            self.acknowledged.add(int(message.value()))

    def _consume(self) -> None:
        group = {"group.id": self._topic, "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
        consumer = Consumer({**self._client, **group})
        consumer.subscribe([self._topic])
        while not self._is_over.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.seen.add(int(message.value() or b""))
        consumer.close()


def create(cluster: Secured, topic: str) -> None:
    new = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    eventually(lambda: _is_created(cluster, new))
    eventually(lambda: cluster.isr_sizes(topic) == [3] * PARTITIONS)


def _is_created(cluster: Secured, new: NewTopic) -> bool:
    try:
        admin = AdminClient(cluster.client)  # the response needs it
        admin.create_topics([new])[new.topic].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    return True


def fail(cluster: Secured, topic: str, mode: Mode, choose: Callable[[str], int], traffic: Traffic) -> None:
    """Take nodes away, as the mode says, until others do what they did; bring all back in the end."""
    taken: list[int] = []
    for _ in range(BOUNCES if mode.comes_back else 1):
        traffic.wait_for_progress()
        node_id = eventually(lambda: max(choose(topic), 0))
        taken = [node_id]
        cluster.nodes.by_id[node_id].stop(mode.with_signal)
        eventually(lambda node_id=node_id: choose(topic) not in (-1, node_id), what=f"another than {node_id}")
        traffic.wait_for_progress()
        if mode.comes_back:
            cluster.nodes.by_id[node_id].start()
            eventually(lambda: cluster.isr_sizes(topic) == [3] * PARTITIONS)
    for node_id in () if mode.comes_back else taken:
        cluster.nodes.by_id[node_id].start()


CASES = [
    pytest.param(mode, target, id=f"{mode.name} of the {target}")
    for mode in MODES
    for target in ("leader", "controller")
    if IS_SOAKED or mode.comes_back == (target == "leader")
]


@pytest.mark.parametrize(("mode", "target"), CASES)
def test_what_is_acknowledged_is_read_whatever_node_fails(cluster: Secured, mode: Mode, target: str) -> None:
    topic = f"{mode.name}-of-{target}-{time.monotonic_ns()}".replace(" ", "-")
    create(cluster, topic)
    traffic = Traffic(cluster.client, topic)
    choose = cluster.leader_of if target == "leader" else cluster.controller
    with traffic.running():
        fail(cluster, topic, mode, choose, traffic)
    eventually(lambda: cluster.isr_sizes(topic) == [3] * PARTITIONS)
    assert traffic.acknowledged
