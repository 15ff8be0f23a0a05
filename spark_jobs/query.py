"""SQL by DuckDB over a folder of jobs' output: Iceberg and Delta tables, Parquet of batches. Needs no Spark, no Java.

A table has the name of its directory; an Iceberg table its own name, without the namespace.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlparse

import duckdb
from deltalake import DeltaTable
from pyiceberg.table import DataScan

from spark_jobs.errors import JobError
from spark_jobs.tables import CATALOG_FILE, NAMESPACE, open_catalog, table_errors

HIDDEN = re.compile("_[^=]*$")
"""A directory or file that Spark does not read, either: _temporary, an attempt at a batch."""
GLOB = re.compile(r"([*?\[])")
"""The characters that DuckDB takes for patterns in a file's name, unless they are in brackets."""


def connect(folder: Path, catalog: Mapping[str, str] | None = None) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """Return a connection with the folder's tables, and their names. Raises JobError if there are none."""
    connection = duckdb.connect(config={"python_enable_replacements": False})  # a name is a table's, never a variable's
    names = []
    if catalog or (folder / CATALOG_FILE).exists():
        names += _iceberg(connection, folder, catalog or {})
    for directory in [folder, *sorted(path for path in folder.iterdir() if path.is_dir())] if folder.is_dir() else []:
        name = directory.resolve().name
        if name in names:
            continue
        if (directory / "_delta_log").is_dir():
            _delta(connection, name, directory)
            names.append(name)
        elif files := whole_batches(directory):
            _view(connection, name, files, "union_by_name = true, hive_partitioning = true")
            names.append(name)
    if not names:
        raise JobError(f"{folder} holds no table: name the folder of a job's outputs (iceberg, delta or output)")
    return connection, names


def run(sql: str, folder: Path, catalog: Mapping[str, str] | None = None, *, as_csv: bool = False) -> str:
    """Return the result of a query, as a table or as CSV. Raises JobError, which names the existing tables."""
    connection, names = connect(folder, catalog)
    with connection, one_line(after=f" (tables of {folder}: {', '.join(names)})"):
        result = connection.sql(sql)
        if result is None:  # for a statement that is not a query
            return ""  # type: ignore[unreachable]
        if not as_csv:
            return str(result)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows([_cell(cell) for cell in row] for row in result.fetchall())
        return text.getvalue()


def _cell(value: object) -> object:
    """Return a value as a reader of CSV takes it: decimals with all digits, never as 1E-8."""
    return f"{value:f}" if isinstance(value, Decimal) else value


def holds_tables(folder: Path) -> bool:
    """Whether a directory of this machine has Iceberg tables in it, or is a Delta table."""
    return (folder / CATALOG_FILE).exists() or (folder / "_delta_log").is_dir()


def whole_batches(directory: Path) -> list[str]:
    """Return the Parquet files of complete batches: a job may be writing one, or may have been killed."""
    whole = sorted(done.parent for done in directory.glob("batch_id=*/_SUCCESS"))
    files = [(batch, path) for batch in whole for path in sorted(batch.rglob("*.parquet"))]
    return [str(path) for batch, path in files if not any(map(HIDDEN.match, path.relative_to(batch).parts))]


def quoted_name(name: str) -> str:
    """Return a table's name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def _iceberg(connection: duckdb.DuckDBPyConnection, folder: Path, settings: Mapping[str, str]) -> list[str]:
    catalog = open_catalog(str(folder), settings)
    with table_errors(f"the catalogue of {folder}", "read"):
        identifiers = catalog.list_tables(NAMESPACE) if catalog.namespace_exists(NAMESPACE) else []
    for identifier in identifiers:
        with table_errors(f"Iceberg table {'.'.join(identifier)}", "read"):
            _iceberg_table(connection, identifier[-1], catalog.load_table(identifier).scan())
    return [identifier[-1] for identifier in identifiers]


def _iceberg_table(connection: duckdb.DuckDBPyConnection, name: str, scan: DataScan) -> None:
    places = [urlparse(task.file.file_path) for task in scan.plan_files()]
    if places and all(place.scheme in ("", "file") for place in places):
        # hive_partitioning would read columns from paths; the files have all of them.
        files = [place.path for place in places]
        _view(connection, name, files, "union_by_name = true, hive_partitioning = false")
    else:
        connection.register(name, scan.to_arrow())


def _delta(connection: duckdb.DuckDBPyConnection, name: str, directory: Path) -> None:
    with table_errors(f"Delta table {directory}", "read"):
        connection.register(name, DeltaTable(str(directory)).to_pyarrow_dataset())


def _view(connection: duckdb.DuckDBPyConnection, name: str, files: list[str], options: str) -> None:
    quoted = ", ".join("'" + GLOB.sub(r"[\1]", path).replace("'", "''") + "'" for path in files)
    with one_line(f"{name} cannot be read: "):
        connection.execute(f"CREATE VIEW {quoted_name(name)} AS SELECT * FROM read_parquet([{quoted}], {options})")


@contextmanager
def one_line(before: str = "", after: str = "") -> Iterator[None]:
    """Turn an error of DuckDB into a JobError."""
    try:
        yield
    except duckdb.Error as error:
        line = " ".join(str(error).split())[:300]
        raise JobError(f"{before}{line}{after}") from None
