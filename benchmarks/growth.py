"""Growth: what a request, or a MiB, costs the broker when there is a hundred or a thousand times more of everything.

`growth` of partitions and connections is the dearest of the larger steps over the first one: 1 is flat. A batch's MiB
is cheaper in a larger batch anyway, so there it is the largest rise from any size to a larger one, 1 if none rises.
"""

from itertools import combinations

from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import Pipe, end_offsets, new_batch, produce_frame, run_pipes
from benchmarks.workload import Cost, Figures, Workload
from harness.servers import Server

CONNECTIONS = 10
DEPTH = 5


def partitions(server: Server, topic: str, scale: float) -> Figures:
    """Requests of one record, each to another of 10 to 10,000 partitions than the last one (small runs: 1,000)."""
    requests = int(100_000 * scale)
    figures = {}
    batch = new_batch(1, 100)
    for count in (10, 1_000) if scale < 0.3 else (10, 1_000, 10_000):
        name = f"{topic}-{count}"
        create_topic(server, name, count)
        frames = [produce_frame(name, partition, batch) for partition in range(count)]
        turns = [_turn(frames, number) for number in range(CONNECTIONS)]
        pipes = [Pipe(server, turn, DEPTH) for turn in turns]
        figures[f"cpu_us_per_request_{count}"] = _cpu_us(server, pipes, requests)
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
    figures = {}
    batch = new_batch(1, 100)
    create_topic(server, topic, 10)
    for count in (10, 200, 2_000):
        frames = [produce_frame(topic, partition, batch) for partition in range(10)]
        pipes = [Pipe(server, [frames[number % 10]], 1) for number in range(count)]
        figures[f"cpu_us_per_request_{count}"] = _cpu_us(server, pipes, requests)
    delete_topic(server, topic)
    return _with_growth(figures)


def batch_bytes(server: Server, topic: str, scale: float) -> Figures:
    """Batches of 1 KiB to 1 MiB, with records of 1 KiB at most."""
    figures = {}
    create_topic(server, topic)
    for size, kib in ((1_000, 1), (16_000, 16), (64_000, 64), (256_000, 256), (1_000_000, 1024)):
        batch = new_batch(max(1, size // 1_000), 940)
        requests = int(min(1_000_000_000 * scale, 40_000 * len(batch)) / len(batch))
        pipe = Pipe(server, [produce_frame(topic, 0, batch)], DEPTH)
        cpu_us = _cpu_us(server, [pipe], requests)
        figures[f"cpu_us_per_mib_{kib}k"] = cpu_us / len(batch) * (1 << 20)
    delete_topic(server, topic)
    return {**figures, "growth": largest_rise(list(figures.values()))}


def largest_rise(costs: list[float]) -> float:
    """Return how many times dearer a later one is than an earlier one, at most; at least 1."""
    return max(1.0, *(later / earlier for earlier, later in combinations(costs, 2)))


def _cpu_us(server: Server, pipes: list[Pipe], requests: int) -> float:
    """Return the broker's CPU microseconds per request; the connections are closed then."""
    run_pipes(pipes, len(pipes))
    with Cost(server) as cost:
        run_pipes(pipes, requests)
    for pipe in pipes:
        pipe.connection.close()
    return cost.cpu_s / requests * 1e6


def _with_growth(figures: Figures) -> Figures:
    first, *others = figures.values()
    return {**figures, "growth": max(others) / first}


WORKLOADS = [
    Workload("growth of partitions", partitions, family="growth", warms_up=False, quick_rounds=1),
    Workload("growth of connections", connections, family="growth", warms_up=False, quick_rounds=1),
    Workload("growth of batches", batch_bytes, family="growth", warms_up=False, quick_rounds=1),
]
