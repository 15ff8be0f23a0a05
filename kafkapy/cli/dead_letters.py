"""Reads dead letters of share groups (KIP-1191), and sends their records back (redrive).

For `groups redrive` (redrive.py) and the console.

The headers of a dead letter name the topic, partition and offset of its record. The letter has the record's key and
value only if the group had errors.deadletterqueue.copy.record.enable, and never its headers and timestamp. So the
record itself is looked up, and sent again unchanged if it still exists; else the letter's copy is sent. A letter
without key and value whose record is gone cannot be sent.

    survey = survey_letters(consumer, "dlq.jobs", Choice(group="workers"))   # counts, nothing is sent
    sent = redrive(consumer, lookup, producer, survey, on_progress=print)    # a second consumer looks records up

Consumers need enable.partition.eof=true and enable.auto.commit=false. They are assigned, and join no group.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field
from typing import Any, Final, Self

from kafkapy.cli.client import confluent
from kafkapy.cli.sender import FLUSH_S, FLUSH_SLICE_S, INTERRUPTED_FLUSH_S
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
"""The number of letters whose records are looked up together."""
READ_ON: Final = 1000
"""Gaps up to so many offsets are read, longer ones skipped by a seek."""
POLL_S: Final = 0.2
SILENCE_S: Final = 30.0
"""Reading fails if no record comes for so long, although some are left."""


class RedriveError(KafkapyError):
    """The topic cannot be read, or does not exist."""


class Letter(NamedTuple):
    """A dead letter: its place in its own topic, its copy of the record, and the place of the record."""

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

    @property
    def place(self) -> "Place":
        return self.partition, self.offset

    @property
    def source(self) -> tuple[str, int, int]:
        """The place of the record: topic, partition and offset."""
        return self.source_topic, self.source_partition, self.source_offset


Place = tuple[int, int]
"""The place of a letter in its own topic: partition and offset."""


class Choice(NamedTuple):
    """Which letters: all, those of one group, those from one topic, and those at some (partition, offset)."""

    group: str | None = None
    source_topic: str | None = None
    places: frozenset[Place] | None = None

    def has(self, letter: Letter) -> bool:
        if self.places is not None and letter.place not in self.places:
            return False
        return self.group in (None, letter.group) and self.source_topic in (None, letter.source_topic)


@dataclass(slots=True)
class Survey:
    """The letters that a choice selects. `ends`: the partitions' ends at that time; later letters are not read."""

    topic: str
    choice: Choice
    ends: dict[int, int]
    counts: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """The numbers of letters, by group, source topic and its partition."""
    foreign_count: int = 0
    """The number of records that are not dead letters: they lack the headers."""
    delivered: frozenset[Place] = frozenset()
    """Letters whose records an earlier redrive, which this one resumes, has delivered: they are left out."""
    sources_delivered: dict[tuple[str, int], dict[int, Place]] = field(default_factory=dict)
    """The places of the delivered letters, by source topic and partition, then source offset."""

    @property
    def letter_count(self) -> int:
        return sum(self.counts.values())


@dataclass(slots=True)
class Redriven:
    """The result of a redrive. `done`: the places of letters whose records were delivered, now or by what this resumes.

    repeated_count: letters of a record that had gone back already, because several groups gave it up, or because a
    broker died after it wrote the letter and before it had recorded that.
    """

    count: int = 0
    repeated_count: int = 0
    gone: list[Letter] = field(default_factory=list)
    """Letters whose record is gone, and that have no copy of it."""
    failures: list[str] = field(default_factory=list)
    done: set[Place] = field(default_factory=set)

    @classmethod
    def before(cls, survey: Survey) -> Self:
        """Return the result before anything is sent: with the deliveries of the redrive that this one resumes."""
        return cls(done=set(survey.delivered))

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
    """Return the dead letter in a message of confluent-kafka, None if it lacks the headers."""
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


def survey_letters(
    consumer: Any,
    topic: str,
    choice: Choice = Choice(),  # noqa: B008  # a constant
    *,
    ends: dict[int, int] | None = None,
    delivered: Collection[Place] = (),
) -> Survey:
    """Count the chosen letters of a topic, up to its current end or `ends`. Raises RedriveError, KafkaException.

    ends, delivered: of a redrive that is to be resumed.
    """
    if ends is None:
        ends = {partition: end for partition, (_, end) in bounds_of(consumer, topic).items()}
    survey = Survey(topic, choice, ends, delivered=frozenset(delivered))
    for message in _messages(consumer, topic, survey.ends):
        letter = letter_of(message)
        if letter is None:
            survey.foreign_count += 1
        elif not choice.has(letter):
            continue
        elif letter.place in survey.delivered:
            by_offset = survey.sources_delivered.setdefault((letter.source_topic, letter.source_partition), {})
            by_offset[letter.source_offset] = letter.place
        else:
            source = letter.group, letter.source_topic, letter.source_partition
            survey.counts[source] = survey.counts.get(source, 0) + 1
    return survey


def letters_of(consumer: Any, survey: Survey) -> Iterator[Letter]:
    """Yield the letters that a survey has counted; those of a partition are in order. Raises as survey_letters."""
    for message in _messages(consumer, survey.topic, survey.ends):
        letter = letter_of(message)
        if letter is not None and survey.choice.has(letter) and letter.place not in survey.delivered:
            yield letter


