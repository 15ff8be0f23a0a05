"""Charts of what a broker's /metrics tells: scraped in a thread of its own, shown by name."""

import time
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from kafkapy.console.app import new_app
from kafkapy.console.settings import Settings
from tests.support.http_server import QuietHandler, serving

TIMEOUT_S = 60


class Metrics(QuietHandler):
    def do_GET(self) -> None:
        body = b'kafka_server_bytesin_total 5\nother{a="<b>"} 1\n'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def metrics_url() -> Iterator[str]:
    with serving(Metrics) as port:
        yield f"http://127.0.0.1:{port}/metrics"


def shown(client: TestClient, wanted: str) -> str:
    """Return the page once it shows something."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while wanted not in (text := client.get("/charts").text):
        assert time.monotonic() < deadline_s, text
    return text


def test_chosen_metrics_are_charted_and_others_found(metrics_url) -> None:
    settings = Settings(servers="127.0.0.1:1", metrics_urls=(metrics_url,))
    with TestClient(new_app(settings), base_url="http://127.0.0.1:8080") as client:
        text = shown(client, "/charts/series?name=kafka_server_bytesin_total")
        assert "name=other" not in text
        assert "name=other" in client.get("/charts?q=other").text
        assert client.get("/charts/series?name=other").json()["points"][0][1] == 1
        assert client.get("/charts/series?name=none").json() == {"points": []}


def test_a_broker_without_metrics_is_reported(metrics_url) -> None:
    settings = Settings(servers="127.0.0.1:1", metrics_urls=("http://127.0.0.1:1/metrics",))
    with TestClient(new_app(settings), base_url="http://127.0.0.1:8080") as client:
        assert "Connection refused" in shown(client, "http://127.0.0.1:1/metrics")
