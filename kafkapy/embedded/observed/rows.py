"""The rows of what is produced: dicts, JSON lines, CSV, Parquet, data frames of pandas, polars and Arrow."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from kafkapy.embedded.observed.waiting import ObservationError
from kafkapy.errors import quoted

Row: TypeAlias = Mapping[str, Any]
FRAME_ROWS: Final = 10_000
"""How many rows of a data frame are dicts at a time."""
SOURCES: Final = "dicts, a data frame, or the path of a .jsonl, .ndjson, .csv or .parquet file"


def rows_of(source: Any) -> Iterator[Row]:
    """Yield the rows of a source. Raises ObservationError, which names what cannot be read, OSError, ImportError."""
    if isinstance(source, str | Path):
        yield from _rows_of_file(Path(source))
    elif hasattr(source, "iter_rows"):  # polars
        yield from source.iter_rows(named=True)
    elif hasattr(source, "to_batches"):  # an Arrow table
        for batch in source.to_batches(max_chunksize=FRAME_ROWS):
            yield from batch.to_pylist()
    elif hasattr(source, "iloc"):  # pandas
        yield from _rows_of_pandas(source)
    elif isinstance(source, Iterable) and not isinstance(source, Mapping | bytes | bytearray):
        for number, row in enumerate(source, 1):
            if not isinstance(row, Mapping):
                raise ObservationError(f"row {number} is {type(row).__name__}, no dict: {SOURCES}")
            yield row
    else:
        raise ObservationError(f"{type(source).__name__} has no rows: give {SOURCES}")


def _rows_of_file(path: Path) -> Iterator[Row]:
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ObservationError(f"{path} ends with {quoted(path.suffix)}: give {SOURCES}")
    yield from reader(path)


def _json_lines(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ObservationError(f"{path}, line {number}: not JSON: {error}") from error
            if not isinstance(row, dict):
                raise ObservationError(f"{path}, line {number}: not a JSON object")
            yield row


def _csv(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, restkey="", strict=True)
        try:
            for row in reader:
                if "" in row or None in row.values():
                    columns = len(reader.fieldnames or ())
                    raise ObservationError(f"{path}, line {reader.line_num}: not the {columns} columns of line 1")
                yield row
        except csv.Error as error:
            raise ObservationError(f"{path}, line {reader.line_num}: {error}") from error


def _parquet(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("a Parquet file needs a library: pip install pyarrow", name="pyarrow") from error
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(FRAME_ROWS):
            yield from batch.to_pylist()


def _rows_of_pandas(frame: Any) -> Iterator[Row]:
    """Yield rows with None for what is missing: pandas has NaN, NaT or NA there, which JSON has not."""
    for start in range(0, len(frame), FRAME_ROWS):
        some = frame.iloc[start : start + FRAME_ROWS]
        is_there = some.notna().to_dict("records")
        for row, known in zip(some.to_dict("records"), is_there, strict=True):
            yield {str(name): value if known[name] else None for name, value in row.items()}


READERS: Final[Mapping[str, Callable[[Path], Iterator[Row]]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv,
    ".parquet": _parquet,
}
