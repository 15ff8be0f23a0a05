"""Tables that get each batch of a query once: Iceberg by pyiceberg, Delta by deltalake. Needs no Spark.

The number of a batch is committed with its rows, in one commit of the table: as a property of an Iceberg table (and of
the snapshot, for people), as the version of an application's transaction in Delta. A repeated batch is recognised by
it. Both formats refuse a commit if another writer has committed meanwhile. Then the number is read again, and the batch
is written or skipped. So two writers of one batch, of which one should long have ended, cannot both write it.

Rows are partitioned by day and symbol. Every batch adds small files; from time to time those of a partition are merged,
and versions and files that no current version needs are deleted. Each commit of an Iceberg table writes a file that
names all versions; so there are at most MAX_VERSIONS of them, and KEPT_METADATA of these files. Delta's log is kept as
long as its versions.
"""

import math
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from pyiceberg import exceptions as iceberg_errors
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import IdentityTransform
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from spark_jobs.errors import JobError

PARTITIONED_BY = ("date", "symbol")
NAMESPACE = "market"
CATALOG_FILE = "catalog.db"
BATCH = "spark-jobs.batch"
QUERY = "spark-jobs.query"
RETRIES = 5
NO_RETRY = {"commit.retry.num-retries": "0"}
"""pyiceberg would repeat a refused commit without reading what the other writer has committed."""
KEPT_METADATA = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "20"}
"""By default pyiceberg keeps the metadata file of each commit for ever."""
MAX_VERSIONS = 1_000
SMALL_BYTES = 32 << 20
"""Files of this size and more are not merged again: the work and the memory of a merge are bounded."""
LOG_RETENTION = "delta.logRetentionDuration"
COMPACTED = {"spark-jobs.compacted": "true"}
PROPERTIES = NO_RETRY | KEPT_METADATA
OF_ICEBERG = tuple(kind for kind in vars(iceberg_errors).values() if isinstance(kind, type))
OF_LIBRARIES = (ValueError, TypeError, OSError, EOFError, pa.ArrowException, DeltaError, SQLAlchemyError, *OF_ICEBERG)
"""What they raise of a table that is damaged or gone, of a catalogue that does not respond, of rows that do not fit."""
WRITTEN = "written"
MENDED = "correct that and start again; --reset-output begins a damaged table anew"
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
        """Write a batch's rows; return False if the table has them already. Raises JobError."""

    def maintain(self, small_files: int, keep: timedelta) -> None:
        """Merge the files of partitions with many; delete versions that are older than `keep`."""

    def drop(self) -> None:
        """Delete the table with its files, if it is there."""


def is_there(last: int | None, batch: Batch, *, has_rows: bool, name: str) -> bool:
    """Return whether the batch is in the table, by the query's last one there. Raises JobError if that cannot tell."""
    if last is None and has_rows:
        raise JobError(f"table {name} holds rows of another query than {batch.query}: {OWN_TABLE}")
    if last is not None and batch.number < last:
        raise JobError(
            f"table {name} holds batch {last} of this query, and the checkpoint goes on with batch {batch.number}: "
            f"it is older than the table; bring back the one that belongs to it, or start with --reset-output"
        )
    if last is not None and batch.number > last + 1:
        raise JobError(
            f"table {name} holds batch {last} of this query, and the checkpoint goes on with batch {batch.number}: the "
            f"table lacks the batches between; bring back the one that belongs to the checkpoint, or start with "
            f"--reset-output"
        )
    return last == batch.number


