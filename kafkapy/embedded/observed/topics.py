"""`broker.topics["orders"]`: its records, waits for records, and the check that each is there exactly once."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from kafkapy.embedded.observed.decoding import Formats, Record, check_formats, hashable
from kafkapy.embedded.observed.fetching import PartitionReader, leader_of, leaders_of, offsets_of, topic_names
from kafkapy.embedded.observed.nodes import Nodes, Sources
from kafkapy.embedded.observed.waiting import TIMEOUT_S, NotObserved, ObservationError, wait_until
from kafkapy.errors import first_of, quoted
from kafkapy.types import TopicPartition

MAX_RECORDS: Final = 100_000
"""The most records that are read of a topic. `end_offsets` counts more."""
SHOWN: Final = 5
By = Literal["key", "value"] | Callable[[Record], Any]


class Topics:
    """The topics, but Kafka's own: `topics["orders"]`, `"orders" in topics`, `list(topics)`."""

    def __init__(self, sources: Sources, registry: Callable[[], str | None]) -> None:
        """`registry`: returns the URL of the schema registry; None if there is none."""
        self._sources = sources
        self._formats = Formats(registry=registry)

    def __getitem__(self, name: str) -> "Topic":
        """Return a topic, which need not exist yet: its waits wait for it."""
        if not isinstance(name, str):
            raise TypeError(f"a topic has a name, as topics['orders'], not {name!r}")
        return Topic(name, self._sources, self._formats)

    def __contains__(self, name: object) -> bool:
        return name in topic_names(self._sources.nodes)

    def __iter__(self) -> Iterator[str]:
        return iter(topic_names(self._sources.nodes))

    def __len__(self) -> int:
        return len(topic_names(self._sources.nodes))


