"""Iceberg and Delta tables hold each batch once, whatever ends a write, overtakes it or comes again."""

import sqlite3
import time
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from spark_jobs import tables
from spark_jobs.errors import JobError
from spark_jobs.failpoints import Failpoints, Planted
from spark_jobs.tables import (
    CATALOG_FILE,
    KEPT_METADATA,
    Batch,
    BatchTable,
    DeltaBatches,
    IcebergTable,
    no_step,
    open_catalog,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")
SCHEMA = pa.schema(
    [("date", pa.date32()), ("symbol", pa.string()), ("number", pa.int64()), ("price", pa.decimal128(18, 8))]
)
STEPS = {"iceberg": ("iceberg_written", "iceberg_committed"), "delta": ("delta_started", "delta_committed")}
KINDS = ("iceberg", "delta")


def rows_of(number: int, count: int = 4) -> pa.Table:
    days = [date(2026, 1, 1 + n % 2) for n in range(count)]
    symbols = ["A" if n % 3 else "B" for n in range(count)]
    numbers = [100 * number + n for n in range(count)]
    prices = [Decimal(f"{value}.00000001") for value in numbers]
    return pa.table([days, symbols, numbers, prices], schema=SCHEMA)


def table_of(kind: str, folder: Path, at_step: Callable[[str, int], None] = no_step) -> BatchTable:
    if kind == "iceberg":
        return IcebergTable(open_catalog(str(folder), {}), "bars", at_step)
    return DeltaBatches(str(folder / "bars"), at_step=at_step)


def create(kind: str, folder: Path, schema: pa.Schema) -> None:
    """Create the table as somebody else would."""
    if kind == "delta":
        DeltaTable.create(str(folder / "bars"), schema)
        return
    catalog = open_catalog(str(folder), {})
    catalog.create_namespace("market")
    catalog.create_table("market.bars", schema)


def found(kind: str, folder: Path) -> pa.Table:
    if kind == "iceberg":
        return open_catalog(str(folder), {}).load_table("market.bars").scan().to_arrow()
    return DeltaTable(str(folder / "bars")).to_pyarrow_table()


def numbers(kind: str, folder: Path) -> list[int]:
    rows = found(kind, folder)
    assert all(row["price"] == Decimal(f"{row['number']}.00000001") for row in rows.to_pylist())
    return sorted(rows["number"].to_pylist())


def expected(*batches: int) -> list[int]:
    return sorted(100 * number + n for number in batches for n in range(4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_comes_again_is_recognised(kind: str, tmp_path: Path) -> None:
    written = [table_of(kind, tmp_path).write(rows_of(number), Batch("q", number)) for number in (0, 0, 1, 1)]
    assert written == [True, False, True, False]
    assert numbers(kind, tmp_path) == expected(0, 1)


@pytest.mark.parametrize(("kind", "step"), [(kind, step) for kind in KINDS for step in STEPS[kind]])
def test_a_write_that_ends_before_or_after_its_commit_is_done_once(kind: str, step: str, tmp_path: Path) -> None:
    table_of(kind, tmp_path).write(rows_of(0), Batch("q", 0))
    (tmp_path / f"{step}-1").write_text("raise")
    failing = table_of(kind, tmp_path, Failpoints(str(tmp_path)))
    with pytest.raises(Planted):
        failing.write(rows_of(1), Batch("q", 1))
    assert table_of(kind, tmp_path).write(rows_of(1), Batch("q", 1)) == (not step.endswith("committed"))
    assert numbers(kind, tmp_path) == expected(0, 1)


def test_an_iceberg_table_is_there_partitioned_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "iceberg_creating-0").write_text("raise")
    with pytest.raises(Planted):
        table_of("iceberg", tmp_path, Failpoints(str(tmp_path))).write(rows_of(0), Batch("q", 0))
    assert not open_catalog(str(tmp_path), {}).table_exists("market.bars")

    def overtake(step: str, number: int) -> None:
        if step == "iceberg_creating":
            assert table_of("iceberg", tmp_path).write(rows_of(number), Batch("q", number))

    assert not table_of("iceberg", tmp_path, overtake).write(rows_of(0), Batch("q", 0))
    assert numbers("iceberg", tmp_path) == expected(0)
    fields = open_catalog(str(tmp_path), {}).load_table("market.bars").spec().fields
    assert [field.name for field in fields] == ["date", "symbol"]


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_writers_of_one_batch_the_one_that_is_overtaken_leaves_it(kind: str, tmp_path: Path) -> None:
    """The second writes the whole batch while the first is about to commit it."""
    table_of(kind, tmp_path).write(rows_of(0), Batch("q", 0))
    overtaken: list[bool] = []

    def overtake(step: str, number: int) -> None:
        if step == STEPS[kind][0] and not overtaken:
            overtaken.append(table_of(kind, tmp_path).write(rows_of(number), Batch("q", number)))

    assert not table_of(kind, tmp_path, overtake).write(rows_of(1), Batch("q", 1))
    assert overtaken == [True]
    assert numbers(kind, tmp_path) == expected(0, 1)


@pytest.mark.parametrize("properties", [{}, {"commit.retry.num-retries": "4"}])
def test_two_writers_of_one_batch_write_it_once_into_a_table_that_others_made(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    """By default pyiceberg repeats a commit that was refused, and would not look what the other has committed."""
    catalog = open_catalog(str(tmp_path), {})
    catalog.create_namespace("market")
    catalog.create_table("market.bars", SCHEMA, properties=properties)
    overtaken: list[bool] = []

    def overtake(step: str, number: int) -> None:
        if step == "iceberg_written" and not overtaken:
            overtaken.append(table_of("iceberg", tmp_path).write(rows_of(number), Batch("q", number)))

    assert not table_of("iceberg", tmp_path, overtake).write(rows_of(0), Batch("q", 0))
    assert overtaken == [True]
    assert numbers("iceberg", tmp_path) == expected(0)


def test_two_writers_that_create_a_table_at_once_write_their_batch_once(tmp_path: Path, monkeypatch) -> None:
    write_metadata, overtaken = SqlCatalog._write_metadata, []

    def overtake(*arguments: object, **named: object) -> None:
        if not overtaken:
            overtaken.append("as the first one is about to add its table to the catalogue")
            assert table_of("iceberg", tmp_path).write(rows_of(0), Batch("q", 0))
        write_metadata(*arguments, **named)

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(overtake))
    assert not table_of("iceberg", tmp_path).write(rows_of(0), Batch("q", 0))
    assert numbers("iceberg", tmp_path) == expected(0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_overtaken_by_another_change_writes_its_batch(kind: str, tmp_path: Path) -> None:
    table_of(kind, tmp_path).write(rows_of(0), Batch("q", 0))
    maintained: list[str] = []

    def maintain(step: str, _number: int) -> None:
        if step == STEPS[kind][0] and not maintained:
            maintained.append(step)
            table_of(kind, tmp_path).maintain(1, timedelta(days=1))

    assert table_of(kind, tmp_path, maintain).write(rows_of(1), Batch("q", 1))
    assert numbers(kind, tmp_path) == expected(0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_another_query_and_an_older_checkpoint_are_refused(kind: str, tmp_path: Path) -> None:
    for number in (0, 1):
        table_of(kind, tmp_path).write(rows_of(number), Batch("q", number))
    with pytest.raises(JobError, match="holds rows of another query than p: give this query a table of its own"):
        table_of(kind, tmp_path).write(rows_of(0), Batch("p", 0))
    with pytest.raises(JobError, match="holds batch 1 of this query, and the checkpoint goes on with batch 0"):
        table_of(kind, tmp_path).write(rows_of(0), Batch("q", 0))
    with pytest.raises(JobError, match=r"holds batch 1 .* goes on with batch 3: the table lacks the batches between"):
        table_of(kind, tmp_path).write(rows_of(3), Batch("q", 3))
    table_of(kind, tmp_path).drop()
    assert table_of(kind, tmp_path).write(rows_of(2), Batch("p", 2))
    assert numbers(kind, tmp_path) == expected(2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_is_added_while_it_runs_and_another_type_is_refused(kind: str, tmp_path: Path) -> None:
    table_of(kind, tmp_path).write(rows_of(0), Batch("q", 0))
    more = rows_of(1).append_column("side", pa.array(["buy"] * 4))
    table_of(kind, tmp_path).write(more, Batch("q", 1))
    table_of(kind, tmp_path).write(rows_of(2), Batch("q", 2))
    sides = {(row["number"] // 100, row["side"]) for row in found(kind, tmp_path).to_pylist()}
    assert sides == {(0, None), (1, "buy"), (2, None)}
    other = rows_of(3).set_column(2, "number", pa.array(["x"] * 4))
    with pytest.raises(JobError, match=r"has another schema \(number is int64 there, string here\): give") as error:
        table_of(kind, tmp_path).write(other, Batch("q", 3))
    assert "\n" not in str(error.value)
    assert table_of(kind, tmp_path).write(rows_of(3), Batch("q", 3))


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_floats_gets_no_decimals(kind: str, tmp_path: Path) -> None:
    """deltalake would write them, and lose digits."""
    floats = pa.schema([("date", pa.date32()), ("symbol", pa.string()), ("price", pa.float64())])
    create(kind, tmp_path, floats)
    with pytest.raises(JobError, match=r"price is double there, decimal128\(18, 8\) here"):
        table_of(kind, tmp_path).write(rows_of(0), Batch("q", 0))
    assert found(kind, tmp_path).num_rows == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_must_be_there_and_is_not_written_is_named(kind: str, tmp_path: Path) -> None:
    required = SCHEMA.append(pa.field("venue", pa.string(), nullable=False))
    create(kind, tmp_path, required)
    with pytest.raises(JobError, match="venue is required there, and not written"):
        table_of(kind, tmp_path).write(rows_of(0), Batch("q", 0))


@pytest.mark.parametrize("kind", KINDS)
def test_small_files_become_one_and_what_only_the_past_needs_is_deleted(kind: str, tmp_path: Path) -> None:
    for number in range(6):
        table_of(kind, tmp_path).write(rows_of(number), Batch("q", number))
    files = set(tmp_path.rglob("*.parquet"))
    table_of(kind, tmp_path).maintain(7, timedelta(days=1))
    assert set(tmp_path.rglob("date=*/**/*.parquet")) == set(tmp_path.rglob("date=*/**/*.parquet")) & files
    table_of(kind, tmp_path).maintain(6, timedelta(0))
    left = [path for path in tmp_path.rglob("*.parquet") if "date=" in str(path)]
    assert len(left) == 4, "one for each of two days and two symbols"
    assert numbers(kind, tmp_path) == expected(*range(6))
    assert not table_of(kind, tmp_path).write(rows_of(5), Batch("q", 5)), "its number outlives the snapshots"
    assert table_of(kind, tmp_path).write(rows_of(6), Batch("q", 6))
    assert numbers(kind, tmp_path) == expected(*range(7))


@pytest.mark.parametrize("kind", KINDS)
def test_versions_are_kept_for_half_an_hour_in_any_time_zone(kind: str, tmp_path: Path, monkeypatch) -> None:
    """Files of older versions are there until no kept version needs them; naive times are off by hours."""
    for number in range(3):
        table_of(kind, tmp_path).write(rows_of(number), Batch("q", number))
    files = set(tmp_path.rglob("*.parquet"))
    try:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        table_of(kind, tmp_path).maintain(3, timedelta(minutes=30))
        assert files < set(tmp_path.rglob("date=*/**/*.parquet"))
        monkeypatch.setenv("TZ", "America/Los_Angeles")
        time.tzset()
        table_of(kind, tmp_path).maintain(3, timedelta(0))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert not files & set(tmp_path.rglob("*.parquet"))
    assert numbers(kind, tmp_path) == expected(0, 1, 2)


def test_a_file_that_is_no_longer_small_is_not_merged_again(tmp_path: Path, monkeypatch) -> None:
    def files() -> dict[str, int]:
        table = open_catalog(str(tmp_path), {}).load_table("market.bars")
        return {task.file.file_path: task.file.file_size_in_bytes for task in table.scan().plan_files()}

    for number in range(7):
        table_of("iceberg", tmp_path).write(rows_of(number), Batch("q", number))
        if number == 3:
            table_of("iceberg", tmp_path).maintain(4, timedelta(0))
            merged = files()
            monkeypatch.setattr(tables, "SMALL_BYTES", min(merged.values()))
    table_of("iceberg", tmp_path).maintain(3, timedelta(0))
    assert merged.items() <= files().items()
    assert len(files()) == 2 * len(merged)
    assert numbers("iceberg", tmp_path) == expected(*range(7))


def test_versions_and_metadata_of_an_iceberg_table_are_bounded(tmp_path: Path, monkeypatch) -> None:
    """Each commit writes a file that names all versions: at a batch each 5 s they would be 17,280 a day."""
    monkeypatch.setattr(tables, "MAX_VERSIONS", 5)
    for number in range(25):
        table_of("iceberg", tmp_path).write(rows_of(number), Batch("q", number))
    assert len(set(tmp_path.rglob("*.metadata.json"))) <= int(KEPT_METADATA["write.metadata.previous-versions-max"]) + 1
    table_of("iceberg", tmp_path).maintain(100, timedelta(days=1))
    assert len(open_catalog(str(tmp_path), {}).load_table("market.bars").snapshots()) == 5
    assert numbers("iceberg", tmp_path) == expected(*range(25))


def test_the_log_of_a_delta_table_is_kept_as_long_as_its_versions(tmp_path: Path) -> None:
    log = tmp_path / "bars" / "_delta_log"
    for number in range(12):
        table_of("delta", tmp_path).write(rows_of(number), Batch("q", number))
        if number == 5:
            table_of("delta", tmp_path).maintain(100, timedelta(days=1))
    kept = set(log.glob("*.json"))
    assert len(kept) > 12
    table_of("delta", tmp_path).maintain(100, timedelta(0))
    assert len(set(log.glob("*.json")) & kept) <= 1
    assert not table_of("delta", tmp_path).write(rows_of(11), Batch("q", 11)), "its number outlives the log"
    assert numbers("delta", tmp_path) == expected(*range(12))


def test_a_merge_is_one_version_and_no_version_lacks_rows(tmp_path: Path) -> None:
    for number in range(3):
        table_of("iceberg", tmp_path).write(rows_of(number), Batch("q", number))
    table_of("iceberg", tmp_path).maintain(3, timedelta(days=1))
    table = open_catalog(str(tmp_path), {}).load_table("market.bars")
    assert len(list(table.scan().plan_files())) == 4
    rows = [table.scan(snapshot_id=version.snapshot_id).count() for version in table.snapshots()]
    assert rows == [4, 8, 12, 12]


def test_a_table_that_others_made_gets_these_bounds_too(tmp_path: Path) -> None:
    create("iceberg", tmp_path, SCHEMA)
    for number in range(3):
        table_of("iceberg", tmp_path).write(rows_of(number), Batch("q", number))
    table_of("iceberg", tmp_path).maintain(3, timedelta(0))
    assert len(set(tmp_path.rglob("*.parquet"))) == 1, "it is not partitioned"
    assert numbers("iceberg", tmp_path) == expected(0, 1, 2)
    assert KEPT_METADATA.items() <= open_catalog(str(tmp_path), {}).load_table("market.bars").properties.items()


def test_a_delta_table_named_by_an_url_is_deleted(tmp_path: Path) -> None:
    table = DeltaBatches(f"file://{tmp_path}/bars")
    table.write(rows_of(0), Batch("q", 0))
    table.drop()
    assert not (tmp_path / "bars").exists()


def test_a_folder_that_is_no_delta_table_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "bars").mkdir()
    (tmp_path / "bars" / "letter.txt").touch()
    table_of("delta", tmp_path).drop()
    assert (tmp_path / "bars" / "letter.txt").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_without_rows_leaves_the_table_readable(kind: str, tmp_path: Path) -> None:
    for number, count in ((0, 4), (1, 0), (2, 4)):
        table_of(kind, tmp_path).write(rows_of(number, count), Batch("q", number))
    assert numbers(kind, tmp_path) == expected(0, 2)


def test_a_locked_catalogue_is_one_line(tmp_path: Path) -> None:
    table_of("iceberg", tmp_path).write(rows_of(0), Batch("q", 0))
    with sqlite3.connect(tmp_path / CATALOG_FILE, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(JobError, match="is locked by another program: end that, or wait") as error:
            table_of("iceberg", tmp_path).write(rows_of(1), Batch("q", 1))
        other.execute("ROLLBACK")
    other.close()
    assert "\n" not in str(error.value)
    assert table_of("iceberg", tmp_path).write(rows_of(1), Batch("q", 1))
    assert numbers("iceberg", tmp_path) == expected(0, 1)


def test_a_catalogue_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be opened") as error:
        open_catalog(None, {"type": "rest", "uri": "http://127.0.0.1:1"})
    assert "\n" not in str(error.value)
