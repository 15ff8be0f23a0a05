"""audit-bars: proves that topic, Iceberg, Delta and Parquet hold each of gold's bars once, to the last digit.

What they must hold is computed without Spark: the trades of the input topics, cut into batches as gold's checkpoint
says, by plain decimals (oracle.py). So it takes the time and the memory of a Python program over all of these trades,
and the checkpoint must be a directory of this machine. Of each place is told:

    bars         rows found
    missing      bars that must be there, and are not                                  fails
    repeated     rows beyond the first of a bar; allowed on a topic of at_least_once   fails
    differing    bars of which a number is another                                     fails
    unexpected   bars that must not be there, yet or ever                              fails
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from deltalake import DeltaTable
from pyarrow import dataset

from spark_jobs import oracle
from spark_jobs.checkpoints import BatchOffsets, parse_offsets
from spark_jobs.config import duration_ms
from spark_jobs.errors import JobError
from spark_jobs.events import Trade
from spark_jobs.gold import GoldConfig
from spark_jobs.oracle import Bar
from spark_jobs.query import whole_batches
from spark_jobs.tables import NAMESPACE, open_catalog

POLL_S = 60.0
Key = tuple[str, str, int]
"""Symbol, width and start."""
Row = Mapping[str, Any]


class AuditBarsConfig(GoldConfig):
    """Gold's own configuration; kafka's options by librdkafka's names stand under producer."""


@dataclass(frozen=True, slots=True)
class PlaceAudit:
    """What was found in a place."""

    place: str
    bars: int
    missing: int
    repeated: int
    differing: int
    unexpected: int

    def faults(self, *, may_repeat: bool) -> dict[str, int]:
        found = {name: getattr(self, name) for name in ("missing", "repeated", "differing", "unexpected")}
        if may_repeat:
            del found["repeated"]
        return {name: count for name, count in found.items() if count}


def run(config: AuditBarsConfig) -> None:
    """Audit all places that the configuration names, print a table, and raise JobError where something is wrong."""
    expected = {key_of(asdict(bar)): bar for bar in expected_bars(config)}
    places = dict(places_of(config))
    found = [compare(place, expected, read()) for place, read in places.items()]
    print("\n".join(table(found)), flush=True)
    faults = []
    for one in found:
        may_repeat = one.place.startswith("topic ") and config.delivery == "at_least_once"
        wrong = one.faults(may_repeat=may_repeat)
        if wrong:
            faults.append(f"{one.place}: " + ", ".join(f"{count} {name}" for name, count in wrong.items()))
    if faults:
        raise JobError(f"not what the trades of {', '.join(config.topics)} give: {'; '.join(faults)}")


