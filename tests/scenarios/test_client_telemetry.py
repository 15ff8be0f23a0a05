"""Clients' own metrics (KIP-714): subscriptions, pushes, and each refusal. Apache Kafka is given a receiver."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.servers import free_port
from kafkapy import Broker
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from kafkapy.telemetry.subscriptions import RequestedMetrics, subscription_id_of
from kafkapy.types import ONE_UUID, ZERO_UUID, uuid_to_string
from tests.support.client_requests import until
from tests.support.otlp_messages import counter, gauge, message, metrics_data
from tests.support.scraped import text_of
from tests.support.telemetry import ReceivingKafka, push, send_request, subscribe
from tests.support.wire import ConnectionClosed, WireClient

IS_APACHE = os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache"
TELEMETRY = {71, 72}
MAX_BYTES = 1 << 20
METRICS = metrics_data(gauge("org.apache.kafka.test.rate", 1.5, topic="t"), counter("org.apache.kafka.test.total", 2))

Connect = Callable[..., WireClient]


@pytest.fixture(scope="module")
def admin_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory, admin_port: int) -> Iterator[str]:
    """A broker that receives clients' metrics; it replaces the one of all scenarios."""
    if IS_APACHE:
        kafka = ReceivingKafka(tmp_path_factory.mktemp("kafka") / "data")
        kafka.heap = "384m"
        with kafka:
            yield kafka.bootstrap
    else:
        with Broker(properties={"kafkapy.admin.listener": f"127.0.0.1:{admin_port}"}) as broker:
            yield broker.bootstrap_servers


@pytest.fixture
def connect(bootstrap: str) -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(WireClient(bootstrap, **options))


@pytest.fixture
def subscribed(client: WireClient, topic: str) -> str:
    """A subscription to all metrics of the clients that are called as the test; its name, and theirs."""
    subscribe(client, topic, metrics="*", match=f"client_id={topic}")
    until(lambda: send_request(client, name=topic).requested_metrics == ["*"])
    return topic


def test_the_apis_are_listed_while_there_is_a_receiver(client: WireClient) -> None:
    rows = {row.api_key: row for row in client.call(ApiVersionsRequest("a", client_software_version="1"), 4).api_keys}
    assert {(rows[key].min_version, rows[key].max_version) for key in TELEMETRY} == {(0, 0)}


@pytest.mark.ours
def test_without_a_receiver_the_apis_are_neither_listed_nor_served() -> None:
    with Broker() as broker, WireClient(broker.bootstrap_servers) as client:
        assert not TELEMETRY & {
            row.api_key for row in client.call(ApiVersionsRequest("a", client_software_version="1"), 4).api_keys
        }
        with pytest.raises(ConnectionClosed):
            send_request(client)


def test_a_client_that_no_subscription_matches_has_nothing_to_push(client: WireClient) -> None:
    response = send_request(client, name="nobody")
    assert response.error_code == 0
    assert response.client_instance_id not in (ZERO_UUID, ONE_UUID)
    assert response.requested_metrics == []
    assert response.accepted_compression_types == [ZSTD, LZ4, GZIP, SNAPPY]
    assert (response.push_interval_ms, response.telemetry_max_bytes, response.delta_temporality) == (
        300_000,
        MAX_BYTES,
        True,
    )
    assert response.subscription_id == subscription_id_of(RequestedMetrics((), 300_000), response.client_instance_id)
    assert push(client, response, METRICS, name="nobody") == 0


def test_a_client_keeps_its_id_and_is_throttled_within_its_interval(client: WireClient, subscribed: str) -> None:
    first = send_request(client, name=subscribed)
    assert first.subscription_id == subscription_id_of(RequestedMetrics(("*",), 300_000), first.client_instance_id)
    again = send_request(client, first.client_instance_id, name=subscribed)
    assert (again.error_code, again.requested_metrics) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, [])
    assert push(client, first, METRICS, name=subscribed) == 0
    assert push(client, first, METRICS, name=subscribed) == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_an_id_of_the_clients_own_is_taken(client: WireClient) -> None:
    assert send_request(client, b"i" * 16).client_instance_id == b"i" * 16


