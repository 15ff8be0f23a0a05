"""Generates a market's events: the same settings give the same bytes.

Arrivals excite each other (a Hawkes process with an exponential kernel, simulated exactly by Ogata's thinning); prices
walk by ticks under a volatility that switches regime; the aggressor's side persists; sizes are log-normal with round
lots; a few symbols have most of the trades (Zipf). Updates of the symbol's order book come beside the trades, at a rate
of their own. As in reality, some events arrive late, twice or damaged, and some updates are lost.

A record's timestamp is its arrival; its event time is earlier by the lag.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from pydantic import BaseModel, ConfigDict, Field

from spark_jobs.events import Depth, Event, Level, Trade, depth_event, trade_event

PRICES = (37_000.0, 2_050.0, 56.0, 0.62, 240.0, 0.085, 0.38, 7.3, 14.2, 5.1)
SYMBOLS = (
    "BTCUSDT",
    "ETHUSDT",
    "SOLUSDT",
    "XRPUSDT",
    "BNBUSDT",
    "DOGEUSDT",
    "ADAUSDT",
    "DOTUSDT",
    "LINKUSDT",
    "ATOMUSDT",
)
LATEST_MS = 99_999_999_999_999
"""The latest time that silver takes: 14 digits, in the year 5138."""
UNIT = 100_000_000
"""Prices and quantities are integers in units of 1e-8."""


class Market(BaseModel):
    """The settings of the generator."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    events: int = Field(default=20_000, ge=1, description="number of trades before duplicates")
    seed: int = Field(default=1, description="same seed and settings, same bytes")
    start_ms: int = Field(default=1_700_000_000_000, ge=0, le=LATEST_MS, description="event time of the start")
    symbols: int = Field(default=3, ge=1, le=len(SYMBOLS), description="number of markets")
    trades_per_second: float = Field(default=20.0, gt=0, description="mean rate over all markets")
    branching: float = Field(default=0.8, ge=0, lt=1, description="mean number of trades that one trade sets off")
    decay_ms: float = Field(default=400.0, gt=0, description="how long excitement lasts (mean)")
    median_lag_ms: float = Field(
        default=40.0, ge=0, le=86_400_000, description="median of arrival minus event time (log-normal)"
    )
    late: float = Field(default=0.005, ge=0, le=1, description="share of trades that arrive 10 to 60 s late")
    duplicates: float = Field(default=0.001, ge=0, le=1, description="share of trades sent again up to 5 s later")
    malformed: float = Field(default=0.0001, ge=0, le=1, description="share of trades followed by a damaged record")
    depth_per_trade: float = Field(default=0.0, ge=0, description="order-book updates per trade")
    depth_levels: int = Field(default=20, ge=1, description="levels of a side in a snapshot")
    gaps: float = Field(default=0.001, ge=0, le=1, description="share of order-book updates that are lost")
    snapshot_every: int = Field(default=500, ge=1, description="updates of a book between snapshots")


def generate(market: Market) -> Iterator[Event]:
    """Yield the market's events in order of arrival."""
    random = Random(market.seed)
    pending: list[tuple[float, int, Event]] = []
    serial = 0
    for now_ms, events in _happenings(market, random):
        for arrival_ms, event in events:
            serial += 1
            event.arrival_ms = int(arrival_ms)
            heapq.heappush(pending, (arrival_ms, serial, event))
        while pending and pending[0][0] <= now_ms:
            yield heapq.heappop(pending)[2]
    while pending:
        yield heapq.heappop(pending)[2]


@dataclass(slots=True)
class _Book:
    """A symbol's market: the price, its volatility and the levels of its book."""

    symbol: str
    tick: int
    price: int
    trade_id: int = 0
    update_id: int = 0
    updates: int = 0
    is_sell: bool = False
    is_wild: bool = False
    bids: dict[int, int] = field(default_factory=dict)
    asks: dict[int, int] = field(default_factory=dict)


def _happenings(market: Market, random: Random) -> Iterator[tuple[float, list[tuple[float, Event]]]]:
    """Yield (event time, [(arrival time, event)]) per trade. Events yielded later arrive after that event time."""
    books = [_new_book(index) for index in range(market.symbols)]
    weights = [1 / (rank + 1) for rank in range(market.symbols)]
    for now_ms in _arrivals(market, random):
        book = random.choices(books, weights)[0]
        events = _trade(market, random, book, now_ms)
        updates = int(market.depth_per_trade + random.random()) if market.depth_per_trade else 0
        for _ in range(updates):
            events.extend(_depth(market, random, book, now_ms))
        yield now_ms, events


def _arrivals(market: Market, random: Random) -> Iterator[float]:
    """Yield the times of a Hawkes process of the wished mean rate, with the day's swing on its base rate."""
    base = market.trades_per_second / 1000 * (1 - market.branching)
    now, excitement = float(market.start_ms), 0.0
    for _ in range(market.events):
        while True:
            bound = base * 1.3 + excitement
            wait = random.expovariate(bound)
            now += wait
            excitement *= math.exp(-wait / market.decay_ms)
            swing = 1 + 0.3 * math.sin(2 * math.pi * (now % 86_400_000) / 86_400_000)
            if random.random() * bound <= base * swing + excitement:
                break
        excitement += market.branching / market.decay_ms
        yield now


