"""Dead letters of share groups (KIP-1191) read, and sent back to where their records were.

For `groups redrive` (redrive.py) and the console.

A dead letter says by its headers where its record was. It has the record's key and value only if the group had
errors.deadletterqueue.copy.record.enable, and never its headers and time; so the record itself is looked up, and goes
back as it was if it is still there. A letter whose record is gone, and that has neither key nor value, cannot go back.

    survey = survey_letters(consumer, "dlq.jobs", Choice(group="workers"))   # counts, nothing is sent
    sent = redrive(consumer, lookup, producer, survey, on_progress=print)    # a second consumer looks records up

Consumers need enable.partition.eof=true and enable.auto.commit=false. They are assigned, and join no group.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, Final

from kafkapy.cli.client import confluent
from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError
from kafkapy.named_tuple import NamedTuple
from kafkapy.share.letter_headers import (
    DELIVERY_COUNT_HEADER,
    GROUP_HEADER,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TOPIC_HEADER,
)

LETTERS_AT_ONCE: Final = 500
"""Letters whose records are looked up together."""
READ_ON: Final = 1000
"""Offsets that are read over rather than sought past."""
POLL_S: Final = 0.2
SILENCE_S: Final = 30.0
"""Reading fails when no record has come for so long, although some are left."""
FLUSH_S: Final = 30.0


class RedriveError(KafkapyError):
    """The topic cannot be read, or does not exist."""


class Letter(NamedTuple):
    """A dead letter: its place in its own topic, what it has of the record, and where that was."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    group: str
    source_topic: str
    source_partition: int
    source_offset: int
    delivery_count: int
    message: str


class Choice(NamedTuple):
    """Which letters: all, those of one group, those from one topic, and those at some (partition, offset)."""

    group: str | None = None
    source_topic: str | None = None
    places: frozenset[tuple[int, int]] | None = None

    def has(self, letter: Letter) -> bool:
        if self.places is not None and (letter.partition, letter.offset) not in self.places:
            return False
        return self.group in (None, letter.group) and self.source_topic in (None, letter.source_topic)


@dataclass(slots=True)
class Survey:
    """What a choice comes to. `ends`: by partition, where the topic ended; what comes later is left alone."""

    topic: str
    choice: Choice
    ends: dict[int, int]
    counts: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """By group, source topic and its partition."""
    foreign_count: int = 0
    """Records without the headers of a dead letter."""

    @property
    def letter_count(self) -> int:
        return sum(self.counts.values())


@dataclass(slots=True)
class Redriven:
    """What was sent back. `done`: the places of the letters whose records were delivered.

    repeated_count: letters of a record that had gone back already, because several groups gave it up, or because a
    broker died after it wrote the letter and before it had recorded that.
    """

    count: int = 0
    repeated_count: int = 0
    gone: list[Letter] = field(default_factory=list)
    """Letters whose record is nowhere."""
    failures: list[str] = field(default_factory=list)
    done: set[tuple[int, int]] = field(default_factory=set)

    def trimmed_to(self, survey: Survey, starts: dict[int, int]) -> dict[int, int]:
        """Return, by partition, the offset before which every record was sent back: what may be deleted."""
        ends = {}
        for partition, start in starts.items():
            offset = start
            while (partition, offset) in self.done and offset < survey.ends[partition]:
                offset += 1
            if offset > start:
                ends[partition] = offset
        return ends


def letter_of(message: Any) -> Letter | None:
    """Return the dead letter that a message of confluent-kafka is, None if it lacks the headers."""
    headers = {name: value or b"" for name, value in message.headers() or ()}
    try:
        return Letter(
            message.partition(),
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            headers[GROUP_HEADER].decode(),
            headers[TOPIC_HEADER].decode(),
            int(headers[PARTITION_HEADER]),
            int(headers[OFFSET_HEADER]),
            int(headers.get(DELIVERY_COUNT_HEADER) or 0),
            headers.get(MESSAGE_HEADER, b"").decode(),
        )
    except (KeyError, ValueError):
        return None


