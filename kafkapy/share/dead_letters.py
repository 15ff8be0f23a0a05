"""The records of a dead-letter topic, as Apache Kafka 4.4.0 writes them for offsets that a share group rejected.

There is one record for each offset. Its headers have the topic, partition, offset, group, delivery count and cause; the
headers and the timestamp of the original record are not copied. Key and value are copied if
errors.deadletterqueue.copy.record.enable is set and the log still has the record. Source: KIP-1191, Apache Kafka's
ShareGroupDLQStateManager.
"""

from collections.abc import Mapping

from kafkapy.named_tuple import NamedTuple
from kafkapy.record.batch import HEADER_BYTES
from kafkapy.record.builder import Headers, NewRecord, encode_records
from kafkapy.share.letter_headers import (
    DELIVERY_COUNT_HEADER,
    GROUP_HEADER,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TOPIC_HEADER,
)
from kafkapy.share.pending_write import DeadLetter

KeyAndValue = tuple[bytes | None, bytes | None]


class Originals(NamedTuple):
    """Records of the log by offset, read up to resolved_to. Missing offsets below it are no longer in the log."""

    records: Mapping[int, KeyAndValue]
    resolved_to: int


class Source(NamedTuple):
    """The share partition from which dead letters come."""

    group_id: str
    topic: str
    partition: int


class LetterRound(NamedTuple):
    """The records of the offsets up to last_offset, which fit into one batch of size_bytes."""

    records: list[NewRecord]
    last_offset: int
    size_bytes: int


def headers_of(source: Source, letter: DeadLetter, offset: int) -> Headers:
    """Return the headers of the record for one offset, in Apache Kafka's order."""
    return (
        (TOPIC_HEADER, source.topic.encode()),
        (PARTITION_HEADER, str(source.partition).encode()),
        (OFFSET_HEADER, str(offset).encode()),
        (GROUP_HEADER, source.group_id.encode()),
        (DELIVERY_COUNT_HEADER, str(letter.delivery_count).encode()),
        (MESSAGE_HEADER, letter.cause.value.encode()),
    )


def next_round(
    source: Source, letter: DeadLetter, first_offset: int, originals: Originals, *, now_ms: int, max_bytes: int
) -> LetterRound:
    """Return the records from first_offset on that fit into one batch of max_bytes, at least one.

    max_bytes: max.message.bytes of the dead-letter topic.

    Deviation: Apache Kafka sends a record that is too large with its headers as it is; the topic refuses it, and it and
    the offsets after it are archived without a copy. Here it is sent without its key and value, because its headers
    still identify the original record.
    """
    assert letter.first_offset <= first_offset <= letter.last_offset
    records: list[NewRecord] = []
    size_bytes = HEADER_BYTES
    offset = first_offset
    last_offset = max(first_offset, min(letter.last_offset, originals.resolved_to))
    while offset <= last_offset:
        key, value = originals.records.get(offset, (None, None))
        record: NewRecord = (now_ms, key, value, headers_of(source, letter, offset))
        record_bytes = _size_of(record, len(records))
        if not records and size_bytes + record_bytes > max_bytes:
            record = (now_ms, None, None, record[3])
            record_bytes = _size_of(record, 0)
        if records and size_bytes + record_bytes > max_bytes:
            break
        records.append(record)
        size_bytes += record_bytes
        offset += 1
    return LetterRound(records, first_offset + len(records) - 1, size_bytes)


def _size_of(record: NewRecord, offset_delta: int) -> int:
    return len(encode_records((record,), (offset_delta,), record[0]))


def left_to_copy(letter: DeadLetter, in_flight: list[DeadLetter]) -> list[DeadLetter]:
    """Return the parts of a letter that no running copy has."""
    parts: list[DeadLetter] = []
    first_offset = letter.first_offset
    for other in sorted(in_flight, key=lambda each: each.first_offset):
        if other.last_offset < first_offset or other.first_offset > letter.last_offset:
            continue
        if other.first_offset > first_offset:
            parts.append(DeadLetter(first_offset, other.first_offset - 1, letter.delivery_count, letter.cause))
        first_offset = other.last_offset + 1
    if first_offset <= letter.last_offset:
        parts.append(DeadLetter(first_offset, letter.last_offset, letter.delivery_count, letter.cause))
    return parts
