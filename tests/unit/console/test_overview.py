"""The overview: what needs attention, read from a broker; its charts, with and without /metrics."""

import time

import confluent_kafka as kafka
import pytest
from starlette.testclient import TestClient

from kafkapy import Broker
from kafkapy.console import access, attention
from kafkapy.console.app import new_app
from kafkapy.console.cluster import Feature
from kafkapy.console.overview import CHARTS, METRICS, joined
from kafkapy.console.samples import PRODUCE_P99, MetricSamples
from kafkapy.console.settings import Settings
from kafkapy.console.state import Console
from tests.support.committed import commit

OWN = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        producer = kafka.Producer(running.client_config())
        producer.produce("orders", "1")
        assert producer.flush(30) == 0
        yield running


def test_an_open_transaction_is_named(broker, monkeypatch) -> None:
    monkeypatch.setattr(attention, "OPEN_MS", 0)
    for name in ("DISK_WARN", "DISK_BAD"):  # however full the disk here is
        monkeypatch.setattr(attention, name, 101)
    opened = kafka.Producer({**broker.client_config(), "transactional.id": "payments-1"})
    opened.init_transactions(30)
    with TestClient(new_app(Settings(servers=broker.bootstrap_servers)), base_url=OWN) as client:
        assert "Nothing needs attention." in client.get("/").text
        opened.begin_transaction()
        opened.produce("orders", "2")
        opened.flush(30)
        shown = client.get("/").text
        assert "1 transaction is open for more than a minute" in shown
        assert 'href="/transaction?id=payments-1"' in shown
        opened.abort_transaction(30)


def test_all_groups_are_counted(broker, monkeypatch) -> None:
    monkeypatch.setattr(access, "MAX_ROWS", 2)
    for number in range(3):
        consumer = kafka.Consumer({**broker.client_config(), "group.id": f"counted-{number}"})
        commit(consumer, kafka.TopicPartition("orders", 0, 1))
        consumer.close()
    with TestClient(new_app(Settings(servers=broker.bootstrap_servers)), base_url=OWN) as client:
        assert "<dt>Groups</dt><dd>3</dd>" in client.get("/").text


def test_levels_are_shown_by_their_names() -> None:
    versions = Feature("metadata.version", 33, 7, 33)
    assert [versions.shown(each) for each in (33, 7, 99, None)] == ["4.4-IV2 (33)", "3.3-IV3 (7)", "99", "–"]
    assert Feature("group.version", 1, 0, 1).shown(1) == "1"


def test_records_are_counted_without_metrics(broker, monkeypatch) -> None:
    console = Console(Settings(servers=broker.bootstrap_servers))
    seconds = iter(range(1000, 2000, 10))
    monkeypatch.setattr(time, "time", lambda: float(next(seconds)))
    console.history.look()
    producer = kafka.Producer(broker.client_config())
    for _ in range(50):
        producer.produce("orders", "x")
    assert producer.flush(30) == 0
    console.history.look()
    (before_s, before), (after_s, after) = console.history.of("records")
    assert (after - before, after_s > before_s) == (50, True)
    assert [value for _, value in console.history.of("under-replicated")] == [0, 0]
    console.close()


def test_without_a_broker_there_are_no_points() -> None:
    console = Console(Settings(servers="127.0.0.1:1"))
    console.history.look()
    assert [console.history.of(each) for each in ("records", "lag", "under-replicated")] == [[], [], []]


def test_every_chart_is_served_and_others_are_not(broker) -> None:
    with TestClient(new_app(Settings(servers=broker.bootstrap_servers)), base_url=OWN) as client:
        shown = client.get("/").text
        assert [each.name for each in CHARTS if f"name={each.name}" in shown] == ["records", "lag", "under-replicated"]
        assert "--metrics" in shown
        for each in CHARTS:
            assert client.get("/overview/chart", params={"name": each.name}).status_code == 200
        assert client.get("/overview/chart?name=other").status_code == 404
    assert set(METRICS) < {each.name for each in CHARTS}


def test_series_of_a_chart_share_their_times() -> None:
    assert joined([[(1.0, 5.0), (2.0, 6.0)], [(2.0, 7.0)]]) == [[1.0, 5.0, None], [2.0, 6.0, 7.0]]
    assert joined([[], []]) == []


def test_the_slowest_brokers_percentile_is_kept() -> None:
    line = 'kafka_network_requestmetrics_totaltimems{{request="{}",quantile="{}"}} {}'
    texts = [
        "\n".join(
            [line.format("Produce", "0.99", 4.5), line.format("Produce", "0.50", 90), line.format("Fetch", "0.99", 500)]
        ),
        line.format("Produce", "0.99", 12),
    ]
    samples = MetricSamples([])
    samples.add(texts, 1.0)
    assert samples.of(PRODUCE_P99) == [(1.0, 12.0)]
    assert PRODUCE_P99 not in samples.names()
