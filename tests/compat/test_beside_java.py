"""A broker of kafkapy and one of Apache Kafka in one cluster, under a controller of either.

Each judges what the other asks and answers: registration, heartbeats, fetches of followers, ISR changes, forwarded
requests, markers of transactions. At the end the replicas of both are compared byte by byte, and what kafka-dump-log.sh
and `kafkapy dump-log` print of each.
"""

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from harness.nodes import BROKER, CONTROLLER, Nodes, Plan
from harness.servers import ApacheKafka, Kafkapy, PreviousKafka, Server
from kafkapy.cli import dump_log
from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.server.cluster.queries import query
from tests.compat.test_cluster_tools import Load
from tests.support import topics
from tests.support.committed import commit
from tests.support.copying import only_soaked
from tests.support.eventually import eventually
from tests.support.idempotence import numbers_of
from tests.support.migrating import records_of

DUMP = "org.apache.kafka.tools.DumpLogSegments"
PROPERTIES = {
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
}
OURS, JAVAS = 1, 2
START_S = 180
TIMEOUT_S = 120
PARTITIONS = 4
COMPARED = ("moved", "atomic", "to-and-fro")
MOVES = 50

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="it has both brokers as it is"),
]


@pytest.fixture(
    scope="module",
    params=[ApacheKafka, Kafkapy, pytest.param(PreviousKafka, marks=only_soaked)],
    ids=["java-controller", "our-controller", "all-java-4.3.1"],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Apache Kafka's controller begins with all features at their highest levels; nothing is lowered."""
    javas = PreviousKafka if request.param is PreviousKafka else ApacheKafka
    plans = [Plan(request.param, 100, CONTROLLER), Plan(Kafkapy, OURS, BROKER), Plan(javas, JAVAS, BROKER)]
    nodes = Nodes(plans, tmp_path_factory.mktemp("mixed"), PROPERTIES, heap="256m")
    nodes.prepare()
    try:
        yield nodes.start(START_S)
    finally:
        nodes.stop(signal.SIGKILL)


def admin(node: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap})