def refuse_other_schema(name: str, table: pa.Schema, rows: pa.Schema) -> None:
    """Raise JobError if a column of the rows has another type in the table, or a required one is not among them.

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
    if not settings and {"?", "#"} & set(str(Path(folder or "").absolute())):
        raise JobError(f"Iceberg tables cannot be in {folder}: name a folder without ? and #")
    try:
        if settings:
            return load_catalog("spark_jobs", **settings)
        assert folder is not None
        directory = Path(folder).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        # Not quoted, as in Path.as_uri: pyiceberg would take %20 for three characters of another folder's name.
        where = {"uri": f"sqlite:///{directory}/{CATALOG_FILE}", "warehouse": f"file://{directory}"}
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
        with table_errors(f"Iceberg table {self.name}"):
            overtaken = (CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError)
            return _until_not_overtaken(lambda: self._append_once(rows, batch), *overtaken)

    def _append_once(self, rows: pa.Table, batch: Batch) -> bool:
        table = self._load(rows.schema, batch)
        refuse_other_schema(f"Iceberg table {self.name}", table.schema().as_arrow(), rows.schema)
        has_rows = table.current_snapshot() is not None
        if is_there(self._last(table, batch), batch, has_rows=has_rows, name=self.name):
            return False
        if _set_properties(table):
            raise CommitFailedException("its properties are set, what others have committed meanwhile is not read yet")
        self._append(table, rows, batch)
        return True

    def _load(self, schema: pa.Schema, batch: Batch) -> Table:
        """Return the table; create it, partitioned in the same commit, if it is not there."""
        with suppress(NoSuchTableError):
            return self._catalog.load_table(self.name)
        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        with self._catalog.create_table_transaction(self.name, schema, properties=PROPERTIES) as transaction:
            self._at_step("iceberg_creating", batch.number)
            with transaction.update_spec() as spec:
                for column in PARTITIONED_BY:
                    spec.add_field(column, IdentityTransform(), column)
        return self._catalog.load_table(self.name)

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
        with table_errors(f"Iceberg table {self.name}"), suppress(CommitFailedException, NoSuchTableError):
            table = self._catalog.load_table(self.name)
            _set_properties(table)
            self._compact(table, small_files)
            self._expire(self._catalog.load_table(self.name), keep)

    def _compact(self, table: Table, small_files: int) -> None:
        """Merge in one version: no version lacks the rows, and many partitions do not use up MAX_VERSIONS."""
        small: defaultdict[tuple[Any, ...], list[FileScanTask]] = defaultdict(list)
        for task in table.scan().plan_files():
            if task.file.file_size_in_bytes < SMALL_BYTES:
                partition = task.file.partition  # none in a table that others made
                small[task.file.spec_id, *(partition[n] for n in range(len(partition)))].append(task)
        crowded = [tasks for tasks in small.values() if len(tasks) >= small_files]
        if not crowded:
            return
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        merged = [
            file
            for tasks in crowded
            for file in _dataframe_to_data_files(table.metadata, scan.to_table(tasks), table.io)
        ]
        with (
            table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=COMPACTED).overwrite() as overwrite,
        ):
            for file in merged:
                overwrite.append_data_file(file)
            for task in (task for tasks in crowded for task in tasks):
                overwrite.delete_data_file(task.file)

    def _expire(self, table: Table, keep: timedelta) -> None:
        of_manifests: dict[str, set[str]] = {}
        before = _files(table, of_manifests)
        oldest = datetime.now(UTC) - keep
        written_ms = sorted(snapshot.timestamp_ms for snapshot in table.snapshots())[-MAX_VERSIONS:]
        if written_ms:
            oldest = max(oldest, datetime.fromtimestamp(written_ms[0] / 1000, UTC))
        table.maintenance.expire_snapshots().older_than(oldest).commit()
        for path in before - _files(self._catalog.load_table(self.name), of_manifests):
            table.io.delete(path)

    def drop(self) -> None:
        with table_errors(f"Iceberg table {self.name}"), suppress(NoSuchTableError):
            try:
                self._catalog.purge_table(self.name)
            except (OSError, EOFError, iceberg_errors.ValidationError):  # damaged or gone: its files stay
                self._catalog.drop_table(self.name)


def _set_properties(table: Table) -> bool:
    """Set the properties that a table lacks if others, or an older version, made it; return whether it lacked any."""
    wanted = {**KEPT_METADATA, **table.properties, **NO_RETRY}
    lacking = {name: value for name, value in wanted.items() if table.properties.get(name) != value}
    if lacking:
        with table.transaction() as transaction:
            transaction.set_properties(lacking)
    return bool(lacking)


def _files(table: Table, of_manifests: dict[str, set[str]]) -> set[str]:
    """Return all files of the table's snapshots. Snapshots share manifests: each is read once, into of_manifests."""
    found = set()
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            path = manifest.manifest_path
            if path in found:
                continue
            if path not in of_manifests:
                entries = manifest.fetch_manifest_entry(table.io)
                of_manifests[path] = {entry.data_file.file_path for entry in entries}
            found |= {path} | of_manifests[path]
    return found


# -- Delta ----------------------------------------------------------------------------------------------------------


class DeltaBatches:
    def __init__(self, path: str, options: Mapping[str, str] | None = None, at_step: Step = no_step) -> None:
        self.path = path
        self._options = dict(options or {}) or None
        self._at_step = at_step

    def write(self, rows: pa.Table, batch: Batch) -> bool:
        with table_errors(f"Delta table {self.path}"):
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
        """Commit on the version whose last batch was read; deltalake refuses if there is a newer one."""
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
        with table_errors(f"Delta table {self.path}"), suppress(CommitFailedError):
            table = self._load()
            if table is None:
                return
            folders = Counter(uri.rpartition("/")[0] for uri in table.file_uris())
            if any(count >= small_files for count in folders.values()):
                table.optimize.compact()
            hours = math.ceil(keep.total_seconds() / 3600)
            log_is_kept = {LOG_RETENTION: f"interval {hours} hours"}  # by default 30 days, a file for each batch
            if not log_is_kept.items() <= table.metadata().configuration.items():
                table.alter.set_table_properties(log_is_kept)
            table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False)
            table.create_checkpoint()
            table.cleanup_metadata()

    def drop(self) -> None:
        directory = Path(self.path.removeprefix("file://"))
        with table_errors(f"Delta table {self.path}", "deleted"):
            if (directory / "_delta_log").is_dir():
                shutil.rmtree(directory)
            elif self._load() is not None:
                raise JobError(f"Delta table {self.path} is not on this machine: remove it by its own means")


# -- both -----------------------------------------------------------------------------------------------------------


class table_errors:  # a context manager
    """Turns errors of the libraries into a JobError, one line that names the table and what it cannot be."""

    def __init__(self, what: str, cannot_be: str = WRITTEN) -> None:
        self.what = what
        self.cannot_be = cannot_be

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            return
        if locked := _locked(self.what, error):
            raise locked from error
        # deltalake is Rust, and panics at a path with [ in it, for example
        if isinstance(error, OF_LIBRARIES) or type(error).__name__ == "PanicException":
            hint = f": {MENDED}" if self.cannot_be == WRITTEN else ""
            raise JobError(f"{self.what} cannot be {self.cannot_be} ({_line(error)}){hint}") from error


def _until_not_overtaken(attempt: Callable[[], bool], *overtaken: type[Exception]) -> bool:
    """Return the result of `attempt`; repeat it, at most RETRIES times, if another writer commits before it."""
    for _ in range(RETRIES - 1):
        with suppress(*overtaken):
            return attempt()
    return attempt()


def _locked(what: str, error: BaseException) -> JobError | None:
    if isinstance(error, OperationalError) and "locked" in str(error):
        return JobError(f"{what} is locked by another program: end that, or wait, and start again")
    return None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