def survey_letters(consumer: Any, topic: str, choice: Choice = Choice()) -> Survey:  # noqa: B008  # a constant
    """Count the chosen letters of a topic, up to where it ends now. Raises RedriveError, KafkaException."""
    bounds = bounds_of(consumer, topic)
    survey = Survey(topic, choice, {partition: end for partition, (_, end) in bounds.items()})
    for message in _messages(consumer, topic, survey.ends):
        letter = letter_of(message)
        if letter is None:
            survey.foreign_count += 1
        elif choice.has(letter):
            place = letter.group, letter.source_topic, letter.source_partition
            survey.counts[place] = survey.counts.get(place, 0) + 1
    return survey


def letters_of(consumer: Any, survey: Survey) -> Iterator[Letter]:
    """Yield the letters that a survey has counted, those of a partition in order. Raises as survey_letters."""
    for message in _messages(consumer, survey.topic, survey.ends):
        letter = letter_of(message)
        if letter is not None and survey.choice.has(letter):
            yield letter


def redrive(
    consumer: Any, lookup: Any, producer: Any, survey: Survey, on_progress: Callable[[int], None] = lambda done: None
) -> Redriven:
    """Send the letters of a survey back, each to the end of the partition where its record was.

    lookup: a second consumer, which looks records up. on_progress(letters handled so far). Those that read the topic,
    all groups, get the records again. Raises RedriveError, KafkaException; what was sent by then, was sent.
    """
    redriven = Redriven()
    sent: dict[tuple[str, int], set[int]] = {}
    handled = 0
    try:
        for some in _chunks(letters_of(consumer, survey)):
            found = originals_of(lookup, some)
            for letter in some:
                offsets = sent.setdefault((letter.source_topic, letter.source_partition), set())
                if letter.source_offset in offsets:
                    redriven.repeated_count += 1
                    redriven.done.add((letter.partition, letter.offset))
                elif _send_back(producer, letter, found.get(_place(letter)), redriven):
                    offsets.add(letter.source_offset)
            handled += len(some)
            on_progress(handled)
    finally:
        left = producer.flush(FLUSH_S)
        redriven.failures += ["not delivered in time"] * left
    return redriven


def originals_of(lookup: Any, letters: Sequence[Letter]) -> dict[tuple[str, int, int], Any]:
    """Return the messages that letters stand for, by topic, partition and offset, as far as they are still there.

    A message that is newer than its letter, or another one than the letter's copy, is not the letter's: the topic was
    deleted and made again.
    """
    wanted: dict[tuple[str, int], dict[int, Letter]] = {}
    for letter in letters:
        wanted.setdefault((letter.source_topic, letter.source_partition), {})[letter.source_offset] = letter
    found: dict[tuple[str, int, int], Any] = {}
    for (topic, partition), by_offset in wanted.items():
        for message in _look_up(lookup, topic, partition, sorted(by_offset)):
            if _is_original(message, by_offset[message.offset()]):
                found[topic, partition, message.offset()] = message
    return found


def bounds_of(consumer: Any, topic: str) -> dict[int, tuple[int, int]]:
    """Return start and end offset of each partition of a topic. Raises RedriveError, KafkaException."""
    return {partition: _bounds(consumer, topic, partition) for partition in _partitions(consumer, topic)}


def _partitions(consumer: Any, topic: str) -> list[int]:
    """Raises RedriveError if there is no such topic."""
    found = consumer.list_topics(topic, timeout=SILENCE_S).topics.get(topic)
    if found is None or found.error is not None or not found.partitions:
        raise RedriveError(f"no such topic: {topic}")
    return sorted(found.partitions)


def _bounds(consumer: Any, topic: str, partition: int) -> tuple[int, int]:
    bounds: tuple[int, int] = consumer.get_watermark_offsets(
        confluent().TopicPartition(topic, partition), timeout=SILENCE_S
    )
    return bounds


def _place(letter: Letter) -> tuple[str, int, int]:
    return letter.source_topic, letter.source_partition, letter.source_offset


