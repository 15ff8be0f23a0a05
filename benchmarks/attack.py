"""What attacks have in common: their description, requests sent over and over, many connections held open."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.wire import call, connect, receive
from harness.servers import ApacheKafka, Kafkapy, Server
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest

PAUSE_S = 0.01


@dataclass(frozen=True)
class Attack:
    """An attack: `peer` is run by `peers` threads until the time is over, each over and over.

    canary: what the other client asks for (canary.py). keys_mb: what the broker's keys allow requests to take. figure:
    another figure of the broker, after the attack, which has lasted so many seconds.
    """

    name: str
    peer: Callable[[Server, threading.Event], None]
    peers: int
    properties: Callable[[Path], dict[str, str]] = field(default=lambda directory: {})
    prepare: Callable[[Server], None] = field(default=lambda server: None)
    is_ours_alone: bool = False
    canary: str = "versions"
    keys_mb: int = 0
    figure: Callable[[Server, float], str] = field(default=lambda server, seconds: "")


def repeat(server: Server, is_over: threading.Event, frames: Sequence[bytes]) -> None:
    """Send frames one after another and read their responses, until the time is over; connect again when closed."""
    while not is_over.is_set():
        with contextlib.suppress(OSError, AssertionError), connect(server) as connection:
            while not is_over.is_set():
                for each in frames:
                    connection.sendall(each)
                    receive(connection)


def repeat_made(server: Server, is_over: threading.Event, frames: Iterator[bytes], depth: int = 32) -> None:
    """As `repeat`, with frames that are made as they are sent, so many under way."""
    while not is_over.is_set():
        with contextlib.suppress(OSError, AssertionError), connect(server) as connection:
            answered = connection.makefile("rb")
            while not is_over.is_set():
                connection.sendall(b"".join(next(frames) for _ in range(depth)))
                for _ in range(depth):
                    size = int.from_bytes(answered.read(4), "big")
                    assert len(answered.read(size)) == size


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
