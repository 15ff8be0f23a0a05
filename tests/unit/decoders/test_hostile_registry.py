"""Whatever answers at a schema registry's address: each failure is a DecodeError, bounded in requests and bytes."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.registry import MAX_SCHEMA_BYTES, SILENCE_S, SchemaRegistry


class Answering:
    """Answers each connection with the same bytes; notes the first line of what was asked."""

    def __init__(self, response: bytes) -> None:
        self.response = response
        self.requested: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                request = connection.recv(65536)
                if not request:
                    return
                self.requested.append(request.split(b"\r\n")[0].decode())
                try:
                    connection.sendall(self.response)
                except OSError:
                    continue  # the client has read enough

    def close(self) -> None:
        socket.create_connection(self._listener.getsockname()).close()
        self._thread.join()
        self._listener.close()


@contextmanager
def answering(response: bytes) -> Iterator[Answering]:
    server = Answering(response)
    try:
        yield server
    finally:
        server.close()


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)


def described(**fields: object) -> bytes:
    return ok(json.dumps({"schema": '"int"', **fields}).encode())


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(b"220 mail.example ESMTP\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000 + b": 1\r\n\r\n", id="a header that is too long"),
        pytest.param(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", id="cut off"),
        pytest.param(ok(b"[" * 100_000), id="deep JSON"),
        pytest.param(ok(b"\xff\xfe"), id="no text"),
        pytest.param(described(references=7), id="references that are no list"),
        pytest.param(described(references=["name"]), id="a reference that is text"),
        pytest.param(ok(b'{"schema": "1", "references": [{"subject": "s", "version": 1e999}]}'), id="version infinity"),
        pytest.param(described(schemaType=["AVRO"], references=[{"subject": "s"}]), id="a kind that is a list"),
    ],
)
def test_every_bad_response_is_a_decode_error(response) -> None:
    with answering(response) as server, pytest.raises(DecodeError):
        SchemaRegistry(server.url).schema(1)


@pytest.mark.parametrize("url", ["http://user:secret@127.0.0.1:1", "http://[::1", "http://127.0.0.1:many"])
def test_an_address_that_is_none_is_a_decode_error(url) -> None:
    with pytest.raises(DecodeError) as raised:
        SchemaRegistry(url).schema(1)
    assert "secret" not in str(raised.value)


def test_redirects_are_not_followed() -> None:
    with answering(described()) as other:
        moved = f"HTTP/1.1 302 Found\r\nlocation: {other.url}/schemas/ids/1\r\ncontent-length: 0\r\n\r\n".encode()
        with answering(moved) as server, pytest.raises(DecodeError, match="answers 302"):
            SchemaRegistry(server.url).schema(1)
        assert other.requested == []


def test_schemas_and_what_they_refer_to_are_bounded_in_bytes() -> None:
    """Each of them alone is small enough, and refers to another."""
    padding = "x" * (MAX_SCHEMA_BYTES // 5)
    body = described(references=[{"subject": str(number), "version": 1} for number in range(50)], padding=padding)
    with answering(body) as server:
        with pytest.raises(DecodeError, match="more than"):
            SchemaRegistry(server.url).schema(1)
        assert len(server.requested) == 5


def test_a_registry_that_does_not_answer_is_not_requested_for_every_schema() -> None:
    now_s = 100.0
    with answering(b"") as server:
        registry = SchemaRegistry(server.url, clock_s=lambda: now_s)
        for schema_id in range(20):
            with pytest.raises(DecodeError, match="does not answer"):
                registry.schema(schema_id)
        assert len(server.requested) == 1
        server.response = described()
        now_s += SILENCE_S
        assert registry.schema(1).text == '"int"'


def test_a_slow_registry_is_given_up() -> None:
    """A clock that jumps stands for one whose bytes come one by one."""
    with answering(described()) as server:
        times = iter((0.0, 0.0))
        with pytest.raises(DecodeError, match="takes more than"):
            SchemaRegistry(server.url, clock_s=lambda: next(times, 1000.0)).schema(1)
