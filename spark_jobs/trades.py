"""Trades on a topic, checked and typed: schemas.TRADE as columns, or the reason why a record is none."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.config import duration_ms
from spark_jobs.schemas import TRADE, Schema

DECIMAL_18_8 = r"^[0-9]{1,10}(\.[0-9]{1,8})?$"
PATTERNS = {
    "symbol": r"^[^|\s]{1,64}$",
    "trade_id": r"^[0-9]{1,18}$",
    "price": DECIMAL_18_8,
    "quantity": DECIMAL_18_8,
    "time_ms": r"^[0-9]{1,14}$",
    "is_buyer_maker": r"^(true|false)$",
}
"""What the text of a field must look like; a cast would round what has too many digits."""

UNKNOWN_VERSION = "unknown version"


def parse_trades(rows: DataFrame, schema: Schema = TRADE, max_ahead: str = "1 hour") -> DataFrame:
    """Add to rows of the Kafka source the columns of a trade, `event_time`, `version`, and `reason`.

    `reason` is null for a good trade, else it says what is wrong, and the trade's columns mean nothing. An event time
    that is more than max_ahead beyond the record's own timestamp is wrong: it would make everything after it late.
    """
    assert schema.columns == TRADE.columns
    text = F.col("value").cast("string")
    fields = F.from_json(text, schema.as_strings() + ", _corrupt STRING", {"columnNameOfCorruptRecord": "_corrupt"})
    # Exploded, because a filter on the reason would be pushed below a projection, and parse the JSON once per mention.
    parsed = rows.withColumn("_text", text).withColumn("_f", F.explode(F.array(fields)))
    parsed = parsed.withColumn("reason", _reason(schema, max_ahead)).withColumn("version", F.col("_f.v"))
    for column in schema.columns:
        parsed = parsed.withColumn(column.name, F.expr(f"try_cast(_f.{column.name} AS {column.type})"))
    event_time = F.when(F.col("reason").isNull(), F.timestamp_millis("time_ms"))  # other numbers may overflow it
    return parsed.withColumn("event_time", event_time).drop("_text", "_f")


def distinct_trades(trades: DataFrame, watermark: str) -> DataFrame:
    """Return the good ones of parsed trades, each (symbol, trade id) once as far as the watermark reaches back.

    What is not after the watermark is dropped here, and by no operator behind this one.
    """
    good = trades.where("reason IS NULL").withWatermark("event_time", watermark)
    return good.dropDuplicatesWithinWatermark(["symbol", "trade_id"])


def _reason(schema: Schema, max_ahead: str) -> Column:
    """Return the first thing wrong with a record; the order is the one that people would check in."""
    version = F.col("_f.v")
    reason = (
        F.when(F.col("value").isNull() | (F.length("value") == 0), F.lit("empty"))
        .when(F.col("_f._corrupt").isNotNull() | ~_is_object(F.col("_text")), F.lit("not JSON"))
        .when(version.isNull(), F.lit("v is missing"))
        .when(version != str(schema.version), F.concat(F.lit(f"{UNKNOWN_VERSION} "), version))
    )
    for name, pattern in PATTERNS.items():
        reason = reason.when(F.col(f"_f.{name}").isNull(), F.lit(f"{name} is missing"))
        reason = reason.when(~F.col(f"_f.{name}").rlike(pattern), F.lit(f"{name} is not of its type"))
    for name in ("price", "quantity"):
        reason = reason.when(F.expr(f"try_cast(_f.{name} AS DECIMAL(18,8))") == 0, F.lit(f"{name} is 0"))
    ahead_ms = F.expr("try_cast(_f.time_ms AS LONG)") - F.unix_millis("timestamp")
    return reason.when(ahead_ms > duration_ms(max_ahead), F.lit("time_ms is ahead of the record's timestamp"))


def _is_object(text: Column) -> Column:
    """Return whether text may be one JSON object: from_json takes the first of an array, and any bytes in a string."""
    framed = text.rlike(r"(?s)^\s*\{.*\}\s*$")
    if hasattr(F, "is_valid_utf8"):
        return framed & F.is_valid_utf8(text)
    whole = F.encode(F.decode(F.col("value"), "UTF-8"), "UTF-8")  # Spark 3.5 puts another character for odd bytes
    return framed & (whole == F.col("value"))
