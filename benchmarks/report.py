"""What was measured, as a table for the terminal, as Markdown, and held against the goals."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.workload import is_higher_better

Results = dict[str, dict[str, Any]]
"""By load: its family, its part of the full load, and the figures of each round by server or why it was left out."""

KAFKAPY, COMPILED, APACHE_KAFKA = "kafkapy", "kafkapy compiled", "Apache Kafka"
TITLE = "kafkapy beside Apache Kafka 4.4.0: medians; a ratio above 1 is in kafkapy's favour"
NOT_MEASURED = math.nan
"""Of Apache Kafka's figure where a load is held against an absolute goal only."""
COLUMNS = ("load", "figure", KAFKAPY, APACHE_KAFKA, "ratio", "spread of the ratio", "rounds x size")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one load. A ratio compares measurements of one round; above 1 it is in kafkapy's favour."""

    load: str
    family: str
    figure: str
    ours: float
    theirs: float
    ratio: float
    lowest: float
    highest: float
    rounds: int
    scale: float
    """Part of the full load."""

    def cells(self) -> tuple[str, ...]:
        ratio, spread = "-", "-"
        if not math.isnan(self.ratio):
            ratio, spread = f"{self.ratio:.2f}", f"{self.lowest:.2f} to {self.highest:.2f}"
        run = f"{self.rounds} x {self.scale:g}"
        return self.load, self.figure, _number(self.ours), _number(self.theirs), ratio, spread, run


def rows(results: Results, our_name: str = KAFKAPY) -> Iterator[Row]:
    """Yield the figures of one of our servers beside Apache Kafka's; those of loads that it ran."""
    for load, result in results.items():
        if our_name not in result.get("figures", ()):
            continue
        ours = result["figures"][our_name]
        theirs = result["figures"].get(APACHE_KAFKA) or [dict[str, float]()] * len(ours)
        for figure in ours[0]:
            pairs = [(a[figure], b.get(figure, NOT_MEASURED)) for a, b in zip(ours, theirs, strict=True)]
            ratios = sorted(_ratio(figure, a, b) for a, b in pairs)
            middle = statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
            found = statistics.median(ratios), ratios[0], ratios[-1]
            yield Row(load, result["family"], figure, *middle, *found, len(pairs), result["scale"])


def _ratio(figure: str, ours: float, theirs: float) -> float:
    if not ours or not theirs:
        return NOT_MEASURED
    return ours / theirs if is_higher_better(figure) else theirs / ours


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def left_out(results: Results) -> dict[str, str]:
    """Return why a load was not run, by load; of one that ran here alone, why not on the others."""
    found = {load: result.get("left_out") or not_measured(result) for load, result in results.items()}
    return {load: reason for load, reason in found.items() if reason}


def not_measured(result: dict[str, Any]) -> str:
    """Return why another server than ours has no figures of a load; "" if all have."""
    why_not = result.get("not_measured", {})
    return "; ".join(f"{server} not measured: {reason}" for server, reason in why_not.items())


def has_compiled(results: Results) -> bool:
    return next(rows(results, COMPILED), None) is not None


def table(results: Results, our_name: str = KAFKAPY) -> Table:
    made = Table(title=TITLE)
    for number, column in enumerate(COLUMNS):
        made.add_column(our_name if column == KAFKAPY else column, justify="left" if number < 2 else "right")
    last = None
    for row in rows(results, our_name):
        cells = row.cells()
        made.add_row(row.load if row.load != last else "", *cells[1:])
        last = row.load
    for load, reason in left_out(results).items():
        made.add_row(load, reason)
    return made


