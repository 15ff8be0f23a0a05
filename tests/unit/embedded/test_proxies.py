"""The proxies between the nodes of a local cluster."""

import gc
import socket
import warnings
from contextlib import ExitStack

from kafkapy.embedded.proxies import Proxies

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
