"""Client metrics subscriptions (KIP-714) with Apache Kafka's tools, and clients that push what they are asked for.

KAFKAPY_COMPAT_SERVER=apache shows that the tools print the same there.
"""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from confluent_kafka import Producer

from harness.servers import Kafkapy, Server, free_port
from tests.support.eventually import eventually
from tests.support.java_tools import JavaTools
from tests.support.otlp_messages import message
from tests.support.scraped import Samples, samples_of, text_of
from tests.support.telemetry import subscribe
from tests.support.wire import WireClient

TOOL = "kafka-client-metrics"


def test_all_commands_of_kafka_client_metrics(tools: JavaTools, server: Server) -> None:
    def tool(*arguments: str, script: str = TOOL) -> str:
        return tools.run(script, "--bootstrap-server", server.bootstrap, *arguments).text

    def described() -> set[str]:
        return set(tool("--describe", "--name", "mine").splitlines())

    absent = "The client metric resource mine doesn't exist and doesn't have dynamic config.\n"
    assert tool("--describe", "--name", "mine") == absent
    options = ["--metrics", "org.apache.kafka.producer.,a.b", "--interval", "10000"]
    match = ["--match", "client_id=orders-.*,client_source_address=127\\.0\\.0\\.1"]
    assert tool("--alter", "--name", "mine", *options, *match) == "Altered client metrics config for mine.\n"
    wanted = {
        "Client metrics configs for mine are:",
        "  interval.ms=10000",
        "  match=client_id=orders-.*,client_source_address=127\\.0\\.0\\.1",
        "  metrics=org.apache.kafka.producer.,a.b",
    }
    eventually(lambda: described() == wanted, what="the subscription")
    assert tool("--list").splitlines() == ["mine"]
    tool("--alter", "--name", "mine", "--interval", "")
    eventually(lambda: "  interval.ms=300000" in described(), what="the default interval")
    configs = tool("--describe", "--entity-type", "client-metrics", "--entity-name", "mine", script="kafka-configs")
    assert "metrics=org.apache.kafka.producer.,a.b sensitive=false" in configs
    generated = tool("--alter", "--generate-name", "--metrics", "*")
    name = re.fullmatch(r"Altered client metrics config for (\S{22})\.\n", generated)
    assert name is not None
    for each in ("mine", name[1]):
        assert tool("--delete", "--name", each) == f"Deleted client metrics config for {each}.\n"
    eventually(lambda: tool("--describe", "--name", "mine") == absent)
    eventually(lambda: tool("--list").strip() == "", what="the end of both")


REFUSED = [
    (["--interval", "99"], "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
    (["--match", "client_name=x"], "Illegal client matching pattern: client_name=x"),
    (["--match", "client_id=("], "Illegal client matching pattern: client_id=("),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_the_tool_is_refused(tools: JavaTools, server: Server, options: list[str], message: str) -> None:
    printed = tools.run(TOOL, "--bootstrap-server", server.bootstrap, "--alter", "--name", "wrong", *options).text
    assert printed.splitlines()[0] == f"Error while executing client metrics command : {message}"


# -- clients that push ----------------------------------------------------------------------------------------------


class Collector(ThreadingHTTPServer):
    """An OpenTelemetry collector that keeps the names of metrics by client id."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.names: dict[str, set[str]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/metrics"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        data = message("MetricsData").FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for each in data.resource_metrics:
            attributes = {pair.key: pair.value.string_value for pair in each.resource.attributes}
            names = self.server.names.setdefault(attributes["client_id"], set())
            names |= {metric.name for scope in each.scope_metrics for metric in scope.metrics}
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@dataclass
class Watched:
    """A broker with both receivers: /metrics and a collector."""

    bootstrap: str
    admin_port: int
    collector: Collector

    def samples(self) -> Samples:
        return samples_of(text_of(self.admin_port))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    port = free_port()
    with Collector() as collector:
        serving = threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        properties = {
            "kafkapy.admin.listener": f"127.0.0.1:{port}",
            "kafkapy.telemetry.otlp.endpoint": collector.url,
        }
        with Kafkapy(tmp_path_factory.mktemp("watched") / "data", properties) as broker:
            with WireClient(broker.bootstrap) as client:
                subscribe(client, "all", metrics="*", interval_ms=200)
            yield Watched(broker.bootstrap, port, collector)
        collector.shutdown()
        serving.join()


@pytest.mark.ours
def test_librdkafka_shows_its_metrics(watched: Watched) -> None:
    producer = Producer(
        {"bootstrap.servers": watched.bootstrap, "enable.metrics.push": True, "client.id": "librd", "linger.ms": 0}
    )

    def shown() -> set[str]:
        producer.produce("telemetry", b"value")
        producer.poll(0.1)
        names = {
            name
            for name, labels in watched.samples()
            if ("client_id", "librd") in labels and not name.endswith("_info")
        }
        return names if "kafkapy_client_producer_connection_creation_total" in names else set()

    names = eventually(shown, what="metrics of librdkafka")
    assert all(name.startswith("kafkapy_client_producer_") for name in names)
    producer.flush(60)


@pytest.mark.ours
def test_a_java_producer_sends_its_metrics_to_a_collector(watched: Watched, java_tool, tmp_path: Path) -> None:
    """It pushes by default, and at its end for a last time; in /metrics it is only while it is connected.

    One that ends before it has its subscription pushes nothing: then another one is run.
    """
    options = ["--bootstrap-server", watched.bootstrap, "--topic", "telemetry"]
    properties = ["--command-property", "client.id=java"]

    def sent() -> set[str] | None:
        java_tool("org.apache.kafka.tools.ConsoleProducer", *options, *properties, stdin="one\n" * 100)
        return watched.collector.names.get("java")

    names = eventually(sent, what="metrics of the Java producer")
    assert "org.apache.kafka.producer.record.send.total" in names or len(names) > 20
    pushes = watched.samples()["kafkapy_client_telemetry_unreadable_pushes_total", frozenset()]
    assert pushes == 0
