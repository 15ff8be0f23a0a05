"""The ratios as a picture (SVG) and a page (HTML): a bar for each figure on a logarithmic scale, its spread a line."""

import math
from collections.abc import Iterator
from html import escape
from typing import Any

from benchmarks.report import COLUMNS, GOAL_COLUMNS, TITLE, Results, Row, left_out, rows, verdicts

THROUGHPUT, CPU = "throughput", "broker's CPU"
SHOWN = {
    "records_per_s": THROUGHPUT,
    "requests_per_s": THROUGHPUT,
    "broker_cpu_s_per_gb": CPU,
    "broker_cpu_us_per_request": CPU,
    "broker_cpu_us_per_commit": CPU,
    "ready_s": "time to ready",
    "idle_memory_mb": "idle memory",
    "idle_cpu_percent": "idle CPU",
    "recovery_s": "time to recover",
}
"""One figure of each kind, and what it is called; the table has all."""
OF_FAMILY = {
    "latency": {"p99_ms": "p99"},
    "recovery": {"recovery_s": "time to recover", "peak_memory_mb": "peak memory"},
    "growth": dict[str, str](),  # held against a goal, not against the other
}
"""A family's own choice."""

LABELS, WIDTH, ROW_HEIGHT = 560, 520, 20
DECADES = (-1, 2)
STYLE = """
.back { fill: #fff } .better { fill: #2a7d4f } .worse { fill: #b3402a }
.grid { stroke: #ddd } .one, .spread { stroke: #222 }
text { font: 12px system-ui, sans-serif; fill: #222 } .figure { fill: #777 } .name { text-anchor: end }
"""


def html(results: Results, about: dict[str, Any]) -> str:
    """Return a page that needs no other file."""
    missing = "".join(f"<li>{escape(load)}: {escape(why)}</li>" for load, why in left_out(results).items())
    said = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in about.items())
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>kafkapy beside Apache Kafka</title>"
        "<style>body { font: 14px system-ui, sans-serif; margin: 2rem } td { padding: 0 1em 0 0 }</style>"
        f"<h1>kafkapy beside Apache Kafka 4.4.0</h1><p>{escape(TITLE)}. {escape(said)}.</p>"
        f"{svg(results)}<ul>{missing}</ul>"
        f"<h2>Goals</h2>{_table(GOAL_COLUMNS, (verdict.cells() for verdict in verdicts(results)))}"
        f"<h2>All figures</h2>{_table(COLUMNS, (row.cells() for row in rows(results)))}</html>\n"
    )


def _table(columns: tuple[str, ...], body: Iterator[tuple[str, ...]]) -> str:
    lines = ("".join(f"<td>{escape(cell)}" for cell in cells) for cells in (columns, *body))
    return f"<table>{''.join(f'<tr>{line}' for line in lines)}</table>"


def svg(results: Results) -> str:
    shown = [row for row in rows(results) if _what(row) and not math.isnan(row.ratio)]
    width, height = LABELS + WIDTH + 60, ROW_HEIGHT * (len(shown) + 3)
    bars = [_bar(row, index, row.load != before) for index, (row, before) in enumerate(_after(shown))]
    parts = [_grid(height), *bars]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"><style>{STYLE}</style>'
        f'<rect class="back" width="{width}" height="{height}"/>{"".join(parts)}</svg>\n'
    )


def _after(shown: list[Row]) -> Iterator[tuple[Row, str]]:
    """Yield each row with the load of the one before it."""
    before = ""
    for row in shown:
        yield row, before
        before = row.load


def _what(row: Row) -> str:
    return OF_FAMILY.get(row.family, SHOWN).get(row.figure, "")


def _x(ratio: float) -> float:
    low, high = DECADES
    return LABELS + (min(max(math.log10(ratio), low), high) - low) / (high - low) * WIDTH


def _grid(height: int) -> str:
    lines = []
    for ratio in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100):
        x = _x(ratio)
        kind = "one" if ratio == 1 else "grid"
        lines.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{2 * ROW_HEIGHT}" y2="{height}"/>')
        lines.append(f'<text x="{x:.1f}" y="{ROW_HEIGHT + 12}" text-anchor="middle">{ratio:g}</text>')
    lines.append(f'<text class="name" x="{_x(1) - 8:.1f}" y="12">Apache Kafka better</text>')
    lines.append(f'<text x="{_x(1) + 8:.1f}" y="12">kafkapy better, so many times (line: spread of the rounds)</text>')
    return "".join(lines)


def _bar(row: Row, index: int, is_first: bool) -> str:
    top = ROW_HEIGHT * (index + 2)
    middle = top + ROW_HEIGHT / 2
    one, x = _x(1), _x(row.ratio)
    kind = "better" if row.ratio >= 1 else "worse"
    spread = f'x1="{_x(row.lowest):.1f}" x2="{_x(row.highest):.1f}" y1="{middle}" y2="{middle}"'
    name = f'{escape(row.load) if is_first else ""} <tspan class="figure">{escape(_what(row))}</tspan>'
    return (
        f'<text class="name" x="{LABELS - 8}" y="{middle + 4}">{name}</text>'
        f'<rect class="{kind}" x="{min(one, x):.1f}" y="{top + 3}" width="{max(abs(x - one), 1):.1f}" '
        f'height="{ROW_HEIGHT - 6}"/><line class="spread" {spread}/>'
        f'<text x="{max(_x(row.highest), one, x) + 6:.1f}" y="{middle + 4}">{row.ratio:.2f}</text>'
    )
