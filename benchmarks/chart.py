"""The ratios as a picture (SVG) and a page (HTML): a bar for each figure on a logarithmic scale, its spread a line."""

import math
from html import escape
from typing import Any

from benchmarks.report import TITLE, Results, Row, left_out, rows

SHOWN = (
    "records_per_s", "requests_per_s", "p99_ms", "p999_ms", "broker_cpu_s_per_gb", "broker_cpu_us_per_request",
    "peak_memory_mb", "ready_s", "idle_memory_mb", "idle_cpu_percent", "recovery_s", "growth",
)  # fmt: skip
"""One figure of each kind; the table has all."""

LABELS, WIDTH, ROW_HEIGHT = 520, 560, 20
DECADES = (-1, 2)
STYLE = """
.back { fill: #fff } .better { fill: #2a7d4f } .worse { fill: #b3402a }
.grid { stroke: #ddd } .one, .spread { stroke: #222 }
text { font: 12px system-ui, sans-serif; fill: #222 } .figure { fill: #777 } .number { text-anchor: end }
"""


def html(results: Results, about: dict[str, Any]) -> str:
    """Return a page that needs no other file."""
    missing = "".join(f"<li>{escape(load)}: {escape(why)}</li>" for load, why in left_out(results).items())
    said = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in about.items())
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>kafkapy beside Apache Kafka</title>"
        "<style>body { font: 14px system-ui, sans-serif; margin: 2rem }</style>"
        f"<h1>kafkapy beside Apache Kafka 4.3.1</h1><p>{escape(TITLE)}. {escape(said)}.</p>"
        f"{svg(results)}<ul>{missing}</ul></html>\n"
    )


def svg(results: Results) -> str:
    shown = [row for row in rows(results) if row.figure in SHOWN and not math.isnan(row.ratio)]
    width, height = LABELS + WIDTH + 60, ROW_HEIGHT * (len(shown) + 2)
    parts = [_grid(height), *(_bar(row, index) for index, row in enumerate(shown))]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"><style>{STYLE}</style>'
        f'<rect class="back" width="{width}" height="{height}"/>{"".join(parts)}</svg>\n'
    )


def _x(ratio: float) -> float:
    low, high = DECADES
    return LABELS + (min(max(math.log10(ratio), low), high) - low) / (high - low) * WIDTH


def _grid(height: int) -> str:
    lines = []
    for ratio in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100):
        x = _x(ratio)
        kind = "one" if ratio == 1 else "grid"
        lines.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{ROW_HEIGHT}" y2="{height}"/>')
        lines.append(f'<text x="{x:.1f}" y="12" text-anchor="middle">{ratio:g}</text>')
    return "".join(lines)


def _bar(row: Row, index: int) -> str:
    top = ROW_HEIGHT * (index + 1)
    middle = top + ROW_HEIGHT / 2
    one, x = _x(1), _x(row.ratio)
    kind = "better" if row.ratio >= 1 else "worse"
    spread = f'x1="{_x(row.lowest):.1f}" x2="{_x(row.highest):.1f}" y1="{middle}" y2="{middle}"'
    name = f'{escape(row.load)} <tspan class="figure">{row.figure}</tspan>'
    return (
        f'<text class="number" x="{LABELS - 8}" y="{middle + 4}">{name}</text>'
        f'<rect class="{kind}" x="{min(one, x):.1f}" y="{top + 3}" width="{max(abs(x - one), 1):.1f}" '
        f'height="{ROW_HEIGHT - 6}"/><line class="spread" {spread}/>'
        f'<text x="{max(_x(row.highest), one, x) + 6:.1f}" y="{middle + 4}">{row.ratio:.2f}</text>'
    )
