"""What was measured, as a table for the terminal, as Markdown, and held against the goals."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.workload import is_higher_better

Results = dict[str, dict[str, Any]]
"""By load: its family, its part of the full load, and the figures of each round by server or why it was left out."""

KAFKAPY, APACHE_KAFKA = "kafkapy", "Apache Kafka"
TITLE = "kafkapy beside Apache Kafka 4.3.1: medians; a ratio above 1 is in kafkapy's favour"
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
        spread = f"{self.lowest:.2f} to {self.highest:.2f}"
        run = f"{self.rounds} x {self.scale:g}"
        return self.load, self.figure, _number(self.ours), _number(self.theirs), f"{self.ratio:.2f}", spread, run


def rows(results: Results) -> Iterator[Row]:
    for load, result in results.items():
        if "figures" not in result:
            continue
        ours, theirs = result["figures"][KAFKAPY], result["figures"][APACHE_KAFKA]
        for figure in ours[0]:
            pairs = [(a[figure], b[figure]) for a, b in zip(ours, theirs, strict=True)]
            ratios = sorted(_ratio(figure, a, b) for a, b in pairs)
            middle = statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
            found = statistics.median(ratios), ratios[0], ratios[-1]
            yield Row(load, result["family"], figure, *middle, *found, len(pairs), result["scale"])


def _ratio(figure: str, ours: float, theirs: float) -> float:
    if not ours or not theirs:
        return float("nan")
    return ours / theirs if is_higher_better(figure) else theirs / ours


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def left_out(results: Results) -> dict[str, str]:
    """Return why a load was not run, by load."""
    return {load: result["left_out"] for load, result in results.items() if "left_out" in result}


def table(results: Results) -> Table:
    made = Table(title=TITLE)
    for number, column in enumerate(COLUMNS):
        made.add_column(column, justify="left" if number < 2 else "right")
    last = None
    for row in rows(results):
        cells = row.cells()
        made.add_row(row.load if row.load != last else "", *cells[1:])
        last = row.load
    for load, reason in left_out(results).items():
        made.add_row(load, reason)
    return made


# ---- goals


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure of a family must reach: its ratio at least, or our own value at most."""

    families: tuple[str, ...]
    figure: str
    ratio_at_least: float | None = None
    ours_at_most: float | None = None

    def is_met(self, row: Row) -> bool:
        if self.ratio_at_least is not None:
            return row.ratio >= self.ratio_at_least
        assert self.ours_at_most is not None
        return row.ours <= self.ours_at_most

    def said(self, row: Row) -> tuple[str, str]:
        """Return (goal, found)."""
        if self.ratio_at_least is not None:
            return f"ratio of at least {self.ratio_at_least:g}", f"{row.ratio:.2f}"
        return f"at most {self.ours_at_most:g}", f"{row.ours:.3g}"


GOALS = (
    Goal(("produce", "consume"), "records_per_s", ratio_at_least=1.25),
    Goal(("produce", "consume"), "broker_cpu_s_per_gb", ratio_at_least=2),
    Goal(("requests",), "requests_per_s", ratio_at_least=1),
    Goal(("requests",), "broker_cpu_us_per_request", ratio_at_least=1),
    Goal(("latency",), "p99_ms", ratio_at_least=1),
    Goal(("rest",), "ready_s", ours_at_most=0.3),
    Goal(("rest",), "idle_memory_mb", ours_at_most=60),
    Goal(("growth",), "growth", ours_at_most=1.2),
    Goal(("compaction",), "cleaning_over_idle_p99", ours_at_most=2),
)


def held_against_goals(results: Results) -> Iterator[tuple[Row, str, str, bool]]:
    for row in rows(results):
        for goal in GOALS:
            if row.family in goal.families and row.figure == goal.figure:
                yield row, *goal.said(row), goal.is_met(row)


def goals_table(results: Results) -> Table:
    made = Table(title="Goals")
    for column in ("load", "figure", "goal", "found", ""):
        made.add_column(column)
    for row, goal, found, is_met in held_against_goals(results):
        made.add_row(row.load, row.figure, goal, found, "met" if is_met else "[bold red]missed[/]")
    return made


# ---- Markdown


def markdown(results: Results, about: dict[str, Any]) -> str:
    lines = [
        f"Measured on {about['cores']} cores of {about['processor']}, {about['memory_gib']} GiB, {about['system']}, "
        f"Python {about['python']}. {TITLE}.",
        "",
        *_markdown_table(COLUMNS, (row.cells() for row in rows(results)), left=2),
        "",
        *(f"* {load}: {reason}." for load, reason in left_out(results).items()),
        "",
        *_markdown_table(
            ("load", "figure", "goal", "found", ""),
            (
                (row.load, row.figure, goal, found, "met" if is_met else "**missed**")
                for row, goal, found, is_met in held_against_goals(results)
            ),
            left=5,
        ),
    ]
    return "\n".join(lines) + "\n"


def _markdown_table(columns: tuple[str, ...], body: Iterator[tuple[str, ...]], *, left: int) -> Iterator[str]:
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "|".join("---" if number < left else "--:" for number in range(len(columns))) + "|"
    for cells in body:
        yield "| " + " | ".join(cells) + " |"