# ---- goals


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure of each load of some families must reach: its ratio, or our own value."""

    said: str
    families: tuple[str, ...]
    figure: str
    ratio_at_least: float | None = None
    ours_at_most: float | None = None
    ours_at_least: float | None = None
    of_loads: str = ""
    """A part of their names, where not all loads of the families have the figure."""

    def found(self, row: Row) -> float:
        return row.ours if self.ratio_at_least is None else row.ratio

    def is_met(self, row: Row) -> bool:
        """Also False where there is no ratio, as a server had no figure."""
        if self.ratio_at_least is not None:
            return row.ratio >= self.ratio_at_least
        if self.ours_at_least is not None:
            return row.ours >= self.ours_at_least
        assert self.ours_at_most is not None
        return row.ours <= self.ours_at_most

    def wanted(self) -> str:
        if self.ratio_at_least is not None:
            return f"ratio of at least {self.ratio_at_least:g}"
        if self.ours_at_least is not None:
            return f"at least {self.ours_at_least:g}"
        return f"at most {self.ours_at_most:g}"


WRITING = ("produce", "codecs", "tls", "transactions")
GOALS = (
    Goal("producing: 1.25 times the throughput", ("produce",), "records_per_s", ratio_at_least=1.25),
    Goal("catching up: 1.25 times the throughput", ("consume",), "records_per_s", ratio_at_least=1.25),
    Goal("small requests: as many a second", ("requests",), "requests_per_s", ratio_at_least=1),
    Goal("small requests: at most the CPU", ("requests",), "broker_cpu_us_per_request", ratio_at_least=1),
    Goal("a scrape of 10,000 partitions: at most a second", ("metrics",), "scrape_ms", ours_at_most=1000),
    Goal("a scrape raises a producer's p99 by at most 2 ms", ("metrics",), "p99_raised_by_ms", ours_at_most=2),
    Goal("producing: at most half the CPU for a GB", WRITING, "broker_cpu_s_per_gb", ratio_at_least=2),
    Goal("catching up: at most half the CPU for a GB", ("consume",), "broker_cpu_s_per_gb", ratio_at_least=2),
    Goal(
        "transactions: as many a second",
        ("transactions",),
        "transactions_per_s",
        ratio_at_least=1,
        of_loads=" producer",
    ),
    Goal(
        "transactions: at most half the CPU",
        ("transactions",),
        "broker_cpu_us_per_transaction",
        ratio_at_least=2,
        of_loads=" producer",
    ),
    Goal(
        "transactions: p99 of commit not above",
        ("transactions",),
        "commit_p99_ms",
        ratio_at_least=1,
        of_loads=" producer",
    ),
    Goal("queues: as many records a second", ("queues",), "records_per_s", ratio_at_least=1, of_loads="consumers"),
    Goal("queues: half the CPU", ("queues",), "broker_cpu_s_per_million", ratio_at_least=2, of_loads="consumers"),
    Goal("queues: p99 not above", ("queues",), "p99_ms", ratio_at_least=1, of_loads="acknowledgement"),
    Goal(
        "queues: memory of a share partition under 2 KB",
        ("queues",),
        "memory_kb_per_partition",
        ours_at_most=2,
        of_loads="loaded",
    ),
    Goal("streams groups: RUNNING as soon", ("streams",), "running_s", ratio_at_least=1, of_loads="RUNNING"),
    Goal("streams groups: settled as soon", ("streams",), "nine_in_ten_settled_s", ratio_at_least=1, of_loads="settle"),
    Goal("streams groups: start at half the CPU", ("streams",), "broker_cpu_s", ratio_at_least=2, of_loads="RUNNING"),
    Goal("streams groups: settled at half the CPU", ("streams",), "broker_cpu_s", ratio_at_least=2, of_loads="settle"),
    Goal(
        "streams groups: heartbeats at half the CPU",
        ("streams",),
        "broker_cpu_ms_per_1000",
        ratio_at_least=2,
        of_loads="heartbeats",
    ),
    Goal("end to end: p99 not above", ("latency",), "p99_ms", ratio_at_least=1),
    Goal("ready in 0.3 s", ("rest",), "ready_s", ours_at_most=0.3),
    Goal("idle memory of 60 MB", ("rest",), "idle_memory_mb", ours_at_most=60),
    Goal("TLS: as many records a second", ("security",), "records_per_s", ratio_at_least=1),
    Goal("TLS: at most 0.7 of the CPU for a GB", ("security",), "broker_cpu_s_per_gb", ratio_at_least=1 / 0.7),
    Goal("as many logins a second", ("security",), "logins_per_s", ratio_at_least=1),
    Goal("under 1,000 ACLs: 0.9 of the requests a second", ("security",), "share_of_without_per_s", ours_at_least=0.9),
    Goal("all topics, half hidden: no stall above 20 ms", ("security",), "stall_max_ms", ours_at_most=20),
    Goal("PEM listeners: ready in 0.35 s", ("security",), "ready_s", ours_at_most=0.35),
    Goal("secure_kafka_broker: ready in 0.3 s", ("security",), "fixture_ready_s", ours_at_most=0.3),
    Goal("growth: flat within a fifth", ("growth",), "growth", ours_at_most=1.2),
    Goal("three replicas: as many records a second", ("nodes",), "records_per_s", ratio_at_least=1),
    Goal("three replicas: at most 0.8 of the CPU for a GB", ("nodes",), "broker_cpu_s_per_gb", ratio_at_least=1.25),
    Goal("three replicas: p99 not above", ("nodes",), "p99_ms", ratio_at_least=1, of_loads="end to end"),
    Goal("a failure: the gap in acks not above", ("nodes",), "gap_ms", ratio_at_least=1),
    Goal("a leader killed: a gap of 12 s", ("nodes",), "gap_ms", ours_at_most=12_000, of_loads="a leader"),
    Goal("the controller killed: a gap of 4 s", ("nodes",), "gap_ms", ours_at_most=4_000, of_loads="controller"),
    Goal("a node stopped: a gap of 2 s", ("nodes",), "gap_ms", ours_at_most=2_000, of_loads="is stopped"),
    Goal("three nodes: ready in 3 s", ("nodes",), "ready_s", ours_at_most=3),
    Goal("three nodes: idle memory of 150 MB", ("nodes",), "idle_memory_mb", ours_at_most=150),
    Goal("three nodes: 300 MB after a load", ("nodes",), "loaded_memory_mb", ours_at_most=300),
    Goal("three nodes: a third of the idle CPU", ("nodes",), "idle_cpu_percent", ratio_at_least=3),
    Goal("followers: 1.2 times the CPU with 3,000 partitions", ("nodes",), "following_growth", ours_at_most=1.2),
    Goal("more brokers: 1.15 times the CPU for a GB", ("growth",), "gb_growth", ours_at_most=1.15),
    Goal("100,000 partitions, a broker fenced: turns of 50 ms", ("nodes",), "longest_turn_ms", ours_at_most=50),
    Goal("100,000 partitions, a broker fenced: all lead in 8 s", ("nodes",), "all_lead_s", ours_at_most=8),
    Goal("100,000 partitions: an elected controller writes in 100 ms", ("nodes",), "first_write_ms", ours_at_most=100),
    Goal("100,000 partitions: a controller of 400 MB", ("nodes",), "controller_memory_mb", ours_at_most=400),
    Goal("a fourth node: moved as soon", ("nodes",), "move_s", ratio_at_least=1),
    Goal("a fourth node: p99 at most doubled", ("nodes",), "moving_over_idle_p99", ours_at_most=2),
    Goal(
        "a producer during compaction: p99 at most doubled",
        ("compaction",),
        "cleaning_over_idle_p99",
        ours_at_most=2,
        of_loads="during a compaction",
    ),
)

GOAL_COLUMNS = ("goal", "load", "wanted", "found", "")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal held against one load; `row` is None where the load has no such figure, and `why_not` says why."""

    goal: Goal
    load: str
    row: Row | None = None
    why_not: str = ""

    @property
    def is_met(self) -> bool:
        return self.row is not None and self.goal.is_met(self.row)

    def cells(self) -> tuple[str, ...]:
        found = "" if self.row is None else f"{self.goal.found(self.row):.3g}"
        said = self.why_not if self.row is None else "met" if self.is_met else "missed"
        return self.goal.said, self.load, self.goal.wanted(), found, said


