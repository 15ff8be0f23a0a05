"""The made-up market: same seed, same bytes; and what it claims to be."""

import hashlib
import json
from collections import Counter
from itertools import pairwise

import pytest

from spark_jobs import oracle
from spark_jobs.events import Trade
from spark_jobs.generator import Market, decimal_text, generate

CLEAN = {"late": 0, "duplicates": 0, "malformed": 0, "median_lag_ms": 0}


def digest(market: Market) -> str:
    whole = hashlib.sha256()
    for event in generate(market):
        whole.update(repr((event.kind, event.key, event.value, event.arrival_ms)).encode())
    return whole.hexdigest()


def trades(market: Market) -> list[Trade]:
    found = (oracle.parse(event.value, event.arrival_ms) for event in generate(market) if event.kind == "trade")
    return [trade for trade in found if isinstance(trade, Trade)]


def test_same_seed_same_bytes():
    market = Market(events=2_000, depth_per_trade=0.5, malformed=0.01)
    assert digest(market) == digest(market)
    assert digest(market) != digest(market.model_copy(update={"seed": 2}))


def test_events_come_in_order_of_arrival():
    arrivals = [event.arrival_ms for event in generate(Market(events=3_000, late=0.05, depth_per_trade=0.3))]
    assert arrivals == sorted(arrivals)


def test_trades_excite_each_other_at_the_configured_rate():
    times = [trade.time_ms for trade in trades(Market(events=20_000, trades_per_second=20, **CLEAN))]
    seconds = Counter(time // 1000 for time in times)
    counts = [seconds[second] for second in range(times[0] // 1000, times[-1] // 1000)]
    mean = sum(counts) / len(counts)
    assert mean == pytest.approx(20, rel=0.25)
    assert sum((count - mean) ** 2 for count in counts) / len(counts) > 3 * mean  # a Poisson process has 1 * mean


def test_failures_are_injected_as_often_as_configured():
    market = Market(events=10_000, late=0.02, duplicates=0.01, malformed=0.01)
    parsed = [(oracle.parse(event.value, event.arrival_ms), event) for event in generate(market)]
    good = [(found, event) for found, event in parsed if isinstance(found, Trade)]
    assert len(parsed) - len(good) == pytest.approx(100, abs=40)
    assert len(good) - 10_000 == pytest.approx(100, abs=40)
    assert sum(event.arrival_ms - trade.time_ms >= 10_000 for trade, event in good) == pytest.approx(200, abs=60)
    assert len({(trade.symbol, trade.trade_id) for trade, _ in good}) == 10_000


def test_books_follow_their_sequence_but_for_the_gaps():
    events = [event for event in generate(Market(events=4_000, depth_per_trade=1, gaps=0.02)) if event.kind == "depth"]
    depths = [json.loads(event.value) for event in events if event.key == "BTCUSDT"]
    broken = sum(
        after["type"] == "delta" and after["prev_update_id"] != before["last_update_id"]
        for before, after in pairwise(depths)
    )
    assert depths[0]["type"] == "snapshot"
    assert broken == pytest.approx(0.02 * len(depths), rel=0.6)


@pytest.mark.parametrize(("units", "text"), [(0, "0"), (1, "0.00000001"), (10**8, "1"), (123_450_000_000, "1234.5")])
def test_decimal_text(units, text):
    assert decimal_text(units) == text
