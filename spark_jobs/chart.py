"""chart: a picture of bars that gold wrote: candles with VWAP and volume, one HTML (or PNG) file.

Bars in Parquet are read by Spark; those of a folder with Iceberg tables, or of a Delta table, by DuckDB (query.py).
"""

import logging
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs import picture
from spark_jobs.config import SparkConfig
from spark_jobs.errors import JobError
from spark_jobs.query import connect, holds_tables, one_line, quoted_name
from spark_jobs.schemas import BAR
from spark_jobs.session import spark_session

log = logging.getLogger("spark_jobs")


class ChartConfig(SparkConfig):
    bootstrap_servers: str = Field(default="", description="not needed: bars are read from Parquet")
    bars: str = Field(
        description="directory of the bars that gold or backfill wrote: Parquet (any Hadoop URL), of Iceberg tables, "
        "or a Delta table"
    )
    picture: Path = Field(default=Path("chart.html"), description="file to write: .html or .png")
    symbol: str | None = Field(default=None, description="the market; default the one with the most trades")
    width: str = Field(default="1m", description="width of the bars: 1s, 1m or 1h")
    start: datetime | None = Field(default=None, description="bars from this time on (ISO 8601, UTC)")
    end: datetime | None = Field(default=None, description="bars before this time")
    most: int = Field(default=500, ge=1, description="most candles: the last ones are drawn")


def run(config: ChartConfig) -> None:
    if holds_tables(Path(config.bars)):
        symbol, bars = select_from_tables(config)
    else:
        with spark_session(config, "chart") as spark:
            symbol, bars = select(spark, config)
    note = f"{len(bars)} bars of {config.width} from {config.bars}, times in UTC."
    picture.draw({symbol: bars}, f"{symbol}, bars of {config.width}", config.picture, note)
    first, last = (datetime.fromtimestamp(bar["start_ms"] / 1000, UTC) for bar in (bars[0], bars[-1]))
    log.info("chart: %d bars from %s to %s drawn to %s", len(bars), first, last, config.picture)


def select_from_tables(config: ChartConfig) -> tuple[str, list[picture.Bar]]:
    """Return the symbol and its bars in order, by DuckDB. Raises JobError if there are none."""
    connection, names = connect(Path(config.bars))
    table = quoted_name("bars" if "bars" in names else names[0])
    span = f"FROM {table} WHERE width = $width AND start_ms >= $start AND start_ms < $end"
    start_ms = _as_ms(config.start) if config.start else 0
    given = {"width": config.width, "start": start_ms, "end": _as_ms(config.end) if config.end else 1 << 62}
    busiest = f"SELECT symbol {span} GROUP BY symbol ORDER BY sum(trades) DESC, symbol LIMIT 1"
    with connection, one_line(f"{config.bars} holds no bars, name the output of a gold job: "):
        symbol = config.symbol or next(iter(connection.execute(busiest, given).fetchall()), (None,))[0]
        newest = f"SELECT {', '.join(BAR.names())} {span} AND symbol = $symbol ORDER BY start_ms DESC LIMIT $most"
        rows = connection.execute(newest, {**given, "symbol": symbol, "most": config.most}).fetchall()
    if not rows:
        raise _no_bars(config, symbol)
    return str(symbol), [dict(zip(BAR.names(), row, strict=True)) for row in reversed(rows)]


def _as_ms(moment: datetime) -> int:
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _no_bars(config: ChartConfig, symbol: str | None) -> JobError:
    return JobError(f"{config.bars} holds no bar of {symbol or 'any symbol'} of width {config.width} in that range")


def select(spark: SparkSession, config: ChartConfig) -> tuple[str, list[picture.Bar]]:
    """Return the symbol and its bars in order. Raises JobError if there are none."""
    bars = spark.read.parquet(config.bars)
    if not set(BAR.names()) <= set(bars.columns):
        raise JobError(f"{config.bars} holds no bars: name the output of a gold job")
    bars = bars.where(F.col("width") == F.lit(config.width))
    for moment, is_start in ((config.start, True), (config.end, False)):
        if moment is not None:
            moment_ms = _as_ms(moment)
            bars = bars.where(F.col("start_ms") >= moment_ms if is_start else F.col("start_ms") < moment_ms)
    symbol = config.symbol or _busiest(bars)
    rows = bars.where(F.col("symbol") == F.lit(symbol)).orderBy(F.col("start_ms").desc()).limit(config.most).collect()
    if not rows:
        raise _no_bars(config, symbol)
    return str(symbol), [row.asDict() for row in reversed(rows)]


def _busiest(bars: DataFrame) -> str | None:
    row = bars.groupBy("symbol").agg(F.sum("trades").alias("trades")).orderBy(F.desc("trades"), "symbol").first()
    return None if row is None else row["symbol"]
