"""What attacks have in common: their description, requests sent over and over, many connections held open."""

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.wire import call, connect, receive
from harness.servers import ApacheKafka, Kafkapy, Server
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest

PAUSE_S = 0.01
MAX_WAIT_MS, MAX_GROWTH_MB = 250, 64
"""What is promised of each attack."""


@dataclass(frozen=True)
class Attack:
    """An attack: `peer` is run by `peers` threads until the time is over, each over and over.

    canary: what the other client asks for (canary.py). figure: another figure of the broker, after the attack, which
    has lasted so many seconds.

    keys_mb: by how much the broker's keys let it grow. So that the row can tell whether that bound holds, the attack
    goes on until so many of its requests are answered (min_answered), however slow the machine is, and if the broker
    has not grown by min_mb then, the row fails as one that saw nothing. max_mb: how much more than keys_mb it may
    grow; less than MAX_GROWTH_MB where without the bound it would not grow by that with so many requests.
    """

    name: str
    peer: Callable[[Server, threading.Event], None]
    peers: int
    properties: Callable[[Path], dict[str, str]] = field(default=lambda directory: {})
    prepare: Callable[[Server], None] = field(default=lambda server: None)
    is_ours_alone: bool = False
    canary: str = "versions"
    keys_mb: int = 0
    min_mb: int = 0
    min_answered: int = 0
    max_mb: int = MAX_GROWTH_MB
    figure: Callable[[Server, float], str] = field(default=lambda server, seconds: "")

    def __post_init__(self) -> None:
        assert bool(self.keys_mb) == bool(self.min_mb), f"{self.name} could grow by less than its keys allow for ever"

    def faults(self, *, wait_ms: float, growth_mb: float, answered_count: int) -> list[str]:
        """Return why kafkapy's row fails. wait_ms: the longest one, of which at least as much is the broker's CPU."""
        too_long = [f"a wait of {wait_ms:.0f} ms, {MAX_WAIT_MS} are allowed"] if wait_ms > MAX_WAIT_MS else []
        allowed_mb = self.keys_mb + self.max_mb
        if growth_mb > allowed_mb:
            return [*too_long, f"a growth of {growth_mb:.0f} MiB, {allowed_mb} are allowed"]
        if answered_count < self.min_answered:
            return [*too_long, f"saw nothing: {answered_count} responses, {self.min_answered} were to be reached"]
        if growth_mb < self.min_mb:
            return [*too_long, f"saw nothing: a growth of {growth_mb:.0f} MiB, {self.min_mb} were to be reached"]
        return too_long


answered: Counter[int] = Counter()
"""Responses to `repeat` and `repeat_made`, by the broker's port."""


def repeat(server: Server, is_over: threading.Event, frames: Sequence[bytes]) -> None:
    """Send frames one after another and read their responses, until the time is over; connect again when closed."""
    while not is_over.is_set():
        with contextlib.suppress(OSError, AssertionError), connect(server) as connection:
            while not is_over.is_set():
                for each in frames:
                    connection.sendall(each)
                    receive(connection)
                    answered[server.port] += 1


def repeat_made(server: Server, is_over: threading.Event, frames: Iterator[bytes], depth: int = 32) -> None:
    """As `repeat`, with frames that are made as they are sent, so many under way."""
    while not is_over.is_set():
        with contextlib.suppress(OSError, AssertionError), connect(server) as connection:
            received = connection.makefile("rb")
            while not is_over.is_set():
                connection.sendall(b"".join(next(frames) for _ in range(depth)))
                for _ in range(depth):
                    size = int.from_bytes(received.read(4), "big")
                    assert len(received.read(size)) == size
                answered[server.port] += depth


def hold(port: int, is_over: threading.Event, data: bytes, connections: int) -> None:
    """Send as much of `data` over each of many connections as the broker takes, read nothing, and keep them open.

    What the broker has closed is opened anew.
    """
    held: dict[socket.socket, int] = {}
    while not is_over.is_set():
        with contextlib.suppress(OSError):
            while len(held) < connections and not is_over.is_set():
                connection = socket.create_connection(("127.0.0.1", port), timeout=5)
                connection.setblocking(False)
                held[connection] = 0
                _push(held, connection, data)
        for connection in list(held):
            _push(held, connection, data)
        time.sleep(PAUSE_S)
    for connection in held:
        connection.close()


def _push(held: dict[socket.socket, int], connection: socket.socket, data: bytes) -> None:
    """Send more; forget the connection if it is closed."""
    view = memoryview(data)
    try:
        while held[connection] < len(data):
            held[connection] += connection.send(view[held[connection] : held[connection] + (1 << 18)])
        if connection.recv(1, socket.MSG_PEEK) == b"":
            raise ConnectionError
    except BlockingIOError:
        pass
    except OSError:
        connection.close()
        del held[connection]


def create_topics(server: Server, **partitions: int) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in partitions.items()
    ]
    with connect(server) as connection:
        response = call(connection, CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
    assert not any(topic.error_code for topic in response.topics), response


def load_coordinator(server: Server) -> None:
    """Wait until the broker is the coordinator of all groups."""
    with connect(server) as connection:
        deadline = time.monotonic() + 60
        while call(connection, FindCoordinatorRequest(coordinator_keys=["one"]), 4).coordinators[0].error_code:
            assert time.monotonic() < deadline


def second_port(server: Server) -> int:
    """Return the port of the second listener."""
    assert isinstance(server, Kafkapy | ApacheKafka)
    return int(server.properties["listeners"].split(",")[1].rpartition(":")[2])
