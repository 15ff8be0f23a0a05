"""What /metrics tells of connections: bytes as on the wire, requests, logins."""

from pathlib import Path

from harness.servers import free_port
from kafkapy import Broker
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from tests.support.logins import log_in, sasl_broker, sasl_client
from tests.support.scraped import Samples, samples_of, text_of
from tests.support.wire import WireClient, request_frame

PREFIX = "kafka_server_socket_server_metrics_"
SIZE = 4
"""Bytes in front of each frame."""


def totals(samples: Samples) -> dict[str, float]:
    """Return what was counted of the one listener that has connections, by name."""
    return {
        name.removeprefix(PREFIX).removesuffix("_total"): value
        for name, _ in samples
        if name.startswith(PREFIX) and name.endswith("_total")
        for value in [sum(each for (other, _), each in samples.items() if other == name)]
    }


def test_bytes_and_requests_are_counted() -> None:
    port = free_port()
    request = ApiVersionsRequest("a", client_software_version="1")
    with (
        Broker(properties={"kafkapy.admin.listener": f"127.0.0.1:{port}"}) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        answered = 0
        for _ in range(3):
            client.send_frame(request_frame(request, 4))
            answered += SIZE + len(client.receive_frame())
        samples = samples_of(text_of(port))
    found = totals(samples)
    assert found["incoming_byte"] == 3 * (SIZE + len(request_frame(request, 4)))
    assert found["outgoing_byte"] == answered
    assert (found["request"], found["response"]) == (3, 3)
    assert found["network_io"] >= 6
    assert found["successful_authentication"] == found["failed_authentication"] == 0
    assert sum(value for (name, _), value in samples.items() if name == f"{PREFIX}outgoing_byte_rate") > 0
    assert found["select"] >= found["network_io"]
    longest = [value for (name, _), value in samples.items() if name == f"{PREFIX}request_size_max" and value > 0]
    assert longest == [answered / 3]


def test_logins_and_refused_ones_are_counted(tmp_path: Path) -> None:
    port = free_port()
    properties = {"kafkapy.admin.listener": f"127.0.0.1:{port}", "connection.failed.authentication.delay.ms": "0"}
    with sasl_broker(tmp_path, ("SASL",), {"alice": "secret"}, properties) as ports:
        with WireClient(f"127.0.0.1:{ports['SASL']}") as client:
            assert log_in(client, sasl_client("PLAIN", "alice", "secret")).error_code == 0
        with WireClient(f"127.0.0.1:{ports['SASL']}") as client:
            assert log_in(client, sasl_client("PLAIN", "alice", "wrong")).error_code == 58
        found = totals(samples_of(text_of(port)))
    assert (found["successful_authentication"], found["failed_authentication"]) == (1, 1)
    assert found["successful_authentication_no_reauth"] == 0
    assert (found["successful_reauthentication"], found["failed_reauthentication"]) == (0, 0)


def test_logins_that_are_renewed_and_those_that_cannot_be(tmp_path: Path) -> None:
    port = free_port()
    properties = {"kafkapy.admin.listener": f"127.0.0.1:{port}", "connections.max.reauth.ms": "600000"}
    with sasl_broker(tmp_path, ("SASL",), {"alice": "secret"}, properties) as ports:
        with WireClient(f"127.0.0.1:{ports['SASL']}") as client:
            for _ in range(2):
                assert log_in(client, sasl_client("PLAIN", "alice", "secret")).error_code == 0
        with WireClient(f"127.0.0.1:{ports['SASL']}") as client:
            assert log_in(client, sasl_client("PLAIN", "alice", "secret"), version=0).error_code == 0
        samples = samples_of(text_of(port))
    found = totals(samples)
    assert (found["successful_authentication"], found["successful_authentication_no_reauth"]) == (2, 1)
    assert (found["successful_reauthentication"], found["failed_reauthentication"]) == (1, 0)
    latencies = [value for (name, _), value in samples.items() if name == f"{PREFIX}reauthentication_latency_max"]
    assert [value for value in latencies if value >= 0] != [], "NaN where nothing was renewed"
