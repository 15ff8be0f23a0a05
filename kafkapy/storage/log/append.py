"""Parts of an append: validation rules by topic and origin, its result, and the batches passed to producer state.

Deviation: Apache Kafka checks the producer's state last, after it has recorded the leader epoch and rolled the segment
if the append did not fit. Here an append that is refused because of that state, or is a duplicate, changes nothing at
all, because a client may send it again and again.

Deviation: Apache Kafka's follower rolls where its leader's next batch begins, above its log end if that was compacted.
Here it rolls at its log end, if the segment's indexes allow it, because a gap would look like a loss to recovery.
"""

import time
from collections.abc import Sequence
from typing import Protocol

from kafkapy.config.log import LogConfig
from kafkapy.record.batch import CREATE_TIME, LOG_APPEND_TIME, NO_SEQUENCE, NO_TIMESTAMP
from kafkapy.record.compression import MAX_APPENDED_BYTES
from kafkapy.record.validate import (
    AppendOrigin,
    BatchSpan,
    ValidatedRecords,
    ValidationRules,
    ValidationStats,
    validate_and_assign,
)
from kafkapy.seams import ReadableBuffer
from kafkapy.storage.leader_epochs import LeaderEpochs
from kafkapy.storage.producers.replay import read_marker
from kafkapy.storage.producers.state import (
    BatchMetadata,
    PreparedAppend,
    ProducerBatch,
    ProducerEntry,
    ProducerState,
    VerificationGuard,
)
from kafkapy.storage.workers import give_way
from kafkapy.types import TopicPartition


