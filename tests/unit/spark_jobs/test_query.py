"""SQL over a folder: Iceberg and Delta tables, and Parquet of whole batches alone."""

from decimal import Decimal
from pathlib import Path

import pyarrow.parquet
import pytest

from spark_jobs import query
from spark_jobs.errors import JobError
from spark_jobs.tables import Batch, DeltaBatches, IcebergTable, open_catalog
from tests.unit.spark_jobs.test_tables import rows_of

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


def test_a_batch_that_is_not_whole_is_left_out(folder: Path) -> None:
    (folder / "parquet" / "batch_id=1" / "_SUCCESS").unlink()
    assert query.run("select count(*) from parquet", folder, as_csv=True) == "count_star()\n4\n"


def test_what_cannot_be_answered_names_the_tables(folder: Path) -> None:
    with pytest.raises(
        JobError, match=r"Table with name trades does not exist.*\(tables of .*: bars, delta bars, parquet\)"
    ):
        query.run("select * from trades", folder)
    assert "│" in query.run("select * from bars", folder)


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(JobError, match="holds no table: name the folder of a job's outputs"):
            query.run("select 1", path)
