"""The order book of one symbol, rebuilt from snapshots and deltas; a machine without IO.

Rules (Binance, "How to manage a local order book correctly", spot and futures):
- A snapshot of update id L starts the book. Deltas that came before it are kept; those with u <= L are dropped.
- Spot: a delta follows update id n when U <= n + 1 <= u. Futures: when pu = n; the first after a snapshot, when
  U <= n <= u.
- A delta of which every id is known is stale (a repeat of an at-least-once producer): it changes nothing.
- Anything else is a gap: the book is void until the next snapshot, and the deltas until then are kept for it.

Every message makes one row. A kept delta makes a second one when a snapshot comes: `recovered` if it is applied, `gap`
if it does not follow. So there is a row for every record. Bounds: MAX_LEVELS of a side (the worst are dropped),
MAX_KEPT deltas (the oldest are dropped, most likely older than the snapshot; if one was needed, there is a `gap`).
"""

import json
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from enum import StrEnum
from typing import Any

from spark_jobs.depth import UNITS, Delta, DepthMessage, Level, Snapshot, decimal_of

MAX_LEVELS = 10_000
MAX_KEPT = 10_000
DEPTH_LEVELS = 10
"""The number of levels of a side in depth and imbalance."""

EXACT = Context(prec=60, rounding=ROUND_HALF_UP)
EIGHT_PLACES = Decimal("0.00000001")


class Status(StrEnum):
    """The result of a message."""

    SNAPSHOT = "snapshot"
    APPLIED = "applied"
    RECOVERED = "recovered"
    STALE = "stale"
    WAITING = "waiting"
    GAP = "gap"
    CROSSED = "crossed"
    MALFORMED = "malformed"
    SECOND = "second"
    """Not of a message: the book at the start of a second (timed_book.py)."""


@dataclass(frozen=True, slots=True)
class Quote:
    """The book's best prices and what follows from them; all exact but microprice and imbalance (HALF_UP, 8 places).

    mid has 9 places. microprice weighs each side's best price with the other side's quantity. bid_depth and ask_depth
    are the quantities of the best DEPTH_LEVELS; imbalance is (bid_depth - ask_depth) / (bid_depth + ask_depth).
    """

    bid: Decimal
    bid_quantity: Decimal
    ask: Decimal
    ask_quantity: Decimal
    mid: Decimal
    spread: Decimal
    microprice: Decimal
    imbalance: Decimal
    bid_depth: Decimal
    ask_depth: Decimal


@dataclass(frozen=True, slots=True)
class BookRow:
    """The row of a message; quote is None if the book is void or one of its sides is empty."""

    status: Status
    time_ms: int | None
    update_id: int
    reason: str | None = None
    quote: Quote | None = None


class Side:
    """A side of the book: quantities by price, and the prices in ascending order."""

    __slots__ = ("is_bid", "prices", "quantities")

    def __init__(self, is_bid: bool, levels: list[Level]) -> None:
        self.is_bid = is_bid
        self.quantities = {price: quantity for price, quantity in levels if quantity}
        self.prices = sorted(self.quantities)
        self._cut()

    def set(self, price: int, quantity: int) -> None:
        """Make `quantity` the total at `price`; 0 removes the level."""
        if not quantity:
            if self.quantities.pop(price, None) is not None:
                del self.prices[bisect_left(self.prices, price)]
            return
        if price not in self.quantities:
            insort(self.prices, price)
        self.quantities[price] = quantity

    def update(self, levels: list[Level]) -> None:
        for price, quantity in levels:
            self.set(price, quantity)
        self._cut()

    def _cut(self) -> None:
        while len(self.prices) > MAX_LEVELS:
            del self.quantities[self.prices.pop(0 if self.is_bid else -1)]

    def best(self, count: int) -> list[Level]:
        """Return the best `count` levels, the best first."""
        prices = self.prices[: -count - 1 : -1] if self.is_bid else self.prices[:count]
        return [(price, self.quantities[price]) for price in prices]