def redrive(
    consumer: Any,
    lookup: Any,
    producer: Any,
    survey: Survey,
    on_progress: Callable[[int], None] = lambda done: None,
    redriven: Redriven | None = None,
) -> Redriven:
    """Send the letters of a survey back, each to the end of the partition where its record was.

    lookup: a second consumer, which looks records up. on_progress(letters handled so far). Those that read the topic,
    all groups, get the records again. `redriven`, of Redriven.before, is filled and returned: after an exception it
    has what was delivered. Raises RedriveError, KafkaException.
    """
    redriven = Redriven.before(survey) if redriven is None else redriven
    run = _Run(producer, redriven, survey)
    handled = 0
    flush_s = FLUSH_S
    try:
        for some in _chunks(letters_of(consumer, survey)):
            found = originals_of(lookup, some)
            for letter in some:
                run.send(letter, found.get(letter.source))
            handled += len(some)
            on_progress(handled)
    except KeyboardInterrupt:
        flush_s = INTERRUPTED_FLUSH_S
        raise
    finally:  # also after an error: what librdkafka has queued may still be delivered, and must be counted
        left = _flush(producer, flush_s)
        redriven.failures += ["not delivered in time"] * left
    return redriven


def _flush(producer: Any, timeout_s: float) -> int:
    """Wait until all records are delivered or have failed; return how many are pending after timeout_s."""
    deadline_s = time.monotonic() + timeout_s
    left = len(producer)
    while left and time.monotonic() < deadline_s:
        left = producer.flush(FLUSH_SLICE_S)
    return left


class _Run:
    """Sends each record once, although several letters may name it; all of them are done when it is delivered."""

    def __init__(self, producer: Any, redriven: Redriven, survey: Survey) -> None:
        self._producer = producer
        self._redriven = redriven
        # also of letters to be read later: partitions may come in another order than in the earlier redrive
        self._first = {source: dict(by_offset) for source, by_offset in survey.sources_delivered.items()}
        """The first letter of each record, by topic and partition, then offset."""
        self._others: dict[Place, list[Place]] = {}
        """By the first letter of a record in flight: the later letters of the same record."""

    def send(self, letter: Letter, original: Any) -> None:
        """Send a letter's record, unless it is gone or went back already."""
        firsts = self._first.setdefault((letter.source_topic, letter.source_partition), {})
        first = firsts.get(letter.source_offset)
        if first is not None:
            self._redriven.repeated_count += 1
            if first in self._redriven.done:
                self._redriven.done.add(letter.place)
            else:
                self._others.setdefault(first, []).append(letter.place)
        elif (record := _record(letter, original)) is not None:
            firsts[letter.source_offset] = letter.place
            self._produce(letter, record)
        else:
            self._redriven.gone.append(letter)

    def _produce(self, letter: Letter, record: dict[str, Any]) -> None:
        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                self._redriven.failures.append(f"{letter.source_topic}-{letter.source_partition}: {error.str()}")
                return
            self._redriven.count += 1
            self._redriven.done.add(letter.place)
            self._redriven.done.update(self._others.pop(letter.place, ()))

        topic, partition = letter.source_topic, letter.source_partition
        kafka = confluent()
        while True:
            try:
                self._producer.produce(topic, partition=partition, on_delivery=on_delivery, **record)
                break
            except BufferError:  # the queue is full: let it drain
                self._producer.poll(0.1)
            except (
                kafka.KafkaException
            ) as error:  # an error of this record only: it is too large, or its partition is gone
                if error.args[0].code() == kafka.KafkaError._FATAL:
                    raise
                on_delivery(error.args[0], None)
                break
        self._producer.poll(0)


def originals_of(lookup: Any, letters: Sequence[Letter]) -> dict[tuple[str, int, int], Any]:
    """Return the records that letters name, by topic, partition and offset, if they still exist.

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
    """Check that the topic exists. Raises RedriveError."""
    found = consumer.list_topics(topic, timeout=SILENCE_S).topics.get(topic)
    if found is None or found.error is not None or not found.partitions:
        raise RedriveError(f"no such topic: {topic}")
    return sorted(found.partitions)


def _bounds(consumer: Any, topic: str, partition: int) -> tuple[int, int]:
    bounds: tuple[int, int] = consumer.get_watermark_offsets(
        confluent().TopicPartition(topic, partition), timeout=SILENCE_S
    )
    return bounds


def _is_original(message: Any, letter: Letter) -> bool:
    kind, timestamp_ms = message.timestamp()
    if kind and timestamp_ms > letter.timestamp_ms:
        return False
    if letter.key is None and letter.value is None:
        return True
    return (message.key(), message.value()) == (letter.key, letter.value)


def _record(letter: Letter, original: Any) -> dict[str, Any] | None:
    """Return the record to send: the record itself if it exists, else the letter's copy; None without either."""
    if original is None:
        has_copy = letter.key is not None or letter.value is not None
        return {"key": letter.key, "value": letter.value} if has_copy else None
    kind, timestamp_ms = original.timestamp()
    record = {"key": original.key(), "value": original.value(), "headers": original.headers() or []}
    if kind and timestamp_ms > 0:  # librdkafka treats 0 as the current time
        record["timestamp"] = timestamp_ms
    return record


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
    """Yield the messages of a topic before the ends of its partitions."""
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
    """Yield the messages at these offsets, in order, if they still exist."""
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
    """Yield messages and partition ends as long as the caller iterates. Raises RedriveError after a silence."""
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
