"""Shared by audit-bars and audit-trades: compares the rows that a job must have written with those that are there.

The expected rows are computed without Spark: from the records of the input topics, divided into batches as the job's
checkpoint says, by plain decimals (oracle.py). So an audit needs the time and the memory of a Python program over all
of these records, and a checkpoint in a directory of this machine that still has its first batch. For each place:

    rows         rows found
    missing      rows that must be there, and are not                                  fails
    repeated     rows beyond the first of a key; allowed on a topic of at_least_once   fails
    differing    keys with another value, and rows under another record key or day     fails
    unexpected   rows that must not be there, now or ever, or that cannot be read      fails
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from deltalake import DeltaTable
from pyarrow import dataset

from spark_jobs.checkpoints import parse_initial_offsets, parse_offsets, require_first_batch
from spark_jobs.config import TableConfig
from spark_jobs.errors import JobError
from spark_jobs.query import whole_batches
from spark_jobs.schemas import Schema
from spark_jobs.tables import NAMESPACE, open_catalog, table_errors
from spark_jobs.topics import client_errors

POLL_S = 60.0
UNREADABLE = (ValueError, KeyError, TypeError, ArithmeticError, AttributeError)
Offsets = dict[tuple[str, int], int]
"""By (topic, partition)."""
Key = tuple[Any, ...]
Values = tuple[Any, ...]
Found = tuple[Key, Values | None]
"""A row that was found; without values if its record key or its day does not fit it."""
Row = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of rows: its schema, and how a row is read."""

    schema: Schema
    table: str
    key: tuple[str, ...]
    """The columns that identify a row; on topics they make the record's key."""
    time: str
    """The column whose day is the row's partition in tables."""

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)

    def values_of(self, row: Row) -> Values:
        """Return the values in the schema's order, decimals from their digits."""
        return tuple(
            Decimal(str(row[column.name])) if column.type.startswith("DECIMAL") else row[column.name]
            for column in self.schema.columns
        )

    def of_record(self, message: Message) -> Found:
        row = json.loads(message.value() or b"")
        key = self.key_of(row)
        is_own_key = message.key() == "|".join(map(str, key)).encode() and row["v"] == self.schema.version
        return key, self.values_of(row) if is_own_key else None

    def of_row(self, row: Row) -> Found:
        day = datetime.fromtimestamp(row[self.time] / 1000, UTC).date().isoformat()
        is_own_day = str(row.get("date", day)) == day
        return self.key_of(row), self.values_of(row) if is_own_day else None


@dataclass(frozen=True, slots=True)
class PlaceAudit:
    """The result for one place."""

    place: str
    rows: int
    missing: int
    repeated: int
    differing: int
    unexpected: int

    def faults(self, *, may_repeat: bool) -> dict[str, int]:
        found = {name: getattr(self, name) for name in ("missing", "repeated", "differing", "unexpected")}
        if may_repeat:
            del found["repeated"]
        return {name: count for name, count in found.items() if count}


def compare(place: str, expected: Mapping[Key, Values], rows: Iterable[Found]) -> PlaceAudit:
    """Count the rows by what is wrong with them. If a key is there several times, each of its rows is compared."""
    counts: Counter[Key] = Counter()
    differing: set[Key] = set()
    for key, values in rows:
        counts[key] += 1
        if key in expected and values != expected[key]:
            differing.add(key)
    return PlaceAudit(
        place,
        rows=counts.total(),
        missing=len(expected.keys() - counts.keys()),
        repeated=sum(count - 1 for count in counts.values()),
        differing=len(differing),
        unexpected=len(counts.keys() - expected.keys()),
    )


def conclude(config: TableConfig, found: list[PlaceAudit]) -> None:
    """Print the results as a table. Raises JobError if something is wrong."""
    print("\n".join(table(found)), flush=True)
    faults = []
    for one in found:
        may_repeat = one.place.startswith("topic ") and config.delivery == "at_least_once"
        wrong = one.faults(may_repeat=may_repeat)
        if wrong:
            faults.append(f"{one.place}: " + ", ".join(f"{count} {name}" for name, count in wrong.items()))
    if faults:
        topics = config.topic_pattern or ", ".join(config.topics)
        raise JobError(f"not what the trades of {topics} give: {'; '.join(faults)}")


