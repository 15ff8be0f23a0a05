"""`kafkapy.Cluster` and `kafkapy cluster`: nodes on this machine that are killed, paused, added."""

import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kafkapy import Cluster
from kafkapy.__main__ import main
from kafkapy.errors import ConfigError
from kafkapy.server.cluster.local import LocalCluster
from kafkapy.server.cluster.plan import ClusterError
from tests.support import topics
from tests.support.replicated_topics import TIMEOUT_S, create, produce

pytestmark = pytest.mark.long

PROPERTIES = {"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 300}
SETTINGS = [part for key, value in PROPERTIES.items() for part in ("--set", f"{key}={value}")]
BAD = {"num.io.threads": 0}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, properties=PROPERTIES) as running:
        yield running


def test_another_broker_leads_when_the_leader_is_killed(cluster: Cluster) -> None:
    create(cluster, "killed")
    assert produce(cluster.bootstrap_servers, "killed") is None
    leader = cluster.leader_of("killed")
    cluster.kill(leader)
    assert cluster.leader_of("killed") != leader
    assert produce(cluster.bootstrap_servers, "killed") is None
    cluster.start(leader)
    eventually(lambda: not cluster.partitions().offline)


def test_another_controller_is_active_while_one_is_paused(cluster: Cluster) -> None:
    paused = cluster.controller
    cluster.pause(paused)
    assert cluster.controller != paused
    cluster.resume(paused)
    assert cluster.controller in cluster.controller_ids


def test_a_broker_that_is_added_takes_replicas(cluster: Cluster) -> None:
    added = cluster.add()
    create(cluster, "on-four", replicas=4)
    assert produce(cluster.bootstrap_servers, "on-four") is None
    eventually(lambda: cluster.partitions().replica_counts.get(added) == 1)


def test_a_configuration_that_cannot_work_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"num\.io\.threads"), Cluster(1, data_dir=tmp_path / "none", properties=BAD):
        pass
    assert not (tmp_path / "none").exists()


def test_commands_make_look_at_grow_and_end_a_cluster(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "cluster"

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["cluster", *arguments, "--data-dir", str(directory)])
        reported = capfd.readouterr()
        return status, reported.out.strip(), reported.err.strip()

    status, bootstrap, _ = run("up", "-n", "1", "--controllers", "1", "--port", "0", *SETTINGS)
    try:
        assert status == 0
        assert bootstrap.startswith("127.0.0.1:")
        assert run("add")[0] == 0
        assert run("kill", "1")[0] == 0
        shown = json.loads(run("status", "--json")[1])
        states = {node["node_id"]: node["state"] for node in shown["nodes"]}
        assert states == {1: "stopped", 2: "running", 101: "running, active controller"}
        host, port = bootstrap.split(":")
        with socket.create_server((host, int(port))):
            assert "kafkapy: node 1 has ended: cannot listen on" in run("start", "1")[2]
        assert run("start", "2")[2] == "kafkapy: node 2 runs already"
        waits = "kafkapy: waiting until node 1 answers and its broker is unfenced"
        assert run("start", "1") == (0, "Started node 1.", waits)
        assert run("up")[0] == 0
        assert "running" in run("status")[1]
        assert "kafkapy ready on" in run("logs", "1")[1]
        assert run("remove", "2")[0] == 0
        assert "node 101 is the only controller" in run("remove", "101")[2]
        assert "--data-dir makes another cluster" in run("up", "-n", "5")[2]
    finally:
        assert run("down", "--delete-data")[0] == 0
    assert not directory.exists()


