"""`make bench`: both servers under every load, alternating, reported as medians, ratios and their spread.

After `make compiled` there is a third server, kafkapy compiled, with a table of its own beside Apache Kafka. All loads
run on one pair of servers (those that restart it or need another on pairs of their own), all of them running all the
time and warmed up by the same work before anything is timed (warm_up.py); the rounds of a load alternate between them
(A B, B A, ...), and a ratio compares the two measurements of one round. The table is printed; it, all figures and a
chart are written to .tools/bench/ as results.html and results.json, what a reader needs of them as results.md. A run of
some loads (ONLY=) keeps what earlier ones found of the others. `python -m benchmarks.run --publish` puts what is there
into benchmarks/README.md.
"""

import argparse
import compileall
import json
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console

import kafkapy
from benchmarks import (
    compaction,
    consume,
    features,
    groups,
    growth,
    latency,
    many_partitions,
    metrics,
    moves,
    nodes,
    produce,
    queues,
    report,
    rest,
    security,
    sockets,
    spark,
    spark_sinks,
    streams,
    transactions,
)
from benchmarks.chart import html, svg
from benchmarks.clusters import new_pair
from benchmarks.compiled_goals import COMPILED_GOALS
from benchmarks.full_memory import FullMemory
from benchmarks.report import Results
from benchmarks.topics import delete_topic, topics_of
from benchmarks.warm_up import warm_up
from benchmarks.workload import COLD, PLAIN, SERVERS, THREE_NODES, TLS, Figures, Workload
from harness.servers import Server
from tools.kafka import JAVA_LIBS

DIRECTORY = JAVA_LIBS.parents[1] / "bench"
MODULES = (
    rest,
    produce,
    sockets,
    consume,
    latency,
    growth,
    features,
    nodes,
    many_partitions,
    transactions,
    groups,
    queues,
    streams,
    spark,
    spark_sinks,
    compaction,
    moves,
    metrics,
    security,
)
WORKLOADS: list[Workload] = [workload for module in MODULES for workload in module.WORKLOADS]

ROUNDS, SCALE = 5, 1.0
LOAD_MINUTES, QUICK_LOAD_MINUTES = 45, 4
"""A load that takes longer has failed: the others are to be run, too."""
QUICK_SCALE, QUICK_MINUTES = 0.1, 9
"""No load begins after so many minutes: where the machine is slow, or busy with others, the last ones are left out.
Every family's first load begins before any family's second."""
NOT_QUICK = "not with QUICK=1, for time"

FAILED = "failed"
MAY_BE_MISSING = (TLS, THREE_NODES)
FIGURES_BEGIN, FIGURES_END = "<!-- figures -->", "<!-- end of figures -->"


def chosen(only: str | None, is_quick: bool) -> list[Workload]:
    """Return the loads whose family, or part of whose name, is among `only` (comma-separated); all without it.

    A whole name may have commas.
    """
    requested = [word.strip() for word in only.split(",")] if only else []
    if only and any(workload.name == only for workload in WORKLOADS):
        requested = [only]
    found = [
        workload
        for workload in WORKLOADS
        if (any(word == workload.family or word in workload.name for word in requested) if requested else True)
        and (workload.quick_rounds or not is_quick or workload.name in requested)
    ]
    if not found:
        families = ", ".join(dict.fromkeys(workload.family for workload in WORKLOADS))
        raise SystemExit(f"no load is called {only!r}; families: {families}")
    return by_turns(found) if is_quick else found


def by_turns(workloads: list[Workload]) -> list[Workload]:
    """Return the first load of each family, then the second of each, and so on."""
    turns: Counter[str] = Counter()
    numbered = []
    for workload in workloads:
        numbered.append((turns[workload.family], workload))
        turns[workload.family] += 1
    return [workload for _, workload in sorted(numbered, key=lambda pair: pair[0])]


@dataclass(frozen=True)
class Plan:
    """How much is run: `rounds` of each load (None: as many as QUICK=1 gives it), at a part of its full size."""

    rounds: int | None
    scale: float
    minutes: float | None = None
    warms_up_loads: bool = True
    load_minutes: float = 0
    """After which a load is given up; 0 for never."""
    memory: FullMemory | None = None
    """Filled before each measurement."""

    def rounds_of(self, workload: Workload) -> int:
        if self.rounds is None:
            return max(workload.quick_rounds, 1)
        return min(self.rounds, workload.rounds or self.rounds)


