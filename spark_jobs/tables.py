"""Tables that hold each batch of a query once: Iceberg by pyiceberg, Delta by deltalake. It knows no Spark.

The number of the batch is committed with its rows, in one step of the table's own: as a property of an Iceberg table
(and of the snapshot, for people), as the version of an application's transaction in Delta. A batch that comes again is
recognised by it. Both formats refuse a commit that another writer has overtaken; here the number is looked up anew
then, and the batch written again or left alone. So two writers of one batch, of which one should long be dead, cannot
both write it.

Rows are partitioned by day and symbol. Every batch adds small files, so that now and then those of a partition are made
one, and versions and files that only the past needs are deleted.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.expressions import And, BooleanExpression, EqualTo
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from sqlalchemy.exc import OperationalError

from spark_jobs.errors import JobError

PARTITIONED_BY = ("date", "symbol")
NAMESPACE = "market"
CATALOG_FILE = "catalog.db"
BATCH = "spark-jobs.batch"
QUERY = "spark-jobs.query"
RETRIES = 5
NO_RETRY = {"commit.retry.num-retries": "0"}
"""pyiceberg would commit an overtaken append again, without a look at who overtook it."""
REFUSALS = (ValueError, TypeError, pa.ArrowInvalid, DeltaError, CommitFailedException, OperationalError)
OWN_TABLE = "give this query a table of its own, or start with --reset-output, which empties it"
Step = Callable[[str, int], None]


def no_step(_name: str, _batch_id: int) -> None:
    """Tests stop a write at its steps; see failpoints.py."""


@dataclass(frozen=True, slots=True)
class Batch:
    query: str
    number: int


class BatchTable(Protocol):
    """A table of one query."""

    def write(self, rows: pa.Table, batch: Batch) -> bool:
        """Write a batch's rows; return False where they are there already. Raises JobError."""

    def maintain(self, small_files: int, keep: timedelta) -> None:
        """Make one file of a partition's where there are so many, and forget what is older than `keep`."""

    def drop(self) -> None:
        """Delete the table with its files, if it is there."""


def is_there(last: int | None, batch: Batch, *, has_rows: bool, name: str) -> bool:
    """Decide by the query's last batch in the table whether this one is there. Raises JobError where it cannot tell."""
    if last is None and has_rows:
        raise JobError(f"table {name} holds rows of another query than {batch.query}: {OWN_TABLE}")
    if last is not None and batch.number < last:
        raise JobError(
            f"table {name} holds batch {last} of this query, and the checkpoint goes on with batch {batch.number}: "
            f"it is older than the table; bring back the one that belongs to it, or start with --reset-output"
        )
    return last == batch.number


def refuse_other_schema(name: str, table: pa.Schema, rows: pa.Schema) -> None:
    """Raise JobError where a column of the rows has another type in the table, or a required one is not among them.

    deltalake would cast to the table's type, decimals to floats, too.
    """
    for column in table:
        if column.name not in rows.names:
            problem = None if column.nullable else f"{column.name} is required there, and not written"
        else:
            there, here = _plain(column.type), _plain(rows.field(column.name).type)
            problem = None if there == here else f"{column.name} is {there} there, {here} here"
        if problem is not None:
            raise JobError(f"{name} has another schema ({problem}): {OWN_TABLE}")


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return a type as both formats read it back: offsets of any width are one type, so are all names of UTC."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return kind


# -- Iceberg --------------------------------------------------------------------------------------------------------


def open_catalog(folder: str | None, settings: Mapping[str, str]) -> Catalog:
    """Open the catalogue of a folder, SQLite unless the settings name another. Raises JobError."""
    try:
        if settings:
            return load_catalog("spark_jobs", **settings)
        assert folder is not None
        directory = Path(folder).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        where = {"uri": f"sqlite:///{directory}/{CATALOG_FILE}", "warehouse": directory.as_uri()}
        return load_catalog("spark_jobs", type="sql", **where)
    except Exception as error:
        raise _locked(f"the catalogue of {folder}", error) or JobError(
            f"the catalogue {settings or folder} cannot be opened: {_line(error)}"
        ) from error


