"""audit-bars finds a bar that is lost, twice, wrong by its last digit, or too many, in each place; without Spark."""

import dataclasses
import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from confluent_kafka import Producer

from spark_jobs import audit_bars, chart, oracle
from spark_jobs.audit_bars import AuditBarsConfig
from spark_jobs.chart import ChartConfig
from spark_jobs.config import duration_ms
from spark_jobs.errors import JobError
from spark_jobs.events import Trade
from spark_jobs.generator import Market, generate
from spark_jobs.oracle import Bar
from spark_jobs.tables import Batch, DeltaBatches, IcebergTable, open_catalog
from spark_jobs.topics import create_topic

pytestmark = [
    pytest.mark.compat,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
]
MARKET = Market(events=200, trades_per_second=20, late=0.03, duplicates=0.03, malformed=0.0, seed=3)
WATERMARK = "1 second"
PLACES = ("topic", "iceberg", "delta", "output")
ARROW = {Decimal: pa.decimal128(38, 16), int: pa.int64(), str: pa.string()}


class World:
    """The trades on a topic, and the checkpoint of a gold job that has read them in two batches."""

    def __init__(self, bootstrap: str, topic: str, path: Path) -> None:
        self.bootstrap, self.topic, self.path = bootstrap, topic, path
        create_topic(bootstrap, topic, 1, retention_ms="-1")
        events = list(generate(MARKET))
        producer = Producer({"bootstrap.servers": bootstrap})
        for event in events:
            producer.produce(topic, event.value, event.key, timestamp=event.arrival_ms)
        assert producer.flush(30) == 0
        trades = [oracle.parse(event.value, event.arrival_ms) for event in events]
        parts = (trades[:60], trades[60:120], trades[120:], [])
        self.cut = [[trade for trade in part if isinstance(trade, Trade)] for part in parts]
        counted, late, end_ms = oracle.in_time(self.cut, duration_ms(WATERMARK))
        assert late != []
        self.bars = [bar for bar in oracle.bars(counted) if bar.end_ms <= end_ms]
        for number, end in enumerate((60, 120, len(events), len(events))):
            _, _, planned_ms = oracle.in_time(self.cut[:number], duration_ms(WATERMARK))
            self._commit(number, end, planned_ms)

    def _commit(self, number: int, end: int, watermark_ms: int) -> None:
        for name in ("offsets", "commits"):
            (self.path / "checkpoint" / name).mkdir(parents=True, exist_ok=True)
        ends = json.dumps({self.topic: {"0": end}})
        text = f'v1\n{{"batchWatermarkMs":{watermark_ms}}}\n{ends}'
        (self.path / "checkpoint" / "offsets" / str(number)).write_text(text)
        (self.path / "checkpoint" / "commits" / str(number)).write_text("v1\n{}")

    def config(self, place: str, **more: Any) -> AuditBarsConfig:
        where = {"topic": f"{self.topic}-bars", "iceberg": str(self.path / "o")}
        settings: dict[str, Any] = {"output_topic": None, place: where.get(place, str(self.path / place))}
        if place == "topic":
            settings = {"output_topic": settings["topic"]}
        common = {"bootstrap_servers": self.bootstrap, "topics": [self.topic], "watermark": WATERMARK}
        checkpoint = str(self.path / "checkpoint")
        return AuditBarsConfig(**common, checkpoint=checkpoint, **{"delivery": "exactly_once", **settings, **more})

    def write(self, place: str, bars: list[Bar]) -> None:
        if place == "topic":
            self._write_topic(bars)
            return
        rows = arrow(bars)
        if place == "iceberg":
            IcebergTable(open_catalog(str(self.path / "o"), {}), "bars").write(rows, Batch("q", 0))
        elif place == "delta":
            DeltaBatches(str(self.path / "delta")).write(rows, Batch("q", 0))
        else:
            batch = self.path / "output" / "batch_id=0"
            batch.mkdir(parents=True)
            pyarrow.parquet.write_table(rows, batch / "part.parquet")
            (batch / "_SUCCESS").touch()

    def _write_topic(self, bars: list[Bar]) -> None:
        create_topic(self.bootstrap, f"{self.topic}-bars", 2)
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for bar in bars:
            fields = {name: str(v) if isinstance(v, Decimal) else v for name, v in dataclasses.asdict(bar).items()}
            producer.produce(f"{self.topic}-bars", json.dumps({"v": 1, **fields}), f"{bar.symbol}|{bar.start_ms}")
        assert producer.flush(30) == 0


