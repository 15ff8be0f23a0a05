"""What a load is, and what it costs the broker.

A figure's name ends in its unit. Of figures in `_per_s` the larger is better, of all others the smaller.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from harness.servers import Server

Figures = dict[str, float]

RESTARTED = "restarted"
PLAIN = "plain"
TLS = "TLS"
SECURED = "secured"
SECURED_RESTARTED = "secured, restarted"
THREE_NODES = "three nodes"
THREE_RESTARTED = "three nodes, restarted"
FOUR_NODES = "four nodes"
CLEANING = "cleaning"
TWO_DIRECTORIES = "two log directories"
METERED = "metered"
"""kafkapy with an admin listener, and nobody beside it."""
SERVERS = (
    *(RESTARTED, SECURED_RESTARTED, CLEANING, METERED, TWO_DIRECTORIES, TLS, SECURED),
    *(THREE_RESTARTED, THREE_NODES, FOUR_NODES, PLAIN),
)
"""Kinds of pairs, in the order in which they run: the one with most loads last, as the minutes may end in it. Who
restarts its servers does not do so to a warm JVM of others."""
COLD = (RESTARTED, SECURED_RESTARTED, CLEANING, METERED, THREE_RESTARTED)
"""Pairs that are not warmed up: their loads begin with a start, or warm up what they need."""


@dataclass(frozen=True)
class Workload:
    """A load that runs against one server with a client that is the same for both.

    `run(server, topic, scale)` is one measurement; the topic's name is its own, and nothing is created. With `prepare`
    the topic's name is the same in all of a server's measurements, and `prepare` makes it, once, uncounted.
    """

    name: str
    run: Callable[[Server, str, float], Figures]
    prepare: Callable[[Server, str, float], None] | None = None
    family: str = ""
    """`ONLY=` selects by it, or by a part of the name."""
    quick_rounds: int = 2
    """How many rounds QUICK=1 has for it; 0 leaves it out."""
    warms_up: bool = True
    """Whether a first measurement is thrown away, where there is time (not with QUICK=1): all is warm on both sides."""
    servers: str = PLAIN
    rounds: int | None = None
    """For a load so long that it takes fewer rounds than the others."""
    is_beside_apache: bool = True
    """False for what is held against an absolute goal only, and measured of kafkapy (interpreted) alone."""
    missing: Callable[[Server], str | None] = lambda server: None
    """Says why a server cannot do this yet."""


class Cost:
    """What a server spends from `with` to its end: CPU seconds, the kernel's part of them, seconds, its peak memory."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.cpu_s = self.kernel_s = self.seconds = self.peak_memory_mb = 0.0

    def __enter__(self) -> Self:
        self._server.forget_peak()
        self._kernel_before = self._server.kernel_s()
        self._cpu_before, self._started = self._server.cpu_s(), time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return
        self.seconds = time.monotonic() - self._started
        self.cpu_s = self._server.cpu_s() - self._cpu_before
        self.kernel_s = self._server.kernel_s() - self._kernel_before
        self.peak_memory_mb = self._server.memory_mb("VmHWM")

    def figures(self, *, records: int, size_bytes: int, seconds: float | None = None) -> Figures:
        """Return throughput and costs; `seconds` are the client's own where it knows them better (a JVM's start)."""
        seconds = seconds or self.seconds
        return {
            "records_per_s": records / seconds,
            "mb_per_s": size_bytes / 1e6 / seconds,
            "broker_cpu_s_per_gb": self.cpu_s / (size_bytes / 1e9),
            "broker_cpu_s_per_million": self.cpu_s / (records / 1e6),
            "peak_memory_mb": self.peak_memory_mb,
        }


def is_higher_better(figure: str) -> bool:
    return figure.endswith("_per_s")
