"""The expected results of silver and gold, computed without Spark: plain Python decimals over the records' bytes.

The demo and the tests compare every bar with it, to the last digit.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext

from spark_jobs.events import Trade
from spark_jobs.schemas import SHOWN_VERSION, TRADE, WIDTHS_MS

EXACT = Context(prec=80, rounding=ROUND_HALF_UP)
EIGHT_PLACES = Decimal("0.00000001")
DECIMAL_18_8 = re.compile(r"[0-9]{1,10}(\.[0-9]{1,8})?")
SHAPES = {
    "symbol": re.compile(r"[^|\s]{1,64}"),
    "trade_id": re.compile(r"[0-9]{1,18}"),
    "price": DECIMAL_18_8,
    "quantity": DECIMAL_18_8,
    "time_ms": re.compile(r"[0-9]{1,14}"),
    "is_buyer_maker": re.compile(r"true|false"),
}
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of schemas.BAR."""

    symbol: str
    width: str
    start_ms: int
    end_ms: int
    open: Decimal
    high: Decimal
    low: Decimal
    close: Decimal
    volume: Decimal
    turnover: Decimal
    vwap: Decimal
    trades: int
    buy_volume: Decimal
    sell_volume: Decimal
    imbalance: Decimal
    open_trade_id: int
    close_trade_id: int


def parse(value: bytes | None, timestamp_ms: int, max_ahead_ms: int = HOUR_MS) -> Trade | str:
    """Return the trade in a record, or the reason why it is not a trade."""
    if not value:
        return "empty"
    try:
        fields = json.loads(value.decode())
        if not isinstance(fields, dict):
            return "not JSON"
        texts = {name: _text(field) for name, field in fields.items() if field is not None}
    except (ValueError, RecursionError):
        return "not JSON"
    if "v" not in texts:
        return "v is missing"
    if texts["v"] != str(TRADE.version):
        return f"unknown version {texts['v'][:SHOWN_VERSION]}"
    for name, shape in SHAPES.items():
        if name not in texts:
            return f"{name} is missing"
        if not shape.fullmatch(texts[name]):
            return f"{name} is not of its type"
    for name in ("price", "quantity"):
        if Decimal(texts[name]) == 0:
            return f"{name} is 0"
    time_ms = int(texts["time_ms"])
    if time_ms - timestamp_ms > max_ahead_ms:
        return "time_ms is ahead of the record's timestamp"
    is_buyer_maker = texts["is_buyer_maker"] == "true"
    return Trade(texts["symbol"], int(texts["trade_id"]), texts["price"], texts["quantity"], time_ms, is_buyer_maker)


def bars(trades: Iterable[Trade], widths_ms: dict[str, int] = WIDTHS_MS) -> list[Bar]:
    """Return the bars of all widths over trades that count, in order of (width, start, symbol)."""
    slots: dict[tuple[str, int, str], list[Trade]] = {}
    for trade in trades:
        for width, width_ms in widths_ms.items():
            slots.setdefault((width, trade.time_ms // width_ms * width_ms, trade.symbol), []).append(trade)
    with localcontext(EXACT):
        return [_bar(*slot, widths_ms[slot[0]], group) for slot, group in sorted(slots.items())]


def distinct(trades: Iterable[Trade]) -> list[Trade]:
    """Return the first trade of each (symbol, trade id)."""
    seen: dict[tuple[str, int], Trade] = {}
    for trade in trades:
        seen.setdefault((trade.symbol, trade.trade_id), trade)
    return list(seen.values())


def in_time(batches: Sequence[Sequence[Trade]], watermark_ms: int) -> tuple[list[Trade], list[Trade], int]:
    """Return (trades that count, late trades, the last watermark) of a stream that is divided into these batches."""
    counted: list[Trade] = []
    late: list[Trade] = []
    for batch, limit_ms in zip(batches, late_watermarks(batches, watermark_ms), strict=True):
        for trade in batch:
            (late if trade.time_ms <= limit_ms else counted).append(trade)
    return distinct(counted), late, watermarks(batches, watermark_ms)[-1]


def late_watermarks(batches: Sequence[Sequence[Trade]], watermark_ms: int) -> list[int]:
    """Return, for each batch, the watermark of the batch before it: event times must be after it."""
    return [0, *watermarks(batches, watermark_ms)][: len(batches)]


def watermarks(batches: Sequence[Sequence[Trade]], watermark_ms: int) -> list[int]:
    """Return the watermark with which each batch is planned, and the last one; it trails the latest event time."""
    planned = [0]
    for batch in batches:
        planned.append(max(planned[-1], max((trade.time_ms for trade in batch), default=0) - watermark_ms))
    return planned


def _text(field: object) -> str:
    """Return a field as Spark reads it into a string: fractions that are small or large as Java writes them."""
    if isinstance(field, float) and field and math.isfinite(field) and not 1e-3 <= abs(field) < 1e7:
        mantissa, _, exponent = f"{Decimal(repr(field)).normalize():E}".partition("E")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
    return field if isinstance(field, str) else json.dumps(field, separators=(",", ":"), ensure_ascii=False)


def _bar(width: str, start_ms: int, symbol: str, width_ms: int, trades: list[Trade]) -> Bar:
    trades.sort(key=lambda trade: (trade.time_ms, trade.trade_id))
    prices = [Decimal(trade.price) for trade in trades]
    quantities = [Decimal(trade.quantity) for trade in trades]
    sold = sum((q for q, trade in zip(quantities, trades, strict=True) if trade.is_buyer_maker), Decimal(0))
    volume = sum(quantities, Decimal(0))
    turnover = sum((price * quantity for price, quantity in zip(prices, quantities, strict=True)), Decimal(0))
    return Bar(
        symbol=symbol,
        width=width,
        start_ms=start_ms,
        end_ms=start_ms + width_ms,
        open=prices[0],
        high=max(prices),
        low=min(prices),
        close=prices[-1],
        volume=volume,
        turnover=turnover,
        vwap=(turnover / volume).quantize(EIGHT_PLACES),
        trades=len(trades),
        buy_volume=volume - sold,
        sell_volume=sold,
        imbalance=((volume - sold - sold) / volume).quantize(EIGHT_PLACES),
        open_trade_id=trades[0].trade_id,
        close_trade_id=trades[-1].trade_id,
    )