def _new_book(index: int) -> _Book:
    price = round(PRICES[index] * UNIT)
    tick = 10 ** max(2, len(str(price)) - 6)
    return _Book(SYMBOLS[index], tick, price // tick * tick)


def _trade(market: Market, random: Random, book: _Book, now_ms: float) -> list[tuple[float, Event]]:
    if random.random() < 0.002:
        book.is_wild = not book.is_wild
    if random.random() < 0.3:
        book.is_sell = not book.is_sell
    step = round(random.gauss(-0.3 if book.is_sell else 0.3, 4.0 if book.is_wild else 1.2))
    book.price = max(book.tick, book.price + step * book.tick)
    book.trade_id += 1
    size = _size(random)
    trade = Trade(book.symbol, book.trade_id, decimal_text(book.price), decimal_text(size), int(now_ms), book.is_sell)
    lag_ms = market.median_lag_ms * random.lognormvariate(0, 0.6)
    if random.random() < market.late:
        lag_ms = random.uniform(10_000, 60_000)
    events = [(now_ms + lag_ms, trade_event(trade))]
    if random.random() < market.duplicates:
        events.append((now_ms + lag_ms + random.uniform(0, 5_000), trade_event(trade)))
    if random.random() < market.malformed:
        events.append((now_ms + lag_ms, Event("trade", book.symbol, _damaged(random, trade), 0)))
    return events


def _size(random: Random) -> int:
    """Return a quantity: log-normal, every fourth a round lot."""
    size = random.lognormvariate(-2.5, 1.6)
    if random.random() < 0.25:
        size = max(0.01, round(size, 1 if size > 0.1 else 2))
    return max(1_000, round(size * UNIT) // 1_000 * 1_000)


def _damaged(random: Random, trade: Trade) -> bytes:
    """Return bytes that are not a trade: truncated, not JSON, with a suffix, without a field, or with a wrong value."""
    whole = trade.to_json()
    price = f'"price":"{trade.price}"'.encode()
    return random.choice(
        [
            whole[: random.randint(1, len(whole) - 1)],
            b"\x00\xff" + whole[:8],
            b"",
            whole + b"}",
            whole.replace(price + b",", b""),
            whole.replace(price, b'"price":"-1"'),
            whole.replace(price, b'"price":"1.123456789"'),
            whole.replace(price, b'"price":"1e3"'),
        ]
    )


def _depth(market: Market, random: Random, book: _Book, now_ms: float) -> list[tuple[float, Event]]:
    """Change the book; return its update, unless that is lost. The first is a snapshot, later ones sometimes are."""
    arrival_ms = now_ms + market.median_lag_ms
    events: list[tuple[float, Event]] = []
    if book.updates % market.snapshot_every == 0:
        _refill(market, random, book)
        book.update_id += 1
        levels = _levels(book.bids, reverse=True), _levels(book.asks)
        snapshot = Depth(book.symbol, "snapshot", int(now_ms), book.update_id, book.update_id, -1, *levels)
        events.append((arrival_ms, depth_event(snapshot)))
    book.updates += 1
    previous, first = book.update_id, book.update_id + 1
    book.update_id += random.randint(1, 5)
    bids, asks = _change(random, book)
    delta = Depth(book.symbol, "delta", int(now_ms), first, book.update_id, previous, bids, asks)
    if random.random() >= market.gaps:
        events.append((arrival_ms, depth_event(delta)))
    return events


def _refill(market: Market, random: Random, book: _Book) -> None:
    steps = range(1, market.depth_levels + 1)
    book.bids = {book.price - step * book.tick: _size(random) for step in steps if book.price > step * book.tick}
    book.asks = {book.price + step * book.tick: _size(random) for step in steps}


def _change(random: Random, book: _Book) -> tuple[list[Level], list[Level]]:
    """Move up to three levels of each side; sides never cross the price."""
    changed: list[list[Level]] = []
    for side, sign in ((book.bids, -1), (book.asks, 1)):
        crossed = [price for price in side if (price - book.price) * sign <= 0]
        updates = dict.fromkeys(crossed, 0)
        for _ in range(random.randint(0, 3)):
            price = book.price + sign * book.tick * random.randint(1, 20)
            if price > 0:
                updates[price] = 0 if random.random() < 0.3 else _size(random)
        for price, size in updates.items():
            if size:
                side[price] = size
            else:
                side.pop(price, None)
        changed.append([(decimal_text(price), decimal_text(size)) for price, size in sorted(updates.items())])
    return changed[0], changed[1]


def _levels(side: dict[int, int], *, reverse: bool = False) -> list[Level]:
    return [(decimal_text(price), decimal_text(size)) for price, size in sorted(side.items(), reverse=reverse)]


def decimal_text(units: int) -> str:
    """Return an integer of 1e-8 as a decimal without trailing zeros."""
    whole, part = divmod(units, UNIT)
    return f"{whole}.{part:08d}".rstrip("0").rstrip(".")