class Topic:
    """A topic, as consumers with isolation.level=read_committed see it: without what was aborted, or is still open.

    Keys and values are decoded by their data: JSON, text, else hex; with a schema registry by their schema. `decoded`
    names other formats. The methods block: in `async with`, call them by asyncio.to_thread.
    """

    def __init__(self, name: str, sources: Sources, formats: Formats) -> None:
        self.name = name
        self._sources = sources
        self._formats = formats

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    def decoded(self, *, key: str = "auto", value: str = "auto", registry: str | None = None) -> "Topic":
        """Return the topic with keys and values decoded by these formats.

        As in `kafkapy consume`: auto, text, json, hex, base64, short, integer, long, float, double, boolean, uuid,
        messagepack, avro, json-schema, protobuf. `registry`: the URL of a schema registry; None: that of the broker.
        Raises ObservationError for another format.
        """
        check_formats(key, value)
        location = self._formats.registry if registry is None else lambda: registry
        return Topic(self.name, self._sources, Formats(key, value, location))

    def records(self, *, partition: int | None = None) -> list[Record]:
        """Return the records that are there now, partition by partition. Raises ObservationError, ApiError.

        `partition`: of this one alone. A topic with more than 100,000 is refused.
        """
        return list(self._reader(partition).read_new())

    def wait_for(
        self, count: int, *, where: Callable[[Record], bool] | None = None, timeout_s: float = TIMEOUT_S
    ) -> list[Record]:
        """Return the records once there are at least `count`; with `where`, of those for which it returns true.

        Raises NotObserved, which shows what was there instead.
        """
        __tracebackhide__ = True
        found: list[Record] = []
        reader = self._reader(None)

        def enough() -> list[Record] | None:
            found.extend(record for record in reader.read_new() if where is None or where(record))
            return found if len(found) >= count else None

        def complaint() -> str:
            chosen = "" if where is None else " that match"
            return f"{self.name} has {len(found)} records{chosen}, not {count}\n{self._sources.report(self.name)}"

        return wait_until(enough, complaint, timeout_s)

    def last_by_key(self) -> dict[Any, Record]:
        """Return the last record of each key, as a compacted topic or a table keeps it; a null value ends its key.

        Records without a key are left out. A key that is a JSON object is its text, with sorted names.
        """
        found: dict[Any, Record] = {}
        for record in self._reader(None).read_new():
            if record.key_bytes is None:
                continue
            key = hashable(record.key)
            found.pop(key, None)
            if record.value_bytes is not None:
                found[key] = record
        return found

    def end_offsets(self) -> dict[int, int]:
        """Return the next offset of each partition, of what consumers may read. Raises ObservationError, ApiError."""
        partitions = [TopicPartition(self.name, number) for number in leaders_of(self._sources.nodes, self.name)]
        found = offsets_of(self._sources.nodes, partitions)
        return {each.partition: found[each].end for each in partitions}

    def assert_delivered_once(
        self, expected: Iterable[Any], *, by: By = "value", timeout_s: float = TIMEOUT_S
    ) -> list[Record]:
        """Wait for a record of each of these values; return the records. Raises NotObserved if one is missing or twice.

        by: what is compared: "value", "key", or a function of a Record: `lambda record: record.value["order_id"]`.
        Other records are ignored. The wait ends as soon as each value is there: call this after everything was sent, or
        a second record of a value may be missed.
        """
        __tracebackhide__ = True
        if not callable(by) and by not in ("key", "value"):
            raise ObservationError(f"by is 'key', 'value' or a function of a record, not {quoted(by)}")
        wanted = {hashable(each): each for each in expected}
        found: dict[Hashable, list[Record]] = {}
        reader = self._reader(None)

        def all_there() -> bool | None:
            for record in reader.read_new():
                found.setdefault(hashable(_by(record, by)), []).append(record)
            return True if wanted.keys() <= found.keys() else None

        def complaint() -> str:
            missing = [repr(each) for name, each in wanted.items() if name not in found]
            return f"{self.name} lacks {first_of(missing, SHOWN)}\n{self._sources.report(self.name)}"

        wait_until(all_there, complaint, timeout_s)
        # only now: a value that is missing is the better message, and a wait for a second record would have no end
        twice = {name: found[name] for name in wanted if len(found[name]) > 1}
        if twice:
            texts = [f"{wanted[name]!r} at {_places(records)}" for name, records in twice.items()]
            raise NotObserved(
                f"{self.name} has more than once: {first_of(texts, SHOWN)}\n{self._sources.report(self.name)}"
            )
        return [found[name][0] for name in wanted]

    def produce(
        self,
        source: Any,
        *,
        key: str | Callable[[Mapping[str, Any]], Any] | None = None,
        partition: int | None = None,
        timestamp: str | None = None,
        is_exported: bool = False,
    ) -> int:
        """Produce a record for each row of `source`, and return how many; it is there on return.

        `source`: dicts, a data frame (pandas, polars, Arrow), or the path of a .jsonl, .csv or .parquet file. The value
        is the row as JSON; `key` names the column that is the key, or returns it. `timestamp`: a column of milliseconds
        or datetimes. Rows with the same key get the partition that Java clients choose. is_exported: rows are
        what `kafkapy consume --json` prints, and restored as they were. Raises ObservationError, ApiError.
        """
        from kafkapy.embedded.observed.seeding import SeedColumns, Seeder

        columns = SeedColumns(key=key, partition=partition, timestamp=timestamp, is_exported=is_exported)
        return Seeder(self._sources.nodes, self.name, columns).produce(source)

    def _reader(self, partition: int | None) -> "TopicReader":
        return TopicReader(self._sources.nodes, self.name, self._formats, partition)


class TopicReader:
    """Reads and decodes the partitions of a topic; each call goes on where the last one ended."""

    def __init__(self, nodes: Nodes, topic: str, formats: Formats, partition: int | None) -> None:
        self._nodes = nodes
        self._topic = topic
        self._decoder = formats.decoder()
        self._partition = partition
        self._readers: dict[TopicPartition, PartitionReader] = {}
        self._count = 0

    def read_new(self) -> Iterator[Record]:
        """Yield the records that were not read yet. Raises ObservationError, ApiError."""
        leaders = leaders_of(self._nodes, self._topic)
        for number in leaders if self._partition is None else [self._partition]:
            partition = TopicPartition(self._topic, number)
            leader = leader_of(leaders, partition)
            if partition not in self._readers:
                self._readers[partition] = PartitionReader(self._nodes, partition)
            for record in self._readers[partition].read_new(leader):
                self._count += 1
                if self._count > MAX_RECORDS:
                    raise ObservationError(f"{self._topic} has more than {MAX_RECORDS:,} records: use end_offsets")
                yield self._decoder.decode(partition, record)


def _by(record: Record, by: By) -> Any:
    if callable(by):
        return by(record)
    return record.key if by == "key" else record.value


def _places(records: list[Record]) -> str:
    return " and ".join(f"{each.topic}-{each.partition} @{each.offset}" for each in records[:SHOWN])
