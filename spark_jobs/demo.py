"""`make demo`: a broker, a feed of trades, a Spark query over the topic, OHLCV bars as a table; then all is stopped.

Every bar is compared with a plain computation over the same trades, digit by digit.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from spark_jobs.bars import Bar, bars_of, collect_bars, parse_trades, plain_bars
from spark_jobs.config import SparkConfig
from spark_jobs.errors import JobError
from spark_jobs.feed import FeedConfig, events
from spark_jobs.feed import run as feed
from spark_jobs.generator import Market
from spark_jobs.session import start_session
from spark_jobs.trades import Trade
from tools.maven import ToolsMissing, require_java

TOPIC = "trades"
WIDTHS_MS = {"1 second": 1_000, "1 minute": 60_000, "1 hour": 3_600_000}
SHOWN_BARS = 24


class DemoError(Exception):
    """What stopped the demo, in one line."""


@contextmanager
def running_broker(data_dir: Path) -> Iterator[str]:
    """Run `kafkapy start` on a free port and yield its bootstrap address; stop it at the end."""
    command = [sys.executable, "-m", "kafkapy", "start", "--port", "0", "--data-dir", str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("kafkapy ready on "):
                    break
            else:
                raise DemoError(f"the broker did not start (exit {process.wait()})")
            print(line.strip(), flush=True)
            yield line.split()[3]
        finally:
            process.terminate()
            process.wait(30)


def query(bootstrap: str, width: str) -> list[Bar]:
    """Read the whole topic through Spark's standard Kafka source and return its bars."""
    spark = start_session(SparkConfig(bootstrap_servers=bootstrap), "kafkapy demo")
    try:
        source = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("kafka.max.poll.records", "20000")
            .load()
        )
        return collect_bars(bars_of(parse_trades(source), width))
    finally:
        spark.stop()


def as_trade(fields: dict[str, Any]) -> Trade:
    return Trade(**{name: value for name, value in fields.items() if name != "v"})


def show(bars: list[Bar], width: str) -> None:
    title = f"{len(bars)} bars of {width}" + (f", the last {SHOWN_BARS}" if len(bars) > SHOWN_BARS else "")
    table = Table(title=title)
    for column in ("start (UTC)", "symbol"):
        table.add_column(column)
    for column in ("open", "high", "low", "close", "volume", "VWAP", "trades"):
        table.add_column(column, justify="right")
    for bar in bars[-SHOWN_BARS:]:
        numbers = (bar.open, bar.high, bar.low, bar.close, bar.volume, bar.vwap)
        plain = [f"{number.normalize():f}" for number in numbers]
        table.add_row(f"{bar.start:%Y-%m-%d %H:%M:%S}", bar.symbol, *plain, str(bar.trades))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def run(source: dict[str, object], width: str) -> None:
    """Feed, query, compare, show. Raises DemoError where Spark's bars are not the plain ones."""
    with tempfile.TemporaryDirectory(prefix="kafkapy-demo-") as directory, running_broker(Path(directory)) as bootstrap:
        config = FeedConfig(bootstrap_servers=bootstrap, trades_topic=TOPIC, quiet=True, **source)
        trades = [as_trade(json.loads(event.value)) for event in events(config)]
        started = time.monotonic()
        print(f"fed {feed(config)} trades in {time.monotonic() - started:.1f} s", flush=True)
        bars = query(bootstrap, width)
    expected = plain_bars(trades, WIDTHS_MS[width])
    if bars != expected:
        wrong = sum(ours != theirs for ours, theirs in zip(bars, expected, strict=False))
        raise DemoError(f"Spark gave {len(bars)} bars, {len(expected)} were expected, {wrong} differ")
    show(bars, width)
    print(f"each of the {len(bars)} bars equals a plain computation with decimals, to the last digit")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--trades", type=Path, help="a file in Binance's aggTrades columns, .csv or .csv.gz")
    parser.add_argument("--bar", choices=WIDTHS_MS, help="width of a bar; 1 minute, or 1 hour with --trades")
    arguments = parser.parse_args()
    try:
        require_java()
        clean = Market(late=0, duplicates=0, malformed=0)
        source = {"source": "csv", "file": arguments.trades} if arguments.trades else {"market": clean}
        run(source, arguments.bar or ("1 hour" if arguments.trades else "1 minute"))
    except (ToolsMissing, JobError, DemoError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
