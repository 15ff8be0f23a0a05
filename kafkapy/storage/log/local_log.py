"""The files of one log: rolling, truncating, deleting and finding segments.

This layer knows offsets and bytes only; `Log` above it holds producers, epochs, the high watermark and the log start
offset. Methods let OSError through unchanged, except that of syncing a file that was truncated.
"""

import logging
from collections.abc import Callable

from kafkapy.config.log import LogConfig
from kafkapy.errors import StorageError
from kafkapy.named_tuple import NamedTuple
from kafkapy.seams import Disk, failpoint
from kafkapy.storage import checkpoint
from kafkapy.storage.errors import CheckpointError
from kafkapy.storage.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from kafkapy.storage.leader_epochs import LeaderEpochs
from kafkapy.storage.log.pending_files import PendingFileDeletions
from kafkapy.storage.log.reader import LogReader
from kafkapy.storage.log.retention import SegmentFacts
from kafkapy.storage.log_dir import LogDirState
from kafkapy.storage.producers.state import ProducerState
from kafkapy.storage.recovery.loader import LoadedLog
from kafkapy.storage.segment.open_files import FileHandle, OpenFiles
from kafkapy.storage.segment.segment import Segment
from kafkapy.types import Uuid

logger = logging.getLogger("kafkapy.storage")


