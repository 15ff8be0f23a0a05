"""`kafkapy cluster` by --bootstrap-server and --bootstrap-controller: of kafkapy's nodes, and of Apache Kafka's."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from harness.servers import QUICK_JVM, ApacheKafka, Kafkapy, Server, free_port
from kafkapy.__main__ import main
from tests.support import topics
from tests.support.eventually import eventually

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="it has both kinds as it is"),
]
Kind = type[Kafkapy] | type[ApacheKafka]
RATE_KEYS = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}
START_S = 180
TIMEOUT_S = 120


class Cluster:
    """Three nodes, each broker and controller, of which the first forms a quorum; and the commands that ask them."""

    def __init__(self, kind: Kind, directory: Path) -> None:
        ports = [free_port() for _ in range(3)]
        self.nodes = {node_id: node(kind, directory, node_id, ports) for node_id in (1, 2, 3)}
        self.controllers = [f"127.0.0.1:{port}" for port in ports]

    def run(self, capfd: pytest.CaptureFixture[str], *arguments: str, of_controllers: bool = False) -> tuple[int, str]:
        """Return the exit status and what was printed, on stdout if it is 0, else on stderr."""
        asked = self.controllers[0] if of_controllers else self.nodes[1].bootstrap
        where = ["--bootstrap-controller" if of_controllers else "--bootstrap-server", asked]
        status = main(["cluster", *arguments, *where])
        reported = capfd.readouterr()
        return status, reported.err if status else reported.out


def node(kind: Kind, directory: Path, node_id: int, controller_ports: list[int]) -> Server:
    server = kind(directory / f"node-{node_id}")
    server.properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{server.port},CONTROLLER://127.0.0.1:{controller_ports[node_id - 1]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in controller_ports),
        "offsets.topic.replication.factor": "1",
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "300",
    }
    if isinstance(server, ApacheKafka):
        server.properties["controller.quorum.voters"] = ""
        server.heap, server.jvm_options = "256m", QUICK_JVM
    server.format_arguments = ("--standalone",) if node_id == 1 else ("--no-initial-controllers",)
    return server


@pytest.fixture(params=[Kafkapy, ApacheKafka], ids=["kafkapy", "apache"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param is ApacheKafka and shutil.which("java") is None:
        pytest.skip("Java 17 is missing")
    made = Cluster(request.param, tmp_path)
    try:
        for each in made.nodes.values():
            each.prepare()
            each.launch()
        for each in made.nodes.values():
            each.wait_until_ready(START_S)
        yield made
    finally:
        for each in made.nodes.values():
            each.stop(signal.SIGKILL)


def replicas_of(bootstrap: str, topic: str) -> list[list[int]]:
    partitions = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    return [partitions.partitions[number].replicas for number in sorted(partitions.partitions)]


def test_a_cluster_grows_moves_and_shrinks(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str, of_controllers: bool = False) -> str:
        status, printed = cluster.run(capfd, *arguments, of_controllers=of_controllers)
        assert status == 0, printed
        return printed

    def refused(*arguments: str) -> str:
        status, printed = cluster.run(capfd, *arguments)
        assert status == 1, printed
        return printed

    def status_of(*, of_controllers: bool = False) -> Any:
        return json.loads(run("status", "--json", of_controllers=of_controllers))

    def grown() -> bool:
        seen = {each["node_id"]: each["state"] for each in status_of()["nodes"]}
        return seen == {1: "running, active controller", 2: "running", 3: "running"}

    eventually(grown, TIMEOUT_S)
    assert status_of()["quorum"]["voters"] == [1]
    shown = run("status")
    assert "quorum: node 1 leads at epoch" in shown
    assert "  voter 1: directory " in shown

    # voters
    run("voters", "add", "2", of_controllers=True)
    assert "where do the others reach node 3?" in refused("voters", "add", "3")
    run("voters", "add", "3", "--address", cluster.controllers[2])
    assert "node 3 is a voter, and follows with no other directory" in refused("voters", "add", "3")
    assert "node 9 does not follow the quorum" in refused("voters", "add", "9")
    quorum = status_of(of_controllers=True)["quorum"]
    assert sorted(quorum["voters"]) == [1, 2, 3]
    assert len({each["directory_id"] for each in quorum["replicas"]}) == 3

    # partitions
    topics.create(cluster.nodes[1].bootstrap, "moved", partitions=2, replica_assignment=[[1], [1]])
    moved = ("move", "moved")
    assert run(*moved, "--replication-factor", "2").splitlines()[-1] == "2 of 2 partitions are there"
    assert [sorted(each) for each in replicas_of(cluster.nodes[1].bootstrap, "moved")] == [[1, 2], [1, 3]]
    run(*moved, "--to", "2,3", "--throttle", "10000000")
    eventually(lambda: replicas_of(cluster.nodes[1].bootstrap, "moved") == [[2, 3], [3, 2]], TIMEOUT_S)
    eventually(lambda: json.loads(run("throttle", "--json")) == [], TIMEOUT_S)
    eventually(lambda: status_of()["partitions"]["leaders"]["moved"] == {"0": 2, "1": 3}, TIMEOUT_S)
    assert run(*moved, "--cancel") == "Cancelled the move of 0 partitions.\n"
    assert "name as many brokers at least" in refused(*moved, "--to", "3")
    assert "topic moved has no partition 7" in refused(*moved, "--to", "3", "--partitions", "7")
    assert run("elect") == run("elect", "moved", "--partitions", "0") == "Elected leaders of 0 partitions.\n"
    assert run("throttle", "5000") == "Limited 0 moving partitions to 5000 bytes a second.\n"
    limits = eventually(lambda: json.loads(run("throttle", "--json")), TIMEOUT_S)
    assert {each["key"]: each["value"] for each in limits} == dict.fromkeys(RATE_KEYS, "5000")
    run("throttle", "--off")
    eventually(lambda: json.loads(run("throttle", "--json")) == [], TIMEOUT_S)

    # a node that does not come back
    cluster.nodes[3].stop(signal.SIGKILL)
    eventually(lambda: "; under-replicated: 2 (moved-0, moved-1)" in run("status"), TIMEOUT_S)
    assert status_of()["at_min_isr"] == ["moved-0", "moved-1"]
    assert "has replicas of 2 partitions: `kafkapy cluster move` moves them first" in refused("unregister", "3")
    run(*moved, "--to", "2,1")
    run("voters", "remove", "3", of_controllers=True)
    assert "node 3 is no voter: " in refused("voters", "remove", "3")
    assert "broker 2 is running: stop it first" in refused("unregister", "2")
    run("unregister", "3")
    eventually(lambda: [each["node_id"] for each in status_of()["nodes"]] == [1, 2], TIMEOUT_S)
