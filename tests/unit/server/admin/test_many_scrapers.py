"""A thousand scrapers of one broker that ask and do not read: each is answered or turned away, clients go on."""

import socket
from contextlib import ExitStack, suppress

from harness.servers import free_port
from kafkapy import Broker
from tests.support.client_requests import create_topic, until
from tests.support.wire import WireClient

SCRAPERS = 1000
AT_ONCE = 250
"""So many connections are open together: a process may have few descriptors."""


def test_a_thousand_scrapers_cost_neither_clients_nor_who_scrapes_next() -> None:
    port = free_port()
    with (
        Broker(properties={"kafkapy.admin.listener": f"127.0.0.1:{port}"}) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        for part in range(SCRAPERS // AT_ONCE):
            with ExitStack() as stack:
                scrapers = [stack.enter_context(requester(port)) for _ in range(AT_ONCE)]
                create_topic(client, f"orders-{part}")
                assert {status(each) for each in scrapers} <= {b"200", b"503", b""}
        until(lambda: is_served(port))


def requester(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 60)
    connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    return connection


def status(connection: socket.socket) -> bytes:
    """Return the status of the response, empty if the connection was closed without one."""
    with suppress(ConnectionError):
        return connection.recv(12)[9:]
    return b""


def is_served(port: int) -> bool:
    with requester(port) as connection:
        return status(connection) == b"200"