def table(found: list[PlaceAudit]) -> list[str]:
    lines = [tuple(field.name for field in fields(PlaceAudit)), *map(astuple, found)]
    widths = [max(len(str(line[column])) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(str(cell).rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]


def compare(place: str, expected: Mapping[Key, Bar], rows: Iterable[Row]) -> PlaceAudit:
    """Count by what is wrong. Of a bar that is there several times each row is compared."""
    counts: Counter[Key] = Counter()
    differing: set[Key] = set()
    for row in rows:
        key = key_of(row)
        counts[key] += 1
        if key in expected and as_bar(row) != expected[key]:
            differing.add(key)
    return PlaceAudit(
        place,
        bars=counts.total(),
        missing=len(expected.keys() - counts.keys()),
        repeated=sum(count - 1 for count in counts.values()),
        differing=len(differing),
        unexpected=len(counts.keys() - expected.keys()),
    )


def key_of(row: Row) -> Key:
    return row["symbol"], row["width"], int(row["start_ms"])


def as_bar(row: Row) -> Bar:
    """Return the row as a bar, decimals from their digits."""
    types = Bar.__annotations__
    fields: dict[str, Any] = {name: Decimal(str(row[name])) if types[name] is Decimal else row[name] for name in types}
    return Bar(**fields)


# -- what must be there ---------------------------------------------------------------------------------------------


def expected_bars(config: AuditBarsConfig) -> list[Bar]:
    """Return the bars that gold must have written by its last committed batch."""
    batches = committed(Path(config.checkpoint))
    cut = cut_into(batches, read_topics(config, batches[-1].ends))
    counted, _, _ = oracle.in_time(cut, duration_ms(config.watermark))
    return [bar for bar in oracle.bars(counted) if bar.end_ms <= batches[-1].watermark_ms]


def committed(checkpoint: Path) -> list[BatchOffsets]:
    """Return what each committed batch read, in order. Raises JobError."""
    numbers = sorted(int(path.name) for path in checkpoint.glob("commits/[0-9]*"))
    if not numbers:
        raise JobError(f"{checkpoint} holds no committed batch: is this the checkpoint of gold, on this machine?")
    try:
        return [parse_offsets((checkpoint / "offsets" / str(n)).read_text()) for n in range(numbers[-1] + 1)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise JobError(f"{checkpoint} cannot be read as far back as its first batch: {error}") from None


def cut_into(batches: list[BatchOffsets], messages: Iterable[Message]) -> list[list[Trade]]:
    """Return the good trades by batch."""
    cut: list[list[Trade]] = [[] for _ in batches]
    for message in messages:
        trade = oracle.parse(message.value(), message.timestamp()[1])
        topic, partition, offset = message.topic() or "", str(message.partition()), message.offset() or 0
        number = next((n for n, one in enumerate(batches) if offset < one.ends.get(topic, {}).get(partition, 0)), None)
        if isinstance(trade, Trade) and number is not None:
            cut[number].append(trade)
    return cut


def read_topics(config: AuditBarsConfig, ends: Mapping[str, Mapping[str, int]]) -> Iterator[Message]:
    """Yield the records of partitions before these offsets, for readers of read_committed."""
    settings = {"bootstrap.servers": config.bootstrap_servers, "group.id": "spark-jobs-audit", **config.producer}
    fixed = {"enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **fixed, "isolation.level": "read_committed"})
    left = {(topic, int(partition)): end for topic, each in ends.items() for partition, end in each.items() if end}
    try:
        places = []
        for topic, partition in left:
            begin, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), POLL_S)
            places.append(TopicPartition(topic, partition, begin))
        consumer.assign(places)
        while left:
            message = consumer.poll(POLL_S)
            if message is None:
                raise JobError(f"{config.bootstrap_servers} sends nothing of {', '.join(sorted({t for t, _ in left}))}")
            where, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
            is_record = message.error() is None  # else it is the partition's end
            if is_record and offset < left.get(where, 0):
                yield message
            if not is_record or offset + 1 >= left.get(where, 0):
                left.pop(where, None)
    except KafkaException as error:
        raise JobError(f"{config.bootstrap_servers}: {error.args[0].str()}") from None
    finally:
        consumer.close()


# -- what is there --------------------------------------------------------------------------------------------------


def places_of(config: AuditBarsConfig) -> Iterator[tuple[str, Callable[[], Iterable[Row]]]]:
    """Yield each place's name, and how its rows are read."""
    if config.output_topic:
        yield f"topic {config.output_topic}", lambda: on_topic(config, str(config.output_topic))
    if config.iceberg is not None or config.iceberg_catalog:
        yield f"Iceberg {NAMESPACE}.bars", lambda: in_iceberg(config)
    if config.delta is not None:
        yield f"Delta {config.delta}", lambda: in_delta(config)
    if config.output is not None:
        yield f"Parquet {config.output}", lambda: in_parquet(str(config.output))


def on_topic(config: AuditBarsConfig, topic: str) -> Iterator[Row]:
    client = {"bootstrap.servers": config.bootstrap_servers, "group.id": "spark-jobs-audit", **config.producer}
    consumer = Consumer(client)
    try:
        metadata = consumer.list_topics(topic, POLL_S).topics[topic]
        numbers = sorted(metadata.partitions)
        ends = {str(n): consumer.get_watermark_offsets(TopicPartition(topic, n), POLL_S)[1] for n in numbers}
    except KafkaException as error:
        raise JobError(f"{config.bootstrap_servers}, topic {topic}: {error.args[0].str()}") from None
    finally:
        consumer.close()
    for message in read_topics(config, {topic: ends}):
        if message.value():
            yield json.loads(message.value() or b"")


def in_iceberg(config: AuditBarsConfig) -> Iterable[Row]:
    catalog = open_catalog(config.iceberg, config.iceberg_catalog)
    rows: list[Row] = catalog.load_table(f"{NAMESPACE}.bars").scan().to_arrow().to_pylist()
    return rows


def in_delta(config: AuditBarsConfig) -> Iterable[Row]:
    found = DeltaTable(str(config.delta), storage_options=dict(config.delta_options) or None)
    rows: list[Row] = found.to_pyarrow_table().to_pylist()
    return rows


def in_parquet(output: str) -> Iterator[Row]:
    files = whole_batches(Path(output))
    if files:
        hive = dataset.partitioning(flavor="hive")
        yield from dataset.dataset(files, format="parquet", partitioning=hive).to_table().to_pylist()
