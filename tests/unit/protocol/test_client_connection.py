"""An outbound connection without a socket: what is written, in which version, and who is told what comes back."""

from typing import Any

import pytest

from kafkapy.errors import ProtocolError
from kafkapy.protocol.client_connection import ClientConnection, ClientRequest
from kafkapy.protocol.headers import read_request_header, write_response_header
from kafkapy.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.describe_cluster_response import DescribeClusterResponse
from kafkapy.protocol.primitives import Message, Writer

API_VERSIONS = 18
DESCRIBE_CLUSTER = 60
UNSUPPORTED_VERSION = 35


class PendingRequest:
    """A request and what became of it."""

    def __init__(self, *, min_version: int = 0, max_version: int = 2, deadline_ms: int = 1000) -> None:
        self.responses: list[tuple[Any, int]] = []
        self.failures: list[bool] = []
        self.request = ClientRequest(
            api_key=DESCRIBE_CLUSTER,
            build=lambda version: DescribeClusterRequest(),
            on_response=lambda message, version: self.responses.append((message, version)),
            on_failure=self.failures.append,
            timeout_ms=1000,
            min_version=min_version,
            max_version=max_version,
            deadline_ms=deadline_ms,
        )


def started(*, max_response_bytes: int = 1 << 20) -> ClientConnection:
    connection = ClientConnection("node 1", software_version="0", max_response_bytes=max_response_bytes)
    connection.start(0, 1000)
    return connection


def requests(connection: ClientConnection) -> list[tuple[int, int, int]]:
    """Return (api key, version, correlation id) of each request that was written since the last call."""
    data, found = connection.pop_output(), []
    while data:
        size = int.from_bytes(data[:4], "big")
        header, _ = read_request_header(data[4 : 4 + size])
        assert header.client_id == "node 1"
        found.append((header.api_key, header.api_version, header.correlation_id))
        data = data[4 + size :]
    return found


def response(message: Message, version: int, correlation_id: int, api_key: int = DESCRIBE_CLUSTER) -> bytes:
    out = Writer()
    write_response_header(out, api_key, version, correlation_id)
    frame = bytes(out) + message.encode(version)
    return len(frame).to_bytes(4, "big") + frame


def versions(low: int, high: int, *, error: int = 0, version: int = 4, correlation_id: int = 0) -> bytes:
    rows = [
        ApiVersion(api_key=API_VERSIONS, max_version=2),
        ApiVersion(api_key=DESCRIBE_CLUSTER, min_version=low, max_version=high),
    ]
    message = ApiVersionsResponse(error_code=error, api_keys=rows)
    return response(message, version, correlation_id, API_VERSIONS)


def ready(low: int = 0, high: int = 1) -> ClientConnection:
    connection = started()
    connection.receive(versions(low, high))
    connection.pop_output()
    return connection


def test_requests_wait_until_the_peers_versions_are_known() -> None:
    connection, requested = started(), PendingRequest()
    connection.submit(requested.request)
    assert requests(connection) == [(API_VERSIONS, 4, 0)]
    connection.receive(versions(0, 1))
    assert connection.is_ready
    assert requests(connection) == [(DESCRIBE_CLUSTER, 1, 1)]


def test_a_peer_that_lacks_our_api_versions_version_gets_the_highest_that_it_names() -> None:
    connection = started()
    connection.receive(versions(0, 1, error=UNSUPPORTED_VERSION, version=0))
    assert requests(connection) == [(API_VERSIONS, 4, 0), (API_VERSIONS, 2, 1)]
    connection.receive(versions(0, 1, version=2, correlation_id=1))
    assert connection.is_ready


@pytest.mark.parametrize(("lowest", "highest"), [(1, 2), (0, -1)], ids=["the peer is too old", "or has no such API"])
def test_a_request_that_no_common_version_carries_fails_alone(lowest: int, highest: int) -> None:
    connection, requested, other = (
        ready(0, 0),
        PendingRequest(min_version=lowest, max_version=highest),
        PendingRequest(),
    )
    connection.submit(requested.request)
    connection.submit(other.request)
    assert requested.failures == [True]
    assert requests(connection) == [(DESCRIBE_CLUSTER, 0, 1)]


@pytest.mark.parametrize("is_queued", [True, False], ids=["while versions are asked for", "on a ready connection"])
def test_a_message_that_its_version_cannot_carry_fails_alone(is_queued: bool) -> None:
    connection, requested, other = started() if is_queued else ready(), PendingRequest(), PendingRequest()
    requested.request.build = lambda version: DescribeClusterRequest(endpoint_type=1 << 40)
    connection.submit(requested.request)
    connection.submit(other.request)
    if is_queued:
        connection.receive(versions(0, 1))
    assert (requested.failures, other.failures) == ([True], [])
    assert requests(connection)[-1:] == [(DESCRIBE_CLUSTER, 1, 1)]


def test_responses_go_to_their_requests_however_their_bytes_are_cut() -> None:
    connection, first, second = ready(), PendingRequest(), PendingRequest()
    connection.submit(first.request)
    connection.submit(second.request)
    data = response(DescribeClusterResponse(cluster_id="a"), 1, 1) + response(
        DescribeClusterResponse(cluster_id="b"), 1, 2
    )
    for position in range(len(data)):
        connection.receive(data[position : position + 1])
    assert [(each.cluster_id, version) for each, version in first.responses + second.responses] == [("a", 1), ("b", 1)]
    assert connection.waiting_count == 0


def test_a_response_keeps_what_arrived_in_a_buffer_that_is_used_again() -> None:
    connection, first, second = ready(), PendingRequest(), PendingRequest()
    for requested in (first, second):
        connection.submit(requested.request)
    host = "h" * 1000
    data = response(DescribeClusterResponse(cluster_id=host), 1, 1) + response(DescribeClusterResponse(), 1, 2)
    buffer = bytearray(300)
    for start in range(0, len(data), 300):
        part = data[start : start + 300]
        buffer[: len(part)] = part
        connection.receive(memoryview(buffer)[: len(part)])
        buffer[:] = bytes(300)
        is_whole = start + 300 >= len(data)
        assert (connection.missing_bytes == 0) is is_whole or first.responses
    assert [message.cluster_id for message, _ in first.responses] == [host]
    assert len(second.responses) == 1


@pytest.mark.parametrize(
    "data",
    [
        response(DescribeClusterResponse(), 1, 7),
        (1 << 20 | 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        b"\0\0\0\2\0\0",
        response(DescribeClusterResponse(), 1, 1) + response(DescribeClusterResponse(), 1, 2),
        b"\0\0\0\6\0\0\0\1\0\xff",
    ],
    ids=["another correlation id", "too long", "negative size", "no header", "nothing was asked", "cut short"],
)
def test_a_response_that_cannot_be_is_a_protocol_error(data: bytes) -> None:
    connection = ready()
    connection.submit(PendingRequest().request)
    with pytest.raises(ProtocolError):
        connection.receive(data)


def test_a_request_that_is_not_answered_in_time_expires_the_connection() -> None:
    connection = ready()
    assert connection.deadline_ms() is None
    connection.submit(PendingRequest(deadline_ms=700).request)
    connection.submit(PendingRequest(deadline_ms=500).request)
    assert connection.deadline_ms() == 500
    assert not connection.is_expired(499)
    assert connection.is_expired(500)


def test_a_closed_connection_returns_what_was_not_answered_but_not_its_own_request() -> None:
    connection, requested = started(), PendingRequest()
    connection.submit(requested.request)
    assert connection.close() == [requested.request]
    assert connection.waiting_count == 0
