"""`kafkapy cluster add --controller` and `remove`: a quorum of one grows to three and shrinks, by its commands."""

import json
from pathlib import Path

import pytest

from kafkapy import Cluster
from kafkapy.__main__ import main
from kafkapy.server.cluster import queries
from tests.support.eventually import eventually

SETTINGS = ("--set", "broker.session.timeout.ms=2000", "--set", "broker.heartbeat.interval.ms=300")


def test_controllers_join_lead_and_leave(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "cluster"

    def run(*arguments: str) -> str:
        assert main(["cluster", *arguments, "--data-dir", str(directory)]) in (0, None), capfd.readouterr().err
        return capfd.readouterr().out.strip()

    def quorum() -> dict[str, object]:
        found: dict[str, object] = json.loads(run("status", "--json"))["quorum"] or {}
        return found

    run("up", "-n", "1", "--controllers", "1", "--port", "0", *SETTINGS)
    try:
        for node_id in (102, 103):
            assert run("add", "--controller").startswith(f"Added node {node_id} on 127.0.0.1:")
        eventually(lambda: quorum().get("voters") == [101, 102, 103])
        run("kill", "101")
        eventually(lambda: quorum().get("leader_id") in (102, 103))
        run("remove", "101")
        eventually(lambda: quorum().get("voters") == [102, 103])
        servers = [path.read_text() for path in directory.glob("node-*.properties")]
        assert len(servers) == 3
        assert len({line for text in servers for line in text.splitlines() if "bootstrap.servers" in line}) == 1
        run("remove", "102")
        run("stop", "1")
        run("start", "1")  # it finds the one that is left by its server.properties
        eventually(lambda: quorum().get("voters") == [103])
        assert main(["cluster", "remove", "103", "--data-dir", str(directory)]) == 1
        assert "node 103 is the only controller" in capfd.readouterr().err
    finally:
        run("down", "--delete-data")


def test_a_controller_joins_nodes_of_one_process() -> None:
    with Cluster(1, in_process=True) as cluster:
        added = cluster.add_controller()
        host, port = cluster.address_of(cluster.broker_ids[0]).split(":")
        found = queries.quorum(queries.asking((host, int(port))))
        assert found is not None
        assert sorted(found.voters) == [1, added]