def run_all(workloads: list[Workload], plan: Plan, results: Results) -> None:
    """Run loads one after the other, into `results`. One that fails, or would begin too late, says so."""
    started = time.monotonic()
    until = started + plan.minutes * 60 if plan.minutes is not None else None
    by_servers = sorted(workloads, key=lambda workload: SERVERS.index(workload.servers))
    for servers, group in groupby(by_servers, key=lambda workload: workload.servers):
        with tempfile.TemporaryDirectory(prefix="kafkapy-bench-") as directory, ExitStack() as running:
            pair = new_pair(servers, Path(directory))
            why_not = "" if _is_over(until) else _start(pair, running, may_be_missing=servers in MAY_BE_MISSING)
            if not why_not and not _is_over(until) and servers not in COLD:
                why_not = _warm_up(pair, plan.scale, with_sockets=servers == PLAIN)
            for workload in group:
                began = time.monotonic()
                number = f"{len(results) + 1} of {len(workloads)}, after {began - started:.0f} s"
                print(f"[{number}] {workload.name}", flush=True)
                result = {"left_out": "the minutes were over"} if _is_over(until) else None
                result = result or run_or_report_why(workload, pair, plan, why_not)
                print(f"  {result.get('left_out', f'{time.monotonic() - began:.0f} s in all')}", flush=True)
                results[workload.name] = {"family": workload.family, "scale": plan.scale, **result}
    print(f"{len(workloads)} loads in {(time.monotonic() - started) / 60:.1f} minutes", flush=True)


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() > until


def _start(pair: list[Server], running: ExitStack, *, may_be_missing: bool) -> str:
    """Start both; return why one does not, "" where both do: "not yet" of a kafkapy that may not serve this yet."""
    for server in pair:
        try:
            running.enter_context(server)
        except RuntimeError as error:
            why = str(error).strip().splitlines()[-1]
            return f"not yet: {why}" if server is pair[0] and may_be_missing else f"{FAILED}: {why}"
    return ""


def _warm_up(pair: list[Server], scale: float, *, with_sockets: bool) -> str:
    """Return why it failed, "" where it did not."""
    try:
        for server in pair:
            warm_up(server, scale, with_sockets=with_sockets)
    except Exception as error:
        traceback.print_exc()
        return _failure(error)
    return ""


def _failure(error: Exception) -> str:
    return f"{FAILED}: {type(error).__name__} {error}".splitlines()[0]


class LoadTimeoutError(TimeoutError):
    """All sides of a load together have taken too long."""


def run_or_report_why(workload: Workload, pair: list[Server], plan: Plan, why_not: str) -> dict[str, Any]:
    if why_not:
        return {"left_out": why_not}
    try:
        lacking = workload.missing(pair[0])
        if lacking:
            return {"left_out": f"not yet: {lacking}"}
        with _given_up_after(plan.load_minutes):
            return run_workload(workload, pair if workload.is_beside_apache else pair[:1], plan)
    except Exception as error:
        traceback.print_exc()
        for server in pair:
            _restore(server, _topic(workload))
        return {"left_out": _failure(error)}


@contextmanager
def _given_up_after(minutes: float) -> Iterator[None]:
    """Raise LoadTimeoutError in the block after so many minutes; 0: never."""

    def give_up(*_: object) -> None:
        raise LoadTimeoutError(f"took more than {minutes:g} minutes")

    if not minutes:
        yield
        return
    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, minutes * 60)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _restore(server: Server, topic: str) -> None:
    """Start what a failed load left stopped, and delete its topics, so that the next load finds what it expects."""
    try:
        if server.revive():
            for left in topics_of(server):
                if left.startswith(topic):
                    delete_topic(server, left)
    except Exception:
        traceback.print_exc()


def _topic(workload: Workload) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in workload.name)


def run_workload(workload: Workload, pair: list[Server], plan: Plan) -> dict[str, Any]:
    """Return the figures of each round by server. If another than ours fails, it has none, and `not_measured` why."""
    base = _topic(workload)
    numbers = iter(range(1_000_000))
    figures: dict[str, list[Figures]] = {server.name: [] for server in pair}

    def measure(server: Server) -> Figures:
        topic = base if workload.prepare else f"{base}-{next(numbers)}"
        if plan.memory:
            plan.memory.fill()
        result = workload.run(server, topic, plan.scale)
        print(f"  {server.name:13} " + "  ".join(f"{name}={value:.4g}" for name, value in result.items()), flush=True)
        return result

    def count(server: Server) -> None:
        figures[server.name].append(measure(server))

    steps: list[Step] = []
    if workload.prepare:
        steps += [(server, partial(workload.prepare, server, base, plan.scale)) for server in pair]
    if workload.warms_up and plan.warms_up_loads:
        steps += [(server, partial(measure, server)) for server in pair]
    steps += [(server, partial(count, server)) for server in _turns(pair, plan.rounds_of(workload))]
    if workload.prepare:
        steps += [(server, partial(delete_topic, server, base)) for server in pair]
    why_not = _run_steps(steps, base)
    for name in why_not:
        del figures[name]
    return {"figures": figures, "not_measured": why_not} if why_not else {"figures": figures}


