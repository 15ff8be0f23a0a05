"""A picture of bars: candles with the volume-weighted price, and the volume below them, as one HTML or PNG file.

Numbers become floats here and here alone: a picture has no digits to lose.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from spark_jobs.errors import JobError

UP, DOWN, VWAP = "#2a9d74", "#d1495b", "#2f4b7c"
WIDTH, HEIGHT = 1200, 700
Bar = Mapping[str, Any]


def figure(bars: Sequence[Bar], title: str) -> go.Figure:
    """Return the picture of bars of one symbol and width, in order of their start."""
    times = [datetime.fromtimestamp(bar["start_ms"] / 1000, UTC) for bar in bars]
    columns = {name: [float(bar[name]) for bar in bars] for name in ("open", "high", "low", "close", "vwap", "volume")}
    picture = make_subplots(rows=2, shared_xaxes=True, row_heights=[0.75, 0.25], vertical_spacing=0.03)
    prices = {name: columns[name] for name in ("open", "high", "low", "close")}
    colours = {"increasing_line_color": UP, "decreasing_line_color": DOWN}
    picture.add_trace(go.Candlestick(x=times, **prices, **colours, name="price"), row=1, col=1)
    line = {"color": VWAP, "width": 1.5}
    picture.add_trace(go.Scatter(x=times, y=columns["vwap"], mode="lines", line=line, name="VWAP"), row=1, col=1)
    rising = [UP if bar["close"] >= bar["open"] else DOWN for bar in bars]
    volume = go.Bar(x=times, y=columns["volume"], marker_color=rising, name="volume", showlegend=False)
    picture.add_trace(volume, row=2, col=1)
    picture.update_yaxes(title_text="price", row=1, col=1)
    picture.update_yaxes(title_text="volume", row=2, col=1)
    picture.update_layout(title=title, template="plotly_white", xaxis_rangeslider_visible=False, hovermode="x unified")
    return picture


def write(picture: go.Figure, path: Path) -> None:
    """Write an .html that needs no network, or a .png (kaleido and Chrome draw it). Raises JobError."""
    if path.suffix not in (".html", ".png"):
        raise JobError(f"{path}: a picture ends in .html or .png")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".html":
            picture.write_html(path, include_plotlyjs=True)
        else:
            picture.write_image(path, width=WIDTH, height=HEIGHT)
    except OSError as error:
        raise JobError(f"{path} cannot be written: {error.strerror or error}") from None
    except (ValueError, RuntimeError, ImportError) as error:
        if path.suffix == ".html":
            raise
        reason = str(error).strip().splitlines()[0]
        raise JobError(f"{path}: a PNG needs kaleido and Chrome, an .html needs neither ({reason})") from None
