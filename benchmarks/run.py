"""`make bench`: both servers under every load, alternating, reported as medians and ratios.

Both run all the time, each round gives one of them the load first; figures of a round are compared within it. Results
are printed as a table and written to .tools/bench/results.json.
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.servers import ApacheKafka, Kafkapy, Server
from benchmarks.workloads import WORKLOADS, Figures, Workload, is_higher_better
from tools.kafka import JAVA_LIBS

RESULTS = JAVA_LIBS.parents[1] / "bench" / "results.json"


def run_workload(workload: Workload, rounds: int, scale: float) -> dict[str, list[Figures]]:
    """Return the figures of each round by server; fresh servers and directories, alternating, one at a time."""
    figures: dict[str, list[Figures]] = {"kafkapy": [], "Apache Kafka": []}
    for number in range(rounds):
        kinds: list[type[Kafkapy] | type[ApacheKafka]] = [Kafkapy, ApacheKafka]
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            with (
                tempfile.TemporaryDirectory(prefix="kafkapy-bench-") as directory,
                kind(Path(directory) / "data") as server,
            ):
                figures[server.name].append(measure(workload, server, scale))
    return figures


def measure(workload: Workload, server: Server, scale: float) -> Figures:
    """Run the load twice and count the second: a warm JIT and warm caches on both sides."""
    if workload.name != "start and rest":
        workload.run(server, "warm-up", scale / 4)
    result = workload.run(server, "measured", scale)
    result["peak_memory_mb"] = server.memory_mb("VmHWM")
    print(f"  {server.name:13} " + "  ".join(f"{name}={value:.4g}" for name, value in result.items()), flush=True)
    return result


def summary(results: dict[str, dict[str, list[Figures]]]) -> Table:
    table = Table(title="kafkapy beside Apache Kafka 4.3.1: medians; a ratio above 1 is in kafkapy's favour")
    for column in ("load", "figure"):
        table.add_column(column)
    for column in ("kafkapy", "Apache Kafka", "ratio", "spread of the ratio"):
        table.add_column(column, justify="right")
    for workload, figures in results.items():
        for name in figures["kafkapy"][0]:
            pairs = [(a[name], b[name]) for a, b in zip(figures["kafkapy"], figures["Apache Kafka"], strict=True)]
            ratios = sorted((a / b if is_higher_better(name) else b / a) if a and b else float("nan") for a, b in pairs)
            ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
            cells = [f"{ours:.4g}", f"{theirs:.4g}", f"{statistics.median(ratios):.2f}"]
            table.add_row(workload, name, *cells, f"{ratios[0]:.2f} to {ratios[-1]:.2f}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one tenth of the load, two rounds: under ten minutes")
    parser.add_argument("--rounds", type=int, help="rounds of each load (4; quick: 2)")
    parser.add_argument("--only", help="run the loads whose name contains this")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (2 if arguments.quick else 4)
    scale = 0.1 if arguments.quick else 1.0
    results = {}
    for workload in WORKLOADS:
        if arguments.only and arguments.only not in workload.name:
            continue
        print(workload.name, flush=True)
        results[workload.name] = run_workload(workload, rounds, scale)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.release()}
    RESULTS.write_text(json.dumps({"machine": machine, "rounds": rounds, "scale": scale, "results": results}, indent=1))
    Console(width=None if sys.stdout.isatty() else 150).print(summary(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
