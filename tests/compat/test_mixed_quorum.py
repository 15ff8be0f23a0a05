"""A quorum whose voters are kafkapy's and Apache Kafka's: elections, snapshots, voters added and removed by either.

Each judges the other's Raft messages, and both have to come to the same metadata log, byte by byte.
"""

import os
import re
import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from harness.nodes import CONTROLLER, Kind, Nodes, Plan
from harness.servers import QUICK_JVM, ApacheKafka, Kafkapy, PreviousKafka, Server, free_port
from kafkapy.record.batches import batches
from tests.support import topics
from tests.support.copying import only_soaked
from tests.support.eventually import eventually
from tests.support.java_tools import JavaTools
from tests.support.migrating import served_by
from tests.support.quorum_tool import QuorumTool
from tools.kafka import JAVA_LIBS

PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "3",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}
AUTO_JOIN = {"controller.quorum.auto.join.enable": "true"}
METADATA = "__cluster_metadata-0"
START_S = 180

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="it has both kinds as it is"),
    pytest.mark.skipif(not JAVA_LIBS.is_dir() or shutil.which("java") is None, reason="`make tools` brings the jars"),
]


class Voters:
    """Three nodes of two kinds, the first of which forms the quorum. A controller's port goes with its id."""

    def __init__(self, directory: Path, tools: JavaTools) -> None:
        self._directory = directory
        self._tools = tools
        self._ports = {node_id: free_port() for node_id in (1, 2, 3)}
        self.nodes: dict[int, Server] = {}
        self.quorum = QuorumTool(tools, "")

    def __enter__(self) -> "Voters":
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.stop(signal.SIGKILL)

    def start(self, kind: Kind, node_id: int, properties: Mapping[str, str], *format_arguments: str) -> None:
        """Start a node in a directory that is new."""
        node: ApacheKafka | Kafkapy = kind(self._directory / f"{kind.__name__}-{node_id}")
        shutil.rmtree(node.directory, ignore_errors=True)
        listeners = f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{self._ports[node_id]}"
        addresses = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        own = {"node.id": str(node_id), "listeners": listeners, "controller.quorum.bootstrap.servers": addresses}
        node.properties = {**PROPERTIES, **own, **properties}
        node.format_arguments = format_arguments
        if isinstance(node, ApacheKafka):
            node.properties["controller.quorum.voters"] = ""
            node.heap, node.jvm_options = "256m", QUICK_JVM
            node.write_properties()
            formatted = self._tools.run("kafka-storage", *node.format_command())
            assert formatted.status == 0, formatted.text
        self.nodes[node_id] = node
        node.prepare()
        node.start(START_S)
        self._describe_on_running()

    def stop(self, node_id: int, with_signal: int = signal.SIGTERM) -> None:
        self.nodes[node_id].stop(with_signal)
        self._describe_on_running()

    def start_again(self, node_id: int) -> None:
        """Start a node on its directory; return once the leader tells that it follows."""
        self.nodes[node_id].start(START_S)
        self._describe_on_running()
        eventually(lambda: self.quorum.replicas().get(node_id, ("", ""))[1] == "Follower")

    def _describe_on_running(self) -> None:
        self.quorum.bootstrap = ",".join(node.bootstrap for node in self.nodes.values() if node.process is not None)

    def create(self, topic: str) -> None:
        """Have the active controller write to the log."""
        topics.create(self.quorum.bootstrap, topic)

    def change_leader(self, with_signal: int = signal.SIGTERM) -> None:
        """End the leader, see that another one writes, and let the former leader follow."""
        former = eventually(lambda: max(self.quorum.leader(), 0))
        self.stop(former, with_signal)
        eventually(lambda: self.quorum.leader() not in (-1, former))
        self.create(f"without-{former}")
        self.start_again(former)


@pytest.mark.parametrize(
    ("first", "joining"),
    [
        pytest.param(ApacheKafka, Kafkapy, id="ours-join-java"),
        pytest.param(Kafkapy, ApacheKafka, id="java-joins-ours", marks=only_soaked),
        # in CI test_streams_groups_across_nodes.py has a quorum of all three
        pytest.param(PreviousKafka, Kafkapy, id="ours-join-java-4.3.1", marks=only_soaked),
        pytest.param(Kafkapy, PreviousKafka, id="java-4.3.1-joins-ours", marks=only_soaked),
    ],
)
def test_voters_of_one_kind_join_the_other_lead_it_and_remove_it(
    tmp_path: Path, tools: JavaTools, first: Kind, joining: Kind
) -> None:
    with Voters(tmp_path, tools) as voters:
        quorum = voters.quorum
        voters.start(first, 1, {}, "--standalone", *served_by((first, joining)))
        voters.start(joining, 2, {}, "--no-initial-controllers")
        eventually(lambda: sorted(quorum.replicas()) == [1, 2])
        eventually(lambda: re.search(r"Added controller|DuplicateVoter", quorum.add(voters.nodes[2])))
        voters.start(joining, 3, AUTO_JOIN, "--no-initial-controllers")
        eventually(lambda: quorum.voters() == [1, 2, 3])
        voters.create("made-by-first")

        former_directory = eventually(lambda: quorum.directory_of(1))
        voters.stop(1, signal.SIGKILL)
        voters.create("made-by-joined")
        voters.start(first, 1, AUTO_JOIN, "--no-initial-controllers")
        eventually(lambda: quorum.voters() == [1, 2, 3] and quorum.directory_of(1) not in ("", former_directory))
        check_first_snapshot(voters.nodes[1], [voters.nodes[2], voters.nodes[3]])

        voters.change_leader()
        # node 2 alone does not join again by itself; where it leads, it steps down
        eventually(lambda: re.search(r"Removed +KRaft controller|VoterNotFound", quorum.remove(2)))
        eventually(lambda: quorum.voters() == [1, 3])
        voters.create("of-two")
        end_offset = end_of_replicas(quorum, voters.nodes, without=former_directory)
    check_same_log([node.directory for node in voters.nodes.values()], end_offset)


