"""Parses the records of a topic as trades: the columns of schemas.TRADE, or the reason why a record is not a trade."""

import secrets
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.config import duration_ms
from spark_jobs.schemas import SHOWN_VERSION, TRADE, Schema, as_strings

DECIMAL_18_8 = r"^[0-9]{1,10}(\.[0-9]{1,8})?$"
PATTERNS = {
    "symbol": r"^[^|\s]{1,64}$",
    "trade_id": r"^[0-9]{1,18}$",
    "price": DECIMAL_18_8,
    "quantity": DECIMAL_18_8,
    "time_ms": r"^[0-9]{1,14}$",
    "is_buyer_maker": r"^(true|false)$",
}
"""The format of each field's text; a cast would round a number with too many digits."""

UNKNOWN_VERSION = "unknown version"
AHEAD = "time_ms is ahead of the record's timestamp"


def parse_trades(rows: DataFrame, schema: Schema = TRADE, max_ahead: str = "1 hour") -> DataFrame:
    """Add to rows of the Kafka source the columns of a trade, `event_time`, `version`, and `reason`.

    `reason` is null for a valid trade. Else it says what is wrong, and the trade's columns have no meaning. An event
    time more than max_ahead after the record's timestamp is not valid: it would move the watermark, and make all later
    trades late.
    """
    assert schema.columns == TRADE.columns
    parsed = with_fields(rows, schema)
    parsed = parsed.withColumn("reason", trade_reason(schema, max_ahead)).withColumn("version", F.col("_f.v"))
    for column in schema.columns:
        parsed = parsed.withColumn(column.name, F.expr(f"try_cast(_f.{column.name} AS {column.type})"))
    event_time = F.when(F.col("reason").isNull(), F.timestamp_millis("time_ms"))  # other numbers may overflow it
    return parsed.withColumn("event_time", event_time).drop("_f", "_is_json")


def distinct_trades(trades: DataFrame, watermark: str) -> DataFrame:
    """Return the valid trades, each (symbol, trade id) once within the watermark.

    Trades whose event time is not after the watermark are dropped here, and by no later operator of the query.
    """
    good = trades.where("reason IS NULL").withWatermark("event_time", watermark)
    return good.dropDuplicatesWithinWatermark(["symbol", "trade_id"])


def with_fields(rows: DataFrame, *schemas: Schema) -> DataFrame:
    """Add `_f`, the fields of the JSON object as text, and `_is_json`, whether the value is one object and no more.

    from_json reads the first value of a text, and ignores what follows. So it gets an array of the value and a random
    mark. If the second of two elements is the mark, the text was one JSON value.
    """
    mark = secrets.token_hex(16)
    text = F.col("value").cast("string")
    array = F.concat(F.lit("["), text, F.lit(f',{{"v":"{mark}"}}]'))
    elements = F.from_json(array, f"ARRAY<STRUCT<{as_strings(*schemas)}>>", {"allowSingleQuotes": "false"})
    # Exploded, because a filter on the reason would be pushed below a projection, and parse the JSON once per mention.
    parsed = rows.withColumn("_parsed", F.explode(F.array(elements))).withColumn("_f", F.get("_parsed", F.lit(0)))
    is_alone = (F.size("_parsed") == 2) & (F.get("_parsed", F.lit(1))["v"] == mark)
    is_object = text.rlike(r"^\s*\{") & _is_utf8(text) & F.coalesce(is_alone, F.lit(False))
    return parsed.withColumn("_is_json", is_object).drop("_parsed")


def trade_reason(schema: Schema, max_ahead: str) -> Column:
    """Return the first reason why a record is not a valid trade: JSON, version, each field, ranges, time; else null."""
    reason = field_reason(schema, PATTERNS)
    for name in ("price", "quantity"):
        reason = reason.when(F.expr(f"try_cast(_f.{name} AS DECIMAL(18,8))") == 0, F.lit(f"{name} is 0"))
    return reason.when(is_ahead(max_ahead), F.lit(AHEAD))


def field_reason(schema: Schema, patterns: Mapping[str, str]) -> Column:
    """Return what is wrong with the JSON, its version and its scalar fields, as a chain of F.when to be continued."""
    version = F.col("_f.v")
    reason = (
        F.when(F.col("value").isNull() | (F.length("value") == 0), F.lit("empty"))
        .when(~F.col("_is_json"), F.lit("not JSON"))
        .when(version.isNull(), F.lit("v is missing"))
        .when(
            version != str(schema.version),
            F.concat(F.lit(f"{UNKNOWN_VERSION} "), F.substring(version, 1, SHOWN_VERSION)),
        )
    )
    for name, pattern in patterns.items():
        reason = reason.when(F.col(f"_f.{name}").isNull(), F.lit(f"{name} is missing"))
        reason = reason.when(~F.col(f"_f.{name}").rlike(pattern), F.lit(f"{name} is not of its type"))
    return reason


def is_ahead(max_ahead: str) -> Column:
    """Return whether the event time is too far ahead of the record's timestamp."""
    ahead_ms = F.expr("try_cast(_f.time_ms AS LONG)") - F.unix_millis("timestamp")
    return ahead_ms > duration_ms(max_ahead)


def _is_utf8(text: Column) -> Column:
    """Return whether the value is valid UTF-8, which a cast to a string does not check."""
    if hasattr(F, "is_valid_utf8"):
        return F.is_valid_utf8(text)
    whole = F.encode(F.decode(F.col("value"), "UTF-8"), "UTF-8")  # Spark 3.5 puts another character for odd bytes
    return whole == F.col("value")
