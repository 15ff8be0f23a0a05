"""`make demo`: a broker, a market and Spark's jobs on a live page; then checked bars, a table and demo.html.

While the market is fed, a recording in LIVE_S seconds, silver, live and quotes run as streams, and the page
(http://127.0.0.1:8090) shows candles as they form, order books, latency, rows and lag. Then gold makes the bars.

Every bar that gold wrote is compared with a plain computation over the same trades, digit by digit. Gold writes a bar
once it is complete; the last ones, which trades could still change, are shown as open, from the plain computation.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from spark_jobs import demo_live, feed, gold, oracle, picture, silver
from spark_jobs.config import SparkConfig, duration_ms
from spark_jobs.errors import JobError
from spark_jobs.events import Trade
from spark_jobs.generator import Market
from spark_jobs.oracle import Bar
from spark_jobs.page import Page, PageConfig
from spark_jobs.page import serving as page_served
from spark_jobs.schemas import WIDTHS_MS
from spark_jobs.session import spark_session
from spark_jobs.topics import create_topics

MARKET = Market(events=20_000, depth_per_trade=0.5, snapshot_every=100)
LIVE_S = 30
FIRST_EVENTS = 300
PORT, LARGEST_PORT = 8090, 65_535
PARTITIONS = 2
SHOWN_BARS = 12
FEWEST_BARS = 12
"""The least number of bars of the chosen width in a recording: a chart of three bars shows nothing."""
WATERMARK_MS = duration_ms("10 seconds")
"""Gold's watermark delay: a bar is complete once trades are so far after its end."""
PICTURE = Path("demo.html")
TOPICS = ("trades", "depth", "silver_trades")
LAST_LOOK_S = 1.5
"""For so long after the end an open page can still ask how the demo ended."""
NEXT = """next: open demo.html; spark_jobs/README.md walks through all jobs; `.venv/bin/kafkapy start` with
`.venv/bin/kafkapy console` is a broker with pages about its topics; docs/howto/fifteen_minutes.md is Kafka, watched"""
QUICK_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss32m"}
"""For a JVM that lives for seconds only, with deep stacks: after a query was stopped during a batch of Python, Spark
searches the error's trace by a regular expression that recurses on each character. 5,000 of them overflow the usual
stack, and that error is printed with 1,000 lines."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--trades", type=Path, help="a file in Binance's aggTrades or trades columns: csv, gz, zip")
    parser.add_argument("--seconds", type=int, default=LIVE_S, help="how long the page moves (default %(default)s)")
    parser.add_argument("--events", type=int, default=MARKET.events, help="made-up trades (default %(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="of the page; 0: a free one (default %(default)s)")
    parser.add_argument("--bar", choices=["1s", "1m", "1h"], help="bars to show; else by the length of the recording")
    arguments = parser.parse_args()
    if not 0 <= arguments.port <= LARGEST_PORT:
        parser.error(f"--port {arguments.port}: a port is 0 to {LARGEST_PORT}")
    try:
        seconds, events = max(1, arguments.seconds), max(1, arguments.events)
        run(Wanted(arguments.trades, arguments.bar, seconds, events, arguments.port))
    except (JobError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of the command line."""

    trades_file: Path | None
    width: str | None
    seconds: int
    events: int
    port: int


def run(wanted: Wanted) -> None:
    """Run the demo and print what it does. Raises JobError, OSError."""
    with tempfile.TemporaryDirectory(prefix="kafkapy-demo-") as directory, running_broker(Path(directory)) as bootstrap:
        config = feed_config(wanted, bootstrap)
        trades = trades_of(config)
        width = wanted.width or fitting_width(trades)
        complete, still_open = expected_bars(trades)
        ports = {job: demo_live.free_port() for job in demo_live.JOBS}
        with serving_page(wanted, bootstrap, width, ports) as page:
            paced = config.model_copy(update={"speed": pace(trades, wanted.seconds)})
            found = bars_of_market(paced, page, ports, Path(directory))
            check(found, complete)
            what_was_checked = (
                f"Each of the {len(found):,} bars of 1 s, 1 min and 1 h that Spark made of {len(trades):,} trades "
                "equals a plain computation over the same trades, to the last digit."
            )
            page.finish(f"Ended. {what_was_checked} They are in {PICTURE}.")
            time.sleep(LAST_LOOK_S)
    shown = [bar for bar in found if bar.width == width]
    show(shown, [bar for bar in still_open if bar.width == width], width)
    print(what_was_checked)
    draw(shown, width, what_was_checked)
    print(NEXT)


