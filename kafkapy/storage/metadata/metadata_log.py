"""`__cluster_metadata-0` on disk: the log, its snapshots and quorum-state, for the quorum's driver.

Invariants after a crash at any step: the log is a prefix of what was written, in whole batches; there is a snapshot at
or above the log start offset unless that is 0; quorum-state is old or new. Recovery uses no checkpoint and checks the
whole log. Methods block; those for a running broker only shortly (page cache), and syncs run on a worker.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field
from typing import Final

from kafkapy.config.log import LogConfig
from kafkapy.config.quorum import QuorumConfig
from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError, StorageError, cause_of
from kafkapy.raft.control_records import add_to_history
from kafkapy.raft.log_view import LogView
from kafkapy.raft.voters import VoterHistory, VoterSet
from kafkapy.record.batch import RecordBatch
from kafkapy.record.batches import batches
from kafkapy.record.errors import CorruptRecordError, RecordsError
from kafkapy.record.validate import AppendOrigin
from kafkapy.seams import Disk, failpoint
from kafkapy.storage.checkpoint import CLEAN_SHUTDOWN_FILE, PARTITION_METADATA_FILE
from kafkapy.storage.errors import INCONSISTENT_TOPIC_ID, KAFKA_STORAGE_ERROR
from kafkapy.storage.log.flush import Flush, flush_log, prepare_flush
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.maintenance import delete_due_files, delete_old_segments
from kafkapy.storage.log.opening import assign_topic_id, open_log
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from kafkapy.storage.log_dir import is_shortage
from kafkapy.storage.metadata.quorum_state import QuorumStateFile
from kafkapy.storage.metadata.snapshot import SnapshotReader, SnapshotStore, snapshots_to_trim_to
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.types import METADATA_PARTITION, ONE_UUID, OffsetAndEpoch

logger = logging.getLogger("kafkapy.storage")

MAX_BATCH_BYTES: Final = 8 << 20
"""Kafka's limit for a batch of the metadata log; records that must be atomic have to fit one batch."""
READ_BYTES: Final = 1 << 20
RESERVED_BYTES: Final = 1 << 20
"""Free space that metadata changes must leave for the quorum's own records."""
_SEGMENT_NAME: Final = re.compile(r"^(\d{20})\.log$")


class NothingToReadError(StorageError):
    """The metadata log holds no whole batch at an offset below its end."""


@dataclass(slots=True)
class CommittedBatch:
    """A committed batch for listeners; record i has offset base_offset + i. `records` is empty for a control batch."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    append_timestamp_ms: int
    records: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    is_control: bool = False


def metadata_log_config(config: QuorumConfig) -> LogConfig:
    """Return the metadata log's configuration: without time or size retention, as `maybe_trim` deletes segments."""
    return LogConfig(
        segment_bytes=config.internal_metadata_log_segment_bytes or config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        max_message_bytes=config.internal_metadata_max_batch_size_in_bytes,
        retention_ms=-1,
        retention_bytes=-1,
    )


def max_batch_bytes(config: QuorumConfig) -> int:
    """Return the maximum size of a batch that the log takes."""
    return min(MAX_BATCH_BYTES, config.internal_metadata_max_batch_size_in_bytes)


