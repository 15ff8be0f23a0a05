"""The admin listener's HTTP: what it answers, and what bounds it."""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

import pytest

from kafkapy.server.admin.http import MAX_HEAD_BYTES, PLAIN, HttpServer, Response

BODY = b"all is well\n"
MEDIUM_BYTES = 20 << 20
"""More than the buffers of a connection hold."""


async def page(accept: str) -> Response:
    return Response(HTTPStatus.OK, PLAIN, accept.encode() or BODY)


async def large(_accept: str) -> Response:
    return Response(HTTPStatus.OK, PLAIN, bytes(64 << 20))


async def medium(_accept: str) -> Response:
    return Response(HTTPStatus.OK, PLAIN, bytes(MEDIUM_BYTES))


async def broken(_accept: str) -> Response:
    raise ValueError("no page")


@contextmanager
def serving(*, max_connections: int = 8, timeout_s: float = 30.0, **bounds: Any) -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    pages = {"/page": page, "/large": large, "/medium": medium, "/broken": broken}
    server = HttpServer(listening, pages, max_connections=max_connections, timeout_s=timeout_s, **bounds)
    try:
        yield listening.getsockname()[1]
    finally:
        server.close()


def sent(port: int, request: bytes) -> bytes:
    """Return all that comes until the server closes."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(request)
        return received(connection)


def received(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def status_of(response: bytes) -> int:
    matched = re.match(rb"HTTP/1\.1 (\d{3}) ", response)
    assert matched is not None, response[:100]
    return int(matched[1])


def test_a_page_is_answered_with_its_length_and_closed() -> None:
    with serving() as port:
        head, _, body = sent(port, b"GET /page?all=1 HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
        assert body == BODY
        assert b"Content-Length: 12\r\n" in head
        assert sent(port, b"HEAD /page HTTP/1.1\r\n\r\n") == head + b"\r\n\r\n"
        assert sent(port, b"GET /page HTTP/1.0\r\nAccept:  text/x \r\n\r\n").endswith(b"\r\n\r\ntext/x")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET / HTTP/1.1", 404),
        (b"POST /other HTTP/1.1", 404),
        (b"HEAD /page/ HTTP/1.1", 404),
        (b"POST /page HTTP/1.1", 405),
        (b"DELETE /page HTTP/1.1", 405),
        (b"GET /broken HTTP/1.1", 500),
        (b"GET http://host/page HTTP/1.1", 400),
        (b"GET /page", 400),
        (b"GET /page HTTP/2", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"GET /page HTTP/1.1\r\nCookie: " + bytes(2 * MAX_HEAD_BYTES), 431),
    ],
)
def test_what_is_no_page_is_distinguished(request_head: bytes, status: int) -> None:
    with serving() as port:
        assert status_of(sent(port, request_head + b"\r\n\r\n")) == status


def test_a_body_that_nobody_reads_does_not_cost_the_response() -> None:
    with serving() as port:
        response = sent(port, b"POST /page HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000))
        assert status_of(response) == 405
        assert b"Allow: GET, HEAD\r\n" in response


def test_connections_beyond_the_bound_are_turned_away() -> None:
    with serving(max_connections=2, max_unread_bytes=1 << 30) as port:
        slow = [begun(port, b"GET /large HTTP/1.1\r\n\r\n") for _ in range(2)]
        assert status_of(sent(port, b"GET /page HTTP/1.1\r\n\r\n")) == 503
        for each in slow:
            each.close()


def test_the_oldest_half_request_makes_room() -> None:
    with serving(max_connections=2) as port:
        idle = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(2)]
        for each in idle:
            each.sendall(b"GET /page HTTP/1.1\r\nA: b")
        for _ in range(5):
            assert status_of(sent(port, b"GET /page HTTP/1.1\r\n\r\n")) == 200
        with suppress(ConnectionError):
            assert received(idle[0]) == b""
        for each in idle:
            each.close()


def test_a_request_that_does_not_arrive_in_time_is_given_up() -> None:
    with serving(head_timeout_s=0.1) as port, suppress(ConnectionError):
        assert sent(port, b"GET /page HTTP/1.1\r\nA: b") == b""


def is_served(port: int) -> bool:
    """Whether a page comes; not if there are too many connections, or this one was too slow to ask."""
    with suppress(ConnectionError):
        response = sent(port, b"GET /page HTTP/1.1\r\n\r\n")
        return bool(response) and status_of(response) == 200
    return False


@pytest.mark.parametrize("request_part", [b"", b"GET /page HTTP/1.1\r\nA: b", b"GET /large HTTP/1.1\r\n\r\n"])
def test_a_client_that_neither_sends_nor_reads_is_disconnected(request_part: bytes) -> None:
    with serving(max_connections=1, timeout_s=0.2) as port:
        slow = socket.create_connection(("127.0.0.1", port), 60)
        slow.sendall(request_part)
        until = time.monotonic() + 60
        while not is_served(port):
            assert time.monotonic() < until
        slow.close()


def test_of_clients_that_read_too_slowly_the_one_that_has_waited_longest_makes_room() -> None:
    """Two of three responses may wait to be read."""
    with serving(max_unread_bytes=5 * MEDIUM_BYTES // 2) as port:
        slow = [begun(port, b"GET /medium HTTP/1.1\r\n\r\n") for _ in range(3)]
        with suppress(ConnectionError):
            assert len(received(slow[0])) < MEDIUM_BYTES
        for each in slow[1:]:
            assert len(received(each)) > MEDIUM_BYTES
        assert status_of(sent(port, b"GET /page HTTP/1.1\r\n\r\n")) == 200
        for each in slow:
            each.close()


def begun(port: int, request: bytes) -> socket.socket:
    """Return a connection whose response has begun to arrive, and is not read."""
    connection = socket.create_connection(("127.0.0.1", port), 60)
    connection.sendall(request)
    assert connection.recv(1, socket.MSG_PEEK)
    return connection


def test_a_close_ends_the_connections_at_work(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as port:
        idle = socket.create_connection(("127.0.0.1", port), 60)
        idle.sendall(b"GET")
        assert status_of(sent(port, b"GET /page HTTP/1.1\r\n\r\n")) == 200
    with suppress(ConnectionResetError):
        assert idle.recv(1) == b""
    idle.close()
