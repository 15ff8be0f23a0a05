"""Topics: a page of all, and one with partitions, offsets and sizes."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kafkapy.console import cluster
from kafkapy.console.brokers import Brokers, ClusterError, NotFound
from kafkapy.console.topic_list import TopicList
from kafkapy.dataclass import dataclass
from kafkapy.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkapy.types import TopicPartition

PAGE_SIZE: Final = 50
"""What fits on a screen or two: each row costs offsets and sizes from brokers."""
MAX_SHOWN_PARTITIONS: Final = 1000
"""One page's table."""
EARLIEST: Final = -2
LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic of the list. None if it is not known."""

    name: str
    is_internal: bool
    partition_count: int
    replica_count: int
    under_replicated: int
    offline: int
    record_count: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class TopicPage:
    """One page of the topics that match; `number` counts from 1."""

    rows: tuple[TopicRow, ...]
    number: int
    page_count: int
    match_count: int
    total_count: int


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


def topic_page(brokers: Brokers, listed: TopicList, *, search: str, with_internal: bool, number: int) -> TopicPage:
    """Return a page of the topics whose name contains `search`. Requests offsets and sizes of its rows only."""
    matching = listed.matching(search, with_internal=with_internal)
    page_count = max(1, -(-len(matching) // PAGE_SIZE))
    number = min(max(1, number), page_count)
    shown = matching[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
    described = {each.name: each for each in brokers.metadata(shown) if not each.error_code}
    rows = _rows(brokers, [described[name] for name in shown if name in described])
    return TopicPage(rows, number, page_count, len(matching), len(listed.names))


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


def offsets(brokers: Brokers, topics: Sequence[Any], timestamp: int) -> dict[TopicPartition, int]:
    """Return an offset of each partition of topics of Metadata; without those whose leader does not answer.

    `timestamp`: EARLIEST, LATEST, or ms: the first record at or after it, -1 if there is none.
    """
    found: dict[TopicPartition, int] = {}
    for leader, by_topic in brokers.by_leader(topics).items():
        requested = [
            ListOffsetsTopic(
                name,
                partitions=[ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in numbers],
            )
            for name, numbers in by_topic.items()
        ]
        try:
            answer = brokers.call(leader, ListOffsetsRequest(-1, isolation_level=0, topics=requested), 6)
        except ClusterError:
            continue
        for topic in answer.topics:
            for each in topic.partitions:
                if not each.error_code:
                    found[TopicPartition(topic.name, each.partition_index)] = each.offset
    return found


def _rows(brokers: Brokers, topics: Sequence[Any]) -> tuple[TopicRow, ...]:
    starts, ends = offsets(brokers, topics, EARLIEST), offsets(brokers, topics, LATEST)
    sizes = cluster.sizes(brokers, list(topics))
    return tuple(_row(each, starts, ends, sizes) for each in topics)


def _row(
    topic: Any,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    sizes: dict[tuple[str, int], int],
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
    )


def _sum(sizes: Iterable[int | None]) -> int | None:
    known = [each for each in sizes if each is not None]
    return sum(known) if known else None
