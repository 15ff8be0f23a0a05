"""Iceberg tables in a REST catalogue, by configuration alone: Apache Iceberg's own, on loopback. No Spark."""

import subprocess
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from harness.servers import QUICK_JVM, free_port, java
from spark_jobs import query
from spark_jobs.errors import JobError
from spark_jobs.tables import Batch, IcebergTable, open_catalog
from tools.kafka import ICEBERG_REST_LIBS

pytestmark = [
    pytest.mark.long,
    pytest.mark.compat,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.skipif(not ICEBERG_REST_LIBS.is_dir(), reason="Iceberg's REST catalogue is missing: run `make tools`"),
]
SOURCE = Path(__file__).parents[1] / "support" / "IcebergRestCatalog.java"


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return what `iceberg_catalog` is given."""
    port = free_port()
    where = str(port), str(tmp_path / "catalog.db"), (tmp_path / "warehouse").as_uri()
    command = java(str(SOURCE), *where, heap="256m", libs=(ICEBERG_REST_LIBS,), options=QUICK_JVM)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield {"type": "rest", "uri": f"http://127.0.0.1:{port}"}
        finally:
            server.kill()


def rows(**more: list[int]) -> pa.Table:
    return pa.table({"symbol": ["A", "B"], "date": [date(2024, 1, 1)] * 2, "n": [1, 2], **more})


def test_a_batch_is_there_once_with_a_column_more_and_few_files(settings: dict[str, str], tmp_path: Path) -> None:
    table = IcebergTable(open_catalog(None, settings), "bars")
    written = [table.write(rows(), Batch("query", number)) for number in (0, 0, 1)]
    written += [table.write(rows(more=[3, 4]), Batch("query", number)) for number in range(2, 9)]
    table.maintain(8, timedelta(0))
    written += [table.write(rows(more=[3, 4]), Batch("query", number)) for number in (8, 9)]
    assert written == [True, False] + [True] * 8 + [False, True]
    asked = "select symbol, count(*), count(more), max(n) from bars group by all order by all"
    found = query.run(asked, tmp_path, settings, as_csv=True)
    assert found.splitlines()[1:] == ["A,10,8,1", "B,10,8,2"]
    files = list(open_catalog(None, settings).load_table("market.bars").scan().plan_files())
    assert len(files) == 4, "one of each partition that was compacted, and one of the batch since"


def test_a_catalogue_that_does_not_answer_is_named(tmp_path: Path) -> None:
    settings = {"type": "rest", "uri": f"http://127.0.0.1:{free_port()}"}
    with pytest.raises(JobError, match=r"the catalogue .*http://127.0.0.1.* cannot be opened: ") as error:
        open_catalog(None, settings)
    assert "\n" not in str(error.value)
