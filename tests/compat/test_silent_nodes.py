"""What is shown of partitions between the death of their leader and the next one, which a long session keeps away."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager

import confluent_kafka as kafka
import pytest
from starlette.testclient import TestClient

from kafkapy import Cluster
from kafkapy.__main__ import main
from kafkapy.console.app import new_app
from kafkapy.console.brokers import Brokers
from kafkapy.console.other_groups import coordinator_of
from kafkapy.console.settings import Settings
from tests.support import topics
from tests.support.committed import commit
from tests.support.eventually import eventually

pytestmark = [
    pytest.mark.ours,
    pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="kills its own nodes"),
]

SOON_S = 5
"""Less than a time-out, and more than what a loaded machine adds to 2 s."""


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


def test_pages_do_not_wait_for_a_broker_that_hangs(tmp_path) -> None:
    """A stopped process accepts connections, and answers none: each request of a page would wait for 10 s."""
    properties = {"broker.session.timeout.ms": 120_000}
    with Cluster(3, data_dir=tmp_path, properties=properties) as cluster:
        topics.create(cluster.bootstrap_servers, "orders", replicas=3)
        hangs = cluster.controller  # what the others pass on to it waits for the next one
        servers = sorted(
            map(cluster.address_of, cluster.broker_ids), key=lambda each: each != cluster.address_of(hangs)
        )
        with TestClient(new_app(Settings(servers=",".join(servers))), base_url="http://127.0.0.1") as page:
            assert "does not answer" not in page.get("/").text
            cluster.pause(hangs)
            for path, text in (
                ("/", '<span class="badge bad">does not answer</span>'),
                ("/brokers", '<span class="badge bad">does not answer</span>'),
                ("/groups", f"No broker answers at {cluster.address_of(hangs)}"),
                ("/transactions", f"Those of broker {hangs} are not shown: no broker answers at"),
                ("/topics", "orders"),
            ):
                began_s = time.monotonic()
                shown = page.get(path)
                assert (shown.status_code, time.monotonic() - began_s < SOON_S) == (200, True), path
                assert text in shown.text, path
            cluster.resume(hangs)
            eventually(lambda: "does not answer" not in page.get("/").text)


@contextmanager
def console(servers: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "kafkapy", "console", "-b", servers, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_console_outlives_a_coordinator_that_hangs_and_goes_on(tmp_path) -> None:
    """librdkafka's requests to a coordinator end the process when the response to one that timed out comes at last."""
    with Cluster(3, data_dir=tmp_path, properties={"broker.session.timeout.ms": 120_000}) as cluster:
        topics.create(cluster.bootstrap_servers, "orders", replicas=3)
        consumer = kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"})
        commit(consumer, kafka.TopicPartition("orders", 0, 0))
        consumer.close()
        with (
            closing(Brokers(Settings(servers=cluster.bootstrap_servers))) as brokers,
            console(cluster.bootstrap_servers) as (process, url),
        ):
            assert status_of(f"{url}/group?name=readers") == 200
            hangs = coordinator_of(brokers, "readers")
            cluster.pause(hangs)
            assert {status_of(f"{url}/group?name=readers") for _ in range(3)} == {502}
            cluster.resume(hangs)
            eventually(lambda: status_of(f"{url}/group?name=readers") == 200)
            assert process.poll() is None
