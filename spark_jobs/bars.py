"""OHLCV bars from trades: the Spark query, and the plain computation it must equal to the last digit.

Prices and quantities are DECIMAL(18,8) from the first column on, never double. The volume and the sum of price times
quantity are exact; the volume-weighted price is rounded half up to 8 places. A bar opens and closes with its first and
last trade by (time, trade id).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.trades import Trade

TRADE_SCHEMA = (
    "symbol STRING, trade_id LONG, price DECIMAL(18,8), quantity DECIMAL(18,8), time_ms LONG, is_buyer_maker BOOLEAN"
)
BAR_COLUMNS = ("open", "high", "low", "close", "volume", "turnover", "trades")
EXACT = Context(prec=38, rounding=ROUND_HALF_UP)
EIGHT_PLACES = Decimal("0.00000001")


@dataclass(frozen=True, slots=True)
class Bar:
    symbol: str
    start: datetime
    open: Decimal
    high: Decimal
    low: Decimal
    close: Decimal
    volume: Decimal
    turnover: Decimal
    trades: int

    @property
    def vwap(self) -> Decimal:
        """Turnover / volume, rounded half up to 8 places."""
        with localcontext(EXACT):
            return (self.turnover / self.volume).quantize(EIGHT_PLACES)


def parse_trades(source: DataFrame) -> DataFrame:
    """Return the trades of rows of the Kafka source, with their event time as `time`."""
    trade = F.from_json(F.col("value").cast("string"), TRADE_SCHEMA).alias("trade")
    return source.select(trade).select("trade.*", F.timestamp_millis("trade.time_ms").alias("time"))


def bars_of(trades: DataFrame, width: str) -> DataFrame:
    """Aggregate trades to bars of `width` ("1 minute", "1 hour")."""
    order = F.struct("time_ms", "trade_id")
    return (
        trades.groupBy("symbol", F.window("time", width).alias("window"))
        .agg(
            F.min_by("price", order).alias("open"),
            F.max("price").alias("high"),
            F.min("price").alias("low"),
            F.max_by("price", order).alias("close"),
            F.sum("quantity").alias("volume"),
            F.sum((F.col("price") * F.col("quantity")).cast("decimal(38,16)")).alias("turnover"),
            F.count("*").alias("trades"),
        )
        .select("symbol", F.col("window.start").alias("start"), *BAR_COLUMNS)
        .orderBy("start", "symbol")
    )


def collect_bars(bars: DataFrame) -> list[Bar]:
    """Return the rows of bars_of as Bars, ordered by start and symbol."""
    rows = bars.withColumn("start", F.unix_millis("start")).collect()
    return [Bar(**{**row.asDict(), "start": datetime.fromtimestamp(row["start"] / 1000, UTC)}) for row in rows]


def plain_bars(trades: Iterable[Trade], width_ms: int) -> list[Bar]:
    """Compute the same bars without Spark: decimals and a dict."""
    groups: dict[tuple[int, str], list[Trade]] = {}
    for trade in trades:
        groups.setdefault((trade.time_ms - trade.time_ms % width_ms, trade.symbol), []).append(trade)
    with localcontext(EXACT):
        return [_plain_bar(symbol, start_ms, group) for (start_ms, symbol), group in sorted(groups.items())]


def _plain_bar(symbol: str, start_ms: int, trades: list[Trade]) -> Bar:
    trades.sort(key=lambda trade: (trade.time_ms, trade.trade_id))
    prices = [Decimal(trade.price) for trade in trades]
    quantities = [Decimal(trade.quantity) for trade in trades]
    return Bar(
        symbol=symbol,
        start=datetime.fromtimestamp(start_ms / 1000, UTC),
        open=prices[0],
        high=max(prices),
        low=min(prices),
        close=prices[-1],
        volume=sum(quantities, Decimal(0)),
        turnover=sum((price * quantity for price, quantity in zip(prices, quantities, strict=True)), Decimal(0)),
        trades=len(trades),
    )