def feed_config(wanted: Wanted, bootstrap: str) -> feed.FeedConfig:
    source: dict[str, Any] = {"market": MARKET.model_copy(update={"events": wanted.events})}
    if wanted.trades_file:
        source = {"source": "csv", "file": wanted.trades_file}
    return feed.FeedConfig(bootstrap_servers=bootstrap, quiet=True, sent_at=True, partitions=PARTITIONS, **source)


def pace(trades: Sequence[Trade], seconds: int) -> float:
    """Return the speed at which playing a recording takes so many seconds."""
    return max(1.0, length_ms(trades) / 1000 / seconds)


def length_ms(trades: Sequence[Trade]) -> int:
    times_ms = [trade.time_ms for trade in trades]
    return max(times_ms) - min(times_ms)


@contextmanager
def serving_page(wanted: Wanted, bootstrap: str, width: str, ports: dict[str, int]) -> Iterator[Page]:
    """Serve the page, on a free port if its own is taken."""
    given: dict[str, Any] = {"metrics": [f"http://127.0.0.1:{port}/metrics" for port in ports.values()], "width": width}
    config = PageConfig(bootstrap_servers=bootstrap, port=wanted.port, **given)
    with ExitStack() as stack:
        try:
            page = stack.enter_context(page_served(config))
        except JobError as taken:
            print(f"{taken}: on another one", flush=True)
            page = stack.enter_context(page_served(config.model_copy(update={"port": 0})))
        print(f"{page.url} shows the market as it moves, until this ends: open it now", flush=True)
        yield page


def trades_of(config: feed.FeedConfig) -> list[Trade]:
    """Return the trades that the feed put on the topic. Raises JobError if there are none."""
    parsed = [oracle.parse(event.value, event.arrival_ms) for event in feed.events(config)]
    trades = [event for event in parsed if isinstance(event, Trade)]
    if not trades:
        raise JobError(f"{config.file or 'the market'} holds no trades")
    return trades


def fitting_width(trades: Sequence[Trade]) -> str:
    """Return the widest bars of which the recording is at least FEWEST_BARS long; 1s for the shortest ones."""
    recorded_ms = length_ms(trades)
    widest_first = sorted(WIDTHS_MS, key=lambda width: WIDTHS_MS[width], reverse=True)
    fitting = [width for width in widest_first if recorded_ms >= FEWEST_BARS * WIDTHS_MS[width]]
    return (fitting or widest_first[-1:])[0]


def expected_bars(trades: Sequence[Trade]) -> tuple[list[Bar], list[Bar]]:
    """Return the bars that are complete, which gold must have written, and those that are still open."""
    watermark_ms = max(trade.time_ms for trade in trades) - WATERMARK_MS
    bars = oracle.bars(oracle.distinct(trades))
    return [bar for bar in bars if bar.end_ms <= watermark_ms], [bar for bar in bars if bar.end_ms > watermark_ms]


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


def bars_of_market(config: feed.FeedConfig, page: Page, ports: dict[str, int], folder: Path) -> list[Bar]:
    """Feed the market while the jobs stream; then return the bars that gold makes of all of it."""
    session: dict[str, Any] = {"bootstrap_servers": config.bootstrap_servers, "shuffle_partitions": 2}
    create_topics({"bootstrap.servers": config.bootstrap_servers}, list(TOPICS), PARTITIONS, config=config.topic_config)
    with ExitStack() as stack:
        with step("Spark's session"):
            settings = SparkConfig(**session, spark=QUICK_START, master=demo_live.MASTER)
            spark = stack.enter_context(spark_session(settings, "demo"))
        with step("silver, live and quotes stream"):
            streams = stack.enter_context(ExitStack())
            jobs = streams.enter_context(demo_live.streaming(spark, session, folder, ports))
        kept = config.model_copy(update={"state": folder / "feed.state"})
        with step("the first {} events are through: Spark has compiled its queries") as done:
            first = feed.run(kept.model_copy(update={"speed": 0.0, "limit": FIRST_EVENTS}))
            demo_live.wait_until_moving(page, jobs)
            done(first)
        with step("feed: {} trades and order-book updates, {}") as done:
            sent = first + feed.run(kept)
            if sent < sum(1 for _ in feed.events(config)):
                raise JobError("stopped before the feed's end")
            latency = latency_text(page)
            demo_live.wait_until_read(page, jobs)
            done(f"{sent:,}", latency)
        with step("the streams stop"):
            streams.close()
        once = {**session, "trigger": "available_now"}
        with step("silver: trades checked, typed and seen once"):
            silver.run(demo_live.silver_config(once, folder))
        with step("gold: {} bars of 1 s, 1 min and 1 h") as done:
            found = bars_of_gold(spark, once, folder)
            done(f"{len(found):,}")
    return found