def verdicts(results: Results, goals: Iterable[Goal] = GOALS, our_name: str = KAFKAPY) -> Iterator[Verdict]:
    """Yield every goal with every load of its families; a load that was left out is not passed over in silence."""
    found = {(row.load, row.figure): row for row in rows(results, our_name)}
    for goal in goals:
        for load, result in results.items():
            if result["family"] not in goal.families or goal.of_loads not in load:
                continue
            if "left_out" in result:
                yield Verdict(goal, load, why_not=result["left_out"])
            elif goal.ratio_at_least is not None and APACHE_KAFKA in result.get("not_measured", {}):
                yield Verdict(goal, load, why_not=not_measured(result))
            elif (load, goal.figure) in found:
                yield Verdict(goal, load, found[load, goal.figure])


def goals_table(results: Results, goals: Iterable[Goal] = GOALS, our_name: str = KAFKAPY) -> Table:
    made = Table(title=f"Goals of {our_name}")
    for column in GOAL_COLUMNS:
        made.add_column(column)
    for verdict in verdicts(results, goals, our_name):
        *cells, said = verdict.cells()
        made.add_row(*cells, "[bold red]missed[/]" if said == "missed" else said)
    return made


NOT_RUN = "not measured"


def goals_in_short(
    results: Results, goals: Sequence[Goal] = GOALS, our_name: str = KAFKAPY
) -> Iterator[tuple[str, ...]]:
    """Yield (goal, verdict, lowest and highest found, where missed) for each goal, also those nothing was run for."""
    held = list(verdicts(results, goals, our_name))
    for goal in goals:
        judged = [verdict for verdict in held if verdict.goal is goal and verdict.row is not None]
        left_out = sum(verdict.goal is goal and verdict.row is None for verdict in held)
        values = sorted(goal.found(verdict.row) for verdict in judged if verdict.row is not None)
        met = sum(verdict.is_met for verdict in judged)
        said = NOT_RUN if not judged else "met" if met == len(judged) else f"**{met} of {len(judged)}**"
        said += f", {left_out} not run" if judged and left_out else ""
        span = "" if not values else " to ".join(dict.fromkeys((f"{values[0]:.3g}", f"{values[-1]:.3g}")))
        yield goal.said, goal.wanted(), said, span