def arrow(bars: list[Bar]) -> pa.Table:
    columns = {
        name: pa.array([getattr(bar, name) for bar in bars], ARROW[kind]) for name, kind in Bar.__annotations__.items()
    }
    days = [datetime.fromtimestamp(bar.start_ms / 1000, UTC).date() for bar in bars]
    return pa.table({**columns, "date": pa.array(days, pa.date32())})


@pytest.fixture
def world(bootstrap: str, topic: str, tmp_path: Path) -> World:
    return World(bootstrap, topic, tmp_path)


def planted(bars: list[Bar], fault: str) -> list[Bar]:
    worse = bars[len(bars) // 2]
    if fault == "missing":
        return [bar for bar in bars if bar is not worse]
    if fault == "repeated":
        return [*bars, worse]
    if fault == "differing":
        wrong = dataclasses.replace(worse, turnover=worse.turnover + Decimal("0.0000000000000001"))
        return [wrong if bar is worse else bar for bar in bars]
    return [*bars, dataclasses.replace(worse, start_ms=worse.start_ms + 7)]


@pytest.mark.parametrize("place", PLACES)
def test_bars_as_they_must_be_pass(world: World, place: str, capsys) -> None:
    world.write(place, world.bars)
    audit_bars.run(world.config(place))
    head, line = (text.split() for text in capsys.readouterr().out.splitlines())
    assert len(world.bars) > 20
    assert head[-5:] == ["bars", "missing", "repeated", "differing", "unexpected"]
    assert line[-5:] == [str(len(world.bars)), "0", "0", "0", "0"]


@pytest.mark.parametrize("fault", ["missing", "repeated", "differing", "unexpected"])
@pytest.mark.parametrize("place", PLACES)
def test_a_planted_fault_is_found(world: World, place: str, fault: str) -> None:
    world.write(place, planted(world.bars, fault))
    with pytest.raises(JobError, match=f": 1 {fault}$") as error:
        audit_bars.run(world.config(place))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("place", ["iceberg", "delta"])
def test_a_chart_of_tables_takes_the_bars_of_the_busiest_symbol(world: World, place: str) -> None:
    world.write(place, world.bars)
    folder = world.path / {"iceberg": "o", "delta": "delta"}[place]
    symbol, drawn = chart.select_from_tables(ChartConfig(bars=str(folder), width="1s", most=5))
    trades: Counter[str] = Counter()
    for bar in world.bars:
        trades[bar.symbol] += bar.trades
    assert symbol == trades.most_common(1)[0][0]
    own = [bar for bar in world.bars if (bar.symbol, bar.width) == (symbol, "1s")]
    assert [audit_bars.as_bar(row) for row in drawn] == own[-5:]
    start = datetime.fromtimestamp(own[-1].start_ms / 1000, UTC)
    with pytest.raises(JobError, match=f"holds no bar of {symbol} of width 1m in that range"):
        chart.select_from_tables(ChartConfig(bars=str(folder), width="1m", symbol=symbol, start=start))


def test_a_topic_of_at_least_once_may_repeat_a_bar_but_not_lose_it(world: World) -> None:
    world.write("topic", planted(world.bars, "repeated"))
    audit_bars.run(world.config("topic", delivery="at_least_once"))


def test_a_checkpoint_that_is_none_is_one_line(world: World, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="holds no committed batch: is this the checkpoint of gold, on this machine"):
        audit_bars.expected_bars(world.config("topic").model_copy(update={"checkpoint": str(tmp_path / "none")}))
