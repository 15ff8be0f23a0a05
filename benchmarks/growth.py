"""Growth: what a request, or a MiB, costs the broker when there is a hundred or a thousand times more of everything.

`python -m benchmarks.growth` shows it for kafkapy alone, with the part of each cost that is the kernel's.

`growth` of partitions and connections is the dearest of the larger steps over the first one: 1 is flat. A batch's MiB
is cheaper in a larger batch anyway, so there it is the largest rise from any size to a larger one, 1 if none rises.
"""

import argparse
import sys
import tempfile
from itertools import combinations
from pathlib import Path

from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import Pipe, end_offsets, new_batch, produce_frame, run_pipes
from benchmarks.workload import Cost, Figures, Workload
from harness.servers import Kafkapy, Server

CONNECTIONS = 10
DEPTH = 5
MIB = 1 << 20


def partitions(server: Server, topic: str, scale: float) -> Figures:
    """Requests of one record, each to another of 10 to 10,000 partitions than the last one (small runs: 1,000)."""
    requests = int(100_000 * scale)
    figures: Figures = {}
    batch = new_batch(1, 100)
    for count in (10, 1_000) if scale < 0.3 else (10, 1_000, 10_000):
        name = f"{topic}-{count}"
        create_topic(server, name, count)
        frames = [produce_frame(name, partition, batch) for partition in range(count)]
        turns = [_turn(frames, number) for number in range(CONNECTIONS)]
        pipes = [Pipe(server, turn, DEPTH) for turn in turns]
        figures |= _cost_us(server, pipes, requests, f"us_per_request_{count}")
        assert end_offsets(server, name, count) == requests + sum(map(len, turns)) + CONNECTIONS, (
            "not all that was sent is there"
        )
        delete_topic(server, name)
    return _with_growth(figures)


def _turn(frames: list[bytes], number: int) -> list[bytes]:
    """Return the requests of connection `number`: a tenth of them, but ten at least, so that each is for another."""
    count = max(len(frames) // CONNECTIONS, 10)
    start = number * len(frames) // CONNECTIONS
    return (frames + frames)[start : start + count]


def connections(server: Server, topic: str, scale: float) -> Figures:
    """Requests of one record over 10 to 2,000 connections, one under way on each."""
    requests = int(100_000 * scale)
    figures: Figures = {}
    batch = new_batch(1, 100)
    create_topic(server, topic, 10)
    for count in (10, 200, 2_000):
        frames = [produce_frame(topic, partition, batch) for partition in range(10)]
        pipes = [Pipe(server, [frames[number % 10]], 1) for number in range(count)]
        figures |= _cost_us(server, pipes, requests, f"us_per_request_{count}")
    delete_topic(server, topic)
    return _with_growth(figures)


def batch_bytes(server: Server, topic: str, scale: float) -> Figures:
    """Batches of 1 KiB to 1 MiB, with records of 1 KiB at most."""
    figures: Figures = {}
    create_topic(server, topic)
    for size, kib in ((1_000, 1), (16_000, 16), (64_000, 64), (256_000, 256), (1_000_000, 1024)):
        batch = new_batch(max(1, size // 1_000), 940)
        requests = int(min(1_000_000_000 * scale, 40_000 * len(batch)) / len(batch))
        pipe = Pipe(server, [produce_frame(topic, 0, batch)], DEPTH)
        figures |= _cost_us(server, [pipe], requests, f"us_per_mib_{kib}k", unit=len(batch) / MIB)
    delete_topic(server, topic)
    costs = [value for name, value in figures.items() if name.startswith("cpu")]
    return {**figures, "growth": largest_rise(costs)}


def largest_rise(costs: list[float]) -> float:
    """Return how many times dearer a later one is than an earlier one, at most; at least 1."""
    return max(1.0, *(later / earlier for earlier, later in combinations(costs, 2)))


def _cost_us(server: Server, pipes: list[Pipe], requests: int, name: str, *, unit: float = 1) -> Figures:
    """Return the broker's CPU microseconds per request (unit: of how many MiB), and the kernel's part of them.

    The connections are closed then.
    """
    run_pipes(pipes, len(pipes))
    with Cost(server) as cost:
        run_pipes(pipes, requests)
    for pipe in pipes:
        pipe.connection.close()
    of_one = 1e6 / requests / unit
    return {f"cpu_{name}": cost.cpu_s * of_one, f"kernel_{name}": cost.kernel_s * of_one}


def _with_growth(figures: Figures) -> Figures:
    first, *others = (value for name, value in figures.items() if name.startswith("cpu"))
    return {**figures, "growth": max(others) / first}


WORKLOADS = [
    Workload("growth of partitions", partitions, family="growth", warms_up=False, quick_rounds=1),
    Workload("growth of connections", connections, family="growth", warms_up=False, quick_rounds=1),
    Workload("growth of batches", batch_bytes, family="growth", warms_up=False, quick_rounds=1),
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the requests of each step")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Kafkapy(Path(directory, "data")) as server:
        for number, workload in enumerate(WORKLOADS):
            figures = workload.run(server, f"growth-{number}", arguments.scale)
            print(f"{workload.name}: {figures.pop('growth'):.2f}")
            names = [name.removeprefix("cpu_") for name in figures if name.startswith("cpu")]
            for name in names:
                cpu_us, kernel_us = figures[f"cpu_{name}"], figures[f"kernel_{name}"]
                print(f"  {name}: {cpu_us:.1f}, of which the kernel {kernel_us:.1f}, its own {cpu_us - kernel_us:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
