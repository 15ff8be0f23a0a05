"""Pictures of bars: candles with the volume-weighted price, and the volume below them, as an HTML or a PNG file.

The page contains uPlot (50 KB), which draws it, in the reader's light or dark mode. It needs no network, and shows the
numbers of the bar below the pointer. The PNG is drawn by matplotlib. Only here numbers become floats: a picture does
not show their last digits.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_jobs.errors import JobError
from tools.vendor import VENDOR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATIC = Path(__file__).resolve().parent / "static"
UP, DOWN, VWAP = "#2a9d74", "#d1495b", "#2f4b7c"
WIDTH, HEIGHT, DPI = 1200, 700, 100
DAY_MS = 86_400_000
COLUMNS = ("open", "high", "low", "close", "vwap", "volume")
BINS_OF_TEN = 20
"""Bins of a histogram between a power of ten and the next."""
LEGEND = """<ul class="legend"><li><i style="color: var(--up)"></i>rising: hollow</li>
<li><i style="color: var(--down); background: var(--down)"></i>falling: filled</li>
<li><i style="color: var(--vwap); background: var(--vwap)"></i>VWAP</li>
<li>drag to zoom, double-click to see all again</li></ul>"""
Bar = Mapping[str, Any]


def candles_page(bars: Mapping[str, Sequence[Bar]], title: str, note: str) -> str:
    """Return the page of the bars of each symbol, of one width, in order of their start."""
    shown = {symbol: one for symbol, one in bars.items() if one}
    first = next(iter(shown.values()))[0]
    data = {
        "step_seconds": (first["end_ms"] - first["start_ms"]) / 1000,
        "symbols": {symbol: columns(one) for symbol, one in shown.items()},
    }
    sections = "".join(
        f'<section data-symbol="{escape(symbol)}"><h2>{escape(symbol)}</h2><p class="readout"></p>'
        f'<div class="plot" role="img" aria-label="{escape(_description(symbol, one))}"></div></section>\n'
        for symbol, one in shown.items()
    )
    return page(title, f"<p>{escape(note)}</p>\n{LEGEND}\n{sections}", data, "showCandles();")


def columns(bars: Sequence[Bar]) -> dict[str, list[float]]:
    """Return bars in the form of plots.js: the starts in seconds, and each column."""
    starts = {"time": [bar["start_ms"] / 1000 for bar in bars]}
    return starts | {name: [float(bar[name]) for bar in bars] for name in COLUMNS}


def _description(symbol: str, bars: Sequence[Bar]) -> str:
    low, high = min(float(bar["low"]) for bar in bars), max(float(bar["high"]) for bar in bars)
    close = float(bars[-1]["close"])
    return f"{len(bars)} candles of {symbol}, between {low:g} and {high:g}, the last closed at {close:g}"


def page(title: str, body: str, data: object, script: str) -> str:
    """Return a page that contains all it needs: styles, uPlot, plots.js and the data."""
    styles = [(VENDOR / "uPlot.min.css").read_text(), (STATIC / "market.css").read_text()]
    scripts = [(VENDOR / "uPlot.iife.min.js").read_text(), (STATIC / "plots.js").read_text(), script]
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<style>\n{"".join(styles)}</style>\n</head>\n<body>\n<main>\n'
        f"<h1>{escape(title)}</h1>\n{body}</main>\n"
        f'<script type="application/json" id="data">{text}</script>\n'
        + "".join(f"<script>\n{one}</script>\n" for one in scripts)
        + "</body>\n</html>\n"
    )


def still(bars: Sequence[Bar], title: str) -> "Figure":
    """Return the picture of one symbol for print: WIDTH x HEIGHT pixels."""
    # Imported here: it takes a second, which no other job should need.
    from matplotlib.dates import ConciseDateFormatter
    from matplotlib.figure import Figure

    found = columns(bars)
    times = [datetime.fromtimestamp(seconds, UTC) for seconds in found["time"]]
    colours = [UP if bar["close"] >= bar["open"] else DOWN for bar in bars]
    body_days = 0.7 * (bars[0]["end_ms"] - bars[0]["start_ms"]) / DAY_MS
    picture = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, layout="constrained")
    price, volume = picture.subplots(2, sharex=True, height_ratios=[3, 1])
    price.vlines(times, found["low"], found["high"], colors=colours, linewidth=1)
    bodies = [close - open_ for open_, close in zip(found["open"], found["close"], strict=True)]
    price.bar(times, bodies, body_days, found["open"], color=colours, edgecolor=colours, linewidth=1)
    price.plot(times, found["vwap"], color=VWAP, linewidth=1.5, label="VWAP")
    volume.bar(times, found["volume"], body_days, color=colours)
    price.legend()
    price.set(title=title, ylabel="price")
    volume.set(ylabel="volume", xlabel="UTC")
    volume.xaxis.set_major_formatter(ConciseDateFormatter(volume.xaxis.get_major_locator()))  # type: ignore[no-untyped-call]
    for axes in (price, volume):
        axes.grid(alpha=0.3)
    return picture


def draw_histogram(series: Mapping[str, Sequence[float]], title: str, path: Path) -> None:
    """Write a page with the histogram of each series of milliseconds, on a logarithmic axis. Raises JobError."""
    binned = {name: Counter(bin_of(value) for value in values_ms) for name, values_ms in series.items()}
    lowest = min((min(one, default=0) for one in binned.values()), default=0) - 1
    highest = max((max(one, default=0) for one in binned.values()), default=0) + 2
    bins = range(lowest, highest)
    shares = {
        name: [round(100 * counts[number] / max(1, counts.total()), 3) for number in bins]
        for name, counts in binned.items()
    }
    data = {"bins": [number / BINS_OF_TEN for number in bins], "series": shares}
    colours = ("vwap", "second", "up", "down")
    legend = "".join(
        f'<li><i style="color: var(--{colours[index % 4]})"></i>{escape(name)}</li>'
        for index, name in enumerate(series)
    )
    plot = f'<div class="plot" role="img" aria-label="{escape(title)}"></div>'
    body = f'<section><ul class="legend">{legend}</ul>{plot}</section>\n'
    with _writing(path):
        path.write_text(page(title, body, data, "showHistogram();"), encoding="utf-8")


def bin_of(value_ms: float) -> int:
    return math.floor(math.log10(max(value_ms, 0.1)) * BINS_OF_TEN)


def draw(bars: Mapping[str, Sequence[Bar]], title: str, path: Path, note: str = "") -> None:
    """Write the bars of each symbol to an .html, or those of the first to a .png. Raises JobError."""
    if path.suffix not in (".html", ".png"):
        raise JobError(f"{path}: a picture ends in .html or .png")
    with _writing(path):
        if path.suffix == ".html":
            path.write_text(candles_page(bars, title, note), encoding="utf-8")
        else:
            still(next(iter(bars.values())), title).savefig(path)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Make the folder of a picture that is written in here. Raises JobError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise JobError(f"{path} cannot be written: {error.strerror or error}") from None
