"""`make demo`: a broker, a feed of trades, silver and gold on Spark, the bars as a table and as a chart (demo.html).

Every bar is compared with a plain computation over the same trades, digit by digit.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from rich.console import Console
from rich.table import Table

from spark_jobs import chart, feed, gold, oracle, silver
from spark_jobs.config import SparkConfig, duration_ms
from spark_jobs.errors import JobError
from spark_jobs.events import Trade
from spark_jobs.generator import Market
from spark_jobs.oracle import Bar
from spark_jobs.session import spark_session

MARKET = Market(events=20_000)
SHOWN_BARS = 12
PICTURE = Path("demo.html")
QUICK_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A JVM that lives for seconds only."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--trades", type=Path, help="a file in Binance's aggTrades or trades columns: csv, gz, zip")
    parser.add_argument("--bar", choices=["1s", "1m", "1h"], help="bars to show; 1m, or 1h with --trades")
    arguments = parser.parse_args()
    try:
        run(arguments.trades, arguments.bar or ("1h" if arguments.trades else "1m"))
    except (JobError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def run(trades_file: Path | None, width: str) -> None:
    with tempfile.TemporaryDirectory(prefix="kafkapy-demo-") as directory, running_broker(Path(directory)) as bootstrap:
        source = {"source": "csv", "file": trades_file} if trades_file else {"market": MARKET}
        config = feed.FeedConfig(bootstrap_servers=bootstrap, quiet=True, **source)
        with step("feed: {} events on topic trades") as done:
            done(feed.run(config))
        found = bars_of_topic(bootstrap, Path(directory), width)
    parsed = [oracle.parse(event.value, event.arrival_ms) for event in feed.events(config)]
    check(found, [trade for trade in parsed if isinstance(trade, Trade)])
    show([bar for bar in found if bar.width == width], width)
    print(f"each of the {len(found)} bars of 1 s, 1 min and 1 h equals a plain computation, to the last digit")


@contextmanager
def running_broker(directory: Path) -> Iterator[str]:
    """Run `kafkapy start` on a free port and yield its bootstrap address; stop it at the end."""
    command = [sys.executable, "-m", "kafkapy", "start", "--port", "0", "--data-dir", str(directory / "broker")]
    with Popen(command, stdout=PIPE, stdin=DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("kafkapy ready on "):
                    break
            else:
                raise JobError(f"the broker did not start (exit {process.wait()})")
            print(line.strip(), flush=True)
            yield line.split()[3]
        finally:
            process.terminate()
            process.wait(30)


def bars_of_topic(bootstrap: str, directory: Path, width: str) -> list[Bar]:
    """Run silver and gold over what is on the topic, once; draw the bars that gold wrote and return them."""
    session = {"bootstrap_servers": bootstrap, "shuffle_partitions": 2}
    with spark_session(SparkConfig(**session, spark=QUICK_START), "demo") as spark:
        once = {**session, "trigger": "available_now"}
        with step("silver: trades checked, typed and seen once"):
            silver.run(silver.SilverConfig(**once, topics=["trades"], checkpoint=f"{directory}/silver"))
        with step("gold: {} bars of 1 s, 1 min and 1 h") as done:
            output = f"{directory}/bars"
            checkpoint = f"{directory}/gold"
            gold.run(gold.GoldConfig(**once, topics=["silver_trades"], checkpoint=checkpoint, output=output))
            rows = spark.read.parquet(output).collect()
            done(len(rows))
        with step(f"chart: {PICTURE}"):
            chart.run(chart.ChartConfig(bars=output, width=width, picture=PICTURE, shuffle_partitions=2))
    found = [Bar(**{name: row[name] for name in Bar.__annotations__}) for row in rows]
    return sorted(found, key=lambda bar: (bar.width, bar.start_ms, bar.symbol))


def check(found: list[Bar], trades: list[Trade]) -> None:
    """Raise JobError where a bar is not the plain one. The last bars are still open and not written."""
    end_ms = max(trade.time_ms for trade in trades) - duration_ms("10 seconds")
    expected = [bar for bar in oracle.bars(oracle.distinct(trades)) if bar.end_ms <= end_ms]
    if found != expected:
        wrong = len(set(expected).symmetric_difference(found))
        raise JobError(f"Spark gave {len(found)} bars, {len(expected)} were expected, {wrong} differ")


def show(bars: list[Bar], width: str) -> None:
    title = f"{len(bars)} bars of {width}" + (f", the last {SHOWN_BARS}" if len(bars) > SHOWN_BARS else "")
    table = Table(title=title)
    for column in ("start (UTC)", "symbol"):
        table.add_column(column)
    for column in ("open", "high", "low", "close", "volume", "VWAP", "imbalance", "trades"):
        table.add_column(column, justify="right")
    for bar in bars[-SHOWN_BARS:]:
        start = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(bar.start_ms / 1000))
        numbers = (bar.open, bar.high, bar.low, bar.close, bar.volume, bar.vwap, bar.imbalance)
        table.add_row(start, bar.symbol, *(f"{number.normalize():f}" for number in numbers), str(bar.trades))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


@contextmanager
def step(what: str) -> Iterator["Done"]:
    """Print what was done and how long it took."""
    started, done = time.monotonic(), Done()
    yield done
    print(f"{what.format(*done.values)}: {time.monotonic() - started:.1f} s", flush=True)


class Done:
    """Takes what a step has to tell."""

    def __init__(self) -> None:
        self.values: tuple[object, ...] = ()

    def __call__(self, *values: object) -> None:
        self.values = values


if __name__ == "__main__":
    sys.exit(main())