def test_topics_of_a_cluster_of_three_survive_the_loss_of_a_node(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["--data-dir", str(tmp_path / "cluster")]
    assert main(["cluster", "up", "-n", "3", "--port", "0", *where]) == 0
    try:
        servers = capfd.readouterr().out.strip()
        assert main(["topics", "create", "orders", "-b", servers]) == 0
        capfd.readouterr()
        assert main(["topics", "describe", "orders", "--json", "-b", servers]) == 0
        (described,) = json.loads(capfd.readouterr().out)
        assert [len(each["replicas"]) for each in described["partitions"]] == [3]
        assert main(["configs", "describe", "--topic", "orders", "--all", "--json", "-b", servers]) == 0
        configs = json.loads(capfd.readouterr().out)
        assert "2" in [each["value"] for each in configs if each["name"] == "min.insync.replicas"]
        assert main(["cluster", "kill", "3", *where]) == 0
        assert produce(servers, "orders") is None
    finally:
        assert main(["cluster", "down", "--delete-data", *where]) == 0


def test_nodes_of_one_process_are_cut_off_and_come_back(tmp_path: Path) -> None:
    with Cluster(3, in_process=True, properties=PROPERTIES, data_dir=tmp_path) as cluster:
        create(cluster, "cut")
        assert produce(cluster.bootstrap_servers, "cut") is None
        alone = cluster.controller
        others = [node_id for node_id in cluster.broker_ids if node_id != alone]
        cluster.partition({alone}, others)
        eventually(lambda: cluster.controller != alone)
        reachable = ",".join(cluster.address_of(node_id) for node_id in others)
        eventually(lambda: leader_named_by(reachable, "cut") in others)
        cluster.heal()
        eventually(lambda: not cluster.partitions().under_replicated)
        assert produce(cluster.bootstrap_servers, "cut") is None
        with pytest.raises(ClusterError, match="cannot be killed"):
            cluster.kill(alone)
        cluster.stop(alone)
        assert cluster.leader_of("cut") != alone
        cluster.start(alone)
    with Cluster(3, in_process=True, properties=PROPERTIES, data_dir=tmp_path) as cluster:
        assert cluster.leader_of("cut") in cluster.broker_ids


def eventually(check: Callable[[], Any]) -> Any:
    """Return what `check` returns once that is true."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := check()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.1)
    return found


def leader_named_by(bootstrap: str, topic: str) -> int:
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=TIMEOUT_S)
    partition = metadata.topics[topic].partitions.get(0)  # None: it has not heard of the topic yet
    return -1 if partition is None else int(partition.leader)


def test_a_topic_moves_to_other_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data-dir", str(tmp_path / "cluster")]
    assert main(["cluster", "up", "-n", "3", "--port", "0", *where, *SETTINGS]) in (0, None)
    try:
        bootstrap = capsys.readouterr().out.split()[-1]
        topics.create(bootstrap, "moved", partitions=4, replica_assignment=[[1, 2]] * 4)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        cluster = LocalCluster.load(tmp_path / "cluster")
        cluster.kill(3)
        unfinished = cluster.move("moved", [3, 1])
        assert next(unfinished) == (0, 4)
        unfinished.close()
        assert main(["cluster", "move", "moved", "--to", "1,2", *where]) in (0, None)
        cluster.start(3)

        assert main(["cluster", "move", "moved", "--to", "2,3", *where]) in (0, None)
        lines = capsys.readouterr().out.splitlines()
        refused = main(["cluster", "move", "moved", "--to", "3", *where])

        assert lines[-1] == "4 of 4 partitions are there"
        assert refused == 1
        assert "name as many brokers at least" in capsys.readouterr().err
        partitions = admin.list_topics("moved", timeout=TIMEOUT_S).topics["moved"].partitions
        assert [partitions[number].replicas for number in range(4)] == [[2, 3], [3, 2], [2, 3], [3, 2]]
    finally:
        main(["cluster", "down", *where])


def test_combined_nodes_do_not_wait_for_a_quorum_that_is_gone(tmp_path: Path) -> None:
    """All three stop at once: the last one's controlled shutdown has nobody to ask. All stops are clean."""
    cluster = LocalCluster.create(tmp_path / "cluster", broker_count=3)
    cluster.up()
    started = time.monotonic()

    cluster.down()

    logs = [process.log_file.read_text() for process in cluster.processes.values()]
    assert sum("Controlled shutdown was not finished in" in log for log in logs) == 0, time.monotonic() - started
    assert not any("Traceback" in log for log in logs), logs
    for process in cluster.processes.values():
        assert (Path(process.log_dir) / ".kafka_cleanshutdown").exists()


def test_a_node_that_has_lost_its_directory_is_no_voter_until_it_is_added(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "cluster"

    def run(*arguments: str) -> str:
        assert main(["cluster", *arguments, "--data-dir", str(data_dir)]) == 0
        return capfd.readouterr().out

    run("up", "-n", "3", "--port", "0", *SETTINGS)
    try:
        cluster = LocalCluster.load(data_dir)
        lost = cluster.processes[3]
        run("kill", "3")
        shutil.rmtree(lost.log_dir)
        formatted = ["storage", "format", "-c", str(lost.properties_file), "-t", cluster.plan.cluster_id, "-N"]
        assert main(formatted) == 0
        run("start", "3")
        eventually(lambda: "`kafkapy cluster voters add 3` makes it one" in run("status"))
        assert "Node 3 is a controller and no voter" in lost.log_file.read_text()
        run("voters", "add", "3")
        eventually(lambda: run("status").count("voter 3: directory ") == 1 and "no voter" not in run("status"))
        (voter,) = (each for each in json.loads(run("status", "--json"))["quorum"]["replicas"] if each["node_id"] == 3)
        assert f"directory.id={voter['directory_id']}" in (lost.log_dir / "meta.properties").read_text()
    finally:
        run("down")


def test_nodes_are_restarted_one_by_one_while_producers_go_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No acknowledged record is lost, no delivery fails; each node is another process, the active one came last."""
    directory = tmp_path / "cluster"
    with Cluster(3, data_dir=directory, properties=PROPERTIES) as running:
        create(running, "rolled")
        local = LocalCluster.load(directory)
        before = {node_id: process.pid for node_id, process in local.processes.items()}
        active = running.controller
        producing = ProducingThread(running.bootstrap_servers, "rolled")
        try:
            assert main(["cluster", "restart", "--data-dir", str(directory)]) == 0
        finally:
            acknowledged = producing.stop()
        shown = capfd.readouterr()
        assert shown.out == "Restarted nodes 1, 2, 3.\n"
        stops = [line.split()[-2] for line in shown.err.splitlines() if line.endswith(" stops")]
        assert (sorted(stops), stops[-1]) == (["1", "2", "3"], str(active))
        assert all(process.pid not in (None, before[node_id]) for node_id, process in local.processes.items())
        assert acknowledged > 0
        assert main(["topics", "list", "rolled", "--json", "-b", running.bootstrap_servers]) == 0
        (row,) = json.loads(capfd.readouterr().out)
        assert row["records"] >= acknowledged


class ProducingThread(threading.Thread):
    """Produces with acks=all until it is stopped; counts what was acknowledged."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
        self._topic = topic
        self._stopped = threading.Event()
        self._count = 0
        self.start()

    def run(self) -> None:
        while not self._stopped.wait(0.02):
            self._producer.produce(self._topic, b"value", on_delivery=self._delivered)
            self._producer.poll(0)
        self._producer.flush(TIMEOUT_S)

    def stop(self) -> int:
        self._stopped.set()
        self.join()
        return self._count

    def _delivered(self, error: object, _: object) -> None:
        assert error is None, error
        self._count += 1