class IcebergTable:
    def __init__(self, catalog: Catalog, name: str, at_step: Step = no_step) -> None:
        self.name = f"{NAMESPACE}.{name}"
        self._catalog = catalog
        self._at_step = at_step

    def write(self, rows: pa.Table, batch: Batch) -> bool:
        with _errors(f"Iceberg table {self.name}"):
            overtaken = (CommitFailedException, CommitStateUnknownException)
            return _until_not_overtaken(lambda: self._append_once(rows, batch), *overtaken)

    def _append_once(self, rows: pa.Table, batch: Batch) -> bool:
        table = self._load(rows.schema)
        refuse_other_schema(f"Iceberg table {self.name}", table.schema().as_arrow(), rows.schema)
        has_rows = table.current_snapshot() is not None
        if is_there(self._last(table, batch), batch, has_rows=has_rows, name=self.name):
            return False
        self._append(table, rows, batch)
        return True

    def _load(self, schema: pa.Schema) -> Table:
        try:
            return self._catalog.load_table(self.name)
        except NoSuchTableError:
            self._catalog.create_namespace_if_not_exists(NAMESPACE)
            table = self._catalog.create_table_if_not_exists(self.name, schema, properties=NO_RETRY)
            if not table.spec().fields:
                with table.update_spec() as spec:
                    for column in PARTITIONED_BY:
                        spec.add_field(column, IdentityTransform(), column)
            return table

    @staticmethod
    def _last(table: Table, batch: Batch) -> int | None:
        last = table.properties.get(f"{BATCH}.{batch.query}")
        return None if last is None else int(last)

    def _append(self, table: Table, rows: pa.Table, batch: Batch) -> None:
        note = {BATCH: str(batch.number), QUERY: batch.query}
        with table.transaction() as transaction:
            if not set(rows.schema.names) <= set(table.schema().column_names):
                with transaction.update_schema() as schema:
                    schema.union_by_name(rows.schema)
            transaction.append(rows, snapshot_properties=note)
            transaction.set_properties({f"{BATCH}.{batch.query}": str(batch.number)})
            self._at_step("iceberg_written", batch.number)
        self._at_step("iceberg_committed", batch.number)

    def count_rows(self) -> int:
        return self._catalog.load_table(self.name).scan().count()

    def maintain(self, small_files: int, keep: timedelta) -> None:
        with _errors(f"Iceberg table {self.name}"), suppress(CommitFailedException, NoSuchTableError):
            table = self._catalog.load_table(self.name)
            self._compact(table, small_files)
            self._expire(self._catalog.load_table(self.name), keep)

    def _compact(self, table: Table, small_files: int) -> None:
        records = [task.file.partition for task in table.scan().plan_files()]
        files = Counter(tuple(record[n] for n in range(len(PARTITIONED_BY))) for record in records)
        crowded = [values for values, count in files.items() if count >= small_files]
        if not crowded:
            return
        with table.transaction() as transaction:
            for values in crowded:
                day = datetime(1970, 1, 1, tzinfo=UTC).date() + timedelta(days=values[0])
                here = And(_equal("date", day.isoformat()), _equal("symbol", values[1]))
                rows = table.scan(row_filter=here).to_arrow()
                transaction.overwrite(rows, overwrite_filter=here, snapshot_properties={"spark-jobs.compacted": "true"})

    def _expire(self, table: Table, keep: timedelta) -> None:
        before = self._files(table)
        # pyiceberg compares with the local time of the machine, without a zone
        table.maintenance.expire_snapshots().older_than(datetime.now() - keep).commit()
        for path in before - self._files(self._catalog.load_table(self.name)):
            table.io.delete(path)

    @staticmethod
    def _files(table: Table) -> set[str]:
        """Return all files that the table's snapshots name."""
        found = set()
        for snapshot in table.snapshots():
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                found.add(manifest.manifest_path)
                found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
        return found

    def drop(self) -> None:
        with _errors(f"Iceberg table {self.name}"), suppress(NoSuchTableError):
            self._catalog.purge_table(self.name)


