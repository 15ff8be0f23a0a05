"""SQL over a folder: Iceberg and Delta tables, and Parquet of whole batches alone."""

import csv
import shutil
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet
import pytest

from spark_jobs import chart, query
from spark_jobs.errors import JobError
from spark_jobs.tables import Batch, DeltaBatches, IcebergTable, open_catalog
from tests.unit.spark_jobs.test_tables import SCHEMA, rows_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same rows as an Iceberg table, a Delta table and Parquet."""
    iceberg = IcebergTable(open_catalog(str(tmp_path), {}), "bars")
    delta = DeltaBatches(str(tmp_path / "delta bars"))
    for number in range(2):
        for table in (iceberg, delta):
            table.write(rows_of(number), Batch("q", number))
        batch = tmp_path / "parquet" / f"batch_id={number}"
        batch.mkdir(parents=True)
        pyarrow.parquet.write_table(rows_of(number), batch / "part.parquet")
        (batch / "_SUCCESS").touch()
    return tmp_path


@pytest.mark.parametrize("table", ["bars", '"delta bars"', "parquet"])
def test_each_kind_of_table_gives_its_rows_to_the_last_digit(folder: Path, table: str) -> None:
    sql = f"select date, symbol, sum(price) from {table} where number >= 100 group by all order by all"
    lines = query.run(sql, folder, as_csv=True).splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [
        ["2026-01-01", "A"], ["2026-01-01", "B"], ["2026-01-02", "A"], ["2026-01-02", "B"]
    ]  # fmt: skip
    assert sum(Decimal(line.split(",")[2]) for line in lines[1:]) == Decimal("406.00000004")


def test_csv_has_all_digits_and_quotes_what_has_commas(tmp_path: Path) -> None:
    batch = tmp_path / "parquet" / "batch_id=0"
    batch.mkdir(parents=True)
    symbols, numbers = ["a,b", 'c"d', None], [Decimal("0.00000000"), Decimal("1E-8"), Decimal("12.5")]
    prices = pyarrow.array(numbers, pyarrow.decimal128(18, 8))
    table = pyarrow.table({"symbol": symbols, "price": prices, "bids": [[["1", "2"]], [], None]})
    pyarrow.parquet.write_table(table, batch / "part.parquet")
    (batch / "_SUCCESS").touch()
    rows = query.run("select symbol, price, bids from parquet", tmp_path, as_csv=True)
    assert list(csv.reader(rows.splitlines())) == [
        ["symbol", "price", "bids"],
        ["a,b", "0.00000000", "[['1', '2']]"],
        ['c"d', "0.00000001", "[]"],
        ["", "12.50000000", ""],
    ]


def test_a_batch_that_is_not_whole_is_left_out(folder: Path) -> None:
    (folder / "parquet" / "batch_id=1" / "_SUCCESS").unlink()
    assert query.run("select count(*) from parquet", folder, as_csv=True) == "count_star()\n4\n"


def test_what_cannot_be_answered_names_the_tables(folder: Path) -> None:
    with pytest.raises(
        JobError, match=r"Table with name trades does not exist.*\(tables of .*: bars, delta bars, parquet\)"
    ):
        query.run("select * from trades", folder)
    with pytest.raises(JobError, match="Table with name names does not exist"):
        query.run("select * from names", folder)  # which is a variable in query.py
    assert "│" in query.run("select * from bars", folder)


@pytest.mark.parametrize("name", ["my tables", "Käse", "100%", "x[1]", "a*b"])
def test_all_of_a_table_is_in_its_folder_whatever_that_is_called(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for number in range(2):
        IcebergTable(open_catalog(str(folder), {}), "bars").write(rows_of(number), Batch("q", number))
        batch = folder / "parquet" / f"batch_id={number}"
        batch.mkdir(parents=True)
        pyarrow.parquet.write_table(rows_of(number), batch / "part.parquet")
        (batch / "_SUCCESS").touch()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    for table in ("bars", "parquet"):
        assert query.run(f"select count(*) from {table}", folder, as_csv=True) == "count_star()\n8\n"


@pytest.mark.parametrize("symbol", ["BTC/USDT", "A[1]", "%2F", "..", "Ü"])
def test_a_symbol_may_have_any_characters(tmp_path: Path, symbol: str) -> None:
    rows = rows_of(0).set_column(1, SCHEMA.field("symbol"), pyarrow.array([symbol] * 4))
    iceberg, delta = IcebergTable(open_catalog(str(tmp_path), {}), "bars"), DeltaBatches(str(tmp_path / "delta"))
    for table in (iceberg, delta):
        for number in range(2):
            table.write(rows, Batch("q", number))
        table.maintain(2, timedelta(0))
    for name in ("bars", "delta"):
        found = query.run(f"select symbol, count(*) from {name} group by all", tmp_path, as_csv=True)
        assert found.splitlines()[1:] == [f"{symbol},8"]


def test_a_folder_that_a_library_cannot_name_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"Iceberg tables cannot be in .*: name a folder without \? and #"):
        open_catalog(str(tmp_path / "a#b"), {})
    with pytest.raises(JobError, match=r"Delta table .* cannot be written \(Invalid object store url"):
        DeltaBatches(str(tmp_path / "x[1]" / "bars")).write(rows_of(0), Batch("q", 0))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


@pytest.mark.parametrize("harm", [Path.unlink, cut])
@pytest.mark.parametrize("files", ["*.metadata.json", "*.avro", "*.parquet", "_delta_log/*.json"])
def test_what_is_gone_or_damaged_is_one_line_and_written_anew_after_a_reset(folder: Path, files: str, harm) -> None:
    shutil.rmtree(folder / "parquet")
    for path in list(folder.rglob(files)):
        harm(path)
    with pytest.raises(JobError, match=r"cannot be read|holds no table") as error:
        query.run("select count(*) from bars union all select count(*) from 'delta bars'", folder)
    assert "\n" not in str(error.value)
    tables = IcebergTable(open_catalog(str(folder), {}), "bars"), DeltaBatches(str(folder / "delta bars"))
    for table in tables:
        with suppress(JobError):  # raised in one line, unless only the other table is damaged, or only data
            table.write(rows_of(2), Batch("q", 2))
        with suppress(JobError):
            table.maintain(1, timedelta(0))
        table.drop()
        table.write(rows_of(0), Batch("other", 0))
    assert query.run("select count(*) from bars", folder, as_csv=True) == "count_star()\n4\n"


def test_a_chart_of_a_table_without_bars_is_refused(folder: Path) -> None:
    with pytest.raises(JobError, match="holds no bars, name the output of a gold job: Binder Error"):
        chart.run(chart.ChartConfig(bars=str(folder)))


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(JobError, match="holds no table: name the folder of a job's outputs"):
            query.run("select 1", path)