def in_sync(node: Server, topic: str, *, by: set[int], leaders: set[int] | None = None) -> bool:
    """Whether a node tells that all partitions have that ISR, and are led by these (all of the ISR, if not given)."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    (response,) = query(("127.0.0.1", node.port), request, timeout_s=TIMEOUT_S).topics
    isrs = all(set(partition.isr_nodes) == by for partition in response.partitions)
    return bool(response.partitions) and isrs and {each.leader_id for each in response.partitions} == (leaders or by)


def create(node: Server, topic: str) -> None:
    """Create a topic once both brokers are unfenced."""
    topics.create(node.bootstrap, topic, partitions=PARTITIONS, replicas=2)


def produce(bootstrap: str, topic: str, values: list[str], **settings: Any) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **settings})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * len(values)


def consume(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
    commit(consumer)
    consumer.close()
    return sorted(values)


def test_topics_made_through_either_are_replicated_and_served_by_both(cluster: Nodes) -> None:
    for node, other in itertools.permutations(cluster.brokers):
        topic = f"through-{node.name.split()[0]}"
        create(node, topic)
        eventually(lambda node=node, topic=topic: in_sync(node, topic, by={OURS, JAVAS}))
        values = [f"{number:03}" for number in range(200)]
        produce(node.bootstrap, topic, values)
        for reader in (node, other):  # groups enough for coordinators on both
            for number in range(2):
                assert consume(reader.bootstrap, topic, f"{reader.port}-{number}", 200) == values


def test_changes_of_the_metadata_requested_of_either_are_seen_by_both(cluster: Nodes) -> None:
    create(cluster.brokers[0], "changed")
    for number, (node, other) in enumerate(itertools.permutations(cluster.brokers)):
        eventually(lambda node=node: in_sync(node, "changed", by={OURS, JAVAS}))
        client, seen = admin(node), admin(other)
        entry = ConfigEntry("retention.ms", str(1000 + number), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "changed", incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        count = PARTITIONS + 1 + number
        client.create_partitions([NewPartitions("changed", count)])["changed"].result(TIMEOUT_S)
        requested = ConfigResource(ConfigResource.Type.TOPIC, "changed")
        eventually(
            lambda seen=seen, requested=requested, number=number: (
                seen.describe_configs([requested])[requested].result(TIMEOUT_S)["retention.ms"].value
                == str(1000 + number)
            )
        )
        eventually(
            lambda seen=seen, count=count: (
                len(seen.list_topics("changed", timeout=TIMEOUT_S).topics["changed"].partitions) == count
            )
        )


def test_a_transaction_spans_partitions_of_both(cluster: Nodes) -> None:
    create(cluster.brokers[0], "atomic")
    eventually(lambda: in_sync(cluster.brokers[0], "atomic", by={OURS, JAVAS}))
    for number, node in enumerate(cluster.brokers):
        settings = {"bootstrap.servers": node.bootstrap, "transactional.id": f"id-{number}"}
        producer = Producer(settings)
        producer.init_transactions(TIMEOUT_S)
        for is_committed in (False, True):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce("atomic", f"{number}-{is_committed}-{partition}", partition=partition)
            if is_committed:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
    committed = sorted(f"{number}-True-{partition}" for number in (0, 1) for partition in range(PARTITIONS))
    for node in cluster.brokers:
        assert consume(node.bootstrap, "atomic", f"atomic-{node.port}", len(committed)) == committed


def lead_by(node: Server, topic: str, leader: int) -> None:
    """Have one of the two lead all partitions of a topic."""
    replicas = [leader, OURS + JAVAS - leader]
    moved = [ReassignablePartition(partition, replicas=replicas) for partition in range(PARTITIONS)]
    address = ("127.0.0.1", node.port)
    query(
        address,
        AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, partitions=moved)]),
        timeout_s=TIMEOUT_S,
    )
    election = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic, partitions=list(range(PARTITIONS)))])

    def is_led() -> bool:
        query(address, election, timeout_s=TIMEOUT_S)
        return in_sync(node, topic, by={OURS, JAVAS}, leaders={leader})

    eventually(is_led)


def test_leadership_goes_to_and_fro_while_records_are_written(cluster: Nodes) -> None:
    """Nothing that was acknowledged is lost, or out of order, or there twice of one producer epoch."""
    ours, javas = cluster.by_id[OURS], cluster.by_id[JAVAS]
    create(ours, "to-and-fro")
    with Load(cluster.bootstrap, "to-and-fro") as load:
        for number in range(MOVES):
            before = len(load.acknowledged)
            lead_by((ours, javas)[number % 2], "to-and-fro", (JAVAS, OURS)[number % 2])
            eventually(lambda before=before: len(load.acknowledged) > before)
    eventually(lambda: in_sync(ours, "to-and-fro", by={OURS, JAVAS}, leaders={OURS if MOVES % 2 == 0 else JAVAS}))
    records = records_of(cluster.bootstrap, "to-and-fro")
    assert sorted({value for values in records.values() for value in values}) == sorted(load.acknowledged)
    partitions = [f"to-and-fro-{partition}" for partition in range(PARTITIONS)]
    for node in (ours, javas):
        assert numbers_of([Path(node.directory)], partitions) == sorted(load.acknowledged)


def test_leaders_move_to_either_and_back_and_the_logs_are_the_same(
    cluster: Nodes, java_tool: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    ours, javas = cluster.by_id[OURS], cluster.by_id[JAVAS]
    create(ours, "moved")
    eventually(lambda: in_sync(ours, "moved", by={OURS, JAVAS}))
    values: list[str] = []
    for stopped, left, left_id in ((ours, javas, JAVAS), (javas, ours, OURS)):
        stopped.stop()
        eventually(lambda left=left, left_id=left_id: in_sync(left, "moved", by={left_id}, leaders={left_id}))
        added = [f"{left_id}-{number:03}" for number in range(100)]
        produce(left.bootstrap, "moved", added, **{"compression.type": "lz4"})
        values += added
        stopped.start()
        eventually(lambda left=left, left_id=left_id: in_sync(left, "moved", by={OURS, JAVAS}, leaders={left_id}))
    assert consume(cluster.bootstrap, "moved", "moved", len(values)) == sorted(values)
    cluster.stop()
    logs = [
        Path(node.directory, f"{topic}-{n}") for node in (ours, javas) for topic in COMPARED for n in range(PARTITIONS)
    ]
    for one, other in zip(logs[: len(logs) // 2], logs[len(logs) // 2 :], strict=True):
        assert _log(one) == _log(other)
        assert _log(one)
    assert_dumps_agree([str(path) for log in logs for path in sorted(log.glob("0*.*"))], java_tool, capsys)


def _log(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def assert_dumps_agree(files: list[str], java_tool: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    """Both readers print the same lines of segments, indexes and producer snapshots, and complain of none."""
    arguments = ["--deep-iteration", "--print-data-log", "--files", ",".join(files)]
    expected = java_tool(DUMP, *arguments).splitlines()
    capsys.readouterr()
    assert dump_log.main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == expected
    assert printed.err == ""
    assert sum(" payload: " in line for line in expected) > 2 * len(COMPARED) * PARTITIONS
