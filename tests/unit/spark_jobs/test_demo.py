"""The demo's choice of bars, by the length of a recording, and which of them are still open."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from spark_jobs.demo import check, expected_bars, fitting_width, main, trades_of
from spark_jobs.errors import JobError
from spark_jobs.events import Trade
from spark_jobs.feed import FeedConfig
from spark_jobs.oracle import Bar

SECOND_MS, MINUTE_MS, HOUR_MS = 1000, 60_000, 3_600_000


def trades_at(*times_ms: int) -> list[Trade]:
    return [Trade("X", number, "1.5", "2", time_ms, False) for number, time_ms in enumerate(times_ms, 1)]


@pytest.mark.parametrize(
    ("length_ms", "width"),
    [
        (0, "1s"),
        (5 * SECOND_MS, "1s"),
        (11 * MINUTE_MS, "1s"),
        (12 * MINUTE_MS, "1m"),
        (11 * HOUR_MS, "1m"),
        (12 * HOUR_MS, "1h"),
    ],
)
def test_the_width_follows_the_length_of_the_recording(length_ms, width) -> None:
    assert fitting_width(trades_at(7, 7 + length_ms)) == width


def test_bars_that_trades_may_still_change_are_open() -> None:
    complete, still_open = expected_bars(trades_at(0, 1000, 12_000))
    assert [(bar.width, bar.start_ms) for bar in complete] == [("1s", 0), ("1s", 1000)]
    assert [(bar.width, bar.start_ms) for bar in still_open] == [("1h", 0), ("1m", 0), ("1s", 12_000)]


def test_a_recording_shorter_than_the_watermark_has_open_bars_only() -> None:
    complete, still_open = expected_bars(trades_at(0, 3000))
    assert complete == []
    assert [bar.width for bar in still_open] == ["1h", "1m", "1s", "1s"]


def test_a_recording_without_trades_is_reported(tmp_path: Path) -> None:
    depth = tmp_path / "X-depth.csv"
    depth.write_text("X,1,1,1,b,snap,1,1,0\n")
    with pytest.raises(JobError, match="holds no trades"):
        trades_of(FeedConfig(bootstrap_servers="x:1", source="csv", file=depth))


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(lambda bars: bars[:-1], id="lost"),
        pytest.param(lambda bars: [*bars, bars[-1]], id="twice"),
        pytest.param(lambda bars: [*bars[:-1], replace(bars[-1], symbol="Y")], id="moved-to-another-symbol"),
        pytest.param(lambda bars: [*bars[:-1], replace(bars[-1], start_ms=0)], id="moved-in-time"),
        pytest.param(lambda bars: [*bars[:-1], replace(bars[-1], vwap=bars[-1].vwap + Decimal("1e-8"))], id="a-digit"),
        pytest.param(lambda bars: [bars[1], bars[0]], id="in-another-order"),
    ],
)
def test_the_demo_fails_by_a_bar_that_is_not_the_plain_one(plant: Callable[[list[Bar]], list[Bar]]) -> None:
    expected, _ = expected_bars(trades_at(0, 1000, 12_000))
    check(list(expected), expected)
    with pytest.raises(JobError, match="Spark gave"):
        check(plant(expected), expected)


@pytest.mark.parametrize("port", ["65536", "-1"])
def test_a_port_that_none_is_is_refused_before_anything_runs(port: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["demo", "--port", port])
    with pytest.raises(SystemExit):
        main()
    assert f"--port {port}: a port is 0 to 65535" in capsys.readouterr().err