Step = tuple[Server, Callable[[], object]]


def _run_steps(steps: Iterable[Step], base: str) -> dict[str, str]:
    """Run each step but those of a server that has failed; return why, by server. Raises what one of ours raises."""
    why_not: dict[str, str] = {}
    for server, step in steps:
        if server.name in why_not:
            continue
        try:
            step()
        except Exception as error:
            if server.name.startswith(report.KAFKAPY) or isinstance(error, LoadTimeoutError):
                raise
            traceback.print_exc()
            _restore(server, base)
            why_not[server.name] = _failure(error).removeprefix(f"{FAILED}: ")
    return why_not


def _turns(pair: list[Server], rounds: int) -> Iterator[Server]:
    for number in range(rounds):
        yield from pair if number % 2 == 0 else reversed(pair)


def _not_quick(workload: Workload, plan: Plan) -> dict[str, Any]:
    return {"family": workload.family, "scale": plan.scale, "left_out": NOT_QUICK}


def about() -> dict[str, Any]:
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model[0].split(":")[1].strip() if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(pages / (1 << 30)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the load, one or two rounds: at most ten minutes"
    )
    parser.add_argument("--rounds", type=int, help=f"rounds of each load ({ROUNDS}; quick: one or two)")
    parser.add_argument("--scale", type=float, help=f"part of the full load ({SCALE:g}; quick: {QUICK_SCALE:g})")
    parser.add_argument("--only", help="families or parts of names, comma-separated")
    parser.add_argument(
        "--publish", action="store_true", help="put the last results into benchmarks/README.md; run nothing"
    )
    arguments = parser.parse_args()
    if arguments.publish:
        publish(**json.loads((DIRECTORY / "results.json").read_text()))
        return 0
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        rounds=arguments.rounds or (None if arguments.quick else ROUNDS),
        scale=arguments.scale or (QUICK_SCALE if arguments.quick else SCALE),
        minutes=QUICK_MINUTES if arguments.quick else None,
        warms_up_loads=not arguments.quick,
        load_minutes=QUICK_LOAD_MINUTES if arguments.quick else LOAD_MINUTES,
        memory=FullMemory(DIRECTORY),
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and so stop the servers
    compileall.compile_dir(str(Path(kafkapy.__file__).parent), quiet=1)  # as an installed package is
    machine = about()
    results: Results = {}
    try:
        run_all(chosen(arguments.only, arguments.quick), plan, results)
        if arguments.quick and not arguments.only:
            results |= {each.name: _not_quick(each, plan) for each in WORKLOADS if not each.quick_rounds}
    finally:  # also of a run that was ended before its time
        if results:
            write(results, machine, is_part=arguments.only is not None)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(report.table(results))
    if report.has_compiled(results):
        console.print(report.table(results, report.COMPILED))
    console.print(report.goals_table(results))
    if report.has_compiled(results):
        console.print(report.goals_table(results, COMPILED_GOALS, report.COMPILED))
    print(f"written to {DIRECTORY}/results.md, .json and .html")
    return int(any(reason.startswith(FAILED) for reason in report.left_out(results).values()))


def write(results: Results, machine: dict[str, Any], *, is_part: bool) -> None:
    """Write the three files; a part is put in the place of what was found of its loads before."""
    path = DIRECTORY / "results.json"
    if is_part and path.exists():
        results = {**json.loads(path.read_text())["results"], **results}
    results = {each.name: results[each.name] for each in WORKLOADS if each.name in results}
    path.write_text(json.dumps({"machine": machine, "results": results}, indent=1))
    (DIRECTORY / "results.md").write_text(report.markdown(results, machine))
    (DIRECTORY / "results.html").write_text(html(results, machine))


def publish(machine: dict[str, Any], results: Results) -> None:
    """Put figures and chart into the page of this directory."""
    page = Path(__file__).with_name("README.md")
    before, _, rest = page.read_text().partition(FIGURES_BEGIN)
    _, _, after = rest.partition(FIGURES_END)
    figures = f"![ratios](ratios.svg)\n\n{report.markdown(results, machine)}"
    page.write_text(f"{before}{FIGURES_BEGIN}\n{figures}{FIGURES_END}{after}")
    page.with_name("ratios.svg").write_text(svg(results))


if __name__ == "__main__":
    sys.exit(main())