class MetadataLog:
    """The metadata log, its snapshots and quorum-state in one directory.

    `view` and `voters` are built by recovery; the Raft core takes them over and updates them.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: QuorumConfig,
        *,
        now_ms: int,
        static_voters: VoterSet,
        was_clean_shutdown: bool = False,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        """Open and recover. Raises StorageError. make_room is called if there is too little space for an append."""
        self.directory = directory
        self.make_room = make_room
        self._disk = disk
        self.state_file = QuorumStateFile(disk, directory)
        self.snapshots = SnapshotStore(disk, directory)
        self._config = config
        self.max_batch_bytes = max_batch_bytes(config)
        self._was_clean = was_clean_shutdown
        disk.make_directory(directory)
        snapshot_ids = self._usable_snapshots(disk)
        self.log = self._open_log(disk, now_ms, snapshot_ids)
        try:
            self._assign_topic_id()
            self._truncate_to_latest_snapshot(snapshot_ids)
            self.view = LogView(
                start_offset=self.log.log_start_offset, end_offset=self.log.log_start_offset, snapshots=snapshot_ids
            )
            self.voters = VoterHistory(static_voters)
            self._recover_view()
        except StorageError:
            with suppress(StorageError, ApiError):
                self.log.close()  # with its indexes trimmed, as a clean stop left it
            raise

    def _open_log(self, disk: Disk, now_ms: int, snapshot_ids: list[OffsetAndEpoch]) -> Log:
        try:
            return open_log(
                disk,
                self.directory,
                METADATA_PARTITION,
                metadata_log_config(self._config),
                now_ms=now_ms,
                last_stop=LastStop(self._start_offset(disk, snapshot_ids), was_clean=self._was_clean),
            )
        except StorageError as error:
            cause = cause_of(error)
            if isinstance(cause, RecordsError):
                raise self._damaged(f"{cause.message}", "there") from error
            raise

    def _assign_topic_id(self) -> None:
        try:
            assign_topic_id(self.log, ONE_UUID)
        except ApiError as error:
            if error.code != INCONSISTENT_TOPIC_ID:
                raise
            path = f"{self.directory}/{PARTITION_METADATA_FILE}"
            message = f"{path} is damaged: it names another topic. Delete it; the next start writes it again"
            raise StorageError(self.directory, message) from error

    # ---- recovery

    def _usable_snapshots(self, disk: Disk) -> list[OffsetAndEpoch]:
        """Return the snapshots at or above the first segment's base offset; delete older ones."""
        first_offset = _first_segment_offset(disk, self.directory)
        self.snapshots.clear_remains()
        found = self.snapshots.complete()
        usable = [snapshot_id for snapshot_id in found if snapshot_id.offset >= first_offset]
        if first_offset > 0 and not usable:
            message = f"the metadata log starts at {first_offset}, and no snapshot says what was before"
            raise StorageError(self.directory, message)
        for snapshot_id in found:
            if snapshot_id.offset < first_offset:
                disk.delete(self.snapshots.path_of(snapshot_id))
        return usable

    def _start_offset(self, disk: Disk, snapshot_ids: list[OffsetAndEpoch]) -> int:
        """Return the log start offset: the oldest snapshot's end offset, or 0 if the first segment begins at 0."""
        if _first_segment_offset(disk, self.directory) == 0:
            return 0
        return snapshot_ids[0].offset

    def _truncate_to_latest_snapshot(self, snapshot_ids: list[OffsetAndEpoch]) -> None:
        """Empty the log and start at a snapshot that was downloaded before a crash, if the log is behind it."""
        if not snapshot_ids:
            return
        latest = snapshot_ids[-1]
        log_epoch = self.log.latest_epoch or 0
        if latest.leader_epoch > log_epoch:  # or leader-epoch-checkpoint was lost: then nothing may be
            log_epoch = max(log_epoch, self._newest_epoch())
        is_ahead = latest.offset > self.log.log_end_offset and latest.leader_epoch >= log_epoch
        if latest.offset > 0 and (is_ahead or latest.leader_epoch > log_epoch):
            truncate_fully_and_start_at(self.log, latest.offset)
            self.drop_snapshots_before(latest, now_ms=0)
            snapshot_ids[:] = [latest]

    def _newest_epoch(self) -> int:
        """Return the newest epoch of the batches up to a damaged one, 0 if there are none."""
        newest = 0
        with suppress(RecordsError, NothingToReadError):
            for batch in self.read(self.log.log_start_offset, self.log.log_end_offset):
                newest = max(newest, batch.partition_leader_epoch)
        return newest

    def _recover_view(self) -> None:
        """Build offsets, epochs and voters from the latest snapshot and all batches, checking each."""
        latest = self.view.latest_snapshot
        if latest is not None:
            reader = self.snapshots.open_reader(latest)
            self.voters.reset(latest.offset, reader.voters, reader.kraft_version)
        snapshot_end = latest.offset if latest is not None else 0
        try:
            for batch in self.read(self.log.log_start_offset, self.log.log_end_offset):
                self._recover_batch(batch, snapshot_end)
            if self.view.end_offset != self.log.log_end_offset:
                raise CorruptRecordError(f"{self.view.end} is not the end of {self.log}")
        except (RecordsError, NothingToReadError) as error:
            if self._was_clean or self.view.end_offset < snapshot_end:
                raise self._damaged(f"{error.message}", f"at offset {self.view.end_offset}") from error
            logger.warning("Truncating the metadata log to %d: %s", self.view.end_offset, error.message)
            truncate_to(self.log, self.view.end_offset)
        flush_log(self.log)
        assert self.view.end_offset == self.log.log_end_offset, f"{self.view.end} is not the end of {self.log}"
        self.view.durable_end_offset = self.view.end_offset

    def _damaged(self, found: str, place: str) -> StorageError:
        """Return the error for a damaged log, with advice for the operator, who decides about the truncation.

        Truncation loses metadata, and the logs of topics known only from it. Deviation: Apache Kafka truncates the log
        at the first invalid batch even after a clean stop. Here that stops the start, because what follows was
        committed.
        """
        advice = f"Restore {self.directory} from a backup"
        if self._was_clean:
            clean_stop = f"{self.directory.rpartition('/')[0]}/{CLEAN_SHUTDOWN_FILE}"
            advice += (
                f". Or delete {clean_stop}: the next start then cuts the log {place}, forgets all "
                "changes from there on, and renames the logs of topics it does not know to -stray"
            )
        return StorageError(self.directory, f"the metadata log is damaged: {found}. {advice}")

    def _recover_batch(self, batch: RecordBatch, snapshot_end: int) -> None:
        min_epoch = self.view.epoch_starts[-1][0] if self.view.epoch_starts else 0
        if batch.base_offset != self.view.end_offset or batch.partition_leader_epoch < min_epoch:
            found = f"offset {batch.base_offset} of epoch {batch.partition_leader_epoch}"
            raise CorruptRecordError(f"{found} behind {self.view.end}")
        if not batch.has_valid_crc():
            raise CorruptRecordError(f"the CRC of the batch at offset {batch.base_offset} does not fit")
        self.view.append(batch.base_offset, batch.last_offset, batch.partition_leader_epoch)
        if batch.is_control and batch.base_offset >= snapshot_end:
            add_to_history(self.voters, batch)

    # ---- reading and writing

    def check_room(self, size_bytes: int) -> None:
        """Raise ApiError KAFKA_STORAGE_ERROR without space for an append, as a failed append stops the node.

        Raises StorageError if the directory is missing.
        """
        free_bytes = self._made_room(size_bytes)
        if free_bytes < size_bytes + RESERVED_BYTES:
            raise ApiError(KAFKA_STORAGE_ERROR, f"{free_bytes} bytes are free where the metadata lies")

    def _made_room(self, size_bytes: int) -> int:
        """Give up what is reserved for metadata if an append may need it; return the free space."""
        try:
            free_bytes = self._disk.free_bytes(self.directory)
            if free_bytes < size_bytes + RESERVED_BYTES:
                self.make_room()
                free_bytes = self._disk.free_bytes(self.directory)
        except OSError as error:
            doing = f"looking for room in {self.log.topic_partition}"
            raise self.log.log_dir.handle_os_error(error, doing) from error
        return free_bytes

    def append(self, data: bytes | memoryview, *, leader_epoch: int, now_ms: int) -> int:
        """Write a batch that already has its offsets and epoch; return its last offset."""
        failpoint("quorum.log.before_append")
        result = self.log.append_as_leader(
            data, leader_epoch=leader_epoch, now_ms=now_ms, origin=AppendOrigin.RAFT_LEADER
        )
        assert self.log.log_end_offset == result.last_offset + 1, f"{self.log} after {result}"
        failpoint("quorum.log.after_append")
        return result.last_offset

    def append_fetched(self, data: bytes | memoryview, *, now_ms: int) -> int:
        """Write batches fetched from the leader, unchanged; return the last offset."""
        self._made_room(len(data))  # another process may have filled the disk
        return self.log.append_as_follower(data, now_ms).last_offset

    def read(self, start_offset: int, end_offset: int) -> Iterator[RecordBatch]:
        """Yield the batches from the one that contains start_offset up to end_offset, reading READ_BYTES at a time."""
        while start_offset < end_offset:
            found = self.read_bytes(start_offset, READ_BYTES)
            if not found:
                raise NothingToReadError(self.directory, f"nothing to read at {start_offset}, below {end_offset}")
            for batch in batches(found):
                if batch.base_offset >= end_offset:
                    return
                start_offset = batch.next_offset
                yield batch

    def read_bytes(self, start_offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one that contains start_offset on, at least one if there is any."""
        found = self.log.read(start_offset, max_bytes, isolation=FetchIsolation.LOG_END, min_one_batch=True, wait=True)
        if found.region is None:
            return b""
        try:
            return found.region.read()
        finally:
            found.region.release()

    def prepare_flush(self) -> Flush:
        return prepare_flush(self.log)

    def complete_flush(self, flush: Flush, now_ms: int) -> None:
        failpoint("quorum.log.after_flush")
        flush.complete(now_ms)

    def truncate_to(self, end_offset: int) -> None:
        truncate_to(self.log, end_offset)

    def reset_to_snapshot(self, snapshot_id: OffsetAndEpoch, *, now_ms: int) -> None:
        """Empty the log and set its start and end to the snapshot's end offset. The snapshot must be durable."""
        truncate_fully_and_start_at(self.log, snapshot_id.offset)
        assert self.log.is_empty, f"{self.log} was reset to {snapshot_id}"
        assert self.log.log_end_offset == snapshot_id.offset, f"{self.log} was reset to {snapshot_id}"
        self.drop_snapshots_before(snapshot_id, now_ms=now_ms)

    # ---- trimming

    def clean(self, snapshot_ids: list[OffsetAndEpoch], *, now_ms: int) -> None:
        """Delete what retention no longer keeps, and files that are due; the log may then start at a later snapshot.

        A shortage leaves the rest for the next time, even if the log's start has moved. Raises StorageError, OSError.
        """
        try:
            self.maybe_trim(snapshot_ids, now_ms=now_ms)
            self.delete_due_files(now_ms)
        except (ApiError, StorageError, OSError) as error:
            if not is_shortage(error):
                raise
            logger.warning("The clean-up of %s has to wait: %s", METADATA_PARTITION, error)

    def maybe_trim(self, snapshot_ids: list[OffsetAndEpoch], *, now_ms: int) -> None:
        """Delete the prefix beyond metadata.max.retention.bytes and .ms."""
        if len(snapshot_ids) < 2:
            return
        keep_from = snapshots_to_trim_to(
            [self.snapshots.facts_of(snapshot_id) for snapshot_id in snapshot_ids],
            log_bytes=self.log.size_bytes,
            max_bytes=self._config.metadata_max_retention_bytes,
            max_age_ms=self._config.metadata_max_retention_ms,
            now_ms=now_ms,
        )
        if keep_from is None or keep_from.offset <= self.log.log_start_offset:
            return
        failpoint("quorum.trim.before_segments")
        self.log.maybe_increment_log_start_offset(keep_from.offset)
        delete_old_segments(self.log, now_ms)
        failpoint("quorum.trim.after_segments")
        self.drop_snapshots_before(keep_from, now_ms=now_ms)

    def drop_snapshots_before(self, keep_from: OffsetAndEpoch, *, now_ms: int) -> None:
        due_ms = now_ms + self._config.internal_metadata_delete_delay_millis
        older = [snapshot_id for snapshot_id in self.snapshots.complete() if snapshot_id < keep_from]
        self.snapshots.schedule_deletion(older, due_ms)

    def delete_due_files(self, now_ms: int) -> None:
        delete_due_files(self.log, now_ms)
        self.snapshots.delete_due_snapshots(now_ms)

    @property
    def latest_snapshot_bytes(self) -> int:
        """The size of the latest snapshot; 0 if there is none."""
        latest = self.view.latest_snapshot
        return 0 if latest is None else self.snapshots.facts_of(latest).size_bytes

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        return self.snapshots.open_reader(snapshot_id)

    def close(self) -> None:
        """Sync and close. Raises StorageError."""
        self.log.close()


def to_committed(batch: RecordBatch) -> CommittedBatch:
    """Convert a batch for listeners. Raises StorageError if its records cannot be parsed."""
    try:
        records = [] if batch.is_control else [record.value or b"" for record in batch.records()]
    except ApiError as error:
        message = f"the batch at {batch.base_offset} of {METADATA_PARTITION} cannot be read: {error}"
        raise StorageError("", message) from error
    return CommittedBatch(
        batch.base_offset,
        batch.last_offset,
        batch.partition_leader_epoch,
        batch.max_timestamp,
        records,
        batch.size_bytes,
        batch.is_control,
    )


def _first_segment_offset(disk: Disk, directory: str) -> int:
    """Return the base offset of the first segment, 0 if there is none."""
    found = [int(match[1]) for name in disk.list_directory(directory) if (match := _SEGMENT_NAME.match(name))]
    return min(found, default=0)