def _is_original(message: Any, letter: Letter) -> bool:
    kind, timestamp_ms = message.timestamp()
    if kind and timestamp_ms > letter.timestamp_ms:
        return False
    if letter.key is None and letter.value is None:
        return True
    return (message.key(), message.value()) == (letter.key, letter.value)


def _send_back(producer: Any, letter: Letter, original: Any, redriven: Redriven) -> bool:
    """Send a letter's record; return False if there is none."""
    record: dict[str, Any] = {"key": letter.key, "value": letter.value}
    if original is not None:
        kind, timestamp_ms = original.timestamp()
        record = {"key": original.key(), "value": original.value(), "headers": original.headers() or []}
        if kind and timestamp_ms > 0:  # librdkafka takes 0 for now
            record["timestamp"] = timestamp_ms
    elif letter.key is None and letter.value is None:
        redriven.gone.append(letter)
        return False

    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            redriven.failures.append(f"{letter.source_topic}-{letter.source_partition}: {error.str()}")
        else:
            redriven.count += 1
            redriven.done.add((letter.partition, letter.offset))

    while True:
        try:
            producer.produce(letter.source_topic, partition=letter.source_partition, on_delivery=on_delivery, **record)
            break
        except BufferError:  # the queue is full: let it drain
            producer.poll(0.1)
    producer.poll(0)
    return True


def _chunks(letters: Iterator[Letter]) -> Iterator[list[Letter]]:
    some: list[Letter] = []
    for letter in letters:
        some.append(letter)
        if len(some) == LETTERS_AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _messages(consumer: Any, topic: str, ends: dict[int, int]) -> Iterator[Any]:
    """Yield the messages of a topic that lie before the ends of its partitions."""
    kafka = confluent()
    starts = bounds_of(consumer, topic)
    left = {each: end for each, end in ends.items() if each in starts and starts[each][0] < end}
    if not left:
        return
    consumer.assign([kafka.TopicPartition(topic, each, starts[each][0]) for each in left])
    try:
        for message in _polled(consumer, lambda: bool(left), f"partition {', '.join(map(str, left))} of {topic}"):
            partition, is_end = message.partition(), message.error() is not None
            end = left.get(partition)
            if end is None:
                continue
            if not is_end and message.offset() < end:
                yield message
            if is_end or message.offset() + 1 >= end:
                del left[partition]
    finally:
        consumer.unassign()


def _look_up(lookup: Any, topic: str, partition: int, offsets: list[int]) -> Iterator[Any]:
    """Yield the messages at some offsets, in order, that are still there."""
    kafka = confluent()
    try:
        if partition not in _partitions(lookup, topic):
            return
    except RedriveError:
        return
    start, end = _bounds(lookup, topic, partition)
    there = [offset for offset in offsets if start <= offset < end]
    while there:
        lookup.assign([kafka.TopicPartition(topic, partition, there[0])])
        for message in _polled(lookup, lambda: bool(there), f"{topic}-{partition}"):
            if message.error() is not None:  # the end of the partition
                there.clear()
                break
            offset = message.offset()
            while there and there[0] < offset:
                there.pop(0)  # gone: compacted, or of an aborted transaction
            if there and there[0] == offset:
                there.pop(0)
                yield message
            if there and there[0] > offset + READ_ON:
                break
    lookup.unassign()


def _polled(consumer: Any, is_wanted: Callable[[], bool], where: str) -> Iterator[Any]:
    """Yield messages and ends of partitions while they are wanted. Raises RedriveError after a silence."""
    kafka = confluent()
    last_s = time.monotonic()
    while is_wanted():
        messages = consumer.consume(LETTERS_AT_ONCE, POLL_S)
        if messages:
            last_s = time.monotonic()
        elif time.monotonic() - last_s > SILENCE_S:
            raise RedriveError(f"nothing came from {where} for {SILENCE_S:g} s")
        for message in messages:
            error = message.error()
            if error is not None and error.code() == kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # no group is joined
            if error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:
                raise kafka.KafkaException(error)
            if not is_wanted():
                return
            yield message