def test_metrics_and_interval_of_all_subscriptions_that_match(client: WireClient, topic: str) -> None:
    subscribe(client, f"{topic}-1", metrics="a,b", interval_ms=100, match=f"client_id={topic}")
    subscribe(client, f"{topic}-2", metrics="b,c", interval_ms=3_600_000, match=f"client_id={topic[:10]}.*")
    until(lambda: len(send_request(client, name=topic).requested_metrics) == 3)
    response = send_request(client, name=topic)
    assert sorted(response.requested_metrics) == ["a", "b", "c"]
    assert response.push_interval_ms == 100


def test_each_selector(connect: Connect, topic: str) -> None:
    client = connect()
    port = client.local_address[1]
    client.call(ApiVersionsRequest("tester", client_software_version="1.2.3"), 4)
    client_id = send_request(client, name=topic).client_instance_id
    selectors = {
        "client_id": f"{topic}.*",
        "client_instance_id": uuid_to_string(client_id),
        "client_software_name": "test[a-z]+",
        "client_software_version": r"1\..*",
        "client_source_address": r"127\.0\.0\..",
        "client_source_port": str(port),
    }
    for selector, pattern in selectors.items():
        is_wrong = {"metrics": "wrong", "match": f"client_id={topic},{selector}=x{pattern}"}
        subscribe(client, f"{topic}-not", **is_wrong)
        subscribe(client, topic, metrics=selector, match=f"client_software_name=tester,{selector}={pattern}")
        until(lambda selector=selector: send_request(client, client_id, name=topic).requested_metrics == [selector])
        subscribe(client, topic, metrics=None, match=None)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_each_compression(client: WireClient, subscribed: str, codec: int) -> None:
    subscription = send_request(client, name=subscribed)
    assert push(client, subscription, compress(codec, METRICS), name=subscribed, compression_type=codec) == 0


def test_a_push_may_be_empty(client: WireClient, subscribed: str) -> None:
    assert push(client, send_request(client, name=subscribed), name=subscribed) == 0


def test_an_unknown_subscription_id_may_be_followed_by_a_question_at_once(client: WireClient, subscribed: str) -> None:
    subscription = send_request(client, name=subscribed)
    wrong = subscription.subscription_id ^ 1
    assert push(client, subscription, name=subscribed, subscription_id=wrong) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert send_request(client, subscription.client_instance_id, name=subscribed).requested_metrics == ["*"]
    # That question does not make the next push early: it waits for the interval after the refused one.
    assert push(client, subscription, METRICS, name=subscribed) == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize("codec", [5, 127, -1])
def test_an_unknown_compression_may_be_followed_by_a_question_at_once(
    client: WireClient, subscribed: str, codec: int
) -> None:
    subscription = send_request(client, name=subscribed)
    refused = push(client, subscription, METRICS, name=subscribed, compression_type=codec)
    assert refused == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert send_request(client, subscription.client_instance_id, name=subscribed).error_code == 0


