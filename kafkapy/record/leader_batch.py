"""A leader's validation of one batch: header and records are checked, then the batch is patched or re-encoded.

Here a batch gets the timestamp type of the topic (message.timestamp.type), whatever the producer wrote, and with
LogAppendTime the time of the append. The rules are described in validate.py.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from struct import Struct
from typing import Final

from kafkapy.record.append_rules import AppendOrigin, BatchSpan, ValidationRules, ValidationStats
from kafkapy.record.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    CODEC_MASK,
    CONTROL_FLAG,
    CREATE_TIME,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    last_sequence,
    records_in,
)
from kafkapy.record.builder import NewRecord, encode_records, seal
from kafkapy.record.columns import record_starts
from kafkapy.record.compression import GZIP, NONE, ZSTD, compress, decompress, inflated_at_most
from kafkapy.record.crc import crc32c
from kafkapy.record.errors import (
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    CorruptRecordError,
    InvalidRecordsError,
    InvalidSequenceError,
    RecordTooLargeError,
    TooHeavyError,
)
from kafkapy.record.varint import read_varint, read_varlong
from kafkapy.record.walk import WalkedRecords, walk_records
from kafkapy.seams import ReadableBuffer
from kafkapy.types import INT64_MAX

KEPT_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
"""The attribute bits kept when a header is patched; unused bits survive only if nothing has to be patched."""

LIGHT_RECORDS: Final = 32_768
LIGHT_SINGLE_RECORDS: Final = 4096  # processed one by one, to name the invalid ones for example
LIGHT_BYTES: Final = 4 << 20
LIGHT_COMPRESSED_BYTES: Final = 64 << 10
LIGHT_INFLATED_BYTES: Final = 1 << 20
LIGHT_RECOMPRESSED_BYTES: Final = 32 << 10
LIGHT_ZSTD_LEVEL: Final = 9
"""The largest work that may run on the event loop: some milliseconds of walking, decompressing or compressing."""

MAX_RECORD_ERRORS: Final = 10_000
MAX_NAMED_RECORDS: Final = 1 << 20
"""Records of a batch that are processed one by one (to name invalid ones, or to renumber them): two seconds of work."""


REWRITING_COPIES: Final = 3
"""Copies held while a batch is recompressed: decompressed, re-encoded, and compressed again."""

PLACE: Final = Struct(">qii")
"""The first fields of a header: base offset, length, leader epoch."""


class LeaderBatch:
    """One batch that is about to be appended.

    is_on_loop: raise TooHeavyError before long work, with nothing modified. pause() is called now and then during long
    work, so that other threads can run.
    """

    __slots__ = (
        "codec",
        "header",
        "is_append_time_claimed",
        "is_on_loop",
        "pause",
        "payload",
        "rules",
        "stats",
        "target",
        "time_flag",
        "view",
    )

    def __init__(
        self,
        rules: ValidationRules,
        view: memoryview,
        header: BatchHeader,
        is_on_loop: bool,
        pause: Callable[[], None] | None,
    ) -> None:
        self.rules = rules
        self.header = header
        self.is_on_loop = is_on_loop
        self.pause = pause
        self.view = view
        attributes = header.attributes
        self.codec = codec = attributes & CODEC_MASK
        is_kept = codec == NONE and attributes & CONTROL_FLAG  # control batches are never recompressed
        self.target = NONE if is_kept else rules.target_codec(codec)
        self.is_append_time_claimed = attributes & LOG_APPEND_TIME_FLAG != 0
        """Set by a producer, which is not allowed. All records then count as having the header's max timestamp."""
        self.time_flag = LOG_APPEND_TIME_FLAG if rules.timestamp_type == LOG_APPEND_TIME else 0
        self.stats: ValidationStats | None = None
        """Set by `run` if the batch is compressed or re-encoded."""

    def run(self, position: int, base_offset: int, leader_epoch: int, now_ms: int) -> tuple[ReadableBuffer, BatchSpan]:
        """Validate; return the batch as it will be stored, and its span."""
        header = self.header
        _, _, _, _, _, _, _, attributes, base_timestamp, max_timestamp, pid, pepoch, base_sequence, count = header
        self._check_header()
        self.payload = bytes(self.view[HEADER_BYTES:]) if self.codec == NONE else self._inflated()
        walk = walk_records(self.payload, count, self.pause)
        self._check_records(walk, now_ms)
        if self.codec != NONE and len(self.payload) > self.rules.max_record_bytes:
            self._check_sizes()
        index_of_max = 0
        if self.rules.timestamp_type == LOG_APPEND_TIME:
            max_timestamp = now_ms
        elif not self.is_append_time_claimed:
            max_timestamp = max(base_timestamp + walk.max_timestamp_delta, NO_TIMESTAMP)
            index_of_max = walk.index_of_max_timestamp
        if self.target == self.codec:
            batch: ReadableBuffer = self._patched(base_offset, leader_epoch, max_timestamp)
        else:
            batch = self._recompressed(walk, base_offset, leader_epoch, max_timestamp)
        span = BatchSpan(
            position, len(batch), base_offset, base_offset + count - 1, max_timestamp, base_offset + index_of_max, pid,
            pepoch, base_sequence, last_sequence(header), attributes & TRANSACTIONAL_FLAG != 0,
            attributes & CONTROL_FLAG != 0, count, leader_epoch,
        )  # fmt: skip
        return batch, span

    def _check_header(self) -> None:
        _, _, base_offset, last_offset, _, magic, _, attributes, _, _, pid, pepoch, base_sequence, count = self.header
        rules = self.rules
        where = rules.topic_partition
        if magic != 2:
            raise InvalidRecordsError(f"messages of magic {magic} for {where}: only magic 2 is appended")
        if count <= 0 or count != last_offset - base_offset + 1:
            raise InvalidSequenceError(
                f"a batch for {where} that counts {count} records at offsets {base_offset} to {last_offset}"
            )
        if rules.origin is not AppendOrigin.CLIENT:
            return
        if attributes & CONTROL_FLAG:
            raise InvalidSequenceError(f"control records from a client for {where}")
        if pid >= 0 and (base_sequence < 0 or pepoch < 0):
            raise InvalidSequenceError(
                f"a batch for {where} of producer id {pid} with epoch {pepoch} and sequence {base_sequence}"
            )

    def _inflated(self) -> bytes:
        payload = self.view[HEADER_BYTES:]
        max_bytes = allowed_bytes = self.rules.max_inflated_bytes(self.codec, self.target)
        if self.is_on_loop:
            if len(payload) > LIGHT_COMPRESSED_BYTES or _claimed_bytes(self.codec, payload) > LIGHT_INFLATED_BYTES:
                raise TooHeavyError
            max_bytes = min(max_bytes, LIGHT_INFLATED_BYTES)
        try:
            inflated = decompress(self.codec, payload, 2, max_bytes)
        except RecordTooLargeError:
            if max_bytes < allowed_bytes:
                raise TooHeavyError from None
            raise
        except CorruptRecordError as error:  # the CRC is correct, so a retry would not help
            raise InvalidRecordsError(f"a batch for {self.rules.topic_partition}: {error.message}") from error
        self.stats = ValidationStats(HEADER_BYTES + len(inflated))
        return inflated

    def _check_records(self, walk: WalkedRecords, now_ms: int) -> None:
        rules = self.rules
        base_timestamp = self.header.base_timestamp
        has_null_keys = walk.null_key_count > 0 and rules.is_compacted
        if self.is_append_time_claimed:
            has_wrong_times = True
        elif rules.timestamp_type == LOG_APPEND_TIME:
            has_wrong_times = False
        else:
            has_wrong_times = (
                base_timestamp + walk.min_timestamp_delta < now_ms - rules.timestamp_before_max_ms
                or base_timestamp + walk.max_timestamp_delta > _latest_ms(rules, now_ms)
            )
        if has_null_keys or has_wrong_times:
            self._refuse_records(now_ms)
        if self.target != self.codec and base_timestamp + walk.min_timestamp_delta < NO_TIMESTAMP:
            # Deviation: Apache Kafka fails while re-encoding such a record, and answers UNKNOWN_SERVER_ERROR. Here it
            # is INVALID_TIMESTAMP, because a producer retries the other.
            message = f"a record for {rules.topic_partition} with a negative timestamp cannot be compressed again"
            raise InvalidRecordsError(message, code=INVALID_TIMESTAMP)
        if not walk.has_sequential_offsets and self.target == self.codec:
            raise InvalidRecordsError(f"offset deltas of a batch for {rules.topic_partition} do not count from 0 on")

    def _check_sizes(self) -> None:
        """Raise if one of the records is larger than the topic accepts.

        Deviation: Apache Kafka also fails while it compacts, or looks up a timestamp, if it meets such a record, stored
        before the limit was lowered. Here only new records are refused, because the others are readable.
        """
        if self.is_on_loop and self.header.record_count > LIGHT_SINGLE_RECORDS:
            raise TooHeavyError
        starts = record_starts(self.payload, self.header.record_count)
        for start in starts[:-1]:
            size_bytes, _ = read_varint(self.payload, start)
            if size_bytes > self.rules.max_record_bytes:
                raise InvalidRecordsError(
                    f"Invalid record size: {size_bytes} exceeds the configured maximum record size of "
                    f"{self.rules.max_record_bytes}."
                )

    def _refuse_records(self, now_ms: int) -> None:
        """Raise with an error for each invalid record; if both kinds occur, the code is INVALID_TIMESTAMP, as in Kafka.

        Returns if only records without a timestamp (-1) were out of range, which is allowed.
        """
        if self.is_on_loop and self.header.record_count > LIGHT_SINGLE_RECORDS:
            raise TooHeavyError
        errors = list(islice(self._record_errors(now_ms), MAX_RECORD_ERRORS))
        if not errors and self.header.record_count <= MAX_NAMED_RECORDS:
            return
        record_errors = [(index, message) for index, _, message in errors]
        if any(code == INVALID_TIMESTAMP for _, code, _ in errors):
            message = "One or more records have been rejected due to invalid timestamp"
            raise InvalidRecordsError(message, code=INVALID_TIMESTAMP, record_errors=record_errors)
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in record_errors[:3])
        raise InvalidRecordsError(
            f"One or more records have been rejected due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
            record_errors=record_errors,
        )

    def _record_errors(self, now_ms: int) -> Iterator[tuple[int, int, str]]:
        """Yield (index, code, message) of each invalid record."""
        rules = self.rules
        earliest_ms, latest_ms = now_ms - rules.timestamp_before_max_ms, _latest_ms(rules, now_ms)
        for index, record in enumerate(islice(self._records(), MAX_NAMED_RECORDS)):
            # Only the first rule that a record breaks is named. As in Kafka, a claimed LogAppendTime is the least of
            # them.
            timestamp_ms = record.timestamp_ms
            if rules.is_compacted and record.key is None:
                message = (
                    f"Compacted topic cannot accept message without key in topic partition {rules.topic_partition}"
                )
                yield index, INVALID_RECORD, message
            elif rules.timestamp_type == CREATE_TIME and timestamp_ms != NO_TIMESTAMP:
                if not earliest_ms <= timestamp_ms <= latest_ms:
                    message = (
                        f"Timestamp {timestamp_ms} of message with offset {record.offset} is out of range. "
                        f"The timestamp should be within [{earliest_ms}, {latest_ms}]"
                    )
                    yield index, INVALID_TIMESTAMP, message
            elif self.is_append_time_claimed:
                message = (
                    f"Invalid timestamp type in message with offset {record.offset}. "
                    "Producer should not set timestamp type to LogAppendTime."
                )
                yield index, INVALID_TIMESTAMP, message

    def _records(self) -> Iterator[Record]:
        """Yield the records of the decompressed payload."""
        header = self.header
        append_time_ms = header.max_timestamp if self.is_append_time_claimed else None
        return records_in(self.payload, header.record_count, 0, header.base_timestamp, append_time_ms)

    def _new_records(self) -> Iterator[NewRecord]:
        """Yield the records as NewRecords. (mypyc would turn a generator expression into a list.)"""
        for record in self._records():
            yield record.timestamp_ms, record.key, record.value, record.headers

    def _with_header(
        self,
        base_offset: int,
        leader_epoch: int,
        attributes: int,
        base_timestamp: int,
        max_timestamp: int,
        payload: bytes | bytearray,
    ) -> bytes:
        header = self.header
        return seal(
            BATCH_HEADER.pack(
                base_offset, HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload), leader_epoch, 2, 0, attributes,
                header.last_offset - header.base_offset, base_timestamp, max_timestamp, header.producer_id,
                header.producer_epoch, header.base_sequence, header.record_count,
            ),
            payload,
        )  # fmt: skip

    def _recompressed(self, walk: WalkedRecords, base_offset: int, leader_epoch: int, max_timestamp: int) -> bytes:
        """Return the batch re-encoded in the topic's codec, which differs from the producer's."""
        began_ns = self.rules.now_ns()
        base_timestamp, payload = self._rewritten(walk)
        if self.is_on_loop and self._is_hard_to_compress(len(payload)):
            raise TooHeavyError
        # Without a codec the size is known before the batch is built, which would copy it.
        if self.target == NONE and len(payload) > self.rules.max_message_bytes:
            raise too_large(HEADER_BYTES + len(payload), self.rules)
        batch = self._with_header(
            base_offset,
            leader_epoch,
            self.header.attributes & TRANSACTIONAL_FLAG | self.time_flag | self.target,
            base_timestamp,
            max_timestamp,
            compress(self.target, payload, self.rules.compression_level),
        )
        if len(batch) > self.rules.max_message_bytes:
            raise too_large(len(batch), self.rules)
        self.stats = ValidationStats(
            temporary_bytes=2 * HEADER_BYTES + len(self.payload) + len(payload),
            converted_records=self.header.record_count,
            conversion_ns=self.rules.now_ns() - began_ns,
        )
        return batch

    def _rewritten(self, walk: WalkedRecords) -> tuple[int, bytes | bytearray]:
        """Return (base timestamp, payload) like Kafka's builder: offset deltas 0, 1, ..., the first record's time."""
        base_timestamp = self.header.base_timestamp
        if (
            walk.has_sequential_offsets
            and not self.is_append_time_claimed
            and _first_timestamp_delta(self.payload) == 0
        ):
            return base_timestamp, self.payload
        if self.header.record_count > MAX_NAMED_RECORDS:
            raise InvalidRecordsError(
                f"{self.header.record_count} records for {self.rules.topic_partition} to renumber"
            )
        if self.is_on_loop and self.header.record_count > LIGHT_SINGLE_RECORDS:
            raise TooHeavyError
        records = self._new_records()
        first = next(records)
        return first[0], encode_records(chain((first,), records), range(self.header.record_count), first[0])

    def _is_hard_to_compress(self, size_bytes: int) -> bool:
        if self.target == NONE:
            return False
        level = self.rules.compression_level
        return size_bytes > LIGHT_RECOMPRESSED_BYTES or (
            self.target == ZSTD and level is not None and level > LIGHT_ZSTD_LEVEL
        )

    def _patched(self, base_offset: int, leader_epoch: int, max_timestamp: int) -> memoryview:
        """Return the batch with base offset and leader epoch set, in place if it can be.

        Timestamp type and max timestamp are set, and the CRC computed again, only where the producer wrote others.
        """
        view = memoryview(bytearray(self.view)) if self.view.readonly else self.view
        header = self.header
        PLACE.pack_into(view, 0, base_offset, header.size_bytes - LOG_OVERHEAD_BYTES, leader_epoch)
        if header.attributes & LOG_APPEND_TIME_FLAG != self.time_flag or max_timestamp != header.max_timestamp:
            view[21:23] = (header.attributes & KEPT_ATTRIBUTES | self.time_flag).to_bytes(2, "big")
            view[35:43] = max_timestamp.to_bytes(8, "big", signed=True)
            view[17:21] = crc32c(view[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
        return view


def bytes_to_check(batch: memoryview, rules: ValidationRules) -> int:
    """Return an upper bound of the memory that validating a batch takes besides the batch itself."""
    attributes = int.from_bytes(batch[ATTRIBUTES_POSITION : ATTRIBUTES_POSITION + 2], "big", signed=True)
    codec = attributes & CODEC_MASK
    target = rules.target_codec(codec)
    inflated_bytes = inflated_at_most(codec, batch[HEADER_BYTES:], rules.max_inflated_bytes(codec, target))
    return inflated_bytes if target == codec else REWRITING_COPIES * inflated_bytes


def _claimed_bytes(codec: int, payload: memoryview) -> int:
    """Return the decompressed size in gzip's trailer; 0 for other codecs, whose size is found by decompressing."""
    return int.from_bytes(payload[-4:], "little") if codec == GZIP else 0


def too_large(size_bytes: int, rules: ValidationRules) -> RecordTooLargeError:
    """Return the error of a batch above max.message.bytes (MESSAGE_TOO_LARGE)."""
    return RecordTooLargeError(
        f"a record batch of {size_bytes} bytes for {rules.topic_partition}, which takes {rules.max_message_bytes}"
    )


def _first_timestamp_delta(payload: bytes) -> int:
    _, body = read_varint(payload, 0)
    return read_varlong(payload, body + 1)[0]


def _latest_ms(rules: ValidationRules, now_ms: int) -> int:
    return min(now_ms + rules.timestamp_after_max_ms, INT64_MAX)