def check_first_snapshot(node: Server, others: Sequence[Server]) -> None:
    """Check that a node began with a snapshot that another one had made."""
    made = sorted((node.directory / METADATA).glob("*-*.checkpoint"))
    snapshots = [path for path in made if not path.name.startswith("00000000000000000000-")]
    assert snapshots, made
    copies = [node.directory / METADATA / snapshots[0].name for node in others]
    assert snapshots[0].read_bytes() in [path.read_bytes() for path in copies if path.exists()]


def end_of_replicas(quorum: QuorumTool, node_ids: Iterable[int], without: str = "") -> int:
    """Return an offset up to which all of these have the log, voters or not. `without`: a directory that is gone.

    A new leader does not know how far the others are, nor of an observer, before they have fetched from it.
    """

    def ends() -> dict[int, int] | None:
        told = quorum.run("describe", "--replication")
        rows = re.findall(r"^(\d+)\s+(\S{22})\s+(\d+)\s", told, re.MULTILINE)
        found = {int(node_id): int(end) for node_id, directory, end in rows if directory != without}
        return found if found.keys() >= set(node_ids) else None

    return min(eventually(ends).values())


def check_same_log(directories: Sequence[Path], end_offset: int) -> None:
    """Check that the metadata logs are the same up to an offset, as far as they still have their beginnings."""
    logs = [log_batches(directory, end_offset) for directory in directories]
    for one, other in pairwise(logs):
        common = one.keys() & other.keys()
        assert common
        assert max(one) == max(other)
        assert [one[offset] for offset in sorted(common)] == [other[offset] for offset in sorted(common)]


def log_batches(directory: Path, end_offset: int) -> dict[int, bytes]:
    """Return the batches below an offset by their base offsets."""
    found: dict[int, bytes] = {}
    for path in sorted((directory / METADATA).glob("*.log")):
        data = path.read_bytes()
        for batch in batches(data):
            if batch.last_offset < end_offset:
                found[batch.base_offset] = data[batch.position : batch.position + batch.size_bytes]
    return found


@only_soaked
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param([ApacheKafka, Kafkapy, Kafkapy], id="one-java"),
        pytest.param([ApacheKafka, ApacheKafka, Kafkapy], id="two-java"),
        pytest.param([PreviousKafka, ApacheKafka, Kafkapy], id="two-java-one-4.3.1"),
    ],
)
def test_each_of_controllers_alone_leads_in_turn(tmp_path: Path, tools: JavaTools, kinds: list[Kind]) -> None:
    """With controller.quorum.voters and a broker of each kind: the leader is killed until each voter has led."""
    plans = [Plan(kind, 100 + number, CONTROLLER) for number, kind in enumerate(kinds, start=1)]
    plans += [Plan(kinds[0], 1, "broker"), Plan(Kafkapy, 2, "broker")]
    nodes = Nodes(plans, tmp_path, PROPERTIES, heap="256m")
    for node in nodes.by_id.values():
        assert isinstance(node, ApacheKafka | Kafkapy)
        node.format_arguments = served_by(kinds)
    nodes.prepare()
    with nodes:
        quorum = QuorumTool(tools, nodes.bootstrap)
        have_led: set[int] = set()
        for number in range(20):
            leader = eventually(lambda: max(quorum.leader(), 0))
            have_led.add(leader)
            nodes.by_id[leader].stop(signal.SIGKILL)
            topics.create(nodes.bootstrap, f"topic-{number}")
            nodes.by_id[leader].start(START_S)
            eventually(lambda leader=leader: quorum.replicas().get(leader, ("", ""))[1] == "Follower")
            if have_led == {101, 102, 103}:
                break
        assert have_led == {101, 102, 103}
        end_offset = end_of_replicas(quorum, nodes.by_id)
    check_same_log([node.directory for node in nodes.nodes], end_offset)
