"""What the live page shows: bars and what changed of them, books, latencies, all within bounds."""

import json

import pytest

from spark_jobs.events import Depth
from spark_jobs.market_state import MAX_BARS, MAX_SOURCES, MAX_SYMBOLS, WINDOW_MS, MarketState


def bar(symbol: str = "X", start_ms: object = 60_000, width: str = "1m", close: str = "2.5", version: int = 1) -> bytes:
    prices = {"open": "2", "high": "3", "low": "1", "close": close, "vwap": "2", "volume": "7"}
    return json.dumps(
        {"v": version, "symbol": symbol, "width": width, "start_ms": start_ms, **prices, "trades": 4}
    ).encode()


def test_a_bar_that_changes_is_sent_again_and_no_other() -> None:
    state = MarketState()
    state.apply_bar(bar())
    state.apply_bar(bar(start_ms=120_000))
    since = state.version
    state.apply_bar(bar(start_ms=120_000, close="9"))
    assert state.changed_bars(0) == [
        ["X", "1m", 60.0, 2.0, 3.0, 1.0, 2.5, 2.0, 7.0, 4.0],
        ["X", "1m", 120.0, 2.0, 3.0, 1.0, 9.0, 2.0, 7.0, 4.0],
    ]
    assert [each[2] for each in state.changed_bars(since)] == [120.0]
    assert state.changed_bars(state.version) == []


def test_what_is_forgotten_is_gone_and_a_browser_of_before_is_told() -> None:
    state = MarketState()
    state.apply_bar(bar())
    state.apply_depth(b"X", Depth("X", "snapshot", 1, 9, 9, -1, [("1", "2")], [("3", "4")]).to_json())
    state.apply_tick("trades-0-4", None, 0)
    state.apply_tick("other-0-4", None, 0)
    shown_version = state.version
    state.forget_bars()
    state.forget_books()
    state.forget_sources(["trades"])
    assert (state.changed_bars(0), state.ladders(), state.next_offsets) == ([], {}, {("other", 0): 5})
    assert shown_version < state.forgotten == state.version
    state.apply_depth(b"X", Depth("X", "snapshot", 1, 1, 1, -1, [("1", "2")], [("3", "4")]).to_json())
    assert state.ladders() == {"X": {"bids": [[1.0, 2.0]], "asks": [[3.0, 4.0]]}}


STRANGE = [b"", b"{", b"[]", b"7", b"{}", b"[" * 100_000, bar(version=2), bar(width="5m"), bar(close="x")]
NOT_FINITE = [bar(close="1e999"), bar(close="nan"), bar(start_ms="Infinity"), bar(start_ms="1" + "0" * 400)]
NUMBERS = [bar().replace(b": 4}", b": %s}" % number) for number in (b"NaN", b"Infinity", b"1" + b"0" * 400)]


@pytest.mark.parametrize("value", [*STRANGE, *NOT_FINITE, *NUMBERS])
def test_what_is_no_bar_is_left_out(value: bytes) -> None:
    state = MarketState()
    state.apply_bar(value)
    assert state.changed_bars(0) == []


def test_the_oldest_bars_go_and_further_symbols_do_not_come() -> None:
    state = MarketState()
    for number in range(MAX_BARS + 5):
        state.apply_bar(bar(start_ms=60_000 * number))
    assert [each[2] for each in state.changed_bars(0)] == [60.0 * number for number in range(5, MAX_BARS + 5)]
    for number in range(MAX_SYMBOLS + 3):
        state.apply_bar(bar(symbol=f"S{number:02}"))
        state.apply_depth(f"T{number:02}".encode(), b"{}")
        state.apply_depth(f"S{number:02}".encode(), Depth(f"S{number:02}", "delta", 1, 5, 5, 4, [], []).to_json())
    assert len(state.symbols()) == len(state.books) == MAX_SYMBOLS


def test_a_ladder_is_the_best_levels_of_a_book_that_is_whole() -> None:
    state = MarketState()
    levels = [("99", "1"), ("98", "2")], [("101", "3")]
    state.apply_depth(b"X", Depth("X", "snapshot", 1, 5, 5, -1, *levels).to_json())
    state.apply_depth(b"X", b"no message")
    assert state.ladders() == {"X": {"bids": [[99.0, 1.0], [98.0, 2.0]], "asks": [[101.0, 3.0]]}}
    state.apply_depth(b"X", Depth("X", "delta", 2, 9, 9, 8, [("99", "0")], []).to_json())
    assert state.ladders() == {"X": None}


def test_quantiles_are_those_of_the_last_seconds() -> None:
    state = MarketState()
    assert state.quantiles(0) == {"p50": None, "p99": None, "rate": 0.0}
    state.apply_tick("trades-0-1", 900.0, 0)
    for number in range(100):
        state.apply_tick(f"trades-0-{number}", float(number), WINDOW_MS + 1)
    assert state.quantiles(WINDOW_MS + 1) == {"p50": 50.0, "p99": 99.0, "rate": 10.0}


def test_how_far_the_ticks_are_is_told_by_their_sources() -> None:
    state = MarketState()
    for source in (
        "my-trades-0-7",
        "my-trades-0-5",
        "depth-2-0",
        "",
        "nonsense",
        "a-b-c",
        "a-²-³",
        "a-0-" + "9" * 5_000,
    ):
        state.apply_tick(source, None, 0)
    assert state.next_offsets == {("my-trades", 0): 8, ("depth", 2): 1}
    assert (state.ticks, list(state.latencies)) == (8, [])
    for number in range(MAX_SOURCES + 5):
        state.apply_tick(f"others-{number}-0", None, 0)
    state.apply_tick("depth-2-1", None, 0)
    assert len(state.next_offsets) == MAX_SOURCES
    assert state.next_offsets["depth", 2] == 2
