"""What one peer can do to all others: each attack on a fresh broker, beside Apache Kafka where it applies.

    python -m benchmarks.abuse [--only NAME,...] [--seconds N] [--apache]
                              [--compiled | --tree DIRECTORY]

Printed for each: the longest wait of another client (benchmarks/canary.py: a request every millisecond), the most CPU
that the broker used in a wait, which is about how long it is on a quiet machine, the 99th percentile of the waits, and
by how much the process's resident memory grew at its peak. Two figures hold for every attack: no wait above 250 ms, of
which at least as much is the broker's CPU, and no growth above 64 MiB beyond what its keys allow; a row that grew by so
little that it says nothing of its bound fails, too. --compiled: what `make compiled` has installed. --tree: the sources
of another version of kafkapy, to compare with.
"""

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attack import Attack, answered, second_port
from benchmarks.attacks_on_groups import GROUP_ATTACKS
from benchmarks.attacks_on_loop import LOOP_ATTACKS
from benchmarks.attacks_on_memory import MEMORY_ATTACKS
from benchmarks.canary import Canary
from harness.servers import COMPILED_PYTHON, ApacheKafka, CompiledKafkapy, Kafkapy, Server

MAX_MORE_S = 120
"""How much longer than asked for a slow machine is given until an attack has had enough of its requests answered."""
POLL_S = 0.1
ATTACKS = [*LOOP_ATTACKS, *GROUP_ATTACKS, *MEMORY_ATTACKS]


@dataclass(frozen=True)
class Outcome:
    wait_ms: float
    p99_ms: float
    cpu_ms: float
    growth_mb: float
    answered_count: int
    figure: str

    def faults(self, attack: Attack) -> list[str]:
        return attack.faults(
            wait_ms=min(self.wait_ms, self.cpu_ms), growth_mb=self.growth_mb, answered_count=self.answered_count
        )


def run(attack: Attack, server: Server, seconds: float) -> Outcome:
    attack.prepare(server)
    time.sleep(1)
    server.forget_peak()
    before_mb = server.memory_mb()
    answered[server.port] = 0
    is_over = threading.Event()
    peers = [threading.Thread(target=attack.peer, args=(server, is_over)) for _ in range(attack.peers)]
    port = second_port(server) if attack.canary == "tls" else None
    canary = Canary(server, seconds, attack.canary, port)
    for peer in peers:
        peer.start()
    figures = canary.figures()
    latest_s = time.monotonic() + MAX_MORE_S
    while answered[server.port] < attack.min_answered and time.monotonic() < latest_s:
        time.sleep(POLL_S)
    grown_mb = server.memory_mb("VmHWM") - before_mb
    is_over.set()
    for peer in peers:
        peer.join(60)
    wait_ms, p99_ms, cpu_ms = (figures[f"stall_{name}_ms"] for name in ("max", "p99", "cpu"))
    return Outcome(wait_ms, p99_ms, cpu_ms, grown_mb, answered[server.port], attack.figure(server, seconds))


def _allowed(attack: Attack) -> str:
    return f" (the keys allow {attack.keys_mb})" if attack.keys_mb else ""


@contextlib.contextmanager
def broker(attack: Attack, kind: type[Kafkapy] | type[ApacheKafka], tree: Path | None = None) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="abuse-") as name:
        directory = Path(name)
        properties = attack.properties(directory)
        server = kind(directory / "data", properties)
        server.working_directory = tree or server.working_directory
        if "listeners" in properties:
            server.port = int(properties["listeners"].split(",")[0].rpartition(":")[2])
            if isinstance(server, ApacheKafka):
                properties["listeners"] += f",CONTROLLER://127.0.0.1:{server.controller_port}"
        with server:
            yield server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--apache", action="store_true", help="run each on Apache Kafka, too, where it applies")
    build = parser.add_mutually_exclusive_group()
    build.add_argument("--compiled", action="store_true", help="what `make compiled` has installed")
    build.add_argument("--tree", type=Path, help="the directory of another version's sources")
    given = parser.parse_args()
    if given.compiled and not COMPILED_PYTHON.exists():
        parser.error("`make compiled` was not run here")
    ours = CompiledKafkapy if given.compiled else Kafkapy
    chosen = [each for each in ATTACKS if not given.only or each.name in given.only.split(",")]
    is_bad = False
    for attack in chosen:
        for kind in (ours, ApacheKafka) if given.apache and not attack.is_ours_alone else (ours,):
            with broker(attack, kind, None if kind is ApacheKafka else given.tree) as server:
                outcome = run(attack, server, given.seconds)
            figures = (
                f"wait {outcome.wait_ms:6.0f} ms  CPU {outcome.cpu_ms:5.0f} ms  p99 {outcome.p99_ms:5.0f} ms"
                f"  growth {outcome.growth_mb:4.0f} MiB{_allowed(attack)}  {outcome.figure}"
            ).rstrip()
            print(f"{attack.name:24} {'apache' if kind is ApacheKafka else 'kafkapy':8} {figures}", flush=True)
            for fault in () if kind is ApacheKafka else outcome.faults(attack):
                is_bad = True
                print(f"{attack.name:24} FAILED: {fault}", flush=True)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
