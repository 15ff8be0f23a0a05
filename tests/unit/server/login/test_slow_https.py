"""A peer that sends byte by byte is given up in time: in the TLS handshake, and in a response that ends with it."""

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkapy.server.login.web_request import WebError, send
from tests.support.certificates import Authority, client_context, server_context

STEPS = 3000
STEP_S = 0.01
"""Half a minute in all, each step far below the timeout of a read."""

Begin = Callable[[socket.socket], socket.socket]


class Dripping:
    """Accepts one connection, begins it, and then sends a byte per step until the peer ends it (`was_cut`)."""

    def __init__(self, begin: Begin) -> None:
        self.was_cut = False
        self._begin = begin
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://localhost:{self._listener.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        accepted, _ = self._listener.accept()
        with accepted:
            try:
                with self._begin(accepted) as connection:
                    self._drip(connection)
            except OSError:
                self.was_cut = True

    def _drip(self, connection: socket.socket) -> None:
        ended = select.poll()  # select() takes no descriptor beyond 1023
        ended.register(connection, select.POLLIN)
        for _ in range(STEPS):
            connection.sendall(b"\0")
            if ended.poll(STEP_S * 1000) and not connection.recv(65536):
                self.was_cut = True
                return


@contextmanager
def dripping(begin: Begin) -> Iterator[Dripping]:
    peer = Dripping(begin)
    try:
        yield peer
    finally:
        peer.join()


def half_a_handshake(connection: socket.socket) -> socket.socket:
    """Claim a record of 16 KiB, as a ServerHello."""
    connection.recv(65536)
    connection.sendall(b"\x16\x03\x03\x40\x00")
    return connection


def test_a_handshake_that_does_not_end_is_given_up() -> None:
    with dripping(half_a_handshake) as peer, pytest.raises((WebError, OSError)):
        send(peer.url, context=client_context(Authority("none")), timeout_s=0.3)
    assert peer.was_cut


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"])
def test_a_response_that_ends_with_its_connection_is_given_up_and_not_used(tmp_path: Path, head: bytes) -> None:
    authority = Authority("slow")
    context = server_context(authority.issue("localhost", names=("localhost",)), tmp_path)

    def begin(connection: socket.socket) -> ssl.SSLSocket:
        encrypted = context.wrap_socket(connection, server_side=True)
        encrypted.recv(65536)
        encrypted.sendall(head)
        return encrypted

    with dripping(begin) as peer, pytest.raises(WebError, match="no response within"):
        send(peer.url, context=client_context(authority), timeout_s=0.3, connect_timeout_s=5)
    assert peer.was_cut
