"""An order book with a clock: returns the whole book at the start of each second, and forgets it after a long silence.

A machine without IO, on order_book.py. Time is that of the messages. A second starts for a symbol with its first
message of that second or a later one, or with the watermark, which passes also for symbols without messages. Its row
has the book before that message, if it is not void. A message with a time before the clock changes the book, but no
second that has been returned.

A symbol without a message for longer than `forget_after_ms` is forgotten: its book is out of date, and deltas are kept
for the next snapshot. So the number of seconds without a message is bounded, too.
"""

import json
from dataclasses import dataclass, field

from spark_jobs.depth import DepthMessage, Level
from spark_jobs.order_book import DEPTH_LEVELS, BookRow, OrderBook, Quote

SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class BookSecond:
    """A book at the start of a second: the best DEPTH_LEVELS of each side."""

    time_ms: int
    update_id: int
    quote: Quote
    bids: list[Level]
    asks: list[Level]


@dataclass(slots=True)
class TimedBook:
    forget_after_ms: int
    book: OrderBook = field(default_factory=OrderBook)
    last_ms: int | None = None
    """The latest time of a message; None before the first, and once forgotten."""
    next_ms: int = 0
    """The next second to be returned."""

    def step(self, message: DepthMessage, time_ms: int | None) -> tuple[list[BookSecond], list[BookRow]]:
        """Apply the next message; return the seconds that start with it, and its rows. Without a time: no seconds."""
        if time_ms is None:
            return [], self.book.step(message)
        seconds = self.advance(time_ms)
        if self.last_ms is None:
            self.last_ms, self.next_ms = time_ms, _next_second_ms(time_ms)
        self.last_ms = max(self.last_ms, time_ms)
        return seconds, self.book.step(message)

    def advance(self, now_ms: int) -> list[BookSecond]:
        """Return the seconds that have started by now; forget a symbol that was silent for too long."""
        if self.last_ms is None:
            return []
        forgotten_ms = self.last_ms + self.forget_after_ms
        begun = range(self.next_ms, min(now_ms, forgotten_ms) + 1, SECOND_MS)
        seconds = self._seconds_of(begun)
        self.next_ms = max(self.next_ms, _next_second_ms(now_ms))
        if now_ms > forgotten_ms:
            self.book, self.last_ms = OrderBook(), None
        return seconds

    def _seconds_of(self, begun: range) -> list[BookSecond]:
        quote = self.book.quote() if begun else None
        if quote is None or self.book.last_update_id is None:
            return []
        bids, asks = self.book.bids.best(DEPTH_LEVELS), self.book.asks.best(DEPTH_LEVELS)
        return [BookSecond(time_ms, self.book.last_update_id, quote, bids, asks) for time_ms in begun]

    def is_forgotten(self) -> bool:
        return self.last_ms is None and self.book.last_update_id is None and not self.book.kept

    # -- as Spark keeps it ------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        return json.dumps([self.last_ms, self.next_ms, self.book.to_json()], separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, forget_after_ms: int) -> "TimedBook":
        last_ms, next_ms, book = json.loads(text)
        return cls(forget_after_ms, OrderBook.from_json(book), last_ms, next_ms)


def _next_second_ms(time_ms: int) -> int:
    """Return when the first second after a time begins."""
    return (time_ms // SECOND_MS + 1) * SECOND_MS