def latency_text(page: Page) -> str:
    _, changes = page.changes(0)
    p50, p99 = changes["latency"]["p50"], changes["latency"]["p99"]
    if p50 is None:
        return "no tick in the last 10 s"
    return f"from producer to page p50 {p50:.0f} ms, p99 {p99:.0f} ms in the last 10 s"


def bars_of_gold(spark: SparkSession, once: dict[str, Any], folder: Path) -> list[Bar]:
    """Run gold over what silver wrote, once; return its bars."""
    output = folder / "bars"
    given = {**once, "topics": ["silver_trades"], "checkpoint": f"{folder}/gold", "output": str(output)}
    gold.run(gold.GoldConfig(**given))
    rows = spark.read.parquet(str(output)).collect() if any(output.rglob("*.parquet")) else []
    found = [Bar(**{name: row[name] for name in Bar.__annotations__}) for row in rows]
    return sorted(found, key=lambda bar: (bar.width, bar.start_ms, bar.symbol))


def check(found: list[Bar], expected: list[Bar]) -> None:
    """Raise JobError if a bar differs from the plain computation."""
    if found != expected:
        wrong = len(set(expected).symmetric_difference(found))
        raise JobError(f"Spark gave {len(found)} bars, {len(expected)} were expected, {wrong} differ")


def draw(bars: list[Bar], width: str, what_was_checked: str) -> None:
    """Draw the bars of each symbol to PICTURE, and say how to see it. Raises JobError."""
    if not bars:
        print(f"no chart: no bar of {width} is complete yet")
        return
    by_symbol: dict[str, list[picture.Bar]] = {}
    for bar in bars:
        by_symbol.setdefault(bar.symbol, []).append(asdict(bar))
    day = time.strftime("%Y-%m-%d", time.gmtime(bars[0].start_ms / 1000))
    title = f"{', '.join(by_symbol)}: bars of {width}, {day} UTC"
    picture.draw(by_symbol, title, PICTURE, f"{what_was_checked} Written by make demo.")
    print(f"{PICTURE.resolve().as_uri()}: the bars of {width} of {len(by_symbol)} symbols")


def show(complete: list[Bar], still_open: list[Bar], width: str) -> None:
    """Print the last bars as a table."""
    bars = [(bar, "") for bar in complete] + [(bar, "open") for bar in still_open]
    counted = f"{len(complete)} bars of {width}" + (f" and {len(still_open)} still open" if still_open else "")
    table = Table(title=counted + (f", the last {SHOWN_BARS}" if len(bars) > SHOWN_BARS else ""))
    for column in ("start (UTC)", "symbol"):
        table.add_column(column)
    for column in ("open", "high", "low", "close", "volume", "VWAP", "imbalance", "trades", ""):
        table.add_column(column, justify="right")
    for bar, state in bars[-SHOWN_BARS:]:
        start = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(bar.start_ms / 1000))
        numbers = (bar.open, bar.high, bar.low, bar.close, bar.volume, bar.vwap, bar.imbalance)
        table.add_row(start, bar.symbol, *(f"{number.normalize():f}" for number in numbers), str(bar.trades), state)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


@contextmanager
def step(what: str) -> Iterator["Done"]:
    """Print what was done and how long it took."""
    started, done = time.monotonic(), Done()
    yield done
    print(f"{what.format(*done.values)}: {time.monotonic() - started:.1f} s", flush=True)


class Done:
    """Collects a step's details, for its line."""

    def __init__(self) -> None:
        self.values: tuple[object, ...] = ()

    def __call__(self, *values: object) -> None:
        self.values = values


if __name__ == "__main__":
    sys.exit(main())
