"""Ticks: trades and order-book updates of several topics, checked and typed row by row (schemas.TICK).

There is no state, no grouping and no Python per row, so that real-time mode can run the plan: filters, projections and
one explode. So a trade that comes twice makes two ticks, and a quote has only the levels of its own update: only a
snapshot's spread is that of the book.
"""

from collections.abc import Collection
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.schemas import DEPTH, TICK, TRADE
from spark_jobs.sink import HEADERS, event_json, header, schema_header
from spark_jobs.trades import AHEAD, DECIMAL_18_8, PATTERNS, field_reason, is_ahead, trade_reason, with_fields

OWN_HEADERS = ("schema", "source", "latency_ms")
DEPTH_PATTERNS = {
    "symbol": PATTERNS["symbol"],
    "type": r"^(snapshot|delta)$",
    "time_ms": PATTERNS["time_ms"],
    "last_update_id": PATTERNS["trade_id"],
}
CLOCK_MS = "java_method('java.lang.System', 'currentTimeMillis')"
"""The time at which a row is processed: current_timestamp() is the same for a whole batch, a minute here."""


def parse_ticks(rows: DataFrame, depth_topics: Collection[str], max_ahead: str) -> DataFrame:
    """Add to rows of the Kafka source `_f`, `is_quote` and `reason`, which is null for a valid trade or update."""
    parsed = with_fields(rows, TRADE, DEPTH).withColumn("is_quote", F.col("topic").isin(list(depth_topics)))
    depth_reason = field_reason(DEPTH, DEPTH_PATTERNS)
    for name in ("bids", "asks"):
        depth_reason = depth_reason.when(F.col(f"_f.{name}").isNull(), F.lit(f"{name} is missing"))
        depth_reason = depth_reason.when(~_are_levels(name), F.lit(f"{name} are no levels"))
    depth_reason = depth_reason.when(is_ahead(max_ahead), F.lit(AHEAD))
    reason = F.when(F.col("is_quote"), depth_reason).otherwise(trade_reason(TRADE, max_ahead))
    return parsed.withColumn("reason", reason)


def _are_levels(name: str) -> Column:
    """Whether each element is [price, quantity]. (A null pattern match would make forall null: coalesced.)"""
    level = f"size(x) = 2 AND x[0] RLIKE '{DECIMAL_18_8}' AND x[1] RLIKE '{DECIMAL_18_8}'"
    return F.expr(f"forall(_f.{name}, x -> coalesce({level}, false))".replace("\\", "\\\\"))


def ticks_of(good: DataFrame, *, medium_from: Decimal, large_from: Decimal) -> DataFrame:
    """Add the columns of schemas.TICK to valid rows of parse_ticks."""
    price, quantity = _trade_decimal("price"), _trade_decimal("quantity")
    turnover = price * quantity
    size_class = (
        F.when(turnover >= F.lit(large_from), "large")
        .when(turnover >= F.lit(medium_from), "medium")
        .when(turnover.isNotNull(), "small")
    )
    is_quote = F.col("is_quote")
    bid, ask = F.col("_bid"), F.col("_ask")
    with_best = good.withColumn("_bid", F.when(is_quote, _best("bids", "array_max")))
    with_best = with_best.withColumn("_ask", F.when(is_quote, _best("asks", "array_min")))
    columns = {
        "symbol": F.col("_f.symbol"),
        "kind": F.when(is_quote, "quote").otherwise("trade"),
        "time_ms": F.expr("try_cast(_f.time_ms AS LONG)"),
        "id": F.expr("try_cast(if(is_quote, _f.last_update_id, _f.trade_id) AS LONG)"),
        "price": price,
        "quantity": quantity,
        "side": F.when(~is_quote, F.when(F.col("_f.is_buyer_maker") == "true", "sell").otherwise("buy")),
        "size_class": size_class,
        "bid": bid["price"],
        "bid_quantity": bid["quantity"],
        "ask": ask["price"],
        "ask_quantity": ask["quantity"],
        "spread": ask["price"] - bid["price"],
        "is_book": F.when(is_quote, F.col("_f.type") == "snapshot"),
    }
    assert list(columns) == TICK.names()
    return with_best.withColumns(columns)


def _trade_decimal(name: str) -> Column:
    return F.when(~F.col("is_quote"), F.expr(f"try_cast(_f.{name} AS DECIMAL(18,8))"))


def _best(name: str, choose: str) -> Column:
    """Return the best level of a side with a quantity above 0, as (price, quantity); null if there is none."""
    # try_cast, because Spark may compute this for rows that the filter on the reason removes
    level = "named_struct('price', try_cast(x[0] AS DECIMAL(18,8)), 'quantity', try_cast(x[1] AS DECIMAL(18,8)))"
    levels = f"transform(_f.{name}, x -> {level})"
    return F.expr(f"{choose}(filter({levels}, x -> x.quantity > 0))")


def tick_record() -> dict[str, Column]:
    """Return key, value and headers of a tick: the source's headers stay, after ours.

    `latency_ms` is the time from the source record's timestamp to the moment at which its tick is made.
    """
    latency_ms = F.expr(f"CAST({CLOCK_MS} AS LONG)") - F.unix_millis("timestamp")
    own = F.array(
        schema_header(TICK),
        header("source", F.concat_ws("-", "topic", "partition", "offset")),
        header("latency_ms", latency_ms),
    )
    theirs = F.filter(F.coalesce("headers", F.array().cast(HEADERS)), lambda one: ~one["key"].isin(*OWN_HEADERS))
    return {"key": F.col("symbol").cast("binary"), "value": event_json(TICK), "headers": F.concat(own, theirs)}
