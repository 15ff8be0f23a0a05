"""An exchange for tests of the order book: it trades by a seed, publishes deltas and snapshots, and remembers.

The oracle is its own book, a dict of decimals by price, copied after every event; nothing of spark_jobs is used but the
messages. The path from it to a consumer loses, repeats and holds back.
"""

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from random import Random

from spark_jobs.depth import UNITS, Delta, DepthMessage, Snapshot

TICK = Decimal("0.01")
LOT = Decimal("0.001")
Quotes = dict[str, Decimal]


@dataclass
class Exchange:
    """One symbol; `is_future` sends pu."""

    symbol: str
    seed: int
    is_future: bool = False

    def __post_init__(self) -> None:
        self.random = Random(f"{self.symbol} {self.seed}")
        self.time_ms = 1_700_000_000_000
        self.update_id = self.random.randrange(10**12)
        self.mid = Decimal(self.random.randrange(10_000, 50_000)) / 100
        self.bids: dict[Decimal, Decimal] = {}
        self.asks: dict[Decimal, Decimal] = {}
        self.history: dict[int, tuple[dict[Decimal, Decimal], dict[Decimal, Decimal]]] = {}
        for _ in range(10):
            self.trade()

    def trade(self) -> Delta:
        """Move the book by a few orders and return the event that says so."""
        first, previous = self.update_id + 1, self.update_id
        self.mid += TICK * self.random.randint(-3, 3)
        changed = {"bids": self._cross(self.bids, 1), "asks": self._cross(self.asks, -1)}
        for _ in range(self.random.randint(1, 6)):
            self._place(changed)
        if self.is_future:
            first += self.random.randint(0, 20)
        self.update_id = first + self.random.randint(0, 30)
        self.time_ms += self.random.randint(0, 300)
        self.history[self.update_id] = dict(self.bids), dict(self.asks)
        levels = [
            [(_units(p), _units(book.get(p, Decimal(0)))) for p in prices] for book, prices in self._both(changed)
        ]
        pu = previous if self.is_future else None
        return Delta(self.symbol, self.time_ms, first, self.update_id, pu, *levels)

    def _both(self, changed):
        return (self.bids, changed["bids"]), (self.asks, changed["asks"])

    def _cross(self, book: dict[Decimal, Decimal], sign: int) -> set[Decimal]:
        """Trade away what the moved price has passed."""
        gone = {price for price in book if (price - self.mid) * sign >= 0}
        for price in gone:
            del book[price]
        return gone

    def _place(self, changed: dict[str, set[Decimal]]) -> None:
        is_bid = self.random.random() < 0.5
        book, side = (self.bids, "bids") if is_bid else (self.asks, "asks")
        distance = TICK * self.random.randint(1, 40)
        price = self.mid - distance if is_bid else self.mid + distance
        if book and self.random.random() < 0.3:
            price = self.random.choice(sorted(book))
            del book[price]
        else:
            book[price] = LOT * self.random.randint(1, 100_000)
        changed[side].add(price)

    def snapshot(self) -> Snapshot:
        sides = [[(_units(p), _units(q)) for p, q in book.items()] for book in (self.bids, self.asks)]
        return Snapshot(self.symbol, None, self.update_id, *sides)

    def quotes_at(self, update_id: int, levels: int = 10) -> Quotes | None:
        """Return what the book said after the event that ended on update_id, from the dicts alone."""
        bids, asks = self.history[update_id]
        if not bids or not asks:
            return None
        bid, ask = max(bids), min(asks)
        bid_depth = sum((bids[price] for price in sorted(bids)[-levels:]), Decimal(0))
        ask_depth = sum((asks[price] for price in sorted(asks)[:levels]), Decimal(0))
        with localcontext(prec=80, rounding=ROUND_HALF_UP):
            places = Decimal("1e-8")
            weighted = bid * asks[ask] + ask * bids[bid]
            return {
                "bid": bid,
                "bid_quantity": bids[bid],
                "ask": ask,
                "ask_quantity": asks[ask],
                "mid": (bid + ask) / 2,
                "spread": ask - bid,
                "microprice": (weighted / (bids[bid] + asks[ask])).quantize(places),
                "imbalance": ((bid_depth - ask_depth) / (bid_depth + ask_depth)).quantize(places),
                "bid_depth": bid_depth,
                "ask_depth": ask_depth,
            }


@dataclass
class Delivered:
    """What came through, and the truth about it."""

    messages: list[DepthMessage]
    lost: int
    repeated: int


def deliver(exchange: Exchange, count: int, *, loss: float = 0.01, repeats: float = 0.02) -> Delivered:
    """Return `count` events of the exchange as a bad path delivers them, with a snapshot now and then.

    A snapshot may be held back behind later deltas, as a response of a REST call is.
    """
    random = Random(f"path {exchange.symbol} {exchange.seed}")
    delivered = Delivered([], 0, 0)
    held: Snapshot | None = None
    for number in range(count):
        delta = exchange.trade()
        if random.random() < loss:
            delivered.lost += 1
        else:
            delivered.messages.append(delta)
            if random.random() < repeats:
                delivered.repeated += 1
                delivered.messages.append(delta)
        if number % 40 == 15:
            held = exchange.snapshot()
        if held is not None and random.random() < 0.4:
            delivered.messages.append(held)
            held = None
    return delivered


def _units(number: Decimal) -> int:
    scaled = number * UNITS
    assert scaled == int(scaled)
    return int(scaled)