class LocalLog:
    """A log's segments, in order, and the operations on their files.

    `reader` finds offsets in `segments`; `snapshots` are the producer snapshots in the same directory.
    """

    def __init__(
        self,
        loaded: LoadedLog,
        shared: "SharedByLogs",
        directory: str,
        config: LogConfig,
    ) -> None:
        self.directory = directory
        self.config = config
        self.segments = loaded.segments
        self.snapshots = loaded.snapshots
        self.reader = LogReader(loaded.segments)
        self.has_new_names = loaded.has_new_names
        self._has_new_topic_id = self._is_new_directory = loaded.has_new_names
        """Whether partition.metadata, and the directory's own name, may not be durable."""
        self._has_unsynced_removals = False
        """Whether a truncation has removed segments, and the directory could not be synced after that."""
        self._files = shared.files
        self._disk = shared.files.disk
        self._log_dir = shared.log_dir
        self.pending_file_deletions = PendingFileDeletions(self._disk, loaded.pending_deletions)
        if loaded.pending_deletions:
            self._log_dir.track_pending_files(self)
        self._jitter = shared.jitter
        self._syncing: list[int] = []
        """Offsets of the snapshots covered by the calls that other_syncs last returned."""
        self._syncing_files: list[FileHandle] = []
        """The files that the same flush syncs."""
        self._closed: list[Segment] = []
        """Segments closed by a roll since the last flush: the roll changed their indexes, so they must be synced."""
        self._set_roll_jitter(self.segments.active)

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Create an empty segment; it is not part of the log yet."""
        segment = Segment.create(self._files, self.directory, base_offset, self.config, now_ms=now_ms)
        self._set_roll_jitter(segment)
        self.has_new_names = True
        return segment

    def _set_roll_jitter(self, segment: Segment) -> None:
        """Spread the rolls of logs that were created at the same time."""
        jitter_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        if jitter_ms > 0 and self._jitter is not None:
            segment.roll_jitter_ms = self._jitter(jitter_ms)
            assert 0 <= segment.roll_jitter_ms < jitter_ms, f"{segment.roll_jitter_ms} of {jitter_ms} ms"

    def roll(self, base_offset: int, log_end_offset: int, producers: ProducerState, now_ms: int) -> Segment:
        """Start a new active segment, with a producer snapshot at its start. On an error the old one stays active."""
        assert base_offset >= log_end_offset, f"a segment at {base_offset} of a log up to {log_end_offset}"
        old = self.segments.active
        segment = self.new_segment(base_offset, now_ms)
        failpoint("log.roll.after_files")
        try:
            old.become_inactive()
            failpoint("log.roll.after_trim")
            self.snapshots.maybe_take(producers, base_offset)
        except OSError:
            segment.delete()
            old.become_active(self.config.segment_index_bytes)
            raise
        self.segments.add(segment)
        self._closed.append(old)
        self.reader.known.remember(log_end_offset, segment, 0)
        return segment

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Remove all batches that end at or after `offset`, which is not below the first base offset. Syncs.

        The truncation is durable before anything else is written. Otherwise, if the next segment began at `offset`,
        recovery would not read this segment again, and the removed batches could reappear after a power failure.
        """
        assert self.segments.first.base_offset <= offset, f"{self.segments.first} is removed as a whole"
        self.reader.known.clear()
        self.has_new_names = True  # the snapshots at and above `offset` are deleted
        behind = [segment for segment in self.segments if segment.base_offset > offset]
        if behind:
            self._has_unsynced_removals = True
            self.schedule_deletion(behind[::-1])  # the last first, all before the truncation: a crash leaves no gap
        if self._has_unsynced_removals:  # also if that failed for lack of room, and is tried again
            self._disk.sync_directory(self.directory)
            self._has_unsynced_removals = False
        active = self.segments.active
        assert active.base_offset <= offset, f"{active} is to be cut at {offset}"
        self._closed = [segment for segment in self._closed if segment is not active]  # it is written to again
        cut_bytes = active.truncate_to(offset, max_index_bytes=self.config.segment_index_bytes, now_ms=now_ms)
        failpoint("log.truncate.after_cut")
        if cut_bytes:
            self._sync_cut(active)

    def _sync_cut(self, segment: Segment) -> None:
        """Sync a truncated segment.

        Raises StorageError after any failure, as a flush does: a second truncation would find nothing to cut.
        """
        try:
            segment.log.file.sync()
        except OSError as error:
            self._log_dir.go_offline(f"syncing {segment}: {error}")
            raise StorageError(self._log_dir.path, f"syncing {segment}: {error}") from error

    def start_over(self, offset: int, now_ms: int) -> None:
        """Replace all segments and snapshots by one empty segment at `offset`."""
        self.reader.known.clear()
        old = self.segments.all()
        for segment in reversed(old):
            self._mark_deleted(segment)
        self.segments.add(self.new_segment(offset, now_ms))
        for segment in old:
            if segment.base_offset != offset:
                self.segments.remove(segment)
        assert len(self.segments) == 1, f"{len(self.segments)} segments in a log that starts over"
        self.snapshots.delete_outside(0, 0)
        self.snapshots.last_offset = 0

    def schedule_deletion(self, segments: list[Segment]) -> None:
        """Remove segments from the log; their files get the suffix .deleted and are deleted after file.delete.delay.ms.

        If a rename fails for lack of space, that segment and those after it in the list stay in the log, and the caller
        tries again later. Skipping one would leave a gap after a crash, and recovery would end the log there.
        """
        assert len(segments) < len(self.segments), "a log keeps at least one segment"
        self.reader.known.clear()
        for segment in segments:
            self._mark_deleted(segment)
            self.segments.remove(segment)

    def _mark_deleted(self, segment: Segment) -> None:
        segment.rename_suffix("", DELETED_SUFFIX)
        failpoint("log.delete.after_rename")
        self._await_deletion(segment, self.snapshots.mark_deleted(segment.base_offset))

    def _await_deletion(self, segment: Segment, snapshot_path: str | None) -> None:
        self.pending_file_deletions.add(segment, snapshot_path)
        self._log_dir.track_pending_files(self)

    def load_cleaned(self, base_offset: int, *, has_txn_index: bool, now_ms: int) -> Segment:
        """Load the segment in the .cleaned files at `base_offset`; it is not part of the log yet."""
        return Segment.load(
            self._files, self.directory, base_offset, self.config, now_ms=now_ms, has_txn_index=has_txn_index,
            suffix=CLEANED_SUFFIX,
        )  # fmt: skip

    def swap_in_cleaned(self, cleaned: Segment, replaced: list[Segment]) -> None:
        """Replace the segments `replaced` by `cleaned`, from load_cleaned, which has the first one's base offset.

        After a crash recovery keeps the old segments if the .log file was not yet renamed to .swap, the new one
        otherwise. The producer snapshot at its base offset stays; those of the other segments are deleted with them.
        """
        assert cleaned.base_offset == replaced[0].base_offset, f"{cleaned} begins where {replaced[0]} did"
        assert self.segments.active not in replaced, "the active segment is not cleaned"
        self.reader.known.clear()
        failpoint("log.swap.before")
        cleaned.rename_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
        failpoint("log.swap.after_swap")
        for segment in replaced:
            segment.rename_suffix("", DELETED_SUFFIX)
            is_followed = segment.base_offset != cleaned.base_offset
            self._await_deletion(segment, self.snapshots.mark_deleted(segment.base_offset) if is_followed else None)
        failpoint("log.swap.after_delete")
        cleaned.rename_suffix(SWAP_SUFFIX, "")
        failpoint("log.swap.after")
        for segment in replaced:
            self.segments.remove(segment)
        self.segments.add(cleaned)
        self.has_new_names = True

    @property
    def has_pending_files(self) -> bool:
        """Whether files of deleted segments wait to be unlinked."""
        return len(self.pending_file_deletions) > 0

    def pop_due_files(self, now_ms: int) -> list[str]:
        """Release the files whose delay has passed and return their paths, for a worker to unlink."""
        paths = self.pending_file_deletions.pop_due_files(now_ms, self.config.file_delete_delay_ms)
        self._log_dir.track_pending_files(self)
        return paths

    def put_back(self, paths: list[str], now_ms: int) -> None:
        """Keep files that a shortage kept from being deleted, to be tried again later."""
        self.pending_file_deletions.put_back(paths, now_ms)
        self._log_dir.track_pending_files(self)

    def delete_due_files(self, now_ms: int) -> int | None:
        """Delete the files whose delay has passed; return when the next are due (ms), or None if there are none."""
        return self.pending_file_deletions.delete_due_files(now_ms, self.config.file_delete_delay_ms)

    def facts(self, log_end_offset: int) -> list[SegmentFacts]:
        """Return the facts that retention needs, a segment each."""
        return [
            SegmentFacts(
                segment.base_offset,
                self.segments.end_offset_of(segment, log_end_offset),
                segment.size,
                self.largest_timestamp_ms(segment),
            )
            for segment in self.segments
        ]

    def largest_timestamp_ms(self, segment: Segment) -> int:
        """Return a segment's largest timestamp, or its file's modification time if no record has a timestamp."""
        largest_ms = segment.largest_timestamp.timestamp_ms
        return largest_ms if largest_ms >= 0 else self.modified_ms(segment)

    def modified_ms(self, segment: Segment) -> int:
        """Return the modification time of a segment's file, in ms."""
        return self._disk.modified_ms(segment.log.path)

    def handles_to_sync(self, start_offset: int, end_offset: int, log_end_offset: int) -> list[FileHandle]:
        """Return the files to sync for [start_offset, end_offset); up to the log end also the active segment's.

        A file without appends in that range is left out unless it has changed otherwise: the name of an empty file is
        made durable with its directory.
        """
        segments = self.segments.between(start_offset, end_offset) if start_offset < end_offset else []
        if self.segments.active in segments:
            self.segments.active.write_index_entries()
        handles = [
            handle for segment in segments for handle in segment.handles() if handle.is_dirty or handle is segment.log
        ]
        others = list(self._closed)
        if end_offset == log_end_offset:
            others.append(self.segments.active)  # its indexes may have changed
        present = self.segments.all()
        for segment in others:
            if segment in present and segment not in segments:
                handles += [handle for handle in segment.handles() if handle.is_dirty]
        return handles

    def other_syncs(
        self, epochs: LeaderEpochs, handles: list[FileHandle], *, is_closing: bool = False
    ) -> list[Callable[[], None]]:
        """Return the calls that make epochs, snapshots and names durable, to be run after the segment files are synced.

        handles: those files, from handles_to_sync. is_closing: LogManager.close syncs the directory above. All are
        assumed to succeed; after a failure call forget_syncs.
        """
        disk, directory = self._disk, self.directory
        self._closed.clear()
        self._syncing_files = handles
        for handle in handles:
            handle.mark_synced()
        calls: list[Callable[[], None]] = []
        self._syncing, self.snapshots.unsynced = self.snapshots.unsynced, []
        if self._syncing:
            calls.extend(_sync_call(disk, self.snapshots.path(offset)) for offset in self._syncing)
        if self._has_new_topic_id:
            calls.append(_sync_call(disk, f"{directory}/{checkpoint.PARTITION_METADATA_FILE}"))
            self._has_new_topic_id = False
        if epochs.is_dirty:
            path = f"{directory}/{checkpoint.LEADER_EPOCH_FILE}"
            data = checkpoint.encode_epochs(epochs.entries)
            calls.append(lambda: disk.write_file_atomically(path, data))  # syncs the directory, too
            epochs.is_dirty = False
        elif self.has_new_names or self._syncing:
            calls.append(lambda: disk.sync_directory(directory))
        if self._is_new_directory and not is_closing:
            calls.append(lambda: disk.sync_directory(directory.rpartition("/")[0] or "."))
            self._is_new_directory = False
        self.has_new_names = False
        return calls

    def sync_names(self) -> None:
        """Make renames durable. Blocks; for a worker."""
        self._disk.sync_directory(self.directory)

    def read_topic_id(self) -> Uuid | None:
        """Return the topic id in partition.metadata, or None if the file is missing or cannot be parsed."""
        path = f"{self.directory}/{checkpoint.PARTITION_METADATA_FILE}"
        try:
            return checkpoint.decode_partition_metadata(self._disk.read_file(path), path)
        except FileNotFoundError:
            return None
        except CheckpointError as error:
            logger.warning("%s; taking the topic id from the metadata", error)
            return None

    def write_topic_id(self, topic_id: Uuid) -> None:
        """Write partition.metadata. The next flush syncs it."""
        data = checkpoint.encode_partition_metadata(topic_id)
        file = self._disk.open(f"{self.directory}/{checkpoint.PARTITION_METADATA_FILE}", create=True)
        try:
            file.truncate(len(data))
            file.pwrite((data,), 0)
        finally:
            file.close()
        self.has_new_names = self._has_new_topic_id = True

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        """Write leader-epoch-checkpoint now, if it is older than `epochs`. Blocks. Raises OSError."""
        if epochs.is_dirty:
            path = f"{self.directory}/{checkpoint.LEADER_EPOCH_FILE}"
            self._disk.write_file_atomically(path, checkpoint.encode_epochs(epochs.entries))
            epochs.is_dirty = False

    def forget_syncs(self, epochs: LeaderEpochs) -> None:
        """Make other_syncs return its last calls again: they were not run, or not all of them."""
        epochs.is_dirty = self.has_new_names = self._has_new_topic_id = self._is_new_directory = True
        for handle in self._syncing_files:
            handle.mark_written()
        self.snapshots.unsynced = [*self._syncing, *self.snapshots.unsynced]

    def close_files(self) -> None:
        """Close the files without syncing."""
        for segment in self.segments:
            segment.close()
        self.pending_file_deletions.close_files()

    def rename_directory(self, directory: str) -> None:
        """Rename the log's directory; open files stay open."""
        assert directory != self.directory, f"{directory} has that name"
        failpoint("log.directory.before_rename")
        self._disk.rename(self.directory, directory)
        failpoint("log.directory.after_rename")
        for segment in self.segments:
            for handle in segment.handles():
                handle.path = directory + handle.path[len(self.directory) :]
        self.pending_file_deletions.move(self.directory, directory)
        self.snapshots.directory = self.directory = directory

    def let_go_of_files(self) -> None:
        """Close the files of a log that is being deleted; pinned regions stay readable until they are released."""
        for segment in self.segments:
            segment.let_go()
        self.pending_file_deletions.let_go()
        self._log_dir.track_pending_files(self)


class SharedByLogs(NamedTuple):
    """Shared by the logs of one directory. jitter(n): returns a random int in [0, n) for segment.jitter.ms."""

    files: OpenFiles
    log_dir: LogDirState
    new_producer_state: Callable[[], ProducerState] = ProducerState
    jitter: Callable[[int], int] | None = None

    @classmethod
    def by_one(cls, disk: Disk, directory: str) -> "SharedByLogs":
        """Return the shared objects for a log that shares none; `directory`: the log's own."""
        return cls(OpenFiles(disk), LogDirState(directory.rpartition("/")[0] or "."))


def _sync_call(disk: Disk, path: str) -> Callable[[], None]:
    def sync() -> None:
        """Sync a file, or do nothing if it was deleted. Raises FileNotFoundError if its directory is missing."""
        try:
            file = disk.open(path)
        except FileNotFoundError:
            if not disk.is_directory(path.rpartition("/")[0]):
                raise
            return
        try:
            file.sync()
        finally:
            file.close()

    return sync
