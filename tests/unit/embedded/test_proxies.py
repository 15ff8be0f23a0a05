"""The proxies between the nodes of a local cluster."""

import asyncio
import gc
import socket
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from kafkapy.embedded.proxies import NOT_A_NODE, Proxies
from tests.support.eventually import eventually

HOST = "127.0.0.1"
CONNECTIONS = 50


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def test_a_close_leaves_no_connection_open_not_even_those_that_were_accepted_last() -> None:
    proxy_port = free_port()
    with ExitStack() as stack, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        node = stack.enter_context(socket.create_server((HOST, 0)))
        proxies = Proxies()
        proxies.forward(1, proxy_port, node.getsockname()[1])
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection((HOST, proxy_port), timeout=10))
        proxies.close()
        del proxies
        gc.collect()
        assert [str(each.message) for each in caught] == []


def test_a_close_ends_what_waits_for_bytes_that_are_delayed() -> None:
    """The client has left, and what it sent is not delivered yet."""
    proxy_port = free_port()
    with ExitStack() as stack:
        node = stack.enter_context(socket.create_server((HOST, 0)))
        proxies = Proxies(is_between_nodes=False)
        proxies.forward(1, proxy_port, node.getsockname()[1])
        proxies.slow([NOT_A_NODE], [1], delay_s=600, bytes_per_s=None)
        with socket.create_connection((HOST, proxy_port), timeout=10) as client:
            client.sendall(b"late")

        async def is_waiting() -> bool:
            return any("Queue.join" in repr(each) for each in asyncio.all_tasks())

        eventually(lambda: proxies._thread.call(is_waiting))
        closing = threading.Thread(target=proxies.close, daemon=True)
        closing.start()
        closing.join(20)
        assert not closing.is_alive()


def test_a_delay_limits_no_rate() -> None:
    """32 parts of 64 KiB would take 6.4 s, one after the other."""
    proxy_port, sent = free_port(), bytes(2 << 20)
    with ExitStack() as stack:
        node = stack.enter_context(socket.create_server((HOST, 0)))
        proxies = Proxies(is_between_nodes=False)
        stack.callback(proxies.close)
        proxies.forward(1, proxy_port, node.getsockname()[1])
        proxies.slow([NOT_A_NODE], [1], delay_s=0.2, bytes_per_s=None)
        client = stack.enter_context(socket.create_connection((HOST, proxy_port), timeout=10))
        at_node = stack.enter_context(node.accept()[0])
        at_node.settimeout(10)
        began_s = time.monotonic()
        stack.enter_context(ThreadPoolExecutor()).submit(client.sendall, sent)
        received = at_node.recv(1)
        first_s = time.monotonic() - began_s
        while len(received) < len(sent):
            received += at_node.recv(1 << 20)
        assert first_s > 0.19
        assert time.monotonic() - began_s < 3
        client.shutdown(socket.SHUT_WR)
        assert at_node.recv(1) == b"", "the end comes after what was sent"
