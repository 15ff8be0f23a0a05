"""What a cluster's brokers say of it, if they are gone or do not answer."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from kafkapy.embedded.observer import ClusterObserver
from kafkapy.server.cluster.plan import BROKER, ClusterPlan, NodePlan, free_ports
from kafkapy.testing import Broker, ClusterError


def observer(*, runs: bool) -> ClusterObserver:
    """Of a cluster of one broker, at a port where nothing listens. `runs`: whether its process is there."""
    plan = ClusterPlan("cluster", [NodePlan(1, BROKER, port=free_ports(1)[0])])
    return ClusterObserver(plan, lambda _: runs)


@pytest.mark.parametrize("runs", [False, True])
def test_nothing_is_in_sync_if_no_broker_says_so(runs: bool) -> None:
    with pytest.raises(ClusterError, match=r"not in sync: no broker answers after"):
        observer(runs=runs).wait_in_sync([], 0.1)


@pytest.mark.parametrize("runs", [False, True])
def test_topics_have_no_leaders_if_no_broker_says_so(runs: bool) -> None:
    with pytest.raises(ClusterError, match=r"no broker answers after"):
        observer(runs=runs).wait_for_leaders(["orders"], 0.1)


@contextlib.contextmanager
def closing_at_once() -> Iterator[int]:
    """The port of a server that closes each connection, as a broker does for Metadata whose disk is full."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_the_leader_is_asked_of_a_broker_that_knows_it() -> None:
    with Broker() as broker, closing_at_once() as full:
        broker.create_topics("orders")
        ports = (full, int(broker.bootstrap_servers.rpartition(":")[2]))
        nodes = [NodePlan(number, BROKER, port=port) for number, port in enumerate(ports)]
        assert ClusterObserver(ClusterPlan("cluster", nodes), lambda _: True).leader_of("orders", 0) == 1
