"""SQL by DuckDB over what jobs wrote to a folder: Iceberg and Delta tables, and Parquet by batches; no Spark, no Java.

The name of a table is that of its directory; of an Iceberg table its own, without the namespace.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlparse

import duckdb
from deltalake import DeltaTable

from spark_jobs.errors import JobError
from spark_jobs.tables import CATALOG_FILE, NAMESPACE, open_catalog


def connect(folder: Path, catalog: Mapping[str, str] | None = None) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """Return a connection that knows the folder's tables, and their names. Raises JobError where there are none."""
    connection = duckdb.connect()
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
    """Return what a query gives, drawn or as CSV. Raises JobError that says which tables there are."""
    connection, names = connect(folder, catalog)
    try:
        result = connection.sql(sql)
        if result is None:  # of a statement that is no query
            return ""  # type: ignore[unreachable]
        if not as_csv:
            return str(result)
        lines = [result.columns, *result.fetchall()]
        return "\n".join(",".join("" if cell is None else str(cell) for cell in line) for line in lines) + "\n"
    except duckdb.Error as error:
        line = " ".join(str(error).split())[:300]
        raise JobError(f"{line} (tables of {folder}: {', '.join(names)})") from None
    finally:
        connection.close()


def holds_tables(folder: Path) -> bool:
    """Whether a directory of this machine has Iceberg tables in it, or is a Delta table."""
    return (folder / CATALOG_FILE).exists() or (folder / "_delta_log").is_dir()


def whole_batches(directory: Path) -> list[str]:
    """Return the Parquet files of the batches that are whole: a job may be writing, or may have been killed."""
    whole = sorted(done.parent for done in directory.glob("batch_id=*/_SUCCESS"))
    return [str(path) for batch in whole for path in sorted(batch.rglob("*.parquet")) if "_temporary" not in path.parts]


def quoted_name(name: str) -> str:
    """Return a table's name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def _iceberg(connection: duckdb.DuckDBPyConnection, folder: Path, settings: Mapping[str, str]) -> list[str]:
    catalog = open_catalog(str(folder), settings)
    names = []
    for identifier in catalog.list_tables(NAMESPACE) if catalog.namespace_exists(NAMESPACE) else []:
        scan, name = catalog.load_table(identifier).scan(), identifier[-1]
        places = [urlparse(task.file.file_path) for task in scan.plan_files()]
        if places and all(place.scheme in ("", "file") for place in places):
            # hive_partitioning reads columns out of paths; here the files have them all.
            files = [place.path for place in places]
            _view(connection, name, files, "union_by_name = true, hive_partitioning = false")
        else:
            connection.register(name, scan.to_arrow())
        names.append(name)
    return names


def _delta(connection: duckdb.DuckDBPyConnection, name: str, directory: Path) -> None:
    connection.register(name, DeltaTable(str(directory)).to_pyarrow_dataset())


def _view(connection: duckdb.DuckDBPyConnection, name: str, files: list[str], options: str) -> None:
    quoted = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
    connection.execute(f"CREATE VIEW {quoted_name(name)} AS SELECT * FROM read_parquet([{quoted}], {options})")
