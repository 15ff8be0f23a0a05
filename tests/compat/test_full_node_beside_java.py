"""Our node's disk fills beside two nodes of Apache Kafka, one of which is the active controller, or ours is.

Apache Kafka decides here what our requests lead to: AssignReplicasToDirs with DIRECTORY_LOST makes its controller elect
another leader, a Fetch with a broker epoch that no broker has ends its leaders' waiting for our replica, and the real
directory takes the replica back. `pytest -s` prints how long each writer and committer waited. Our node leaves the
quorum's leadership to one of Apache Kafka's once it cannot append; theirs would end itself.
"""

import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from harness.nodes import ThreeNodes
from harness.servers import ApacheKafka, Kafkapy
from tests.compat.test_full_node import GROUPS, PARTITIONS, TOPIC, Load, numbers_of
from tests.compat.test_full_node import PROPERTIES as OF_THREE
from tests.compat.test_replication import in_sync
from tests.support import topics
from tests.support.copying import only_soaked
from tests.support.eventually import eventually
from tests.support.java_tools import JavaTools
from tests.support.migrating import served_by
from tests.support.mounted_disks import MountedDisk
from tests.support.quorum_tool import QuorumTool
from tools.kafka import JAVA_LIBS

KINDS = (ApacheKafka, ApacheKafka, Kafkapy)
OURS = 3
PROPERTIES = {**OF_THREE, "replica.lag.time.max.ms": "60000", "broker.session.timeout.ms": "60000"}
"""Without what is tested here a writer waits a minute for the node."""
GIVEN_AWAY_S = 15
"""5 s are promised, on a quiet machine."""
CHANGED_S = 10
"""How long a change of the metadata may take while the active controller's disk is full."""
PAUSE_S = 4
"""Longer than a voter waits for a leader that says nothing (2 s)."""
START_S = 180

pytestmark = [
    pytest.mark.long,
    only_soaked,
    pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="it has both kinds as it is"),
    pytest.mark.skipif(not JAVA_LIBS.is_dir() or shutil.which("java") is None, reason="`make tools` brings the jars"),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[MountedDisk]:
    (tmp_path / "nodes").mkdir()
    try:
        disk = MountedDisk(tmp_path / "nodes" / f"Kafkapy-{OURS}", 64 << 20)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of the test's own is to be had here: {error}")
    yield disk
    disk.close()


@pytest.fixture
def cluster(disk: MountedDisk, tmp_path: Path) -> Iterator[ThreeNodes]:
    """Three voters; Apache Kafka's have elected one of them before ours starts."""
    nodes = ThreeNodes(KINDS, tmp_path / "nodes", PROPERTIES, heap="256m")
    for node in nodes.nodes:
        assert isinstance(node, ApacheKafka | Kafkapy)
        node.format_arguments = served_by(KINDS)
        node.prepare()
    theirs = [node for node_id, node in nodes.by_id.items() if node_id != OURS]
    try:
        for node in theirs:
            node.launch()
        for node in theirs:
            node.wait_until_ready(START_S)
        nodes.by_id[OURS].start(START_S)
        yield nodes
    finally:
        nodes.stop(signal.SIGKILL)


def test_writes_and_commits_go_on_under_a_controller_of_apache_kafka(
    cluster: ThreeNodes, disk: MountedDisk, tools: JavaTools
) -> None:
    bootstrap = cluster.bootstrap
    client = AdminClient({"bootstrap.servers": bootstrap})
    quorum = QuorumTool(tools, bootstrap)
    topics.create(bootstrap, TOPIC, partitions=PARTITIONS, replicas=3, config={"min.insync.replicas": "2"})
    eventually(lambda: in_sync(client, TOPIC) == {3})
    with Load(bootstrap) as load:
        load.all_go_on()
        for _ in range(2):
            assert quorum.leader() not in (-1, OURS)
            eventually(lambda: OURS in leaders_of(client), what="our node leads some of them")
            load.longest_s = [0.0] * len(load.longest_s)
            disk.fill()
            eventually(lambda: in_sync(client, TOPIC) == {2}, GIVEN_AWAY_S, what="our node leaves the ISRs")
            assert OURS not in leaders_of(client)
            load.all_go_on()
            waits = ", ".join(f"{each:.1f}" for each in load.longest_s)
            print(f"\nlongest waits in s, {PARTITIONS} writers and {GROUPS} committers: {waits}")
            assert max(load.longest_s) < GIVEN_AWAY_S
            disk.repair()
            eventually(lambda: in_sync(client, TOPIC) == {3}, what="our node is in sync again")
            load.all_go_on()
    for partition, numbers in enumerate(load.acknowledged):
        assert numbers_of(bootstrap, partition, len(numbers)) == numbers


def test_metadata_changes_go_on_when_our_active_controller_is_full(
    cluster: ThreeNodes, disk: MountedDisk, tools: JavaTools
) -> None:
    bootstrap = cluster.bootstrap
    client, quorum = AdminClient({"bootstrap.servers": bootstrap}), QuorumTool(tools, bootstrap)
    topics.create(bootstrap, TOPIC, partitions=PARTITIONS, replicas=3, config={"min.insync.replicas": "2"})
    eventually(lambda: in_sync(client, TOPIC) == {3})
    with Load(bootstrap) as load:
        for _ in range(2):
            let_ours_lead(cluster, quorum)
            load.all_go_on()
            load.longest_s = [0.0] * len(load.longest_s)
            with disk.kept_full():  # and stays full when our node gives up its reserve for the metadata
                changes = change_metadata(bootstrap, quorum)
                eventually(lambda: in_sync(client, TOPIC) == {2}, GIVEN_AWAY_S, what="our node leaves the ISRs")
                load.all_go_on()
                waits = ", ".join(f"{each:.1f}" for each in (max(changes), *load.longest_s))
                print(f"\nlongest waits in s, changes, {PARTITIONS} writers and {GROUPS} committers: {waits}")
                assert max(changes) < CHANGED_S
                assert max(load.longest_s) < GIVEN_AWAY_S
            eventually(lambda: in_sync(client, TOPIC) == {3}, what="our node is in sync again")
            load.all_go_on()
    for partition, numbers in enumerate(load.acknowledged):
        assert numbers_of(bootstrap, partition, len(numbers)) == numbers


def let_ours_lead(cluster: ThreeNodes, quorum: QuorumTool) -> None:
    """Pause the leader of the quorum until our node is elected: one of both others is each time."""

    def leads() -> bool:
        leader = quorum.leader()
        if leader not in (-1, OURS):
            process = cluster.by_id[leader].process
            assert process is not None
            process.send_signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            process.send_signal(signal.SIGCONT)
        return leader == OURS

    eventually(leads, 300, what="our node leads the quorum")


NAMES = itertools.count()


def change_metadata(bootstrap: str, quorum: QuorumTool) -> list[float]:
    """Create topics until another node leads the quorum, and one then; return how long each took, in s.

    The blocks of its log may have room for some records.
    """
    took: list[float] = []
    has_moved = False
    while not has_moved:
        has_moved = quorum.leader() not in (-1, OURS)
        began = time.monotonic()
        topics.create(bootstrap, f"more-{next(NAMES)}", partitions=20, replicas=2)
        took.append(time.monotonic() - began)
        assert len(took) < 100, "our node goes on leading, and has room"
    return took


def leaders_of(client: AdminClient) -> set[int]:
    found = client.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
    return {partition.leader for partition in found}
