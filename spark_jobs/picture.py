"""A picture of bars: candles with the volume-weighted price, and the volume below them, as one HTML or PNG file.

The page is plotly's, to be zoomed and asked for its numbers. plotly draws a PNG with a browser alone, so the PNG is
matplotlib's. Numbers become floats here and here alone: a picture has no digits to lose.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from plotly.subplots import make_subplots

from spark_jobs.errors import JobError

UP, DOWN, VWAP = "#2a9d74", "#d1495b", "#2f4b7c"
WIDTH, HEIGHT, DPI = 1200, 700, 100
DAY_MS = 86_400_000
Bar = Mapping[str, Any]


def interactive(bars: Sequence[Bar], title: str) -> go.Figure:
    """Return the picture of bars of one symbol and width, in order of their start."""
    times, columns, colours = _series(bars)
    picture = make_subplots(rows=2, shared_xaxes=True, row_heights=[0.75, 0.25], vertical_spacing=0.03)
    prices = {name: columns[name] for name in ("open", "high", "low", "close")}
    sides = {"increasing_line_color": UP, "decreasing_line_color": DOWN}
    picture.add_trace(go.Candlestick(x=times, **prices, **sides, name="price"), row=1, col=1)
    line = {"color": VWAP, "width": 1.5}
    picture.add_trace(go.Scatter(x=times, y=columns["vwap"], mode="lines", line=line, name="VWAP"), row=1, col=1)
    volume = go.Bar(x=times, y=columns["volume"], marker_color=colours, name="volume", showlegend=False)
    picture.add_trace(volume, row=2, col=1)
    picture.update_yaxes(title_text="price", row=1, col=1)
    picture.update_yaxes(title_text="volume", row=2, col=1)
    picture.update_layout(title=title, template="plotly_white", xaxis_rangeslider_visible=False, hovermode="x unified")
    return picture


def still(bars: Sequence[Bar], title: str) -> Figure:
    """Return the same picture for print: WIDTH x HEIGHT pixels."""
    times, columns, colours = _series(bars)
    body_days = 0.7 * (bars[0]["end_ms"] - bars[0]["start_ms"]) / DAY_MS
    picture = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, layout="constrained")
    price, volume = picture.subplots(2, sharex=True, height_ratios=[3, 1])
    price.vlines(times, columns["low"], columns["high"], colors=colours, linewidth=1)
    bodies = [close - open_ for open_, close in zip(columns["open"], columns["close"], strict=True)]
    price.bar(times, bodies, body_days, columns["open"], color=colours, edgecolor=colours, linewidth=1)
    price.plot(times, columns["vwap"], color=VWAP, linewidth=1.5, label="VWAP")
    volume.bar(times, columns["volume"], body_days, color=colours)
    price.legend()
    price.set(title=title, ylabel="price")
    volume.set(ylabel="volume", xlabel="UTC")
    volume.xaxis.set_major_formatter(ConciseDateFormatter(volume.xaxis.get_major_locator()))  # type: ignore[no-untyped-call]
    for axes in (price, volume):
        axes.grid(alpha=0.3)
    return picture


def _series(bars: Sequence[Bar]) -> tuple[list[datetime], dict[str, list[float]], list[str]]:
    """Return the bars' starts, their columns, and the colour of each: rising or falling."""
    times = [datetime.fromtimestamp(bar["start_ms"] / 1000, UTC) for bar in bars]
    columns = {name: [float(bar[name]) for bar in bars] for name in ("open", "high", "low", "close", "vwap", "volume")}
    return times, columns, [UP if bar["close"] >= bar["open"] else DOWN for bar in bars]


def draw_histogram(series: Mapping[str, Sequence[float]], title: str, path: Path) -> None:
    """Write a page with the histogram of each series of milliseconds, on a logarithmic axis. Raises JobError."""
    figure = go.Figure()
    for name, values_ms in series.items():
        logs = [math.log10(max(value, 0.1)) for value in values_ms]
        figure.add_trace(go.Histogram(x=logs, name=name, histnorm="percent", xbins={"size": 0.05}, opacity=0.6))
    ticks = [0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000]
    figure.update_xaxes(tickvals=[math.log10(tick) for tick in ticks], ticktext=[f"{tick:g}" for tick in ticks])
    figure.update_layout(
        title=title, template="plotly_white", barmode="overlay", xaxis_title="ms", yaxis_title="% of ticks"
    )
    with _writing(path):
        figure.write_html(path, include_plotlyjs=True)


def draw(bars: Sequence[Bar], title: str, path: Path) -> None:
    """Write an .html with plotly that needs no network, or a .png with matplotlib. Raises JobError."""
    if path.suffix not in (".html", ".png"):
        raise JobError(f"{path}: a picture ends in .html or .png")
    with _writing(path):
        if path.suffix == ".html":
            interactive(bars, title).write_html(path, include_plotlyjs=True)
        else:
            still(bars, title).savefig(path)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Make the folder of a picture that is written in here. Raises JobError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise JobError(f"{path} cannot be written: {error.strerror or error}") from None
