"""A partition's log: segments on disk, offsets, producers, leader epochs.

Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset (the next offset to be written);
recovery_point <= log_end_offset, and everything below the recovery point is durable. Batch offsets strictly increase.

All methods are synchronous and run on the event loop's thread. An append writes to the page cache and does not sync;
`prepare_flush` makes a Flush, which a worker runs. A read that would block on the disk raises NeedsWarming: run its
`warm` in the IoPool, then read again. Errors: ApiError (offset out of range, refused records, no space:
KAFKA_STORAGE_ERROR), StorageError (the disk failed; the directory is offline), NeedsWarming.

The metadata log uses the same class: it appends with AppendOrigin.RAFT_LEADER and reads with LOG_END.

Rarer operations are functions over a Log: opening, truncation, flush, maintenance, lookup, replacement.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError, CorruptIndexError, StorageError
from kafkapy.record.batch import NO_TIMESTAMP
from kafkapy.record.errors import TooHeavyError
from kafkapy.record.leader_batch import bytes_to_check
from kafkapy.record.small_batch import takes_unchanged
from kafkapy.record.validate import AppendOrigin, ValidatedRecords, place, validate_and_assign
from kafkapy.seams import ReadableBuffer
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE, RECORD_LIST_TOO_LARGE, NeedsWorker
from kafkapy.storage.log.append import (
    AppendedBatch,
    AppendResult,
    PlacedBatch,
    RulesByOrigin,
    assign_leader_epochs,
    commit_producers,
    duplicate_result,
    in_sequence_batch,
    prepare_producers,
    validate_on_worker,
)
from kafkapy.storage.log.flush import Flush, prepare_closing_flush, run_flush
from kafkapy.storage.log.local_log import LocalLog, SharedByLogs
from kafkapy.storage.log.plain_append import append_plain
from kafkapy.storage.log.reader import FetchIsolation, LogRead
from kafkapy.storage.producers.state import PreparedAppend, VerificationGuard
from kafkapy.storage.recovery.loader import LoadedLog
from kafkapy.storage.segment.segment import Segment
from kafkapy.storage.segment.txn_index import AbortedTransaction
from kafkapy.types import INT32_MAX, OffsetAndEpoch, TopicPartition, Uuid

logger = logging.getLogger("kafkapy.storage")


class Log:
    """One partition's records and state. Only this class writes its fields. Created by `open_log`."""

    def __init__(
        self,
        loaded: LoadedLog,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        shared: SharedByLogs,
        *,
        now_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.log_dir = shared.log_dir
        self.config = config
        self.topic_id: Uuid | None = None
        """The id in partition.metadata; None if the file is missing or unreadable."""
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.leader_epochs = loaded.epochs
        self.producer_state = loaded.producers
        self.segments = loaded.segments
        self.last_flush_ms = now_ms
        self.clean_to: int | None = None
        """The cleaner has compacted the log below this offset; None if it has not, or if that is unknown."""
        self.flush_under_way: Flush | None = None
        self._closing_offset = -1
        """The log end offset at a complete closing flush."""
        self.is_retired = False
        """Whether it is permanently out of service: deleted, or replaced by its copy in another directory."""
        self.truncation_count = 0
        """Lets a flush or cleaning pass detect a truncation after its start."""
        self.local_log = LocalLog(loaded, shared, directory, config)
        self._reader = self.local_log.reader
        self.now_ms = now_ms
        """Time of the last append or retention check; a truncation uses it as the current time."""
        self.roll_ms = 0
        self.flush_messages = 0
        """When this many records lie above the recovery point, responses to appends wait for a flush."""
        self.flush_required_to = 0
        """Responses for records below this offset wait for the recovery point: flush.messages was reached."""
        self.update_config(config)
        self._check_offsets()

    def __str__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset} to {self.log_end_offset})"

    def __repr__(self) -> str:  # mypyc takes no `__repr__ = __str__`
        return str(self)

    @property
    def directory(self) -> str:
        return self.local_log.directory

    @property
    def is_offline(self) -> bool:
        return self.log_dir.is_offline

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def latest_epoch(self) -> int | None:
        return self.leader_epochs.latest_epoch

    @property
    def last_stable_offset(self) -> int:
        """The end for read_committed readers: the start of the oldest open transaction, or the high watermark."""
        first_unstable_offset = self.producer_state.first_unstable_offset
        if first_unstable_offset is None or first_unstable_offset >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable_offset, self.log_start_offset)

    @property
    def is_empty(self) -> bool:
        return self.log_start_offset == self.log_end_offset

    def update_config(self, config: LogConfig) -> None:
        """Apply a configuration: a key counts from its next use (by an append, a retention check, the cleaner)."""
        self.config = self.local_log.config = config
        self._rules = RulesByOrigin(config, self.topic_partition)
        self.client_rules = self._rules[AppendOrigin.CLIENT]  # cached: hashing an Enum calls Python code
        self.takes_own_batches = takes_unchanged(self.client_rules)
        self.takes_plain_batches = self.takes_own_batches and not self.client_rules.is_compacted
        self.flush_messages = config.flush_messages
        self.roll_ms = config.segment_ms
        if self.client_rules.is_compacted and config.max_compaction_lag_ms > 0:
            self.roll_ms = min(config.segment_ms, config.max_compaction_lag_ms)

    @contextlib.contextmanager
    def failures(self, doing: str) -> Iterator[None]:
        """Convert an OSError by LogDirState.handle_os_error, a CorruptIndexError to KAFKA_STORAGE_ERROR."""
        try:
            yield
        except (OSError, CorruptIndexError) as error:
            raise self._failure(error, f"{doing} in {self.topic_partition}") from error

    def _failure(self, error: OSError | CorruptIndexError, doing: str) -> ApiError | StorageError:
        """Return the error to raise. The next start rebuilds an index that was damaged after the log was loaded."""
        if isinstance(error, OSError):
            return self.log_dir.handle_os_error(error, doing)
        logger.error("An index of %s is damaged; the next start rebuilds it: %s", self.topic_partition, error)
        return ApiError(KAFKA_STORAGE_ERROR, f"an index of {self.topic_partition} is damaged")

    # Appending

    def append_as_leader(
        self,
        records: ReadableBuffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Validate records, assign offsets, write them. A writable buffer is patched in place and must not be reused.

        verification: the guard for the first batch of a transaction (from `start_verification`). transaction_version:
        that of the markers if the origin is COORDINATOR. A duplicate of one of the producer's last batches is not
        appended. Raises NeedsWorker if checking a CLIENT batch takes long: run its check, then call append_checked.
        """
        if self.log_dir.offline_reason is not None:
            self.log_dir.check_online()
        is_from_client = origin is AppendOrigin.CLIENT
        # the usual batch takes the short way, which checks no guard: a transaction's first batch has to go the long one
        if is_from_client and verification is None and self.takes_plain_batches:
            plain = append_plain(self, records, leader_epoch, now_ms)
            if plain is not None:
                return plain
        rules = self.client_rules if is_from_client else self._rules[origin]
        try:
            validated = validate_and_assign(
                records,
                rules,
                next_offset=self.log_end_offset,
                leader_epoch=leader_epoch,
                now_ms=now_ms,
                is_on_loop=is_from_client,
            )
        except TooHeavyError:
            needed_bytes = bytes_to_check(memoryview(records), rules)
            raise NeedsWorker(lambda: validate_on_worker(records, rules, now_ms), needed_bytes) from None
        return self._append(validated, origin, now_ms, verification, transaction_version)

    def append_checked(
        self,
        checked: ValidatedRecords,
        *,
        leader_epoch: int,
        now_ms: int,
        verification: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append the result of NeedsWorker.check, as append_as_leader does."""
        self.log_dir.check_online()
        validated = place(checked, next_offset=self.log_end_offset, leader_epoch=leader_epoch)
        return self._append(validated, AppendOrigin.CLIENT, now_ms, verification, 0)

    def append_as_follower(self, records: ReadableBuffer, now_ms: int, *, leader_epoch: int = -1) -> AppendResult:
        """Write batches with the leader's offsets and epochs; an incomplete last batch is dropped.

        leader_epoch: the replica's; a batch with a later epoch is dropped, with all batches after it. Raises
        CorruptRecordError, InvalidRecordsError (offsets that do not increase from the log end offset).
        """
        self.log_dir.check_online()
        # the leader has walked the records and placed them: headers, CRCs and the order of offsets are left to check
        rules = self._rules[AppendOrigin.REPLICATION]
        validated = validate_and_assign(
            records, rules, next_offset=self.log_end_offset, leader_epoch=leader_epoch, now_ms=now_ms
        )
        return self._append(validated, AppendOrigin.REPLICATION, now_ms, None, 0)

    def _append(
        self,
        validated: ValidatedRecords,
        origin: AppendOrigin,
        now_ms: int,
        verification: VerificationGuard | None,
        transaction_version: int,
    ) -> AppendResult:
        if self.log_dir.is_full:
            self.log_dir.check_room()
        data, batches, size_bytes, first_offset, last_offset, max_timestamp, _, _, append_time_ms, stats = validated
        if not batches:
            return AppendResult(-1, -1, NO_TIMESTAMP, NO_TIMESTAMP, self.log_start_offset, 0)
        segment_bytes = self.config.segment_bytes
        if size_bytes > segment_bytes:
            message = f"an append of {size_bytes} bytes to {self.topic_partition}, whose segments take {segment_bytes}"
            raise ApiError(RECORD_LIST_TOO_LARGE, message)
        prepared = producer = None  # checked before a roll: a refused batch or a duplicate leaves the log as it was
        span = batches[0]
        if origin is AppendOrigin.CLIENT and span.producer_id >= 0 and not span.is_control:
            producer = self.producer_state.producer_in_sequence(
                span.producer_id, span.producer_epoch, span.base_sequence, span.is_transactional
            )
        if producer is None and (span.producer_id >= 0 or len(batches) > 1):
            prepared = prepare_producers(self.producer_state, validated, origin, verification, transaction_version)
            if prepared is not None and prepared.duplicate is not None:
                return duplicate_result(prepared.duplicate, self.log_start_offset, stats)
        in_sequence = () if producer is None else (in_sequence_batch(producer, span),)
        segment = self.segments.active
        if self.must_roll(size_bytes, max_timestamp, last_offset, now_ms):
            segment = self.roll(now_ms, at_offset=first_offset if last_offset - self.log_end_offset > INT32_MAX else 0)
        self.write_batches(segment, data, size_bytes, batches, now_ms, in_sequence, prepared)
        return AppendResult(
            first_offset, last_offset, max_timestamp, append_time_ms, self.log_start_offset, size_bytes, stats=stats
        )

    def write_batches(
        self,
        segment: Segment,
        data: list[ReadableBuffer],
        size_bytes: int,
        batches: Sequence[AppendedBatch],
        now_ms: int,
        in_sequence: Sequence[PlacedBatch] = (),
        prepared: PreparedAppend | None = None,
    ) -> None:
        """Write validated batches at the log end offset and update offsets, leader epochs and producers.

        Every append ends here. in_sequence: those that follow their producer's last batch; prepared: the result of
        ProducerState.prepare for the others. Raises ApiError (no room) and StorageError; the log is then unchanged.
        """
        last = batches[-1]
        end_offset = last.last_offset + 1
        # the last stable offset lies between the first two by its definition
        assert self.log_start_offset <= self.high_watermark <= self.log_end_offset, f"{self}"
        assert self.log_end_offset <= batches[0].base_offset < end_offset, f"{self}: {batches[0]} to {end_offset}"
        aborted = () if prepared is None else self.producer_state.aborted_by(prepared)
        try:
            segment.append(data, size_bytes, batches, aborted)
        except (OSError, CorruptIndexError) as error:
            raise self._failure(error, f"appending to {self.topic_partition}") from error
        self.now_ms = now_ms
        self.log_end_offset = end_offset
        self._reader.known.remember(end_offset, segment, segment.size)
        if last.leader_epoch != self.leader_epochs.latest_epoch:  # epochs never decrease along a log
            assign_leader_epochs(self.leader_epochs, batches)
        for each in in_sequence:
            assert each.producer is not None, f"{self}: {each} is of no producer"
            delta = each.last_offset - each.base_offset
            each.producer.add_batch(each.last_sequence, each.last_offset, delta, each.max_timestamp)
        if prepared is not None:
            commit_producers(self.producer_state, prepared)
        self.producer_state.record_end_offset(end_offset)
        if end_offset - self.recovery_point >= self.flush_messages:
            self.flush_required_to = end_offset

    # Rolling

    def must_roll(self, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Return whether an append needs a new segment. Raises ApiError and StorageError as write_batches does."""
        try:
            return self.segments.active.should_roll(
                self.config, size_bytes=size_bytes, max_timestamp=max_timestamp, last_offset=last_offset, now_ms=now_ms,
                roll_ms=self.roll_ms,
            )  # fmt: skip
        except OSError as error:  # the first append to a loaded segment reads its first batch
            raise self.log_dir.handle_os_error(error, f"reading {self.topic_partition}") from error

    def roll(self, now_ms: int, *, at_offset: int = 0) -> Segment:
        """Start a new segment at the log end offset (or at `at_offset`, if that is higher); return it.

        An empty active segment at that offset is kept. A producer snapshot is taken there, for recovery to start from.
        """
        self.log_dir.check_online()
        base_offset = max(at_offset, self.log_end_offset)
        old = self.segments.active
        if old.size == 0 and old.base_offset == base_offset:
            return old
        assert base_offset > old.base_offset, f"roll to {base_offset} at or below {old.base_offset}"
        with self.failures("rolling"):
            segment = self.local_log.roll(base_offset, self.log_end_offset, self.producer_state, now_ms)
        logger.info("Rolled new log segment at offset %d of %s", base_offset, self.topic_partition)
        return segment

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        min_one_batch: bool = True,
        wait: bool = False,
    ) -> LogRead:
        """Return a region of whole batches from the one that holds `offset`, up to max_bytes and the isolation's limit.

        min_one_batch: return the first batch even if it is larger than max_bytes. The region's pages may not be cached;
        the sender checks that. Raises ApiError OFFSET_OUT_OF_RANGE; NeedsWarming unless `wait`, which blocks instead.
        """
        self.log_dir.check_online()
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            message = f"offset {offset} of {self.topic_partition}, which has [{self.log_start_offset}, {end_offset}]"
            raise ApiError(OFFSET_OUT_OF_RANGE, message)
        last_stable_offset = self.last_stable_offset
        aborted: list[AbortedTransaction] | None = None
        limit = end_offset
        if isolation is FetchIsolation.HIGH_WATERMARK:
            limit = self.high_watermark
        elif isolation is FetchIsolation.TXN_COMMITTED:
            limit = last_stable_offset
            aborted = []  # even if there is none: None is for the other isolation levels, as null is on the wire
        read = LogRead(
            None, offset, offset, 0, aborted, self.high_watermark, self.log_start_offset, last_stable_offset, False
        )
        if offset >= limit:
            return read
        try:
            self._reader.fill(
                read,
                limit=limit,
                log_end_offset=end_offset,
                max_bytes=max_bytes,
                min_one_batch=min_one_batch,
                wait=wait,
            )
        except (OSError, CorruptIndexError) as error:
            raise self._failure(error, f"reading {self.topic_partition}") from error
        return read

    # Offsets

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, clamped to [log_start_offset, log_end_offset]; return the new value.

        It may decrease: a new leader's may be lower than the one this replica had.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            offset = max(self.log_start_offset, min(offset, self.log_end_offset))
        self.high_watermark = offset
        if self.producer_state.first_unstable_offset is not None:  # else no marker waits for the high watermark
            self.producer_state.on_high_watermark(offset)
        return offset

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Move the log start offset up to `offset`; return whether it moved.

        Raises ApiError OFFSET_OUT_OF_RANGE above the high watermark. delete_old_segments deletes segments below it.
        """
        self.log_dir.check_online()
        if offset > self.high_watermark:
            message = f"log start offset {offset} of {self.topic_partition} above high watermark {self.high_watermark}"
            raise ApiError(OFFSET_OUT_OF_RANGE, message)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._check_offsets()
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.on_high_watermark(offset)
        logger.info("Incremented log start offset of %s to %d", self.topic_partition, offset)
        return True

    def is_flush_due_after(self, record_count: int) -> bool:
        """Whether flush.messages requires a flush after so many more records."""
        return self.log_end_offset + record_count - self.recovery_point >= self.flush_messages

    def is_committed(self, end_offset: int) -> bool:
        """Return whether all records below end_offset are committed, and durable if flush.messages requires it."""
        return self.high_watermark >= end_offset and not self.recovery_point < end_offset <= self.flush_required_to

    def end_offset_for_epoch(self, leader_epoch: int) -> OffsetAndEpoch | None:
        """Return the largest epoch at or below `leader_epoch` and its end offset, or None if unknown."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # State changes reported by the functions of the neighbouring modules

    def record_time(self, now_ms: int) -> None:
        """Record the time, for later operations that are not given one."""
        self.now_ms = now_ms

    def on_flush_begun(self, flush: Flush) -> None:
        self.flush_under_way = flush

    def on_flush_ended(self) -> None:
        self.flush_under_way = None

    def on_flushed(self, end_offset: int, now_ms: int) -> None:
        """Record that everything below end_offset is durable."""
        assert end_offset <= self.log_end_offset, f"{self} was flushed up to {end_offset}"
        self.last_flush_ms = now_ms
        self.recovery_point = max(self.recovery_point, end_offset)
        self._check_offsets()

    def lower_recovery_point(self, offset: int) -> None:
        """Stop counting records at or above `offset` as durable, before the log is truncated there."""
        assert offset >= 0, f"recovery point {offset} of {self}"
        self.recovery_point = min(self.recovery_point, offset)

    def on_truncation_begun(self, offset: int) -> None:
        """Prepare for the removal of records at and above `offset`; see truncation_count."""
        self.truncation_count += 1
        self.lower_recovery_point(offset)
        self.flush_required_to = min(self.flush_required_to, offset)
        if self.clean_to is not None:
            self.clean_to = min(self.clean_to, offset)

    def on_truncated(self, end_offset: int, log_start_offset: int) -> None:
        """Set the end and start offsets after a truncation; clamp the high watermark."""
        self.log_end_offset = end_offset
        self.log_start_offset = log_start_offset
        self.high_watermark = max(log_start_offset, min(self.high_watermark, end_offset))
        self._check_offsets()

    def on_cleaned(self, offset: int | None) -> None:
        """Record that the cleaner has compacted everything below `offset`, or is to start there; None if unknown."""
        assert offset is None or offset >= 0, f"{self} is clean up to {offset}"
        self.clean_to = offset
        self._check_offsets()

    def set_topic_id(self, topic_id: Uuid | None) -> None:
        """Record the id in partition.metadata."""
        assert self.topic_id in (None, topic_id), f"{self} is another topic's"
        self.topic_id = topic_id

    def on_retired(self) -> None:
        """Mark the log as permanently out of service: deleted, or replaced by its copy in another directory."""
        self.is_retired = True

    def _check_offsets(self) -> None:
        """Assert that the offsets are in order: log start <= LSO <= HW <= LEO, and recovery point <= LEO."""
        stable, high = self.last_stable_offset, self.high_watermark
        assert self.log_start_offset <= stable <= high <= self.log_end_offset, f"{self}: {stable=} {high=}"
        assert self.recovery_point <= self.log_end_offset, f"{self}: durable up to {self.recovery_point}"

    def on_ready_to_close(self, end_offset: int) -> None:
        """Record a complete closing flush up to end_offset: `close` syncs the files again only if something changed."""
        assert end_offset <= self.log_end_offset, f"{self} was flushed up to {end_offset}"
        self._closing_offset = end_offset

    @property
    def _is_ready_to_close(self) -> bool:
        return self._closing_offset == self.log_end_offset == self.recovery_point and not self.leader_epochs.is_dirty

    def close(self) -> None:
        """Flush everything and close the files. Blocks. If the directory is offline, only close the files."""
        if not self.is_offline and not self._is_ready_to_close:
            with self.failures("closing"):
                run_flush(prepare_closing_flush(self))
        self.local_log.close_files()