def table(found: Sequence[Any]) -> list[str]:
    """Return the lines of a table of dataclasses of one kind."""
    lines = [tuple(field.name for field in fields(found[0])), *map(astuple, found)] if found else []
    widths = [max(len(str(cell)) for cell in column) for column in zip(*lines, strict=True)]
    return ["  ".join(str(cell).rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]


# -- what the job has read ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class History:
    """The offsets and watermarks of a job's committed batches."""

    starts: Offsets
    ends: dict[tuple[str, int], list[int]]
    """The offsets at which each batch ended."""
    batch_count: int
    watermark_ms: int
    """The watermark with which the last batch was planned."""

    @classmethod
    def of(cls, checkpoint: Path) -> "History":
        """Read a checkpoint. Raises JobError."""
        numbers = sorted(int(path.name) for path in checkpoint.glob("commits/[0-9]*"))
        if not numbers:
            raise JobError(
                f"{checkpoint} holds no committed batch: is this the checkpoint of the job, on this machine?"
            )
        require_first_batch(str(checkpoint), sorted(int(path.name) for path in checkpoint.glob("offsets/[0-9]*")))
        count = numbers[-1] + 1
        try:
            starts = [parse_initial_offsets(path.read_text()) for path in sorted(checkpoint.glob("sources/*/0"))]
            batches = [parse_offsets((checkpoint / "offsets" / str(number)).read_text()) for number in range(count)]
        except (OSError, *UNREADABLE) as error:
            raise JobError(f"the checkpoint {checkpoint} is corrupt: {error}") from None
        places = [(topic, partition) for topic, partitions in batches[-1].ends.items() for partition in partitions]
        return cls(
            {(topic, int(n)): at for one in starts for topic, each in one.items() for n, at in each.items()},
            {(topic, int(n)): [one.ends.get(topic, {}).get(n, 0) for one in batches] for topic, n in places},
            count,
            batches[-1].watermark_ms,
        )

    def cut(self, messages: Iterable[Message], take: Callable[[Message], T]) -> list[list[T]]:
        """Return the result of `take` for each record, by batches."""
        cut: list[list[T]] = [[] for _ in range(self.batch_count)]
        for message in messages:
            number = bisect_right(self.ends[place_of(message)], message.offset() or 0)
            cut[number].append(take(message))
        return cut


def on_this_machine(url: str) -> Path:
    """Return the path of a directory, which a configuration may name by an URL of Hadoop, file:///path."""
    return Path(url.removeprefix("file://").removeprefix("file:"))


def place_of(message: Message) -> tuple[str, int]:
    return message.topic() or "", message.partition() or 0


def records_of(config: TableConfig, history: History) -> Iterator[Message]:
    """Yield the records that the job has read. Raises JobError if some are deleted."""
    ends = {place: each[-1] for place, each in history.ends.items()}
    return read_topics(config, ends, history.starts, isolation_level=config.isolation_level)


def read_topics(
    config: TableConfig, ends: Offsets, starts: Offsets | None = None, isolation_level: str = "read_committed"
) -> Iterator[Message]:
    """Yield the records of partitions up to the ends. Raises JobError if one begins after its given start."""
    settings = {"bootstrap.servers": config.bootstrap_servers, "group.id": "spark-jobs-audit", **config.producer}
    fixed = {"enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    left = {place: end for place, end in ends.items() if end > (starts or {}).get(place, 0)}
    with (
        client_errors(config.bootstrap_servers, "producer"),
        closing(Consumer({**settings, **fixed, "isolation.level": isolation_level})) as consumer,
    ):
        consumer.assign([TopicPartition(*place, _first_offset(consumer, place, starts)) for place in left])
        while left:
            message = consumer.poll(POLL_S)
            if message is None:
                raise JobError(f"{config.bootstrap_servers} sends nothing of {', '.join(sorted({t for t, _ in left}))}")
            place, offset, error = place_of(message), message.offset() or 0, message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            is_record = error is None  # else it is the partition's end
            if is_record and offset < left.get(place, 0):
                yield message
            if not is_record or offset + 1 >= left.get(place, 0):
                left.pop(place, None)


def _first_offset(consumer: Consumer, place: tuple[str, int], starts: Offsets | None) -> int:
    begin, _ = consumer.get_watermark_offsets(TopicPartition(*place), POLL_S)
    if starts is None:
        return int(begin)
    start = starts.get(place, 0)  # a partition that was added later is read from 0
    if begin > start:
        raise JobError(
            f"{place[0]}-{place[1]} begins at offset {begin}, and the job has read it from {start} on: what it made of "
            f"deleted records cannot be audited"
        )
    return start


# -- what is there --------------------------------------------------------------------------------------------------


def places_of(config: TableConfig, kind: Kind) -> Iterator[tuple[str, Iterable[Found]]]:
    """Yield each place's name, and its rows."""
    for topic in config.output_topics():
        messages = (message for message in on_topic(config, topic) if message.value())
        yield f"topic {topic}", found_in(topic, messages, kind.of_record)
    if config.iceberg is not None or config.iceberg_catalog:
        yield f"Iceberg {NAMESPACE}.{kind.table}", found_in("iceberg", in_iceberg(config, kind.table), kind.of_row)
    if config.delta is not None:
        yield f"Delta {config.delta}", found_in("delta", in_delta(config), kind.of_row)
    if config.output is not None:
        yield f"Parquet {config.output}", found_in("output", in_parquet(config.output), kind.of_row)


def found_in(place: str, rows: Iterable[T], read: Callable[[T], Found]) -> Iterator[Found]:
    """Yield each row; one that cannot be read has a key that no row has."""
    for number, row in enumerate(rows):
        try:
            key, values = read(row)
            hash(key)
        except UNREADABLE:
            key, values = ("unreadable", place, number), None
        yield key, values


def on_topic(config: TableConfig, topic: str) -> Iterator[Message]:
    """Yield the records of an output topic."""
    settings = {"bootstrap.servers": config.bootstrap_servers, "group.id": "spark-jobs-audit", **config.producer}
    where = f"{config.bootstrap_servers}, topic {topic}"
    with client_errors(where, "producer"), closing(Consumer(settings)) as consumer:
        numbers = sorted(consumer.list_topics(topic, POLL_S).topics[topic].partitions)
        ends = {(topic, n): consumer.get_watermark_offsets(TopicPartition(topic, n), POLL_S)[1] for n in numbers}
    yield from read_topics(config, ends)


def in_iceberg(config: TableConfig, name: str) -> Iterable[Row]:
    catalog = open_catalog(config.iceberg, config.iceberg_catalog)
    with table_errors(f"Iceberg table {NAMESPACE}.{name}", "read"):
        if not catalog.table_exists(f"{NAMESPACE}.{name}"):
            return []
        rows: list[Row] = catalog.load_table(f"{NAMESPACE}.{name}").scan().to_arrow().to_pylist()
        return rows


def in_delta(config: TableConfig) -> Iterable[Row]:
    path, options = str(config.delta), dict(config.delta_options) or None
    with table_errors(f"Delta table {path}", "read"):
        if not DeltaTable.is_deltatable(path, options):
            return []
        rows: list[Row] = DeltaTable(path, storage_options=options).to_pyarrow_table().to_pylist()
        return rows


def in_parquet(output: str) -> Iterable[Row]:
    files = whole_batches(on_this_machine(output))
    if not files:
        return []
    with table_errors(f"the Parquet of {output}", "read"):
        hive = dataset.partitioning(flavor="hive")
        rows: list[Row] = dataset.dataset(files, format="parquet", partitioning=hive).to_table().to_pylist()
        return rows
