"""Which offsets `consume` reads: where each partition begins, and where it ends."""

import time
from dataclasses import field
from typing import Any, Final

import typer

from kafkapy.cli.chosen import missing
from kafkapy.cli.client import confluent
from kafkapy.cli.consume_options import ConsumeOptions
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.failure import fail
from kafkapy.cli.moments import moment_ms
from kafkapy.dataclass import dataclass
from kafkapy.types import INT64_MAX

OPEN: Final = INT64_MAX


@dataclass(slots=True)
class Span:
    """The partitions that a consumer was assigned, and those that have ended; of a group: how many there are."""

    topic: str
    partitions: list[int]
    ends_at_eof: bool
    until_ms: int | None = None
    stops: dict[int, int] = field(default_factory=dict)
    """The offset at which a partition ends, of --until; known once that time has come."""
    eofs: dict[int, int] = field(default_factory=dict)
    """The end that a partition has been read to."""
    ended: set[int] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        return len(self.ended) >= len(self.partitions)

    def excludes(self, message: Any) -> bool:
        """Whether a record is one of --until, or later: then its partition has ended."""
        partition = message.partition()
        if self.until_ms is None or partition in self.ended:
            return partition in self.ended
        stop = self.stops.get(partition, OPEN)
        is_late = message.offset() >= stop or (stop == OPEN and message.timestamp()[1] >= self.until_ms)
        if is_late:
            self.ended.add(partition)
        return is_late

    def reached_end(self, partition: int, offset: int) -> None:
        """A partition has been read to its end, for now."""
        self.eofs[partition] = offset
        if self.ends_at_eof or offset >= self.stops.get(partition, OPEN):
            self.ended.add(partition)

    def maybe_stop(self, consumer: Any) -> None:
        """Once the time of --until has come, find where the partitions end. Raises KafkaException."""
        if self.until_ms is None or self.stops or time.time() * 1000 < self.until_ms:
            return
        for each in at_time(consumer, self.topic, self.partitions, self.until_ms):
            is_last = each.offset < 0
            self.stops[each.partition] = watermarks(consumer, each)[1] if is_last else each.offset
        self.ended |= {each for each, stop in self.stops.items() if self.eofs.get(each, -1) >= stop}


def begin(consumer: Any, options: ConsumeOptions) -> tuple[Span, int | None]:
    """Subscribe, or assign partitions without a group. Exits if the topic or a partition is not there.

    Returns with it how many offsets will be read, if that is needed: a search that ends.
    """
    kafka = confluent()
    topic = options.topic
    metadata = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        is_missing = metadata.error.code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
        known = consumer.list_topics(timeout=TIMEOUT_S).topics
        raise typer.Exit(fail(missing("topic", topic, known) if is_missing else f"{topic}: {metadata.error.str()}."))
    if options.group is not None:
        consumer.subscribe([topic])
        return Span(topic, sorted(metadata.partitions), options.until_end), None
    wanted = options.partition or sorted(metadata.partitions)
    absent = sorted(set(wanted) - set(metadata.partitions))
    if absent:
        raise typer.Exit(fail(f"{topic} has no partition {', '.join(map(str, absent))}"))
    now_ms = int(time.time() * 1000)
    assigned = _starts(kafka, consumer, options, wanted, now_ms)
    until_ms = None if options.until is None else moment_ms(options.until, now_ms)
    span = Span(topic, wanted, options.until_end, until_ms)
    span.maybe_stop(consumer)
    is_search = options.is_filtered and (options.until_end or bool(span.stops))
    total = sum(_length(kafka, consumer, each, span) for each in assigned) if is_search else None
    consumer.assign(assigned)
    return span, total


def _starts(kafka: Any, consumer: Any, options: ConsumeOptions, partitions: list[int], now_ms: int) -> list[Any]:
    if options.from_time is not None:
        return at_time(consumer, options.topic, partitions, moment_ms(options.from_time, now_ms))
    start = kafka.OFFSET_BEGINNING if options.from_beginning else kafka.OFFSET_END
    assigned = [kafka.TopicPartition(options.topic, each, start) for each in partitions]
    if options.offset is not None:
        for each in assigned:
            each.offset = _absolute(consumer, each, options.offset)
    return assigned


def _absolute(consumer: Any, partition: Any, offset: int) -> int:
    """Return the absolute offset; a negative one counts from the partition's end."""
    if offset >= 0:
        return offset
    low, high = watermarks(consumer, partition)
    return max(low, high + offset)


def _length(kafka: Any, consumer: Any, start: Any, span: Span) -> int:
    low, high = watermarks(consumer, start)
    begin_at = {kafka.OFFSET_BEGINNING: low, kafka.OFFSET_END: high}.get(start.offset, start.offset)
    return max(min(high, span.stops.get(start.partition, OPEN)) - max(int(begin_at), low), 0)


def at_time(consumer: Any, topic: str, partitions: list[int], time_ms: int) -> list[Any]:
    """Return the first offset of each partition at or after a time; OFFSET_END, negative, if there is none."""
    kafka = confluent()
    wanted = [kafka.TopicPartition(topic, each, time_ms) for each in partitions]
    found = consumer.offsets_for_times(wanted, timeout=TIMEOUT_S)
    for each in found:
        if each.error is not None:
            raise kafka.KafkaException(each.error)
    return list(found)


def watermarks(consumer: Any, partition: Any) -> tuple[int, int]:
    """Return a partition's first offset, and its end: with read_committed, that of the records that are decided."""
    low, high = consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)
    return low, high
