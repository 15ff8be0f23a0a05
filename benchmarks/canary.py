"""A connection of its own process that asks for little every millisecond: how long others wait while a load runs.

In a thread of the load's process it would also wait for that process: Python runs one thread for 5 ms before another.

    python -m benchmarks.canary PORT SECONDS      prints {"stall_p99_ms": ..., "stall_max_ms": ...}
"""

import json
import socket
import subprocess
import sys
import time

from benchmarks.wire import frame, receive
from harness.servers import Server
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest

PAUSE_S = 0.001


class Canary:
    """The process, while it asks."""

    def __init__(self, server: Server, seconds: float) -> None:
        command = [sys.executable, "-m", "benchmarks.canary", str(server.port), str(seconds)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._printed = self._process.stdout
        assert self._printed.readline() == "asking\n"

    @property
    def is_done(self) -> bool:
        return self._process.poll() is not None

    def figures(self) -> dict[str, float]:
        """Return the figures once it has ended."""
        found: dict[str, float] = json.loads(self._printed.read())
        assert self._process.wait() == 0
        return found


def waits_ms(port: int, seconds: float) -> list[float]:
    """Return how long each answer took, in ms, ascending."""
    request = frame(ApiVersionsRequest(), 0)
    found: list[float] = []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ends_at = time.monotonic() + seconds
        while (began := time.monotonic()) < ends_at:
            connection.sendall(request)
            receive(connection)
            found.append((time.monotonic() - began) * 1000)
            time.sleep(PAUSE_S)
    return sorted(found)


if __name__ == "__main__":
    print("asking", flush=True)
    found = waits_ms(int(sys.argv[1]), float(sys.argv[2]))
    print(json.dumps({"stall_p99_ms": found[len(found) * 99 // 100], "stall_max_ms": found[-1]}))
