"""Three nodes, three replicas, transactions across all of them: each node killed with -9, copies once and in order.

The coordinators of transactions and of groups, and the leaders of the copied partitions, are on different nodes.
"""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.nodes import ThreeNodes
from harness.servers import ApacheKafka, Kafkapy, Server, java
from tests.compat.conftest import QUICK_JVM
from tests.support import topics
from tests.support.copying import PARTITIONS, SOURCES, Copiers, ReaderAlong, fill_sources
from tests.support.eventually import eventually
from tests.support.group_starts import commit_starts
from tools.kafka import JAVA_LIBS

pytestmark = pytest.mark.long

KINDS = {"apache": [ApacheKafka] * 3, "mixed": [Kafkapy, ApacheKafka, Kafkapy]}
KIND = KINDS.get(os.environ.get("KAFKAPY_COMPAT_SERVER", ""), [Kafkapy] * 3)
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
ROUNDS = int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))
RECORDS = 2000 * ROUNDS
"""Of each source topic."""
PAUSE_S = 6
"""Longer than broker.session.timeout.ms."""
TIMEOUT_S = 120
RESPONSE_S = 3
STATE_TOPIC = "__transaction_state"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(KIND, tmp_path_factory.mktemp("three"), PROPERTIES)
    with nodes:
        yield nodes


def admin(cluster: ThreeNodes) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def in_sync(client: AdminClient, topic: str) -> set[int]:
    """Return the sizes of the partitions' ISRs; none if one has no leader."""
    found = client.list_topics(topic, timeout=RESPONSE_S).topics[topic].partitions.values()
    return {len(partition.isrs) if partition.leader >= 0 else 0 for partition in found}


def create(cluster: ThreeNodes, topic: str, partition_count: int) -> None:
    topics.create(cluster.bootstrap, topic, partitions=partition_count, replicas=3)
    client = admin(cluster)
    eventually(lambda: in_sync(client, topic) == {3})


def leaders(client: AdminClient, topic: str) -> dict[int, int]:
    """Return the leader of each partition; empty until all have one."""
    found = client.list_topics(topic, timeout=RESPONSE_S).topics[topic].partitions.values()
    return {} if any(each.leader < 0 for each in found) else {each.id: each.leader for each in found}


def led_by_all(cluster: ThreeNodes) -> str:
    """Return a topic of six partitions that all nodes lead: one that a busy machine fenced meanwhile leads none."""
    for number in itertools.count():
        create(cluster, f"spanned-{number}", 6)
        if set(eventually(lambda: leaders(admin(cluster), f"spanned-{number}")).values()) == {1, 2, 3}:  # noqa: B023
            return f"spanned-{number}"
    raise AssertionError


def java_hash(text: str) -> int:
    code = 0
    for character in text:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return abs(code - (1 << 32) if code >= 1 << 31 else code)


def coordinator_of(cluster: ThreeNodes, transactional_id: str) -> Server:
    partition = java_hash(transactional_id) % int(PROPERTIES["transaction.state.log.num.partitions"])
    found = eventually(lambda: leaders(admin(cluster), STATE_TOPIC))
    return cluster.nodes[found[partition] - 1]


def transactional(cluster: ThreeNodes, transactional_id: str, **settings: Any) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id,
            "reconnect.backoff.max.ms": 200,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    producer.init_transactions(60)
    return producer


