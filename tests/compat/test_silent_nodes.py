"""What is shown of partitions between the death of their leader and the next one, which a long session keeps away."""

import os

import pytest
from starlette.testclient import TestClient

from kafkapy import Cluster
from kafkapy.__main__ import main
from kafkapy.console.app import new_app
from kafkapy.console.settings import Settings
from tests.support import topics
from tests.support.eventually import eventually

pytestmark = [
    pytest.mark.ours,
    pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="kills its own nodes"),
]


def test_partitions_of_a_silent_leader_are_at_risk(tmp_path, capsys) -> None:
    properties = {"broker.session.timeout.ms": 120_000}
    with Cluster(3, data_dir=tmp_path, properties=properties) as cluster:
        topics.create(cluster.bootstrap_servers, "orders", replicas=3)
        leader = cluster.leader_of("orders")
        with TestClient(new_app(Settings(servers=cluster.bootstrap_servers)), base_url="http://127.0.0.1") as page:
            assert "does not answer" not in page.get("/").text
            cluster.kill(leader)  # it may have been the active controller, too: the others elect one first
            for path, text in (
                ("/", '<span class="badge bad">does not answer</span>'),
                ("/", "Partitions at risk are led by a broker that does not answer"),
                ("/brokers", '<span class="badge bad">1 at risk</span>'),
                ("/transactions", f"Those of broker {leader} are not shown: no broker answers at"),
            ):
                eventually(lambda path=path, text=text: text in page.get(path).text, what=f"{text} on {path}")
        assert main(["cluster", "status", "--data-dir", str(tmp_path)]) == 0
        assert "at risk, led by a node that does not answer: 1 (orders-0)" in capsys.readouterr().out
