"""The data of the live page, built from records: bars, order books, latencies. A machine without IO.

Each bar has the version of its last change, so that a browser gets only the bars that changed since its last request.
Bounds: MAX_SYMBOLS symbols, MAX_BARS bars of each width, MAX_LATENCIES latencies, those of the last WINDOW_MS, the
offsets of MAX_SOURCES partitions. Topics may hold anything: what cannot be read, or shown by a browser, is left out.
"""

import json
import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.depth import BadDepth, decimal_of, parse
from spark_jobs.order_book import OrderBook, Side
from spark_jobs.schemas import BAR, WIDTHS_MS

MAX_SYMBOLS = 12
MAX_BARS = 90
MAX_LATENCIES = 50_000
MAX_SOURCES = 1_000
LATEST_MS = 8_640_000_000_000_000
"""The last moment of a browser's Date."""
MAX_DIGITS = 19
"""Digits of an int64; int() refuses thousands of them."""
WINDOW_MS = 10_000
LADDER = 8
"""The number of levels of a side that the page shows."""
Ladder = list[list[float]]
"""[price, quantity] of each level."""
COLUMNS = ("open", "high", "low", "close", "vwap", "volume", "trades")


@dataclass(slots=True)
class MarketState:
    version: int = 0
    forgotten: int = 0
    """The version at which something was forgotten last: a browser that has an older one shows what is no more."""
    bars: dict[tuple[str, str], dict[int, tuple[int, list[float]]]] = field(default_factory=dict)
    """By symbol and width: the version and the numbers of each bar, by its start."""
    books: dict[str, OrderBook] = field(default_factory=dict)
    latencies: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=MAX_LATENCIES))
    """(time, latency in ms) of each tick."""
    ticks: int = 0
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """By the source's partition: the offset after the last source record for which there is a tick."""

    def apply_bar(self, value: bytes) -> None:
        """Apply a record of gold's or live's topic; one that is not a bar is ignored."""
        try:
            bar = json.loads(value)
            if bar["v"] != BAR.version or bar["width"] not in WIDTHS_MS:
                return
            symbol, start_ms = str(bar["symbol"]), int(bar["start_ms"])
            numbers = [float(bar[name]) for name in COLUMNS]
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return
        symbols = self.symbols()
        is_number = all(map(math.isfinite, numbers)) and 0 <= start_ms <= LATEST_MS  # JSON knows no others
        if not is_number or (symbol not in symbols and len(symbols) >= MAX_SYMBOLS):
            return
        self.version += 1
        slots = self.bars.setdefault((symbol, bar["width"]), {})
        slots[start_ms] = self.version, numbers
        if len(slots) > MAX_BARS:
            del slots[min(slots)]

    def apply_depth(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a snapshot or a delta of an order book; any other record is ignored."""
        symbol = (key or b"").decode("utf-8", "replace")
        try:
            message = parse(value, symbol)
        except BadDepth:
            return
        if symbol in self.books or len(self.books) < MAX_SYMBOLS:
            self.books.setdefault(symbol, OrderBook()).step(message)

    def apply_tick(self, source: str, latency_ms: float | None, now_ms: int) -> None:
        """Apply a tick: its header `source` (topic-partition-offset), and its latency if it is known."""
        self.ticks += 1
        rest, _, offset = source.rpartition("-")
        topic, _, partition = rest.rpartition("-")
        numbers = whole(partition.encode()), whole(offset.encode())
        if numbers[0] is not None and numbers[1] is not None:
            where = topic, numbers[0]
            if where in self.next_offsets or len(self.next_offsets) < MAX_SOURCES:
                self.next_offsets[where] = max(self.next_offsets.get(where, 0), numbers[1] + 1)
        if latency_ms is not None:
            self.latencies.append((now_ms, latency_ms))

    def forget_bars(self) -> None:
        self.bars.clear()
        self._forget()

    def forget_books(self) -> None:
        self.books.clear()
        self._forget()

    def _forget(self) -> None:
        self.version += 1
        self.forgotten = self.version

    def forget_sources(self, topics: Collection[str]) -> None:
        self.next_offsets = {where: at for where, at in self.next_offsets.items() if where[0] not in topics}

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


def whole(text: bytes) -> int | None:
    """Return the number that the digits say; None if they are none, or too many."""
    return int(text) if text.isdigit() and len(text) <= MAX_DIGITS else None


def _ladder(side: Side) -> Ladder:
    return [[float(decimal_of(price)), float(decimal_of(quantity))] for price, quantity in side.best(LADDER)]
