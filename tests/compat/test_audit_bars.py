"""audit-bars finds a bar that is lost, twice, moved, wrong in a digit, or too many, in each place; without Spark."""

import dataclasses
import json
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from spark_jobs import audit_bars, chart, oracle
from spark_jobs.audit_bars import AuditBarsConfig
from spark_jobs.chart import ChartConfig
from spark_jobs.errors import JobError
from spark_jobs.generator import Market
from spark_jobs.oracle import Bar
from tests.support import market
from tests.support.audited import PLACES, Record, World

pytestmark = [
    pytest.mark.compat,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
]
MARKET = Market(events=200, trades_per_second=20, late=0.03, duplicates=0.03, malformed=0.0, seed=3)
ARROW = {Decimal: pa.decimal128(38, 16), int: pa.int64(), str: pa.string()}
Dated = tuple[Bar, str, date]
"""A bar with the record key and the day under which it is written."""


@pytest.fixture
def world(bootstrap: str, topic: str, tmp_path: Path) -> World:
    return World(bootstrap, topic, tmp_path, MARKET)


def bars_of(world: World) -> list[Dated]:
    bars = [bar for bar in oracle.bars(world.counted) if bar.end_ms <= world.end_ms]
    return [(bar, f"{bar.symbol}|{bar.width}|{bar.start_ms}", day_of(bar)) for bar in bars]


def day_of(bar: Bar) -> date:
    return datetime.fromtimestamp(bar.start_ms / 1000, UTC).date()


def config_of(world: World, place: str, **more: Any) -> AuditBarsConfig:
    return AuditBarsConfig(**{**world.settings(place), **more})


def write(world: World, place: str, bars: list[Dated]) -> None:
    if place == "topic":
        world.write_topic([record(bar, key) for bar, key, _ in bars])
        return
    columns = {name: pa.array([getattr(bar, name) for bar, _, _ in bars], ARROW[k]) for name, k in KINDS.items()}
    world.write_table(place, "bars", pa.table({**columns, "date": pa.array([day for _, _, day in bars], pa.date32())}))


KINDS = Bar.__annotations__


def record(bar: Bar, key: str) -> Record:
    fields = {name: str(v) if isinstance(v, Decimal) else v for name, v in dataclasses.asdict(bar).items()}
    return key.encode(), json.dumps({"v": 1, **fields}).encode(), []


def planted(bars: list[Dated], fault: str) -> list[Dated]:
    worse = bars[len(bars) // 2]
    bar, key, day = worse
    if fault == "missing":
        return [one for one in bars if one is not worse]
    if fault == "repeated":
        return [*bars, worse]
    if fault == "moved":
        wrong = bar, key + "0", date(2001, 1, 1)
    elif fault == "differing":
        wrong = dataclasses.replace(bar, turnover=bar.turnover + Decimal("0.0000000000000001")), key, day
    else:
        later = dataclasses.replace(bar, start_ms=bar.start_ms + 7)
        return [*bars, (later, f"{bar.symbol}|{bar.width}|{later.start_ms}", day)]
    return [wrong if one is worse else one for one in bars]


@pytest.mark.parametrize("place", PLACES)
def test_bars_as_they_must_be_pass(world: World, place: str, capsys) -> None:
    bars = bars_of(world)
    write(world, place, bars)
    audit_bars.run(config_of(world, place))
    head, line = (text.split() for text in capsys.readouterr().out.splitlines())
    assert len(bars) > 20
    assert head[-5:] == ["rows", "missing", "repeated", "differing", "unexpected"]
    assert line[-5:] == [str(len(bars)), "0", "0", "0", "0"]


@pytest.mark.parametrize("fault", ["missing", "repeated", "differing", "moved", "unexpected"])
@pytest.mark.parametrize("place", PLACES)
def test_a_planted_fault_is_found(world: World, place: str, fault: str) -> None:
    write(world, place, planted(bars_of(world), fault))
    found = {"moved": "differing"}.get(fault, fault)
    with pytest.raises(JobError, match=f": 1 {found}$") as error:
        audit_bars.run(config_of(world, place))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("place", ["iceberg", "delta"])
def test_a_chart_of_tables_takes_the_bars_of_the_busiest_symbol(world: World, place: str) -> None:
    bars = bars_of(world)
    write(world, place, bars)
    folder = world.path / {"iceberg": "o", "delta": "delta"}[place]
    symbol, drawn = chart.select_from_tables(ChartConfig(bars=str(folder), width="1s", most=5))
    trades: Counter[str] = Counter()
    for bar, _, _ in bars:
        trades[bar.symbol] += bar.trades
    assert symbol == trades.most_common(1)[0][0]
    own = [bar for bar, _, _ in bars if (bar.symbol, bar.width) == (symbol, "1s")]
    assert [market.as_bar(dict(row)) for row in drawn] == own[-5:]
    start = datetime.fromtimestamp(own[-1].start_ms / 1000, UTC)
    with pytest.raises(JobError, match=f"holds no bar of {symbol} of width 1m in that range"):
        chart.select_from_tables(ChartConfig(bars=str(folder), width="1m", symbol=symbol, start=start))


def test_a_topic_of_at_least_once_may_repeat_a_bar_but_not_lose_it(world: World) -> None:
    write(world, "topic", planted(bars_of(world), "repeated"))
    audit_bars.run(config_of(world, "topic", delivery="at_least_once"))
    with pytest.raises(JobError, match=r": 1 repeated$"):
        audit_bars.run(config_of(world, "topic"))


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_is_not_there_misses_every_bar(world: World, place: str) -> None:
    with pytest.raises(JobError, match=rf": {len(bars_of(world))} missing$"):
        audit_bars.run(config_of(world, place))


def test_trades_that_retention_has_deleted_cannot_be_audited(world: World) -> None:
    admin, first = AdminClient({"bootstrap.servers": world.bootstrap}), TopicPartition(world.topic, 0, 10)
    admin.delete_records([first])[first].result(30)
    with pytest.raises(JobError, match="-0 begins at offset 10, and the job has read it from 0 on"):
        audit_bars.run(config_of(world, "topic"))


def test_trades_before_the_offset_at_which_the_job_began_make_no_bar(world: World) -> None:
    world.write_checkpoint(first_offset=40)
    read = [world.trades[0][40:], *world.trades[1:]]
    counted, _, end_ms = oracle.in_time(read, 1_000)
    bars = [bar for bar in oracle.bars(counted) if bar.end_ms <= end_ms]
    write(world, "topic", [(bar, f"{bar.symbol}|{bar.width}|{bar.start_ms}", day_of(bar)) for bar in bars])
    audit_bars.run(config_of(world, "topic"))


def test_a_checkpoint_that_is_none_is_one_line(world: World, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="holds no committed batch: is this the checkpoint of the job, on this machine"):
        audit_bars.expected_bars(config_of(world, "topic", checkpoint=str(tmp_path / "none")))


def test_a_checkpoint_without_its_first_batches_says_how_to_keep_them(world: World) -> None:
    (world.path / "checkpoint" / "offsets" / "0").unlink()
    with pytest.raises(JobError, match=r"begins with batch 1, .* spark\.sql\.streaming\.minBatchesToRetain"):
        audit_bars.expected_bars(config_of(world, "topic"))