@dataclass(slots=True)
class OrderBook:
    """The state: void (last_update_id is None) or current as of last_update_id."""

    last_update_id: int | None = None
    is_first_after_snapshot: bool = False
    bids: Side = field(default_factory=lambda: Side(True, []))
    asks: Side = field(default_factory=lambda: Side(False, []))
    kept: list[Delta] = field(default_factory=list)

    def step(self, message: DepthMessage) -> list[BookRow]:
        """Apply the next message of the symbol, in the order of the topic; return its rows."""
        return self._apply_snapshot(message) if isinstance(message, Snapshot) else [self._apply_delta(message)]

    # -- snapshots --------------------------------------------------------------------------------------------------

    def _apply_snapshot(self, snapshot: Snapshot) -> list[BookRow]:
        update_id = snapshot.last_update_id
        if self.last_update_id is not None and update_id <= self.last_update_id:
            reason = f"the book is at {self.last_update_id}"
            return [BookRow(Status.STALE, snapshot.time_ms, update_id, reason, self.quote())]
        self._start(snapshot)
        rows = [self._checked(Status.SNAPSHOT, snapshot.time_ms, update_id)]
        waiting, self.kept = deque(self.kept), []
        while waiting and self.last_update_id is not None:
            delta = waiting.popleft()
            if not self._is_known(delta, self.last_update_id):
                rows.append(self._apply_delta(delta, Status.RECOVERED))
        self.kept += waiting
        return rows

    def _start(self, snapshot: Snapshot) -> None:
        self.last_update_id, self.is_first_after_snapshot = snapshot.last_update_id, True
        self.bids, self.asks = Side(True, snapshot.bids), Side(False, snapshot.asks)

    # -- deltas -----------------------------------------------------------------------------------------------------

    def _apply_delta(self, delta: Delta, status: Status = Status.APPLIED) -> BookRow:
        at = self.last_update_id
        if at is None:
            reason = self._keep(delta)
            return BookRow(Status.WAITING, delta.time_ms, delta.last_update_id, reason)
        if self._is_known(delta, at):
            reason = f"the book is at {at}"
            return BookRow(Status.STALE, delta.time_ms, delta.last_update_id, reason, self.quote())
        if not self._follows(delta, at):
            self._void()
            self._keep(delta)
            return BookRow(Status.GAP, delta.time_ms, delta.last_update_id, _gap(delta, at))
        self.bids.update(delta.bids)
        self.asks.update(delta.asks)
        self.last_update_id, self.is_first_after_snapshot = delta.last_update_id, False
        return self._checked(status, delta.time_ms, delta.last_update_id)

    def _is_known(self, delta: Delta, at: int) -> bool:
        """Whether the book has all of the delta. Futures: the first one after a snapshot may end with its id."""
        if delta.previous_update_id is not None and self.is_first_after_snapshot:
            return delta.last_update_id < at
        return delta.last_update_id <= at

    def _follows(self, delta: Delta, at: int) -> bool:
        if delta.previous_update_id is None:
            return delta.first_update_id <= at + 1
        if self.is_first_after_snapshot:
            return delta.first_update_id <= at or delta.previous_update_id == at
        return delta.previous_update_id == at

    def _checked(self, status: Status, time_ms: int | None, update_id: int) -> BookRow:
        """Return the row of a change. A book whose sides overlap is wrong, and becomes void."""
        if self.bids.prices and self.asks.prices and self.bids.prices[-1] >= self.asks.prices[0]:
            reason = f"bid {decimal_of(self.bids.prices[-1]):f} is not below ask {decimal_of(self.asks.prices[0]):f}"
            self._void()
            return BookRow(Status.CROSSED, time_ms, update_id, reason)
        return BookRow(status, time_ms, update_id, None, self.quote())

    def _void(self) -> None:
        self.last_update_id, self.is_first_after_snapshot = None, False
        self.bids, self.asks = Side(True, []), Side(False, [])

    def _keep(self, delta: Delta) -> str:
        """Keep a delta for the next snapshot; return its row."""
        self.kept.append(delta)
        if len(self.kept) <= MAX_KEPT:
            return "waits for a snapshot"
        oldest = self.kept.pop(0)
        return f"waits for a snapshot; too many do, update {oldest.last_update_id} was let go"

    # -- the quote ------------------------------------------------------------------------------------------------

    def quote(self) -> Quote | None:
        bids, asks = self.bids.best(DEPTH_LEVELS), self.asks.best(DEPTH_LEVELS)
        if not bids or not asks:
            return None
        (bid, bid_quantity), (ask, ask_quantity) = bids[0], asks[0]
        bid_depth, ask_depth = (sum(quantity for _, quantity in side) for side in (bids, asks))
        return Quote(
            bid=decimal_of(bid),
            bid_quantity=decimal_of(bid_quantity),
            ask=decimal_of(ask),
            ask_quantity=decimal_of(ask_quantity),
            mid=Decimal((bid + ask) * 5).scaleb(-9),
            spread=decimal_of(ask - bid),
            microprice=_ratio(bid * ask_quantity + ask * bid_quantity, (bid_quantity + ask_quantity) * UNITS),
            imbalance=_ratio(bid_depth - ask_depth, bid_depth + ask_depth),
            bid_depth=decimal_of(bid_depth),
            ask_depth=decimal_of(ask_depth),
        )

    # -- as Spark keeps it ------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        state: dict[str, Any] = {"at": self.last_update_id, "first": self.is_first_after_snapshot}
        state |= {"bids": list(self.bids.quantities.items()), "asks": list(self.asks.quantities.items())}
        state["kept"] = [_as_list(delta) for delta in self.kept]
        return json.dumps(state, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "OrderBook":
        state = json.loads(text)
        sides = Side(True, state["bids"]), Side(False, state["asks"])
        kept = [Delta(*fields) for fields in state["kept"]]
        return cls(state["at"], state["first"], *sides, kept)


def _gap(delta: Delta, at: int) -> str:
    if delta.previous_update_id is not None:
        return f"follows {delta.previous_update_id}, the book is at {at}"
    return f"begins at {delta.first_update_id}, the book is at {at}"


def _ratio(numerator: int, denominator: int) -> Decimal:
    return EXACT.quantize(EXACT.divide(Decimal(numerator), Decimal(denominator)), EIGHT_PLACES)


def _as_list(delta: Delta) -> list[Any]:
    ids = [delta.first_update_id, delta.last_update_id, delta.previous_update_id]
    return [delta.symbol, delta.time_ms, *ids, delta.bids, delta.asks]
