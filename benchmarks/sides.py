"""Producing, small requests and catching up on every side there is: `python -m benchmarks.sides --scale 0.1`.

The sides: kafkapy by this Python, by others (`--python .venv-3.14/bin/python`, with what kafkapy needs installed),
compiled where `make compiled` was run, kfake where there is Go (kfake_server.py), Apache Kafka 4.4.0. All of them run
all the time and are warmed up by the same work; in each round a load runs on one after the other, the next round begins
with another. Printed are medians: what each reaches in a second, and the CPU of its process.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks import consume, kfake_server, produce, sockets
from benchmarks.warm_up import warm_up
from benchmarks.workload import Figures, Workload
from harness.servers import COMPILED_PYTHON, ApacheKafka, CompiledKafkapy, Kafkapy, Server

WORKLOADS: list[Workload] = [*produce.WORKLOADS, *sockets.WORKLOADS, *consume.WORKLOADS]
UNITS = {
    "records_per_s": "records/s", "requests_per_s": "requests/s",
    "broker_cpu_s_per_gb": "CPU, s for a GB", "broker_cpu_us_per_request": "CPU, us for a request",
}  # fmt: skip
"""What is printed of a load's figures, and its name."""


class OtherKafkapy(Kafkapy):
    """kafkapy as another Python interprets it."""

    def __init__(self, directory: Path, python: str) -> None:
        super().__init__(directory)
        self.name = f"kafkapy by {python}"
        self.python = python


def new_sides(directory: Path, pythons: Sequence[str]) -> Iterator[Server]:
    yield Kafkapy(directory / "kafkapy")
    for number, python in enumerate(pythons):
        yield OtherKafkapy(directory / f"other-{number}", python)
    if COMPILED_PYTHON.exists():
        yield CompiledKafkapy(directory / "compiled")
    why_not = kfake_server.build()
    if why_not:
        print(f"without kfake: {why_not}", flush=True)
    else:
        yield kfake_server.Kfake(directory / "kfake")
    yield ApacheKafka(directory / "apache")


def measure(sides: Sequence[Server], load: Workload, *, rounds: int, scale: float) -> dict[str, Figures]:
    """Return the medians of each side's figures; a side that fails is left out."""
    found: dict[str, list[Figures]] = {side.name: [] for side in sides}
    left = list(sides)
    if load.prepare is not None:
        for side in left:
            load.prepare(side, "prepared", scale)
    for number in range(rounds):
        for side in [*left[number % len(left) :], *left[: number % len(left)]]:
            topic = "prepared" if load.prepare is not None else f"round-{number}"
            try:
                found[side.name].append(load.run(side, topic, scale))
            except Exception as error:
                print(f"{side.name} failed in {load.name}: {error!r}", flush=True)
                left.remove(side)
                del found[side.name]
    return {name: _medians(each) for name, each in found.items()}


def _medians(measured: list[Figures]) -> Figures:
    return {figure: median(each[figure] for each in measured) for figure in measured[0]}


def table(load: Workload, found: dict[str, Figures]) -> Iterator[str]:
    """Yield the lines of a table, a side a line."""
    figures = [figure for figure in UNITS if all(figure in each for each in found.values())]
    yield f"| {load.name} | {' | '.join(UNITS[figure] for figure in figures)} |"
    yield f"|---|{'--:|' * len(figures)}"
    for name, each in found.items():
        yield f"| {name} | {' | '.join(_text(each[figure]) for figure in figures)} |"


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sides")
    parser.add_argument(
        "--only", action="append", default=[], help="a family, or part of a load's name; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--python", action="append", default=[], help="another Python to run kafkapy; may be repeated")
    arguments = parser.parse_args()
    wanted = arguments.only or ["produce", "requests", "consume"]
    loads = [load for load in WORKLOADS if any(part == load.family or part in load.name for part in wanted)]
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        sides = [stack.enter_context(side) for side in new_sides(Path(directory), arguments.python)]
        for side in sides:
            warm_up(side, arguments.scale, with_sockets=True)
        for load in loads:
            print(*table(load, measure(sides, load, rounds=arguments.rounds, scale=arguments.scale)), sep="\n")
            print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
