"""Clients' own metrics in the console: read from /metrics, one page a client, everything escaped."""

import time
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from kafkapy.console.app import new_app
from kafkapy.console.client_metrics import MAX_CLIENTS, clients_of
from kafkapy.console.samples import MetricSamples
from kafkapy.console.settings import Settings
from tests.support.http_server import QuietHandler, serving

TIMEOUT_S = 60
TEXT = """# HELP kafkapy_client_info text
kafkapy_client_info{client_id="<b>a</b>",client_instance_id="I",client_software_name="apache-kafka-java"} 1
kafkapy_client_producer_rate{client_id="<b>a</b>",client_instance_id="I",topic="t\\"}\\n"} 1.5
kafkapy_client_producer_total{client_id="<b>a</b>",client_instance_id="I"} 2.0
kafkapy_client_producer_rate{client_id="b",client_instance_id="J",topic="t"} 7.0
kafkapy_client_telemetry_pushes_total 5
kafkapy_client_broken{client_id="} 1
kafka_server_x 1
"""


def test_clients_are_distinguished_by_instance() -> None:
    clients = clients_of([TEXT])
    assert set(clients) == {"I", "J"}
    first = clients["I"]
    assert (first.name, first.attributes["client_software_name"]) == ("<b>a</b>", "apache-kafka-java")
    assert first.values == [("producer.rate", 'topic=t"}\n', "1.5"), ("producer.total", "", "2.0")]


def test_clients_are_bounded() -> None:
    lines = [f'kafkapy_client_x{{client_id="",client_instance_id="{number}"}} 1' for number in range(MAX_CLIENTS + 5)]
    assert len(clients_of(["\n".join(lines)])) == MAX_CLIENTS


def test_charts_do_not_add_up_what_clients_push() -> None:
    samples = MetricSamples([])
    samples.add([TEXT], 1.0)
    assert samples.names() == ["kafka_server_x", "kafkapy_client_telemetry_pushes_total"]


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\r", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_label_begins_a_line(separator: str) -> None:
    """The exposition escapes \\n alone."""
    forged = f"{separator}kafka_server_forged 5{separator}kafkapy_client_forged{{}} 5{separator}"
    line = f'kafkapy_client_x{{client_id="{forged}",client_instance_id="I"}} 1\nkafka_server_y{{group="{forged}"}} 2\n'
    samples = MetricSamples([])
    samples.add([line], 1.0)
    assert samples.names() == ["kafka_server_y"]
    assert set(samples.clients) == {"I"}
    assert [name for name, _, _ in samples.clients["I"].values] == ["x"]


class Metrics(QuietHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(TEXT)))
        self.end_headers()
        self.wfile.write(TEXT.encode())


@pytest.fixture
def metrics_url() -> Iterator[str]:
    with serving(Metrics) as port:
        yield f"http://127.0.0.1:{port}/metrics"


def test_a_list_of_clients_and_a_page_for_each(metrics_url: str) -> None:
    settings = Settings(servers="127.0.0.1:1", metrics_urls=(metrics_url,))
    with TestClient(new_app(settings), base_url="http://127.0.0.1:8080") as client:
        deadline_s = time.monotonic() + TIMEOUT_S
        while "/client?id=I" not in (text := client.get("/clients").text):
            assert time.monotonic() < deadline_s, text
        assert "&lt;b&gt;a&lt;/<wbr>b&gt;" in text
        text = client.get("/client?id=I&q=rate").text.replace("<wbr>", "")
        assert "producer.rate" in text
        assert "producer.total" not in text
        assert "apache-kafka-java" in text
        assert client.get("/client?id=nobody").status_code == 404
