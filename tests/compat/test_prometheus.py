"""Prometheus scrapes a broker: no fault is found in /metrics, and every expression of board and alerts has a result."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness.servers import Kafkapy, free_port
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from tests.support.client_requests import batch_of, fetch, produce
from tests.support.committed import commit
from tests.support.scraped import text_of
from tests.support.wire import WireClient

DOCKER = Path(__file__).parents[2] / "docker"
TIMEOUT_S = 240
KAFKAS_OWN = ("camelCase", 'should not have "', "abbreviated units", "use base unit", "metric type")

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus (Debian: prometheus)"),
]


@pytest.fixture(scope="module")
def admin_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The admin listener of a broker that has served a group, reads, and errors."""
    port = free_port()
    properties = {"kafkapy.admin.listener": f"127.0.0.1:{port}", "group.initial.rebalance.delay.ms": "0"}
    with Kafkapy(tmp_path_factory.mktemp("broker") / "data", properties) as broker:
        use(broker.bootstrap)
        with WireClient(broker.bootstrap) as client:  # a connection to be told of
            client.call(MetadataRequest(topics=None), 13)
            yield port


def use(bootstrap: str) -> None:
    servers = {"bootstrap.servers": bootstrap}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("t", 1)])["t"].result(60)
    producer = Producer(servers)
    producer.produce("t", b"value")
    assert producer.flush(60) == 0
    consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    message = None
    until = time.monotonic() + TIMEOUT_S
    while message is None or message.error():
        assert time.monotonic() < until
        message = consumer.poll(1)
    commit(consumer)
    consumer.close()
    with WireClient(bootstrap) as client:
        client.call(MetadataRequest(topics=None), 13)
        assert produce(client, "nowhere", batch_of()).error_code == 3
        assert fetch(client, "t").error_code == 0


@pytest.fixture(scope="module")
def prometheus(admin_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that scrapes the broker each second."""
    directory = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s"}
    config["rule_files"] = []
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{admin_port}"]}]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def results(address: str, expression: str) -> int:
    """Return how many series an expression gives; -1 while Prometheus does not answer."""
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            return len(json.load(response)["data"]["result"])
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it starts
            return -1
        raise AssertionError(f"{expression}: {error.read().decode()}") from None
    except OSError:
        return -1


def expressions() -> list[str]:
    """Return the expressions of the board; of the alerts, what they compare."""
    board = json.loads((DOCKER / "grafana" / "dashboards" / "kafkapy.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    found = [each.replace("$__rate_interval", "1m").replace("$node", ".*") for each in found]
    groups = yaml.safe_load((DOCKER / "prometheus" / "alerts.yml").read_text())["groups"]
    alerts = [rule["expr"] for group in groups for rule in group["rules"]]
    compared = [side for each in alerts for side in re.split(r"\sand\s", each)]
    return found + [re.sub(r"\s*(==|!=|>|<) [\d.]+\s*$", "", each.strip()) for each in compared]


def test_every_expression_has_a_result(prometheus: str) -> None:
    left = expressions()
    assert len(left) > 40
    until = time.monotonic() + TIMEOUT_S
    while left := [each for each in left if results(prometheus, each) <= 0]:
        assert time.monotonic() < until, left
        time.sleep(0.5)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)")
def test_promtool_finds_no_fault_but_kafkas_own(admin_port: int) -> None:
    """Kafka's labels are in camelCase; its rules make quantiles gauges, and end gauges with _sum and _count."""
    text = text_of(admin_port)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=120)
    found = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert [line for line in found if not line.startswith("kafka_")] == []
    assert [line for line in found if not any(reason in line for reason in KAFKAS_OWN)] == []
