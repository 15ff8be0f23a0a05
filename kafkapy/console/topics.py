"""Topics: a page of all, and one with partitions, offsets and sizes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kafkapy.console import cluster
from kafkapy.console.brokers import Brokers, ClusterError, NotFound
from kafkapy.console.tables import BY_NAME, Order, Paged, ordered, shown_of
from kafkapy.console.topic_list import TopicList
from kafkapy.dataclass import dataclass
from kafkapy.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkapy.types import TopicPartition

KEYS: Final = ("name", "partitions", "replicas", "records", "size", "lag", "state")
MAX_SORTED: Final = 5000
"""Topics that can be sorted by another column than the name: offsets and sizes of all of them are fetched."""
MAX_SHOWN_PARTITIONS: Final = 1000
"""Rows of a page's table."""
EARLIEST: Final = -2
LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic of the list; unknown values are None."""

    name: str
    is_internal: bool
    partition_count: int
    replica_count: int
    under_replicated: int
    offline: int
    record_count: int | None
    size_bytes: int | None
    lag: int | None = None
    """The lag of the groups whose lag is measured; None without any."""


_KEYS: Final[Mapping[str, Callable[[TopicRow], Any]]] = {
    "partitions": lambda each: each.partition_count,
    "replicas": lambda each: each.replica_count,
    "records": lambda each: each.record_count,
    "size": lambda each: each.size_bytes,
    "lag": lambda each: each.lag,
    "state": lambda each: (each.offline, each.under_replicated),
}


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """`start` and `end` are offsets; None if the leader does not answer."""

    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start: int | None
    end: int | None
    size_bytes: int | None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def record_count(self) -> int | None:
        return None if self.start is None or self.end is None else self.end - self.start


def topic_page(
    brokers: Brokers,
    listed: TopicList,
    *,
    search: str,
    with_internal: bool,
    number: int,
    order: Order = BY_NAME,
    lags: Mapping[str, int] | None = None,
) -> Paged:
    """Return a page of the topics whose name contains `search`.

    Requests offsets and sizes of its rows only, of all that match if they are sorted by another column than the name.
    `lags`: by topic.
    """
    matching = listed.matching(search, with_internal=with_internal)
    note = ""
    if order.key != "name" and len(matching) > MAX_SORTED:
        note = f"More than {MAX_SORTED} topics match: they are sorted by name. Search for fewer to sort by {order.key}."
        order = Order("name", order.is_descending)
    if order.key == "name":
        names = matching[::-1] if order.is_descending else matching
        shown, number, page_count = shown_of(names, number)
        rows = _rows_of(brokers, shown, lags or {})
    else:
        found = _rows_of(brokers, matching, lags or {})
        some, number, page_count = shown_of(ordered(found, _KEYS[order.key], is_descending=order.is_descending), number)
        rows = tuple(some)
    return Paged(rows, number, page_count, len(matching), len(listed.names), order, note)


def _rows_of(brokers: Brokers, names: Sequence[str], lags: Mapping[str, int]) -> tuple[TopicRow, ...]:
    described = {each.name: each for each in brokers.metadata(names) if not each.error_code}
    topics = [described[name] for name in names if name in described]
    starts, ends = offsets(brokers, topics, EARLIEST), offsets(brokers, topics, LATEST)
    sizes = cluster.sizes(brokers, topics)
    return tuple(_row(each, starts, ends, sizes, lags.get(each.name)) for each in topics)


def partitions(brokers: Brokers, topic: Any) -> tuple[PartitionRow, ...]:
    """Return the partitions of a topic of Metadata."""
    starts, ends = offsets(brokers, [topic], EARLIEST), offsets(brokers, [topic], LATEST)
    sizes = cluster.sizes(brokers, [topic])
    return tuple(
        PartitionRow(
            number=each.partition_index,
            leader=each.leader_id,
            leader_epoch=each.leader_epoch,
            replicas=tuple(each.replica_nodes),
            isr=tuple(each.isr_nodes),
            start=starts.get(TopicPartition(topic.name, each.partition_index)),
            end=ends.get(TopicPartition(topic.name, each.partition_index)),
            size_bytes=sizes.get((topic.name, each.partition_index)),
        )
        for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
    )


def check_any_partition(topic: Any, numbers: Sequence[int]) -> None:
    """Raise NotFound unless a topic of Metadata has one of these partitions."""
    if not any(each.partition_index in numbers for each in topic.partitions):
        raise NotFound(f"{topic.name} has no partition {numbers[0]}.")


def offsets(
    brokers: Brokers, topics: Sequence[Any], timestamp: int, isolation_level: int = 0
) -> dict[TopicPartition, int]:
    """Return an offset of each partition of topics of Metadata; without those whose leader does not answer.

    `timestamp`: EARLIEST, LATEST, or ms: the first record at or after it, -1 if there is none. isolation_level: 1 for
    the last stable offset as the LATEST.
    """
    found: dict[TopicPartition, int] = {}
    by_leader = brokers.by_leader(topics)
    brokers.find_silent(by_leader)  # all at once: below, each that is silent would cost a time-out of its own
    for leader, by_topic in by_leader.items():
        requested = [
            ListOffsetsTopic(
                name,
                partitions=[ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in numbers],
            )
            for name, numbers in by_topic.items()
        ]
        try:
            response = brokers.call(
                leader, ListOffsetsRequest(-1, isolation_level=isolation_level, topics=requested), 6
            )
        except ClusterError:
            continue
        for topic in response.topics:
            for each in topic.partitions:
                if not each.error_code:
                    found[TopicPartition(topic.name, each.partition_index)] = each.offset
    return found


def _row(
    topic: Any,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    sizes: dict[tuple[str, int], int],
    lag: int | None,
) -> TopicRow:
    keys = [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]
    known = [ends[key] - starts[key] for key in keys if key in ends and key in starts]
    return TopicRow(
        name=topic.name,
        is_internal=topic.is_internal,
        partition_count=len(keys),
        replica_count=max((len(each.replica_nodes) for each in topic.partitions), default=0),
        under_replicated=sum(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions),
        offline=sum(each.leader_id < 0 for each in topic.partitions),
        record_count=sum(known) if known else None,
        size_bytes=_sum(sizes.get((key.topic, key.partition)) for key in keys),
        lag=lag,
    )


def _sum(sizes: Iterable[int | None]) -> int | None:
    known = [each for each in sizes if each is not None]
    return sum(known) if known else None
