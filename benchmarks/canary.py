"""A connection of its own process that asks for little every millisecond: how long others wait while a load runs.

In a thread of the load's process it would also wait for that process: Python runs one thread for 5 ms before another.

    python -m benchmarks.canary PORT SECONDS KIND PID     prints {"stall_p99_ms": ..., "stall_max_ms": ..., ...}

KIND: versions asks for them; topics, from 127.0.0.2, for all topics with the client's rights, which is cached for
nobody; tls, from there too, for the versions over a new TLS connection each time. stall_cpu_ms: the most CPU that the
process PID used while a response was awaited: a wait on a busy machine is longer.
"""

import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.wire import frame, receive
from harness.servers import Server
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest

PAUSE_S = 0.001
OTHER_HOST = ("127.0.0.2", 0)
ALL_TOPICS = frame(MetadataRequest(topics=None, include_topic_authorized_operations=True), 12)


class Canary:
    """The process, while it asks."""

    def __init__(self, server: Server, seconds: float, kind: str = "versions", port: int | None = None) -> None:
        command = [sys.executable, "-m", "benchmarks.canary", str(port or server.port), str(seconds), kind]
        assert server.process is not None
        command.append(str(server.process.pid))
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._printed = self._process.stdout
        assert self._printed.readline() == "asking\n"

    @property
    def is_done(self) -> bool:
        return self._process.poll() is not None

    def figures(self) -> dict[str, float]:
        """Return the figures once it has ended."""
        with self._process:  # closes what it printed to
            found: dict[str, float] = json.loads(self._printed.read())
        assert self._process.returncode == 0
        return found


def waits_ms(port: int, seconds: float, kind: str, pid: int) -> tuple[list[float], float]:
    """Return how long each response took, in ms, ascending, and the most CPU of the broker's meanwhile, in ms."""
    found: list[float] = []
    max_cpu_ms = 0.0
    clock = ~pid << 3 | 2  # of a process, as clock_getcpuclockid returns it
    ends_at = time.monotonic() + seconds
    ask = _ask_by_tls(port) if kind == "tls" else _ask(port, kind)
    while (began := time.monotonic()) < ends_at:
        cpu_s = time.clock_gettime(clock)
        ask()
        found.append((time.monotonic() - began) * 1000)
        max_cpu_ms = max(max_cpu_ms, (time.clock_gettime(clock) - cpu_s) * 1000)
        time.sleep(PAUSE_S)
    return sorted(found), max_cpu_ms


def _ask(port: int, kind: str) -> Callable[[], object]:
    is_small = kind == "versions"
    request = frame(ApiVersionsRequest(), 0) if is_small else ALL_TOPICS
    source = None if is_small else OTHER_HOST
    connection = socket.create_connection(("127.0.0.1", port), timeout=60, source_address=source)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask() -> object:
        connection.sendall(request)
        return receive(connection)

    return ask


def _ask_by_tls(port: int) -> Callable[[], object]:
    request = frame(ApiVersionsRequest(), 0)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def ask() -> object:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60, source_address=OTHER_HOST) as plain,
            context.wrap_socket(plain) as connection,
        ):
            connection.sendall(request)
            return receive(connection)

    return ask


if __name__ == "__main__":
    print("asking", flush=True)
    found, max_cpu_ms = waits_ms(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    p99_ms = found[len(found) * 99 // 100]
    print(json.dumps({"stall_p99_ms": p99_ms, "stall_max_ms": found[-1], "stall_cpu_ms": max_cpu_ms}))
