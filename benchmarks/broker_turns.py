"""The longest turns of the loops of a controller and of three brokers: `python -m benchmarks.broker_turns`.

Four processes (timed_node.py) with `--partitions` of three replicas each, in topics of a thousand. Then a topic of
10,000 is made (by two requests, as one may change 10,000 records at most), a broker is stopped by SIGSTOP until it is
fenced, and goes on; the topic is deleted; a broker stops in order and starts again. For each of these, and each node:
turns of at least 10 ms of CPU, the longest one with and without its collections of garbage, and where it was. The last
line is JSON: the longest turn of each.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.node_calls import leaders_of, smallest_isr
from benchmarks.timed_node import ENVIRONMENT
from harness.nodes import BROKER, CONTROLLER, Nodes, Plan
from harness.servers import Kafkapy, Server

PER_TOPIC, LARGE = 1_000, 10_000
TIMEOUT_S = 1_200
POLL_S = 0.2
POLL_S_PER_LOG = 20e-6
"""How long a look at so many directories is put off: it would take as much of a core as a broker."""
SETTLE_S = 5.0
"""What is left to be done afterwards (ISR changes, checkpoints, files deleted) counts to what caused it."""
REPLICAS = (2, 3, 4)
STOPPED = 4


class TimedKafkapy(Kafkapy):
    """Started by timed_node.py."""

    @property
    def turns_file(self) -> Path:
        return Path(f"{self.directory}.turns")

    def command(self) -> list[str]:
        return [self.python, "-m", "benchmarks.timed_node", *super().command()[3:]]

    def environment(self) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**environment, ENVIRONMENT: str(self.turns_file)}


PROPERTIES = {"broker.session.timeout.ms": "20000", "file.delete.delay.ms": "1000"}
"""Nobody is fenced because the machine is busy; files of a deleted topic go while it is measured."""
PLANS = (Plan(TimedKafkapy, 1, CONTROLLER), *(Plan(TimedKafkapy, each, BROKER) for each in REPLICAS))


class Turns:
    """Reads what the nodes noted."""

    def __init__(self, nodes: Sequence[TimedKafkapy]) -> None:
        self._nodes = nodes
        self.longest_ms: dict[str, float] = {}

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Print the turns of each node inside of the block."""
        began, cpu_s = time.monotonic(), [_cpu_s(node) for node in self._nodes]
        yield
        took_s = time.monotonic() - began
        time.sleep(SETTLE_S)
        print(f"{what}: {took_s:.1f} s", flush=True)
        for node, before_s in zip(self._nodes, cpu_s, strict=True):
            turns = sorted(_turns_since(node, began), key=lambda turn: -turn["cpu_ms"])
            spent_s = _cpu_s(node) - before_s
            memory_mb = node.memory_mb() if node.process is not None else 0
            print(
                f"  {node.directory.name}: {spent_s:.1f} s CPU, {memory_mb:.0f} MB, {len(turns)} turns of 10 ms", end=""
            )
            _print_longest(turns)
            longest_ms = turns[0]["cpu_ms"] if turns else 0.0
            self.longest_ms[what] = max(self.longest_ms.get(what, 0.0), longest_ms)


def _cpu_s(node: Server) -> float:
    return node.cpu_s() if node.process is not None else 0.0


def _turns_since(node: TimedKafkapy, began: float) -> list[dict[str, Any]]:
    turns = [json.loads(line) for line in node.turns_file.read_text().splitlines()]
    return [turn for turn in turns if turn["ended_s"] >= began]


def _print_longest(turns: list[dict[str, Any]]) -> None:
    if not turns:
        print(flush=True)
        return
    own_ms = max(turn["cpu_ms"] - turn["collected_ms"] for turn in turns)
    print(f", longest {turns[0]['cpu_ms']} ms, without collections {own_ms:.1f}", flush=True)
    for turn in turns[:3]:
        print(f"    {turn['cpu_ms']} ms, {turn['collected_ms']} of them collections")
        for sample in turn["samples"][-4:]:
            print(f"      {sample}")


def print_turns(node: TimedKafkapy) -> None:
    """Print the longest turns of a node's whole life."""
    turns = sorted(_turns_since(node, 0.0), key=lambda turn: -turn["cpu_ms"])
    print(f"{len(turns)} turns of 10 ms", end="")
    _print_longest(turns)


def run(partitions: int, large: int, directory: Path) -> dict[str, float]:
    with Nodes(PLANS, directory, PROPERTIES) as cluster:
        nodes = [node for node in cluster.nodes if isinstance(node, TimedKafkapy)]
        first, stopped = cluster.by_id[2], cluster.by_id[STOPPED]
        admin = AdminClient({"bootstrap.servers": first.bootstrap, "log_level": 4})
        turns = Turns(nodes)
        topics = [f"topic-{number}" for number in range(partitions // PER_TOPIC)]
        with turns.of(f"{partitions} partitions made"):
            for topic in topics:
                _create(admin, topic, PER_TOPIC)
            _wait_for_logs(cluster, partitions)
        with turns.of(f"a topic of {large} partitions made"):
            _create(admin, "large", large - PER_TOPIC)
            admin.create_partitions([NewPartitions("large", large)], request_timeout=120)["large"].result(TIMEOUT_S)
            _wait_for_logs(cluster, partitions + large)
        names = [*topics, "large"]
        with turns.of("a broker fenced"):
            assert stopped.process is not None
            stopped.process.send_signal(signal.SIGSTOP)
            while any(STOPPED in leaders_of(first, topic) for topic in names):
                time.sleep(POLL_S)
        with turns.of("it comes back"):
            stopped.process.send_signal(signal.SIGCONT)
            _wait_until_in_sync(first, names)
        with turns.of(f"a topic of {large} partitions deleted"):
            admin.delete_topics(["large"], operation_timeout=60)["large"].result(TIMEOUT_S)
            _wait_for_logs(cluster, partitions)
        with turns.of("a broker stops"):
            assert stopped.stop(timeout_s=TIMEOUT_S) == 0
        with turns.of("it starts again"):
            stopped.start(TIMEOUT_S)
            _wait_until_in_sync(first, topics)
        return turns.longest_ms


def _create(admin: AdminClient, topic: str, partitions: int) -> None:
    new = NewTopic(topic, partitions, replication_factor=len(REPLICAS))
    admin.create_topics([new], request_timeout=120)[topic].result(TIMEOUT_S)


def _wait_for_logs(cluster: Nodes, count: int) -> None:
    """Return once each broker has so many partition directories."""
    directories = [broker.directory for broker in cluster.brokers]
    while any(_count_logs(directory) != count for directory in directories):
        time.sleep(max(POLL_S, count * POLL_S_PER_LOG))


def _count_logs(directory: Path) -> int:
    names = [path.name for path in os.scandir(directory) if path.is_dir()]
    return sum(name != "__cluster_metadata-0" and not name.endswith("-delete") for name in names)


def _wait_until_in_sync(server: Server, topics: Sequence[str]) -> None:
    while any(smallest_isr(server, topic) < len(REPLICAS) for topic in topics):
        time.sleep(POLL_S)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker_turns")
    parser.add_argument("--partitions", type=int, default=10_000, help="before the large topic is made")
    parser.add_argument("--large", type=int, default=LARGE, help="partitions of the topic that is made and deleted")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafkapy-turns-") as directory:
        print(json.dumps(run(arguments.partitions, arguments.large, Path(directory))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
