"""A partition's log: segments on disk, offsets, producers, leader epochs.

Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset (the next offset to be written);
recovery_point <= log_end_offset, and below it all is durable. Offsets of batches rise and never repeat.

Plain calls on the event loop's thread. An append writes to the page cache and does not sync; `prepare_flush` hands the
syncs to a worker. A read that would have to wait for the disk raises NeedsWarming: run its `warm` in the IoPool, then
ask again. Errors: ApiError (offset out of range, refused records, no space: KAFKA_STORAGE_ERROR), StorageError (the
disk failed; the directory is offline), NeedsWarming.

The same class holds the metadata log: append_as_leader with AppendOrigin.RAFT_LEADER, reads with LOG_END.

Longer than a module should be: it is the one face of a log, and what it does not decide itself is one call down
(local_log files, log_read finding, producer_state, leader_epochs, retention, recovery).
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError, CorruptIndexError, StorageError
from kafkapy.record.errors import RecordsError, TooHeavyError
from kafkapy.record.validate import AppendOrigin, ValidatedRecords, ValidationRules, place, validate_and_assign
from kafkapy.seams import Disk, ReadableBuffer
from kafkapy.storage import checkpoint
from kafkapy.storage.append import (
    NO_TIMESTAMP,
    AppendResult,
    check_apart,
    duplicate_result,
    producer_batches,
    rules_for,
)
from kafkapy.storage.errors import (
    INCONSISTENT_TOPIC_ID,
    KAFKA_STORAGE_ERROR,
    OFFSET_OUT_OF_RANGE,
    RECORD_LIST_TOO_LARGE,
    CheckpointError,
    NeedsWorker,
)
from kafkapy.storage.flush import Flush
from kafkapy.storage.local_log import LocalLog
from kafkapy.storage.log_dir import LogDirState
from kafkapy.storage.log_read import FetchIsolation, LogRead
from kafkapy.storage.open_files import OpenFiles
from kafkapy.storage.producer_replay import rebuild_producers
from kafkapy.storage.producer_state import PreparedAppend, ProducerEntry, ProducerState, VerificationGuard
from kafkapy.storage.recovery import LoadedLog, LogLoader
from kafkapy.storage.retention import due_segments
from kafkapy.storage.segment import Segment
from kafkapy.storage.time_index import TimestampOffset
from kafkapy.storage.time_search import Searched, find_largest, find_timestamp
from kafkapy.storage.txn_index import AbortedTransaction
from kafkapy.types import OffsetAndEpoch, TopicPartition, Uuid

__all__ = ["AbortedTransaction", "AppendOrigin", "AppendResult", "FetchIsolation", "Log", "LogRead", "TimestampOffset"]

logger = logging.getLogger("kafkapy.storage")


class Log:
    """See the module. Made by `open`."""

    def __init__(
        self,
        loaded: LoadedLog,
        files: OpenFiles,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        log_dir: LogDirState,
        *,
        now_ms: int,
        jitter: Callable[[int], int] | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.log_dir = log_dir
        self.config = config
        self.topic_id: Uuid | None = None
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.leader_epochs = loaded.epochs
        self.producer_state = loaded.producers
        self.segments = loaded.segments
        self.last_flush_ms = now_ms
        self.clean_to: int | None = None
        """Up to here the cleaner has compacted the log; None where it has not, or that is not known."""
        self.truncation_count = 0
        """What was read before a truncation may no longer be what the log holds: a flush, a pass of the cleaner."""
        self._disk = files.disk
        self._local = LocalLog(loaded, files, directory, config, jitter)
        self._reader = self._local.reader
        self._first_unstable_offset = loaded.producers.first_unstable_offset
        self._rules: dict[AppendOrigin, ValidationRules] = {}
        self._now_ms = now_ms
        self._roll_ms = 0
        self.flush_messages = 0
        """How many records may lie behind the recovery point before somebody has to wait for a flush."""
        self.update_config(config)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        was_clean_shutdown: bool = True,
        is_recovered: bool = False,
        topic_id: Uuid | None = None,
        files: OpenFiles | None = None,
        log_dir: LogDirState | None = None,
        new_producer_state: Callable[[], ProducerState] = ProducerState,
        jitter: Callable[[int], int] | None = None,
    ) -> "Log":
        """Open the log in `directory`, or make it; recover it unless the last stop was clean. Blocks.

        log_start_offset and recovery_point are what the checkpoints say; is_recovered: see LogLoader. files: the
        cache of open files that all logs share, one of its own if not given; log_dir: likewise. jitter(n): a random
        int in [0, n) for segment.jitter.ms. Raises StorageError; ApiError INCONSISTENT_TOPIC_ID where the directory
        holds another topic.
        """
        files = files if files is not None else OpenFiles(disk)
        log_dir = log_dir if log_dir is not None else LogDirState(directory.rpartition("/")[0] or ".")
        try:
            disk.make_directory(directory)
            loader = LogLoader(
                files,
                directory,
                topic_partition,
                config,
                now_ms=now_ms,
                log_start_offset=log_start_offset,
                recovery_point=recovery_point,
                was_clean_shutdown=was_clean_shutdown,
                is_recovered=is_recovered,
                new_producer_state=new_producer_state,
            )
            loaded = loader.load()
            log = cls(loaded, files, directory, topic_partition, config, log_dir, now_ms=now_ms, jitter=jitter)
            log._read_topic_id(topic_id)
        except OSError as error:
            raise log_dir.failure(error, f"loading {topic_partition}") from error
        except RecordsError as error:  # after a clean stop nothing is cut off: somebody has to look
            raise StorageError(log_dir.path, f"{directory} is damaged: {error.message}") from error
        return log

    def __repr__(self) -> str:
        offsets = f"[{self.log_start_offset}, {self.log_end_offset})"
        return f"Log({self.topic_partition}, {offsets}, {len(self.segments)} segments)"

    # Facts

    @property
    def directory(self) -> str:
        return self._local.directory

    @property
    def is_offline(self) -> bool:
        return self.log_dir.is_offline

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self.segments)

    @property
    def latest_epoch(self) -> int | None:
        return self.leader_epochs.latest_epoch

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop: the oldest open transaction, or the high watermark."""
        first_unstable_offset = self._first_unstable_offset
        high_watermark = self.high_watermark
        if first_unstable_offset is None or first_unstable_offset >= high_watermark:
            return high_watermark
        return max(first_unstable_offset, self.log_start_offset)

    @property
    def is_empty(self) -> bool:
        return self.log_start_offset == self.log_end_offset

    def update_config(self, config: LogConfig) -> None:
        """Take a new configuration; it holds from the next append on."""
        self.config = self._local.config = config
        self._rules = {origin: rules_for(config, self.topic_partition, origin) for origin in AppendOrigin}
        self.flush_messages = config.flush_messages
        self._roll_ms = config.segment_ms
        if config.is_compacted and config.max_compaction_lag_ms > 0:
            self._roll_ms = min(config.segment_ms, config.max_compaction_lag_ms)

    def _read_topic_id(self, topic_id: Uuid | None) -> None:
        path = f"{self.directory}/{checkpoint.PARTITION_METADATA_FILE}"
        if self._disk.exists(path):
            try:
                self.topic_id = checkpoint.decode_partition_metadata(self._disk.read_file(path), path)
            except CheckpointError as error:
                logger.warning("%s: its topic id is unknown until the metadata tells", error)
        if topic_id is not None:
            self.assign_topic_id(topic_id)

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Write partition.metadata, unless it is there. Raises ApiError INCONSISTENT_TOPIC_ID where it has another id.

        Not synced here; the first flush does that.
        """
        if self.topic_id == topic_id:
            return
        if self.topic_id is not None:
            raise ApiError(INCONSISTENT_TOPIC_ID, f"{self.directory} holds another topic of the name")
        with self._failures("writing partition.metadata"):
            data = checkpoint.encode_partition_metadata(topic_id)
            file = self._disk.open(f"{self.directory}/{checkpoint.PARTITION_METADATA_FILE}", create=True)
            try:
                file.truncate(len(data))
                file.pwrite((data,), 0)
            finally:
                file.close()
        self.topic_id = topic_id
        self._local.has_new_names = True

    @contextlib.contextmanager
    def _failures(self, doing: str) -> Iterator[None]:
        """Turn OSErrors of the block into what they mean for the directory, a broken index into an error code."""
        try:
            yield
        except OSError as error:
            raise self.log_dir.failure(error, f"{doing} in {self.topic_partition}") from error
        except CorruptIndexError as error:
            raise self._corrupt(error) from error

    def _corrupt(self, error: CorruptIndexError) -> ApiError:
        """An index that was sound when the log was loaded and no longer is: the next start rebuilds it."""
        logger.error("%s: %s", self.topic_partition, error)
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
        """Check records, give them offsets, write them. A writable buffer is patched in place and must not be reused.

        verification: proof for the first batch of a transaction (`start_verification`). transaction_version: of the
        markers that a COORDINATOR writes. A duplicate of one of the producer's last batches appends nothing.
        Raises NeedsWorker for a CLIENT's batch that takes long to check; then comes append_checked.
        """
        self.log_dir.check_online()
        self._now_ms = now_ms
        rules = self._rules[origin]
        try:
            validated = validate_and_assign(
                records,
                rules,
                next_offset=self.log_end_offset,
                leader_epoch=leader_epoch,
                now_ms=now_ms,
                is_on_loop=origin is AppendOrigin.CLIENT,
            )
        except TooHeavyError:
            raise NeedsWorker(lambda: check_apart(records, rules, now_ms)) from None
        return self._append(validated, origin, now_ms, verification, transaction_version)

    def append_checked(
        self,
        checked: ValidatedRecords,
        *,
        leader_epoch: int,
        now_ms: int,
        verification: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append what NeedsWorker.check returned, as append_as_leader does."""
        self.log_dir.check_online()
        self._now_ms = now_ms
        validated = place(checked, next_offset=self.log_end_offset, leader_epoch=leader_epoch)
        return self._append(validated, AppendOrigin.CLIENT, now_ms, verification, 0)

    def append_as_follower(self, records: ReadableBuffer, now_ms: int, *, leader_epoch: int = -1) -> AppendResult:
        """Write batches as the leader wrote them, offsets and epochs kept; a batch that is cut short is left out.

        leader_epoch: the replica's; batches of a later one are left out, with all behind them. Raises
        CorruptRecordError, InvalidRecordsError (offsets that do not rise from the log end offset on).
        """
        self.log_dir.check_online()
        self._now_ms = now_ms
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
        data, batches, size_bytes, first_offset, last_offset, max_timestamp, _, _, append_time_ms = validated
        if not batches:
            return AppendResult(-1, -1, NO_TIMESTAMP, NO_TIMESTAMP, self.log_start_offset, 0)
        config = self.config
        if size_bytes > config.segment_bytes:
            message = (
                f"an append of {size_bytes} bytes to {self.topic_partition}, whose segments take {config.segment_bytes}"
            )
            raise ApiError(RECORD_LIST_TOO_LARGE, message)
        prepared = producer = None
        span = batches[0]
        if origin is AppendOrigin.CLIENT and span.producer_id >= 0:
            producer = self.producer_state.producer_that_goes_on_with(span.producer_id, span)
        if producer is None and (span.producer_id >= 0 or len(batches) > 1):
            prepared = self._prepare_producers(validated, origin, verification, transaction_version)
            if prepared is not None and prepared.duplicate is not None:
                return duplicate_result(prepared.duplicate, self.log_start_offset)
        segment = self.segments.active
        if segment.should_roll(
            config,
            size_bytes=size_bytes,
            max_timestamp=max_timestamp,
            last_offset=last_offset,
            now_ms=now_ms,
            roll_ms=self._roll_ms,
        ):
            segment = self.roll(now_ms, at_offset=first_offset)
        self._write(segment, data, size_bytes, validated)
        self.log_end_offset = end_offset = last_offset + 1
        self._reader.known.note(end_offset, segment, segment.size)
        for batch in batches:
            if batch.leader_epoch != self.leader_epochs.latest_epoch and batch.leader_epoch >= 0:
                self.leader_epochs.assign(batch.leader_epoch, batch.base_offset)
        if producer is not None:
            producer.add(span)
        elif prepared is not None:
            self._commit_producers(prepared, segment)
        self.producer_state.map_end_offset = end_offset
        return AppendResult(first_offset, last_offset, max_timestamp, append_time_ms, self.log_start_offset, size_bytes)

    def _write(
        self, segment: Segment, data: Sequence[ReadableBuffer], size_bytes: int, validated: ValidatedRecords
    ) -> None:
        try:
            segment.append(data, size_bytes, validated.batches)
        except OSError as error:
            raise self.log_dir.failure(error, f"appending to {self.topic_partition}") from error

    def _prepare_producers(
        self,
        validated: ValidatedRecords,
        origin: AppendOrigin,
        verification: VerificationGuard | None,
        transaction_version: int,
    ) -> PreparedAppend | None:
        batches = producer_batches(validated)
        if not batches:
            return None
        return self.producer_state.prepare(
            batches, origin, verification=verification, transaction_version=transaction_version
        )

    def _commit_producers(self, prepared: PreparedAppend, segment: Segment) -> None:
        """Take over the producers of an append that was written, and the transactions that it ended."""
        producers = self.producer_state
        producers.commit(prepared)
        for completed in prepared.completed:
            last_stable_offset = producers.last_stable_offset_after(completed)
            if completed.is_aborted:
                with self._failures("writing the transaction index"):
                    segment.txn_index.append(AbortedTransaction(*completed[:3], last_stable_offset))
            producers.complete(completed)
        self._first_unstable_offset = producers.first_unstable_offset

    def start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Return the guard to bring with the first batch of a transaction; None where it is open already."""
        return self.producer_state.start_verification(
            producer_id, sequence, producer_epoch, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    # Rolling

    def roll(self, now_ms: int, *, at_offset: int = 0) -> Segment:
        """Begin a new segment at the log end offset (or at `at_offset`, if that is higher); return it.

        An empty active segment at that offset stays. The producer snapshot at its start is what recovery begins with.
        """
        self.log_dir.check_online()
        base_offset = max(at_offset, self.log_end_offset)
        old = self.segments.active
        if old.size == 0 and old.base_offset == base_offset:
            return old
        assert base_offset > old.base_offset, f"roll to {base_offset} at or below {old.base_offset}"
        with self._failures("rolling"):
            segment = self._local.roll(base_offset, self.log_end_offset, self.producer_state, now_ms)
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

        min_one_batch: the first batch is returned even where it is larger. The region's own pages may be cold: whoever
        sends it asks. Raises ApiError OFFSET_OUT_OF_RANGE; NeedsWarming unless `wait`, which blocks instead.
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
            aborted = []
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
        except OSError as error:
            raise self.log_dir.failure(error, f"reading {self.topic_partition}") from error
        except CorruptIndexError as error:
            raise self._corrupt(error) from error
        return read

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that touch [start_offset, end_offset)."""
        segment = self.segments.floor(start_offset)
        return self._reader.aborted_transactions(start_offset, end_offset, segment) if segment is not None else []

    def offset_for_timestamp(
        self, timestamp_ms: int, *, wait: bool = False, searched: Searched | None = None
    ) -> TimestampOffset | None:
        """Return the first record at or after `timestamp_ms`, None where there is none.

        Raises NeedsWarming unless `wait`, HeavySearch where `searched` is given (empty at first). The caller holds it
        against the high watermark or last stable offset.
        """
        self.log_dir.check_online()
        with self._failures("searching"):
            for segment in self.segments:
                if self._local.largest_timestamp_ms(segment) >= timestamp_ms:
                    return find_timestamp(segment, timestamp_ms, self.log_start_offset, wait=wait, searched=searched)
        return None

    def offset_of_max_timestamp(
        self, *, wait: bool = False, searched: Searched | None = None
    ) -> TimestampOffset | None:
        """Return the first record that has the log's largest timestamp, None where no record has one.

        Raises as offset_for_timestamp does.
        """
        self.log_dir.check_online()
        with self._failures("searching"):
            latest = max(self.segments, key=lambda segment: segment.largest.timestamp_ms)
            return find_largest(latest, wait=wait, searched=searched)

    def segment_times(self) -> list[tuple[int, int]]:
        """Return (first offset, when last written in ms) of each segment. Raises StorageError."""
        with self._failures("looking at the segments of"):
            return [
                (max(segment.base_offset, self.log_start_offset), self._local.modified_ms(segment))
                for segment in self.segments
            ]

    def earliest(self) -> TimestampOffset:
        """Return the log start offset and its leader epoch, where that is known; the timestamp is -1."""
        entry = self.leader_epochs.earliest
        is_known = entry is not None and entry.start_offset <= self.log_start_offset
        return TimestampOffset(NO_TIMESTAMP, self.log_start_offset, entry.leader_epoch if entry and is_known else -1)

    # Offsets

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, kept within [log_start_offset, log_end_offset]; return what it is now.

        It may go back: a new leader's may be lower than what this replica had seen.
        """
        offset = max(self.log_start_offset, min(offset, self.log_end_offset))
        self.high_watermark = offset
        if self.producer_state.on_high_watermark(offset):
            self._first_unstable_offset = self.producer_state.first_unstable_offset
        return offset

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Move the log start offset up to `offset`; return whether it moved.

        Raises ApiError OFFSET_OUT_OF_RANGE above the high watermark. Segments below it go by delete_old_segments.
        """
        self.log_dir.check_online()
        if offset > self.high_watermark:
            message = (
                f"log start offset {offset} of {self.topic_partition} above the high watermark {self.high_watermark}"
            )
            raise ApiError(OFFSET_OUT_OF_RANGE, message)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.on_high_watermark(offset)
        self._first_unstable_offset = self.producer_state.first_unstable_offset
        logger.info("Incremented log start offset of %s to %d", self.topic_partition, offset)
        return True

    def assign_leader_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Note that a leader epoch begins at an offset, as a new leader does before it writes."""
        self.leader_epochs.assign(leader_epoch, start_offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> OffsetAndEpoch | None:
        """Return the largest epoch at or below `leader_epoch` and its end offset; None where that is not known."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def active_producers(self) -> list[ProducerEntry]:
        """Return the state of all producers, for DescribeProducers."""
        return list(self.producer_state.producers.values())

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget producers that were silent for producer.id.expiration.ms."""
        self.producer_state.remove_expired(now_ms)

    # Truncating and deleting

    def truncate_to(self, offset: int) -> bool:
        """Drop all records at and above `offset`; return whether there were any. The recovery point falls with it.

        Blocks shortly. Where a recovery point checkpoint is kept it must be lowered first (LogManager.truncate_to):
        recovery trusts what lies below it.
        """
        self.log_dir.check_online()
        assert offset >= 0, f"truncation of {self.topic_partition} to {offset}"
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_to(self.log_end_offset)
            return False
        if offset < self.high_watermark:
            logger.warning("Truncating %s to %d, below its high watermark", self.topic_partition, offset)
        logger.info("Truncating %s to offset %d", self.topic_partition, offset)
        with self._failures("truncating"):
            if self.segments.first.base_offset > offset:
                self._start_over(offset, offset)
            else:
                self._cut(offset)
        return True

    def _cut(self, offset: int) -> None:
        self._begin_truncation(offset)
        self._local.cut(offset, self._now_ms)
        self.log_end_offset = offset
        self.leader_epochs.truncate_to(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._rebuild_producers()
        self.update_high_watermark(min(self.high_watermark, offset))

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; the log is then empty and goes on at `offset`."""
        self.log_dir.check_online()
        with self._failures("truncating"):
            self._start_over(offset, log_start_offset if log_start_offset is not None else offset)

    def _start_over(self, offset: int, log_start_offset: int) -> None:
        self._begin_truncation(offset)
        self._local.start_over(offset, self._now_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_epochs.clear()
        self.producer_state.clear(offset)
        self._rebuild_producers()
        self.update_high_watermark(offset)

    def _begin_truncation(self, offset: int) -> None:
        """Make a flush that is under way harmless: what it syncs is no longer what the log holds."""
        self.truncation_count += 1
        self.recovery_point = min(self.recovery_point, offset)
        if self.clean_to is not None:
            self.clean_to = min(self.clean_to, offset)

    def _rebuild_producers(self) -> None:
        rebuild_producers(
            self.producer_state,
            self._local.snapshots,
            self.segments,
            log_start_offset=self.log_start_offset,
            end_offset=self.log_end_offset,
            now_ms=self._now_ms,
            was_clean_shutdown=False,
        )
        self._first_unstable_offset = self.producer_state.first_unstable_offset

    def delete_old_segments(self, now_ms: int) -> int:
        """Delete the segments that retention or the log start offset calls for; return their number.

        The files go after file.delete.delay.ms, by take_due_files.
        """
        self.log_dir.check_online()
        self._now_ms = now_ms
        with self._failures("deleting segments"):
            due = due_segments(
                self._local.facts(self.log_end_offset),
                self.config,
                high_watermark=self.high_watermark,
                log_start_offset=self.log_start_offset,
                now_ms=now_ms,
            )
            if not due.segment_count:
                return 0
            segments = self.segments.all()[: due.segment_count]
            if due.segment_count == len(self.segments):
                self.roll(now_ms)
            following = self.segments.after(segments[-1])
            assert following is not None, "a log keeps at least one segment"
            self.maybe_increment_log_start_offset(following.base_offset)
            self._local.doom(segments)
        logger.info("Deleting %d segments of %s due to %s", due.segment_count, self.topic_partition, due.reason)
        return due.segment_count

    def take_due_files(self, now_ms: int) -> list[str]:
        """Return the files whose delay has passed; they are let go of, and unlinked by a worker."""
        return self._local.take_due_files(now_ms)

    def delete_due_files(self, now_ms: int) -> int | None:
        """Delete the files whose delay has passed; return when the next are due, None where none wait."""
        with self._failures("deleting files"):
            return self._local.delete_due_files(now_ms)

    def swap_in_cleaned(
        self, base_offset: int, replaced: Sequence[Segment], *, has_txn_index: bool, now_ms: int
    ) -> None:
        """Replace neighbouring segments by what the cleaner made of them: the .cleaned files at the first one's start.

        The old files go after file.delete.delay.ms; regions of them that are out stay readable. Raises StorageError:
        a swap that stops halfway takes the directory offline, and the next start finishes it.
        """
        self.log_dir.check_online()
        assert replaced[0].base_offset == base_offset, "a cleaned segment begins where the first one did"
        assert self.segments.active not in replaced, "the active segment is not cleaned"
        try:
            self._local.swap_in_cleaned(base_offset, list(replaced), has_txn_index=has_txn_index, now_ms=now_ms)
        except OSError as error:
            self.log_dir.go_offline(f"swapping in a cleaned segment of {self.topic_partition}: {error}")
            raise StorageError(self.log_dir.path, f"cleaning {self.topic_partition}: {error}") from error

    def sync_names(self) -> None:
        """Make renames durable. Blocks; for a worker. Raises OSError."""
        self._disk.sync_directory(self.directory)

    # Flushing and closing

    @property
    def is_flush_due(self) -> bool:
        """Whether flush.messages is reached, or a segment that was rolled is not durable yet."""
        unflushed = self.log_end_offset - self.recovery_point
        return unflushed >= self.config.flush_messages or self.recovery_point < self.segments.active.base_offset

    def prepare_flush(self, end_offset: int | None = None) -> Flush:
        """Collect what makes the log durable below `end_offset` (all of it, unless given).

        Run `flush.run` in the IoPool, then `complete_flush(flush)` here. Raises StorageError.
        """
        self.log_dir.check_online()
        end_offset = self.log_end_offset if end_offset is None else min(end_offset, self.log_end_offset)
        with self._failures("preparing a flush"):
            handles = self._local.handles_to_sync(self.recovery_point, end_offset, self.log_end_offset)
            flush = Flush(self, end_offset, self.truncation_count, handles)
            flush.others = self._local.other_syncs(self.leader_epochs)
        return flush

    def complete_flush(self, flush: Flush, now_ms: int | None = None) -> None:
        """Take over a flush that a worker has run: the recovery point moves, unless the log was truncated meanwhile.

        After one that failed the directory goes offline; one that found no room is made up for by the next.
        """
        flush.release()
        if flush.has_no_room:
            self._local.postpone(flush.others)
            return
        if flush.has_lost_names and flush.directory != self.directory:
            self._local.forget_syncs(self.leader_epochs)  # it was renamed under the flush; the next one does it all
            return
        if not flush.is_done:
            self.log_dir.go_offline(f"flush of {self.topic_partition} failed")
            return
        self.last_flush_ms = now_ms if now_ms is not None else self._now_ms
        if flush.generation == self.truncation_count:
            self.recovery_point = max(self.recovery_point, flush.end_offset)

    def flush(self, end_offset: int | None = None) -> None:
        """Make the log durable below `end_offset` (all of it, unless given). Blocks. Raises StorageError."""
        flush = self.prepare_flush(end_offset)
        try:
            flush.run()
        finally:
            self.complete_flush(flush)

    def close(self) -> None:
        """Stop cleanly: producer snapshot at the end, indexes trimmed, all synced, files closed. Blocks.

        Of a log in an offline directory only the files are closed.
        """
        if not self.is_offline:
            with self._failures("closing"):
                self._local.snapshots.maybe_take(self.producer_state)
                self.segments.active.become_inactive()
                self.flush()
        self.close_files()

    def close_files(self) -> None:
        """Close the files as they are."""
        self._local.close_files()

    def rename_directory(self, directory: str) -> None:
        """Move the log's directory, as when it waits for deletion; open files stay open."""
        with self._failures("renaming the directory"):
            self._local.rename_directory(directory)

    def hand_over(self) -> None:
        """Leave the files as after a clean stop, though not durable, for who opens the log with `is_recovered`."""
        with self._failures("handing over"):
            self._local.snapshots.maybe_take(self.producer_state)
            self.segments.active.become_inactive()
            self._local.write_epochs(self.leader_epochs)
        self.close_files()

    def let_go_of_files(self) -> None:
        """Close the files of a log that somebody deletes; what is being sent stays readable until it is released."""
        self._local.let_go_of_files()

    def take_over_from(self, other: "Log") -> None:
        """Go on where another log of the partition ends, which this one is a copy of: with its offsets and epochs."""
        assert self.log_end_offset == other.log_end_offset, f"{self} does not end where {other} does"
        self.update_high_watermark(other.high_watermark)
        self.maybe_increment_log_start_offset(min(other.log_start_offset, self.high_watermark))
        latest = other.leader_epochs.entries[-1] if other.latest_epoch is not None else None
        if latest is not None and latest.leader_epoch > (self.latest_epoch if self.latest_epoch is not None else -1):
            self.assign_leader_epoch(*latest)  # an epoch in which nothing was written yet
        self.clean_to = other.clean_to
