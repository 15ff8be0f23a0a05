"""What the live page shows, built from records: bars, order books, latencies. A machine without IO.

Each bar carries the version at which it changed last, so that a browser is sent what changed since it asked last.
Bounds: MOST_SYMBOLS symbols, MOST_BARS bars of each width, MOST_LATENCIES latencies, those of the last WINDOW_MS.
"""

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.depth import BadDepth, decimal_of, parse
from spark_jobs.order_book import OrderBook, Side
from spark_jobs.schemas import BAR, WIDTHS_MS

MOST_SYMBOLS = 12
MOST_BARS = 90
MOST_LATENCIES = 50_000
WINDOW_MS = 10_000
LADDER = 8
"""Levels of a side that are shown."""
Ladder = list[list[float]]
"""[price, quantity] of each level."""
COLUMNS = ("open", "high", "low", "close", "vwap", "volume", "trades")


@dataclass(slots=True)
class MarketState:
    version: int = 0
    bars: dict[tuple[str, str], dict[int, tuple[int, list[float]]]] = field(default_factory=dict)
    """By symbol and width: the version and the numbers of each bar, by its start."""
    books: dict[str, OrderBook] = field(default_factory=dict)
    latencies: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=MOST_LATENCIES))
    """(when, ms) of each tick."""
    ticks: int = 0
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """How far the ticks are: the offset after the last source record that has one, by the source's partition."""

    def apply_bar(self, value: bytes) -> None:
        """Take a bar of gold's or live's topic; what is none is left out."""
        try:
            bar = json.loads(value)
            if bar["v"] != BAR.version or bar["width"] not in WIDTHS_MS:
                return
            symbol, start_ms = str(bar["symbol"]), int(bar["start_ms"])
            numbers = [float(bar[name]) for name in COLUMNS]
        except (ValueError, KeyError, TypeError):
            return
        symbols = self.symbols()
        if symbol not in symbols and len(symbols) >= MOST_SYMBOLS:
            return
        self.version += 1
        slots = self.bars.setdefault((symbol, bar["width"]), {})
        slots[start_ms] = self.version, numbers
        if len(slots) > MOST_BARS:
            del slots[min(slots)]

    def apply_depth(self, key: bytes | None, value: bytes | None) -> None:
        """Take a snapshot or a delta of an order book; what is none is left out."""
        symbol = (key or b"").decode("utf-8", "replace")
        book = self.books.get(symbol)
        if book is None:
            if len(self.books) >= MOST_SYMBOLS:
                return
            book = self.books[symbol] = OrderBook()
        try:
            book.step(parse(value, symbol))
        except BadDepth:
            return

    def apply_tick(self, source: str, latency_ms: float | None, now_ms: int) -> None:
        """Take a tick: its header `source` (topic-partition-offset) and how long it took, where that is known."""
        self.ticks += 1
        rest, _, offset = source.rpartition("-")
        topic, _, partition = rest.rpartition("-")
        if partition.isdigit() and offset.isdigit():
            where = topic, int(partition)
            self.next_offsets[where] = max(self.next_offsets.get(where, 0), int(offset) + 1)
        if latency_ms is not None:
            self.latencies.append((now_ms, latency_ms))

    def symbols(self) -> list[str]:
        return sorted({symbol for symbol, _ in self.bars})

    def changed_bars(self, since: int) -> list[list[Any]]:
        """Return [symbol, width, start in seconds, numbers...] of the bars that changed after a version."""
        return [
            [symbol, width, start_ms / 1000, *numbers]
            for (symbol, width), slots in self.bars.items()
            for start_ms, (version, numbers) in sorted(slots.items())
            if version > since
        ]

    def ladders(self) -> dict[str, dict[str, Ladder] | None]:
        """Return the best levels of each side of each book, the best first; None after a gap, until a snapshot."""
        return {
            symbol: None if book.last_update_id is None else {"bids": _ladder(book.bids), "asks": _ladder(book.asks)}
            for symbol, book in sorted(self.books.items())
        }

    def quantiles(self, now_ms: int) -> dict[str, float | None]:
        """Return p50 and p99 of the last WINDOW_MS in ms, and the ticks per second."""
        while self.latencies and self.latencies[0][0] < now_ms - WINDOW_MS:
            self.latencies.popleft()
        found = sorted(latency_ms for _, latency_ms in self.latencies)
        rate = len(found) * 1000 / WINDOW_MS
        if not found:
            return {"p50": None, "p99": None, "rate": rate}
        p50, p99 = (found[min(len(found) - 1, int(len(found) * share))] for share in (0.5, 0.99))
        return {"p50": round(p50, 1), "p99": round(p99, 1), "rate": rate}


def _ladder(side: Side) -> Ladder:
    return [[float(decimal_of(price)), float(decimal_of(quantity))] for price, quantity in side.best(LADDER)]