class AppendResult:
    """The place of appended records. Offsets are inclusive; -1 if nothing was appended (an empty follower append).

    log_append_time_ms is -1 for CreateTime. For a duplicate, the offsets are those of the original append. stats: of a
    single batch that is compressed or re-encoded.
    """

    __slots__ = (
        "first_offset",
        "is_duplicate",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "max_timestamp",
        "size_bytes",
        "stats",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        log_append_time_ms: int,
        log_start_offset: int,
        size_bytes: int,
        is_duplicate: bool = False,
        stats: ValidationStats | None = None,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.size_bytes = size_bytes
        self.is_duplicate = is_duplicate
        self.stats = stats


class AppendedBatch(Protocol):
    """The fields of a batch that writing it needs. Implemented by BatchSpan and PlacedBatch."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...


class PlacedBatch:
    """An AppendedBatch of which nothing else is needed: its writer has placed it itself.

    producer, last_sequence: of a batch that is in sequence, added to the producer's entry after it is written.
    """

    __slots__ = ("base_offset", "last_offset", "last_sequence", "leader_epoch", "max_timestamp", "producer",
                 "size_bytes")  # fmt: skip

    def __init__(
        self,
        size_bytes: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        leader_epoch: int,
        producer: ProducerEntry | None = None,
        last_sequence: int = NO_SEQUENCE,
    ) -> None:
        self.size_bytes = size_bytes
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.leader_epoch = leader_epoch
        self.producer = producer
        self.last_sequence = last_sequence

    def follow(self, producer: ProducerEntry, last_sequence: int) -> None:
        """Make it the batch that follows the producer's last one."""
        self.producer = producer
        self.last_sequence = last_sequence


class RulesByOrigin(dict[AppendOrigin, ValidationRules]):
    """A topic's validation rules for each origin, made when first used: most logs use those of one or two."""

    def __init__(self, config: LogConfig, topic_partition: TopicPartition) -> None:
        super().__init__()
        self._config = config
        self._topic_partition = topic_partition

    def __missing__(self, origin: AppendOrigin) -> ValidationRules:
        rules = self[origin] = rules_for(self._config, self._topic_partition, origin)
        return rules


def rules_for(config: LogConfig, topic_partition: TopicPartition, origin: AppendOrigin) -> ValidationRules:
    """Return the topic's validation rules for records from `origin`."""
    is_append_time = config.message_timestamp_type == "LogAppendTime"
    return ValidationRules(
        topic_partition=str(topic_partition),
        origin=origin,
        is_compacted=config.is_compacted,
        compression_type=config.compression_type,
        compression_level=_level(config),
        timestamp_type=LOG_APPEND_TIME if is_append_time else CREATE_TIME,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        max_message_bytes=config.max_message_bytes,
        max_decompressed_bytes=max(config.max_message_bytes, MAX_APPENDED_BYTES),
        max_record_bytes=config.max_decompressed_message_bytes,
        now_ns=time.perf_counter_ns,
    )


def _level(config: LogConfig) -> int | None:
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return levels.get(config.compression_type)


def validate_on_worker(records: ReadableBuffer, rules: ValidationRules, now_ms: int) -> ValidatedRecords:
    """Validate a batch on a worker, before its offsets are known. Blocks for long; raises as validate_and_assign.

    The event loop keeps running: decompression releases the GIL, and the walk over the records yields to other threads.
    """
    return validate_and_assign(records, rules, next_offset=0, leader_epoch=0, now_ms=now_ms, pause=give_way)


def duplicate_result(duplicate: BatchMetadata, log_start_offset: int, stats: ValidationStats | None) -> AppendResult:
    """Return the result for a duplicate batch; stats: of the batch that was sent again."""
    return AppendResult(
        first_offset=duplicate.first_offset,
        last_offset=duplicate.last_offset,
        max_timestamp=NO_TIMESTAMP,
        log_append_time_ms=duplicate.timestamp_ms,
        log_start_offset=log_start_offset,
        size_bytes=0,
        is_duplicate=True,
        stats=stats,
    )


def prepare_producers(
    producers: ProducerState,
    validated: ValidatedRecords,
    origin: AppendOrigin,
    verification: VerificationGuard | None,
    transaction_version: int,
) -> PreparedAppend | None:
    """Check the batches that have a producer id; None if no batch has one. Raises as ProducerState.prepare."""
    batches = _producer_batches(validated)
    if not batches:
        return None
    return producers.prepare(batches, origin, verification=verification, transaction_version=transaction_version)


def _producer_batches(validated: ValidatedRecords) -> list[ProducerBatch]:
    found = []
    for index, span in enumerate(validated.batches):
        if span.producer_id >= 0:
            batch = _producer_batch(validated.data, index, span)
            if batch is not None:
                found.append(batch)
    return found


def _producer_batch(data: Sequence[ReadableBuffer], index: int, span: BatchSpan) -> ProducerBatch | None:
    marker = None
    if span.is_control:
        marker = read_marker(data[0], span.position) if len(data) == 1 else read_marker(data[index], 0)
        if marker is None:
            return None
    return ProducerBatch(
        span.producer_id,
        span.producer_epoch,
        span.base_sequence,
        span.last_sequence,
        span.base_offset,
        span.last_offset,
        span.max_timestamp,
        span.is_transactional,
        marker,
    )


def in_sequence_batch(producer: ProducerEntry, span: BatchSpan) -> PlacedBatch:
    """Return the batch of a span that is next in its producer's sequence."""
    return PlacedBatch(
        span.size_bytes,
        span.base_offset,
        span.last_offset,
        span.max_timestamp,
        span.leader_epoch,
        producer,
        span.last_sequence,
    )


def assign_leader_epochs(epochs: LeaderEpochs, batches: Sequence[AppendedBatch]) -> None:
    """Record where leader epochs begin in appended batches."""
    for batch in batches:
        if batch.leader_epoch >= 0:
            epochs.assign(batch.leader_epoch, batch.base_offset)


def commit_producers(producers: ProducerState, prepared: PreparedAppend) -> None:
    """Update producer state after an append was written, and complete the transactions that it ended."""
    producers.commit(prepared)
    for completed in prepared.completed:
        producers.complete(completed)