# -- Delta ----------------------------------------------------------------------------------------------------------


class DeltaBatches:
    def __init__(self, path: str, options: Mapping[str, str] | None = None, at_step: Step = no_step) -> None:
        self.path = path
        self._options = dict(options or {}) or None
        self._at_step = at_step

    def write(self, rows: pa.Table, batch: Batch) -> bool:
        with _errors(f"Delta table {self.path}"):
            return _until_not_overtaken(lambda: self._append_once(rows, batch), CommitFailedError)

    def _append_once(self, rows: pa.Table, batch: Batch) -> bool:
        table = self._load() or self._create(rows.schema)
        refuse_other_schema(f"Delta table {self.path}", pa.schema(table.schema().to_arrow()), rows.schema)
        last, has_rows = table.transaction_version(batch.query), bool(table.file_uris())
        if is_there(last, batch, has_rows=has_rows, name=self.path):
            return False
        self._append(table, rows, batch)
        return True

    def _load(self) -> DeltaTable | None:
        if not DeltaTable.is_deltatable(self.path, self._options):
            return None
        return DeltaTable(self.path, storage_options=self._options)

    def _create(self, schema: pa.Schema) -> DeltaTable:
        options: dict[str, Any] = {"mode": "ignore", "partition_by": list(PARTITIONED_BY)}
        return DeltaTable.create(self.path, schema, storage_options=self._options, **options)

    def _append(self, table: DeltaTable, rows: pa.Table, batch: Batch) -> None:
        """Commit on top of the version whose last batch was looked at: deltalake refuses that one is overtaken."""
        self._at_step("delta_started", batch.number)
        write_deltalake(
            table,
            rows,
            mode="append",
            schema_mode="merge",
            commit_properties=CommitProperties(
                custom_metadata={BATCH: str(batch.number), QUERY: batch.query},
                max_commit_retries=0,
                app_transactions=[Transaction(batch.query, batch.number)],
            ),
        )
        self._at_step("delta_committed", batch.number)

    def maintain(self, small_files: int, keep: timedelta) -> None:
        with _errors(f"Delta table {self.path}"), suppress(CommitFailedError):
            table = self._load()
            if table is None:
                return
            folders = Counter(uri.rpartition("/")[0] for uri in table.file_uris())
            if any(count >= small_files for count in folders.values()):
                table.optimize.compact()
            hours = max(0, int(keep.total_seconds() // 3600))
            table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False)
            table.create_checkpoint()

    def drop(self) -> None:
        if os.path.isdir(self.path):
            shutil.rmtree(self.path)
        elif self._load() is not None:
            raise JobError(f"Delta table {self.path} is not on this machine: remove it by its own means")


# -- both -----------------------------------------------------------------------------------------------------------


class _errors:  # a context manager
    """Turn what the libraries raise into a JobError of one line that names the table."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and (locked := _locked(self.what, error)):
            raise locked from error
        if isinstance(error, REFUSALS):
            raise JobError(f"{self.what} does not take the rows: {_line(error)}") from error


def _until_not_overtaken(attempt: Callable[[], bool], *overtaken: type[Exception]) -> bool:
    """Return what `attempt` returns; begin again, RETRIES times in all, if another writer overtakes its commit."""
    for _ in range(RETRIES - 1):
        with suppress(*overtaken):
            return attempt()
    return attempt()


def _equal(column: str, value: str) -> BooleanExpression:
    return EqualTo(column, value)  # type: ignore[arg-type, call-arg]  # its stubs want keywords


def _locked(what: str, error: BaseException) -> JobError | None:
    if isinstance(error, OperationalError) and "locked" in str(error):
        return JobError(f"{what} is locked by another program: end that, or wait, and start again")
    return None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