# ---- Markdown


PACES = ("records_per_s", "requests_per_s", "transactions_per_s", "made_ids_per_s", "mb_per_s")
COSTS = (
    "broker_cpu_s_per_gb",
    "broker_cpu_us_per_request",
    "broker_cpu_us_per_transaction",
    "broker_cpu_us_per_id",
    "broker_cpu_s_per_million",
)
OTHERS = {
    "rest": ("ready_s", "idle_memory_mb", "idle_cpu_percent"),
    "recovery": ("recovery_s", "peak_memory_mb"),
    "latency": ("p50_ms", "p99_ms"),
    "growth": ("growth", "gb_growth"),
    "transactions": ("commit_p50_ms", "commit_p99_ms", "overhead", "p99_ms", "ids_loaded_s", "memory_kb_per_id"),
    "groups": ("nine_in_ten_settled_s", "p99_ms", "broker_cpu_ms_per_1000", "broker_cpu_us_per_commit"),
    "queues": (
        "p50_ms",
        "p99_ms",
        "broker_cpu_s",
        "loaded_s",
        "memory_kb_per_partition",
        "first_record_s",
        "first_record_after_kill_s",
    ),
    "streams": ("running_s", "nine_in_ten_settled_s", "p99_ms", "broker_cpu_s", "broker_cpu_ms_per_1000"),
    "compaction": ("idle_p99_ms", "cleaning_p99_ms"),
    "moves": ("idle_p99_ms", "moving_p99_ms"),
    "nodes": (
        "p99_ms",
        "gap_ms",
        "ready_s",
        "idle_memory_mb",
        "loaded_memory_mb",
        "idle_cpu_percent",
        "following_growth",
        "longest_turn_ms",
        "all_lead_s",
        "first_write_ms",
        "controller_memory_mb",
        "move_s",
        "moving_over_idle_p99",
    ),
    "spark": ("p50_ms", "partitions_1_records_per_s", "partitions_16_records_per_s"),
}
"""What else a reader needs of a family, a line each."""


