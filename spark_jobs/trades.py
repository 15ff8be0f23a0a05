"""Trades: what they are, where they come from, how they look on a topic.

On the topic a trade is a JSON object keyed by its symbol; price and quantity are strings, because a double would lose
digits. Sources: a file in Binance's aggTrades columns (CSV, gzipped or not), or a seeded generator (same seed, same
trades).
"""

import csv
import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TextIO

TICK = Decimal("0.01")
LOT = Decimal("0.00001")


class BadTrades(Exception):
    """A trades file that cannot be used; the text says where and why."""


@dataclass(slots=True)
class Trade:
    symbol: str
    trade_id: int
    price: str
    quantity: str
    time_ms: int
    is_buyer_maker: bool

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def read_agg_trades(path: Path) -> Iterator[Trade]:
    """Yield the trades of a file in Binance's aggTrades columns.

    Columns: id, price, quantity, first trade id, last trade id, time in ms, is buyer maker[, is best match]; a header
    line may be there or not. The symbol is the file name up to the first dash. Raises BadTrades naming the line.
    """
    symbol = path.name.split("-")[0].split(".")[0]
    with _open_text(path) as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            if number == 1 and row and not row[0].isdigit():
                continue
            yield _parse(symbol, row, f"{path}:{number}")


def _open_text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", newline="")
    return open(path, newline="")


def _parse(symbol: str, row: list[str], where: str) -> Trade:
    try:
        trade_id, price, quantity, _, _, time_ms, is_buyer_maker, *_ = row
        Decimal(price), Decimal(quantity)
        return Trade(symbol, int(trade_id), price, quantity, int(time_ms), is_buyer_maker.lower() == "true")
    except (ValueError, ArithmeticError):
        raise BadTrades(f"{where}: not a row of aggTrades: {','.join(row)[:100]!r}") from None


def generate(count: int, *, seed: int = 1, start_ms: int = 1_700_000_000_000) -> Iterator[Trade]:
    """Yield `count` trades of three symbols: clustered arrivals, prices that walk by ticks, sizes of a heavy tail."""
    chance = random.Random(seed)
    prices = {"BTCUSDT": Decimal("37000.00"), "ETHUSDT": Decimal("2050.00"), "SOLUSDT": Decimal("56.00")}
    trade_ids = dict.fromkeys(prices, 1)
    symbols = list(chain(*([symbol] * weight for symbol, weight in zip(prices, (6, 3, 1), strict=True))))
    time_ms, excitement = start_ms, 0.0
    for _ in range(count):
        excitement = excitement * 0.8 + (1.0 if chance.random() < 0.3 else 0.0)
        time_ms += int(chance.expovariate((1 + 4 * excitement) / 400))
        symbol = chance.choice(symbols)
        is_sell = chance.random() < 0.5
        prices[symbol] = max(TICK, prices[symbol] + TICK * chance.randint(-8, 8))
        quantity = (Decimal(repr(chance.lognormvariate(-2, 1.5))) + LOT).quantize(LOT)
        yield Trade(symbol, trade_ids[symbol], str(prices[symbol]), str(quantity), time_ms, is_sell)
        trade_ids[symbol] += 1