def read(cluster: ThreeNodes, topic: str, count: int, partitions: int = 1) -> list[bytes]:
    """Return so many records of read_committed, sorted."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "checker", "isolation.level": "read_committed"}
    with closing(Consumer({**settings, "enable.auto.commit": False, "log_level": 0})) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        values: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(values) < count and time.monotonic() < deadline:
            values += [each.value() for each in consumer.consume(count, 0.2) if each.error() is None]
        return sorted(values)


def test_a_transaction_spans_partitions_of_all_nodes(cluster: ThreeNodes) -> None:
    topic = led_by_all(cluster)
    for number, transactional_id in enumerate(["a", "b", "c"]):  # hashes 97, 98, 99: a partition of the state each
        producer = transactional(cluster, transactional_id)
        for is_committed in (True, False, True):
            producer.begin_transaction()
            for partition in range(6):
                producer.produce(topic, f"{number}-{is_committed}-{partition}", partition=partition)
            if is_committed:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
    wanted = [b"%d-True-%d" % (number, partition) for number in range(3) for partition in range(6) for _ in range(2)]
    assert read(cluster, topic, len(wanted), 6) == sorted(wanted)


def test_another_coordinator_aborts_what_has_timed_out(cluster: ThreeNodes) -> None:
    client = admin(cluster)
    create(cluster, "timed-out", 3)
    producer = transactional(cluster, "a", transaction_timeout_ms=6000)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce("timed-out", b"never", partition=partition)
    assert producer.flush(60) == 0
    coordinator = coordinator_of(cluster, "a")
    coordinator.stop(signal.SIGKILL)
    plain = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for partition in range(3):
        plain.produce("timed-out", b"plain-%d" % partition, partition=partition)
    assert plain.flush(60) == 0
    assert read(cluster, "timed-out", 3, 3) == [b"plain-0", b"plain-1", b"plain-2"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)
    coordinator.start()
    eventually(lambda: in_sync(client, "timed-out") == {3} == in_sync(client, STATE_TOPIC))


def copier_commands(cluster: ThreeNodes) -> list[list[str]]:
    """Two by librdkafka, which adds partitions itself, in a KIP-848 group; Java's, at version 2, in a classic one."""
    by_librdkafka = [sys.executable, "-m", "tests.support.copier", cluster.bootstrap, "copiers", "consumer"]
    by_java = java("org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", cluster.bootstrap,
                   "--transactional-id", "c", "--input-topic", SOURCES[1], "--output-topic", f"{SOURCES[1]}-copy",
                   "--input-partition", "-1", "--consumer-group", "java", "--max-messages", "-1",
                   "--transaction-size", "250", "--enable-random-aborts", "--group-mode",
                   heap="128m", options=QUICK_JVM.split())  # fmt: skip
    return [[*by_librdkafka, slot, "250", SOURCES[0]] for slot in ("a", "b")] + [by_java]


def test_copies_are_exact_whichever_node_is_killed(cluster: ThreeNodes, tmp_path: Path) -> None:
    if not JAVA_LIBS.is_dir():
        pytest.skip("Apache Kafka's jars are missing: run `make tools`")
    fill_sources(cluster.bootstrap, RECORDS, replication_factor=3)
    commit_starts(cluster.bootstrap, "copiers", SOURCES[:1], PARTITIONS)
    with (
        closing(Copiers(copier_commands(cluster), tmp_path)) as copiers,
        closing(ReaderAlong(cluster.bootstrap)) as reader,
    ):
        read_through_kills(cluster, copiers, reader)
        check_copies(cluster, reader)


def wait_for_replicas(cluster: ThreeNodes) -> None:
    """Return once all replicas of the coordinators' topics are in sync: two of three must be, or nothing is written."""
    client = admin(cluster)
    eventually(lambda: all(in_sync(client, topic) == {3} for topic in (STATE_TOPIC, "__consumer_offsets")))


def disturb(cluster: ThreeNodes, reader: ReaderAlong) -> Iterator[Callable[[], bool]]:
    """Kill each node in turn, in a soak pause each in the next round; yield what has to come true before it goes on."""
    share = len(SOURCES) * RECORDS // (ROUNDS * len(cluster.nodes) + 1)
    goal = 1
    for number in range(ROUNDS):
        for node in cluster.nodes:
            yield lambda goal=goal: reader.count >= goal
            goal += share
            if number % 2:
                yield from pause(node)
            else:
                node.stop(signal.SIGKILL)
                yield lambda goal=goal: reader.count >= goal
                node.start()
            wait_for_replicas(cluster)


def pause(node: Server) -> Iterator[Callable[[], bool]]:
    """Let a node stand still until others have taken over, and it does not know."""
    assert node.process is not None
    node.process.send_signal(signal.SIGSTOP)
    until_s = time.monotonic() + PAUSE_S
    yield lambda: time.monotonic() >= until_s
    node.process.send_signal(signal.SIGCONT)


def read_through_kills(cluster: ThreeNodes, copiers: Copiers, reader: ReaderAlong) -> None:
    """Read until all is copied and each node was killed."""
    disturbances = disturb(cluster, reader)
    may_go_on: Callable[[], bool] | None = next(disturbances)
    deadline = time.monotonic() + 5 * ROUNDS * TIMEOUT_S
    while may_go_on is not None or reader.count < len(SOURCES) * RECORDS:
        assert time.monotonic() < deadline, f"copied: {reader.counts()}; the copiers said:\n{copiers.printed()}"
        reader.poll()
        copiers.tend()
        if may_go_on is not None and may_go_on():
            may_go_on = next(disturbances, None)
    reader.poll()


def check_copies(cluster: ThreeNodes, reader: ReaderAlong) -> None:
    wanted = {(f"{topic}-copy", number): list(range(number, RECORDS, PARTITIONS))
              for topic in SOURCES for number in range(PARTITIONS)}  # fmt: skip
    assert reader.found == wanted, "what was read along"
    with closing(ReaderAlong(cluster.bootstrap)) as afterwards:
        while afterwards.count < len(SOURCES) * RECORDS:
            afterwards.poll()
        afterwards.poll()
        assert afterwards.found == wanted