def markdown(results: Results, about: dict[str, Any]) -> str:
    """Return what a reader needs: the goals, a line for each load. The page (HTML) and the JSON have every figure."""
    found = _by_load(rows(results))
    lines = [
        f"Measured on {about['cores']} cores of {about['processor']}, {about['memory_gib']} GiB, {about['system']}, "
        f"Python {about['python']}. {TITLE}.",
        "",
        *_goals("goal", goals_in_short(results)),
        "",
        *_markdown_table(
            ("load (rounds x size)", "a second", KAFKAPY, APACHE_KAFKA, "ratio (spread)", "broker's CPU", KAFKAPY,
             APACHE_KAFKA, "ratio"),
            (cells for load in found.values() if (cells := _pace_cells(load))),
            left=2,
        ),
        "",
        *_markdown_table(
            ("load (rounds x size)", "figure", KAFKAPY, APACHE_KAFKA, "ratio (spread)"),
            (_other_cells(load[name]) for load in found.values() for name in _others(load)),
            left=2,
        ),
        "",
        *_compiled(results),
        *_memory(row for load in found.values() for row in load.values() if row.figure == "peak_memory_mb"),
        *_left_out_by_reason(results),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _goals(title: str, short: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the table of those that something was run for, and a line that names the others."""
    measured: list[tuple[str, ...]] = []
    others: list[tuple[str, ...]] = []
    for goal in short:
        (others if goal[2] == NOT_RUN else measured).append(goal)
    yield from _markdown_table((title, "wanted", "", "found"), iter(measured), left=4)
    if others:
        yield ""
        yield f"Not measured in these runs: {'; '.join(said for said, *_ in others)}."


def _compiled(results: Results) -> Iterator[str]:
    """Yield the goals of the compiled server, and what compiling changes: pace and CPU of both of ours, with ratios."""
    from benchmarks.compiled_goals import COMPILED_GOALS

    if not has_compiled(results):
        return
    short = goals_in_short(results, COMPILED_GOALS, COMPILED)
    yield from _goals(f"goal of {COMPILED}", short)
    yield ""
    plain, compiled = _by_load(rows(results)), _by_load(rows(results, COMPILED))
    columns = ("a second, compiled", "ratio", "interpreted", "broker's CPU, compiled", "ratio", "interpreted")
    cells = (_compiled_cells(load, plain[name]) for name, load in compiled.items() if name in plain)
    yield from _markdown_table(("load (rounds x size)", *columns), (each for each in cells if each), left=1)
    yield ""


def _compiled_cells(compiled: dict[str, Row], plain: dict[str, Row]) -> tuple[str, ...] | None:
    """Return pace and CPU of the compiled server, each with its ratio to Apache Kafka and the interpreted one's."""
    pace, cost = _main_figures(compiled)
    if pace is None:
        return None
    paces = _beside_interpreted(pace, pace.figure.removesuffix("_per_s"), plain)
    costs = _beside_interpreted(cost, _unit(cost), plain) if cost else ("",) * 3
    return _name(pace), *paces, *costs


def _beside_interpreted(row: Row, unit: str, plain: dict[str, Row]) -> tuple[str, str, str]:
    return f"{_number(row.ours)} {unit}", f"{row.ratio:.2f}", f"{plain[row.figure].ratio:.2f}"


def _memory(peaks: Iterator[Row]) -> Iterator[str]:
    found = list(peaks)
    if found:
        ours, theirs = sorted(row.ours for row in found), sorted(row.theirs for row in found)
        said = (f"{_number(values[0])} to {_number(values[-1])} MB" for values in (ours, theirs))
        yield "* Peak memory during a load: {}, Apache Kafka {}.".format(*said)


def _left_out_by_reason(results: Results) -> Iterator[str]:
    loads: dict[str, list[str]] = {}
    for load, reason in left_out(results).items():
        loads.setdefault(reason.rstrip("."), []).append(load)
    for reason, names in loads.items():
        yield f"* {'; '.join(names)}: {reason}."


def _by_load(found: Iterable[Row]) -> dict[str, dict[str, Row]]:
    loads: dict[str, dict[str, Row]] = {}
    for row in found:
        loads.setdefault(row.load, {})[row.figure] = row
    return loads


def _main_figures(load: dict[str, Row]) -> tuple[Row | None, Row | None]:
    """Return a load's pace and its CPU. A load of a fixed pace has neither."""
    pace = next((load[name] for name in PACES if name in load), None)
    if pace is None or pace.family == "latency":
        return None, None
    return pace, next((load[name] for name in COSTS if name in load), None)


def _pace_cells(load: dict[str, Row]) -> tuple[str, ...] | None:
    pace, cost = _main_figures(load)
    if pace is None:
        return None
    costs = (_unit(cost), _number(cost.ours), _number(cost.theirs), f"{cost.ratio:.2f}") if cost else ("",) * 4
    return _name(pace), pace.figure.removesuffix("_per_s"), *_compared(pace), *costs


def _others(load: dict[str, Row]) -> Iterator[str]:
    family = next(iter(load.values())).family
    return (name for name in OTHERS.get(family, ()) if name in load)


def _other_cells(row: Row) -> tuple[str, ...]:
    return _name(row), row.figure, *_compared(row)


def _name(row: Row) -> str:
    return f"{row.load} ({row.rounds} x {row.scale:g})"


def _compared(row: Row) -> tuple[str, str, str]:
    _, _, ours, theirs, ratio, spread, _ = row.cells()
    return ours, theirs, ratio if ratio == "-" else f"{ratio} ({spread})"


def _unit(row: Row) -> str:
    unit, _, work = row.figure.removeprefix("broker_cpu_").partition("_per_")
    return f"{unit} for a {'GB' if work == 'gb' else work}"


def _markdown_table(columns: tuple[str, ...], body: Iterator[tuple[str, ...]], *, left: int) -> Iterator[str]:
    rows = list(body)
    if not rows:
        return
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "|".join("---" if number < left else "--:" for number in range(len(columns))) + "|"
    for cells in rows:
        yield "| " + " | ".join(cells) + " |"
