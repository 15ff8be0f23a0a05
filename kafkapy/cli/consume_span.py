"""The offsets that `consume` reads: the start and the end of each partition."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, Final

import typer

from kafkapy.cli.chosen import chosen, is_pattern, missing
from kafkapy.cli.client import confluent
from kafkapy.cli.consume_options import ConsumeOptions
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.failure import fail
from kafkapy.cli.moments import moment_ms
from kafkapy.dataclass import dataclass
from kafkapy.types import INT64_MAX, TopicPartition

OPEN: Final = INT64_MAX


@dataclass(slots=True)
class Span:
    """The assigned partitions of a consumer, and those that have ended; for a group: their number."""

    partitions: list[TopicPartition]
    ends_at_eof: bool
    until_ms: int | None = None
    until_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset at which a partition ends, of --until; known once that time has come."""
    eofs: dict[TopicPartition, int] = field(default_factory=dict)
    """The end up to which a partition has been read."""
    ended: set[TopicPartition] = field(default_factory=set)
    is_of_group: bool = False

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(each.topic for each in self.partitions))

    @property
    def is_over(self) -> bool:
        return len(self.ended) >= len(self.partitions)

    def excludes(self, message: Any) -> bool:
        """Whether a record is one of --until, or after the end of its partition, which has ended then.

        Never for a group: librdkafka commits each record that it returns, and the group would not get it again.
        """
        if self.is_of_group or (self.until_ms is None and not self.ended):
            return False
        partition = TopicPartition(message.topic(), message.partition())
        if self.until_ms is None or partition in self.ended:
            return partition in self.ended
        stop = self.until_offsets.get(partition, OPEN)
        is_late = message.offset() >= stop or (stop == OPEN and message.timestamp()[1] >= self.until_ms)
        if is_late:
            self.ended.add(partition)
        return is_late

    def reached_end(self, partition: TopicPartition, offset: int) -> None:
        """Record that a partition has been read to its current end."""
        self.eofs[partition] = offset
        if self.ends_at_eof or offset >= self.until_offsets.get(partition, OPEN):
            self.ended.add(partition)

    def maybe_find_ends(self, consumer: Any) -> None:
        """Once the time of --until has come, find where the partitions end. Raises KafkaException."""
        if self.until_ms is None or self.until_offsets or time.time() * 1000 < self.until_ms:
            return
        for each in at_time(consumer, self.partitions, self.until_ms):
            is_last = each.offset < 0
            stop = watermarks(consumer, each)[1] if is_last else each.offset
            self.until_offsets[TopicPartition(each.topic, each.partition)] = stop
        self.ended |= {each for each, stop in self.until_offsets.items() if self.eofs.get(each, -1) >= stop}


def begin(consumer: Any, options: ConsumeOptions) -> tuple[Span, int | None]:
    """Subscribe, or assign partitions without a group. Exits if a topic or a partition is not there.

    Returns with it how many offsets will be read, if that is needed: a search that ends.
    """
    kafka = confluent()
    found = _partitions_of_topics(consumer, options.topics)
    if options.group is not None:
        consumer.subscribe(list(found))
        return Span(_partitions(found), options.until_end, is_of_group=True), None
    if options.partition:
        found = {topic: _wanted(topic, numbers, options.partition) for topic, numbers in found.items()}
    wanted = _partitions(found)
    now_ms = int(time.time() * 1000)
    assigned = _starts(kafka, consumer, options, wanted, now_ms)
    until_ms = None if options.until is None else moment_ms(options.until, now_ms)
    span = Span(wanted, options.until_end, until_ms)
    span.maybe_find_ends(consumer)
    is_search = options.is_filtered and (options.until_end or bool(span.until_offsets))
    total = sum(_length(kafka, consumer, each, span) for each in assigned) if is_search else None
    consumer.assign(assigned)
    return span, total


def _partitions_of_topics(consumer: Any, given: Sequence[str]) -> dict[str, list[int]]:
    """Return the numbers of the partitions of topics, by name or pattern. Exits if one is not there."""
    if len(given) == 1 and not is_pattern(given[0]):  # all topics of a cluster may be many
        known = consumer.list_topics(given[0], timeout=TIMEOUT_S).topics
        error = known[given[0]].error
        if error is not None and error.code() == confluent().KafkaError.UNKNOWN_TOPIC_OR_PART:
            every = consumer.list_topics(timeout=TIMEOUT_S).topics
            raise typer.Exit(fail(missing("topic", given[0], every)))
    else:
        known = consumer.list_topics(timeout=TIMEOUT_S).topics
    names = chosen(given, known, "topic")
    for each in names:
        if known[each].error is not None:
            raise typer.Exit(fail(f"{each}: {known[each].error.str()}."))
    return {each: sorted(known[each].partitions) for each in names}


def _wanted(topic: str, numbers: list[int], wanted: list[int]) -> list[int]:
    """Return the wanted partitions of a topic. Exits if it lacks one."""
    absent = sorted(set(wanted) - set(numbers))
    if absent:
        raise typer.Exit(fail(f"{topic} has no partition {', '.join(map(str, absent))}"))
    return sorted(set(wanted))


def _partitions(found: dict[str, list[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic, each) for topic, numbers in found.items() for each in numbers]


def _starts(
    kafka: Any, consumer: Any, options: ConsumeOptions, partitions: list[TopicPartition], now_ms: int
) -> list[Any]:
    if options.from_time is not None:
        return at_time(consumer, partitions, moment_ms(options.from_time, now_ms))
    start = kafka.OFFSET_BEGINNING if options.from_beginning else kafka.OFFSET_END
    assigned = [kafka.TopicPartition(*each, start) for each in partitions]
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
    stop = span.until_offsets.get(TopicPartition(start.topic, start.partition), OPEN)
    return max(min(high, stop) - max(int(begin_at), low), 0)


def at_time(consumer: Any, partitions: Iterable[TopicPartition], time_ms: int) -> list[Any]:
    """Return the first offset of each partition at or after a time; OFFSET_END, negative, if there is none."""
    kafka = confluent()
    wanted = [kafka.TopicPartition(*each, time_ms) for each in partitions]
    found = consumer.offsets_for_times(wanted, timeout=TIMEOUT_S)
    for each in found:
        if each.error is not None:
            raise kafka.KafkaException(each.error)
    return list(found)


def watermarks(consumer: Any, partition: Any) -> tuple[int, int]:
    """Return a partition's first offset, and its end: with read_committed, that of the records that are decided."""
    low, high = consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)
    return low, high