def test_a_push_of_more_than_telemetry_max_bytes(client: WireClient, subscribed: str) -> None:
    subscription = send_request(client, name=subscribed)
    assert push(client, subscription, bytes(MAX_BYTES + 1), name=subscribed) == ErrorCode.TELEMETRY_TOO_LARGE


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_cve_2026_111073_a_push_that_inflates_to_more_is_refused(
    client: WireClient, subscribed: str, codec: int
) -> None:
    """Its metrics are valid: nothing but their size can be refused."""
    for size, code in ((MAX_BYTES // 2, ErrorCode.NONE), (MAX_BYTES, ErrorCode.INVALID_RECORD)):
        metrics = metrics_data(gauge("org.apache.kafka.test.rate", 1.5, topic="t" * size))
        subscription = send_request(client, name=subscribed)
        bomb = compress(codec, metrics)
        assert push(client, subscription, bomb, name=subscribed, compression_type=codec) == code


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_push_that_cannot_be_decompressed(client: WireClient, subscribed: str, codec: int) -> None:
    subscription = send_request(client, name=subscribed)
    assert (
        push(client, subscription, b"no such stream", name=subscribed, compression_type=codec)
        == ErrorCode.INVALID_RECORD
    )


@pytest.mark.parametrize("reserved", [ZERO_UUID, ONE_UUID])
def test_a_push_without_an_instance_id(client: WireClient, subscribed: str, reserved: bytes) -> None:
    subscription = send_request(client, name=subscribed)
    refused = push(client, subscription, METRICS, name=subscribed, client_instance_id=reserved)
    assert refused == ErrorCode.INVALID_REQUEST


def test_a_push_of_an_instance_without_a_subscription(client: WireClient, subscribed: str) -> None:
    """After a restart of the broker, for example: the right subscription id is enough."""
    subscription = send_request(client, name=subscribed)
    subscription_id = subscription_id_of(RequestedMetrics(("*",), 300_000), b"r" * 16)
    own = {"client_instance_id": b"r" * 16, "subscription_id": subscription_id}
    assert push(client, subscription, METRICS, name=subscribed, **own) == 0


def test_the_last_push_comes_at_any_time_and_nothing_after_it(client: WireClient, subscribed: str) -> None:
    subscription = send_request(client, name=subscribed)
    assert push(client, subscription, METRICS, name=subscribed) == 0
    assert push(client, subscription, METRICS, name=subscribed, terminating=True) == 0
    assert push(client, subscription, METRICS, name=subscribed, terminating=True) == ErrorCode.INVALID_REQUEST


def test_an_instance_is_forgotten_with_its_connection(connect: Connect, client: WireClient, subscribed: str) -> None:
    first = connect()
    subscription = send_request(first, name=subscribed)
    first.close()
    until(lambda: send_request(client, subscription.client_instance_id, name=subscribed).error_code == 0)


# -- what this broker does with them --------------------------------------------------------------------------------


@pytest.mark.ours
def test_what_is_no_otlp_is_refused(client: WireClient, subscribed: str) -> None:
    subscription = send_request(client, name=subscribed)
    assert push(client, subscription, METRICS[:-1], name=subscribed) == ErrorCode.INVALID_RECORD


@pytest.mark.ours
def test_metrics_of_clients_are_shown_while_they_are_connected(
    connect: Connect, subscribed: str, admin_port: int
) -> None:
    client = connect()
    subscription = send_request(client, name=subscribed)
    label = f'client_id="{subscribed}",client_instance_id="{uuid_to_string(subscription.client_instance_id)}"'
    assert push(client, subscription, METRICS, name=subscribed) == 0
    text = text_of(admin_port)
    assert f'kafkapy_client_test_rate{{{label},topic="t"}} 1.5\n' in text
    assert f"kafkapy_client_test_total{{{label}}} 2.0\n" in text
    assert push(client, subscription, METRICS, name=subscribed, terminating=True) == 0
    assert f"kafkapy_client_test_total{{{label}}} 4.0\n" in text_of(admin_port)
    client.close()
    until(lambda: label not in text_of(admin_port))


def latencies(counts: list[int], bounds: list[float], *, temporality: int = 1) -> Any:
    metric = message("Metric")(name="org.apache.kafka.test.latency")
    metric.histogram.data_points.add(count=sum(counts), sum=3.5, bucket_counts=counts, explicit_bounds=bounds)
    metric.histogram.aggregation_temporality = temporality
    return metric


@pytest.mark.ours
def test_histograms_of_clients_are_shown_with_their_buckets(connect: Connect, subscribed: str, admin_port: int) -> None:
    client = connect()
    subscription = send_request(client, name=subscribed)
    data = metrics_data(latencies([1, 2, 3], [0.5, 4]))
    assert push(client, subscription, data, name=subscribed) == 0
    assert push(client, subscription, data, name=subscribed, terminating=True) == 0
    families = {family.name: family for family in text_string_to_metric_families(text_of(admin_port))}
    family = families["kafkapy_client_test_latency"]
    assert family.type == "histogram"
    shown = [(each.name, each.labels.get("le"), each.value) for each in family.samples]
    assert shown == [
        (f"{family.name}_bucket", "0.5", 2),
        (f"{family.name}_bucket", "4.0", 6),
        (f"{family.name}_bucket", "+Inf", 12),
        (f"{family.name}_sum", None, 7),
        (f"{family.name}_count", None, 12),
    ]
    assert {each.labels["client_id"] for each in family.samples} == {subscribed}


@pytest.mark.ours
@pytest.mark.parametrize("counts", [[1, 2], [1] * 1000], ids=["a bound too few", "very many"])
def test_histograms_that_are_none_are_refused(client: WireClient, subscribed: str, counts: list[int]) -> None:
    data = metrics_data(latencies(counts, [0.5, 4]))
    assert push(client, send_request(client, name=subscribed), data, name=subscribed) == ErrorCode.INVALID_RECORD


@pytest.mark.ours
def test_names_and_labels_of_hostile_clients(connect: Connect, subscribed: str, admin_port: int) -> None:
    client = connect()
    hostile = gauge('kafka_server{evil="1"} 1\n', 3, **{'a"} 1\nb': 'x"\n', "client_id": "admin", "0": "", "": ""})
    same = gauge("kafka.server{evil='1'} 1 ", 4, **{"a b": 'x"\n', "0": ""})
    assert push(client, send_request(client, name=subscribed), metrics_data(hostile, same), name=subscribed) == 0
    lines = [line for line in text_of(admin_port).splitlines() if "evil" in line and not line.startswith("#")]
    assert len(lines) == 2
    assert all(line.startswith("kafkapy_client_kafka_server_evil_1_1{") for line in lines)
    assert all(f'client_id="{subscribed}"' in line for line in lines)


@pytest.mark.ours
def test_the_largest_push_holds_no_other_client(connect: Connect, subscribed: str) -> None:
    """A megabyte of tiny fields: read in turns."""
    client, neighbour = connect(), connect()
    subscription = send_request(client, name=subscribed)
    data = message("MetricsData")()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    for _ in range(40_000):
        metric.gauge.data_points.add(as_int=1)
    metrics = data.SerializeToString()
    assert len(metrics) < MAX_BYTES
    answered: list[int] = []
    pushing = threading.Thread(target=lambda: answered.append(push(client, subscription, metrics, name=subscribed)))
    pushing.start()
    questions = 0
    while pushing.is_alive():
        neighbour.call(ApiVersionsRequest("a", client_software_version="1"), 4)
        questions += 1
    pushing.join()
    assert answered == [0]
    assert questions >= 3


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An OpenTelemetry collector: its URL, and what it is sent: (content type, body)."""
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.headers["Content-Type"], body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/metrics", received
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.ours
def test_metrics_are_sent_to_a_collector() -> None:
    sent = metrics_data(gauge("org.apache.kafka.test.rate", 1.5, topic="t"), latencies([1, 2, 3], [0.5, 4]))
    with (
        collector() as (url, received),
        Broker(properties={"kafkapy.telemetry.otlp.endpoint": url}) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        subscription = send_request(client)
        assert push(client, subscription, compress(ZSTD, sent), compression_type=ZSTD, terminating=True) == 0
        until(lambda: bool(received))
    ((kind, body),) = received
    assert kind == "application/x-protobuf"
    (found,) = message("MetricsData").FromString(body).resource_metrics
    attributes = {each.key: each.value.string_value for each in found.resource.attributes}
    assert attributes["client_instance_id"] == uuid_to_string(subscription.client_instance_id)
    assert attributes["client_id"] == "wire"
    assert attributes["broker_id"] == "1"
    (pushed,) = message("MetricsData").FromString(sent).resource_metrics
    assert list(found.scope_metrics) == list(pushed.scope_metrics)


@pytest.mark.ours
def test_a_collector_that_does_not_answer_holds_nobody_and_no_stop() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/metrics"
        with Broker(properties={"kafkapy.telemetry.otlp.endpoint": url}) as broker:
            for _ in range(100):  # more than may wait
                with WireClient(broker.bootstrap_servers) as client:
                    assert push(client, send_request(client), METRICS) == 0
            began = time.monotonic()
        assert time.monotonic() - began < 30
