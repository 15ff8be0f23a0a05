"""Snapshots of the metadata log: `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` in its directory (KIP-630).

A snapshot replaces all records below its end offset. It is a sequence of batches with their own offsets from 0 and the
epoch in its name: a control batch (SnapshotHeader with the timestamp of the last replaced record; with kraft.version 1
also KRaftVersion and Voters), data batches, a control batch with SnapshotFooter. `storage format --standalone` writes
the snapshot 0-0.

While being written or downloaded, a snapshot's name ends in .part. When complete it is synced and renamed, and never
changes again. A deleted one is first renamed to .deleted. The next start deletes .part and .deleted files.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError, ProtocolError, StorageError
from kafkapy.protocol.messages.kraft_version_record import KRaftVersionRecord
from kafkapy.protocol.messages.snapshot_footer_record import SnapshotFooterRecord
from kafkapy.protocol.messages.snapshot_header_record import SnapshotHeaderRecord
from kafkapy.protocol.messages.voters_record import VotersRecord
from kafkapy.raft.control_records import voters_from_record, voters_to_record
from kafkapy.raft.voters import VoterSet
from kafkapy.record.batch import RecordBatch
from kafkapy.record.batches import batches
from kafkapy.record.builder import BatchFields, build_batch
from kafkapy.record.control import build_raft_control, read_raft_control
from kafkapy.seams import Disk, File, failpoint
from kafkapy.storage.file_names import RAFT_SNAPSHOT_SUFFIX
from kafkapy.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kafkapy.record.control import RaftControl

logger = logging.getLogger("kafkapy.storage")

READ_CHUNK_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"^(\d{20})-(\d{10})(\.checkpoint(?:\.part|\.deleted)?)$")
_LENGTH_FIELD_END: Final = 12


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    return f"{snapshot_id.offset:020d}-{snapshot_id.leader_epoch:010d}{RAFT_SNAPSHOT_SUFFIX}"


def parse_name(name: str) -> tuple[OffsetAndEpoch, str] | None:
    """Return (snapshot id, suffix) of a snapshot's file name; None for any other file."""
    match = _NAME.match(name)
    if match is None:
        return None
    return OffsetAndEpoch(int(match[1]), int(match[2])), match[3]


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """A snapshot's size and age, for retention."""

    snapshot_id: OffsetAndEpoch
    size_bytes: int
    last_contained_log_timestamp_ms: int


class SnapshotReader:
    """Reads and checks a complete snapshot. Blocks; raises StorageError if it is damaged.

    The constructor reads the first batch, and with it `kraft_version`, `voters` and the timestamp.
    """

    def __init__(self, disk: Disk, directory: str, snapshot_id: OffsetAndEpoch, *, suffix: str = "") -> None:
        self.path = f"{directory}/{snapshot_name(snapshot_id)}{suffix}"
        self.snapshot_id = snapshot_id
        self.kraft_version = 0
        self.voters: VoterSet | None = None
        self._disk = disk
        self._directory = directory
        header = self._read_header()
        self.last_contained_log_timestamp_ms = header.last_contained_log_timestamp

    def _read_header(self) -> SnapshotHeaderRecord:
        for batch in self._checked_batches():
            for message in self._controls(batch):
                if isinstance(message, SnapshotHeaderRecord):
                    self._read_quorum(batch)
                    return message
            break
        raise self._damage("it does not begin with a snapshot header")

    def _read_quorum(self, batch: RecordBatch) -> None:
        for message in self._controls(batch):
            if isinstance(message, KRaftVersionRecord):
                self.kraft_version = message.kraft_version
            elif isinstance(message, VotersRecord):
                self.voters = voters_from_record(message)

    def batches(self) -> Iterator[list[bytes]]:
        """Yield the data records' values, a list per batch. Raises StorageError, also if the footer is missing."""
        has_footer = False
        for batch in self._checked_batches():
            if has_footer:
                raise self._damage("there is more behind its footer")
            if batch.is_control:
                has_footer = any(isinstance(message, SnapshotFooterRecord) for message in self._controls(batch))
            else:
                yield [record.value or b"" for record in batch.records()]
        if not has_footer:
            raise self._damage("it has no footer")

    def check(self) -> None:
        """Read and check the whole snapshot. Raises StorageError."""
        for _ in self.batches():
            pass

    def _controls(self, batch: RecordBatch) -> "list[RaftControl]":
        if not batch.is_control:
            return []
        try:
            found = [read_raft_control(record) for record in batch.records()]
        except (ApiError, ProtocolError) as error:
            raise self._damage(str(error)) from error
        return [message for message in found if message is not None]

    def _checked_batches(self) -> Iterator[RecordBatch]:
        """Yield the batches, with one chunk of the file in memory at a time."""
        file = self._open()
        try:
            size = file.size()
            position = 0
            while position < size:
                data = self._chunk(file, position, size)
                for batch in batches(data):
                    if not batch.has_valid_crc():
                        raise self._damage(f"the CRC of the batch at position {position} is wrong")
                    position += batch.size_bytes
                    yield batch
        except (ApiError, ProtocolError) as error:
            raise self._damage(str(error)) from error
        except OSError as error:
            raise StorageError(self._directory, f"reading {self.path}: {error}") from error
        finally:
            file.close()

    def _open(self) -> File:
        try:
            return self._disk.open(self.path, writable=False)
        except OSError as error:
            raise StorageError(self._directory, f"opening {self.path}: {error}") from error

    def _chunk(self, file: File, position: int, size: int) -> bytes:
        """Return a chunk of the file from `position` on, or the whole first batch if that is larger."""
        data = file.pread(READ_CHUNK_BYTES, position)
        if len(data) < _LENGTH_FIELD_END:
            raise self._damage("it ends inside of a batch")
        batch_bytes = _LENGTH_FIELD_END + int.from_bytes(data[8:12], "big", signed=True)
        if batch_bytes < _LENGTH_FIELD_END or position + batch_bytes > size:
            raise self._damage("it ends inside of a batch")
        return data if batch_bytes <= len(data) else file.pread(batch_bytes, position)

    def _damage(self, what: str) -> StorageError:
        return StorageError(self._directory, f"snapshot {self.path} is damaged: {what}")


class SnapshotWriter:
    """Writes a new snapshot: `append` for each slice, then `finish`, `sync` (blocks; safe on a worker), `freeze`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        snapshot_id: OffsetAndEpoch,
        *,
        last_contained_log_timestamp_ms: int,
        now_ms: int,
        kraft_version: int = 0,
        voters: VoterSet | None = None,
    ) -> None:
        self.snapshot_id = snapshot_id
        self._part = PartFile(disk, directory, snapshot_id)
        self._next_offset = 0
        self._now_ms = now_ms
        controls: list[RaftControl] = [
            SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp_ms)
        ]
        if kraft_version > 0:
            assert voters is not None, "kraft.version 1 keeps its voters in the log"
            controls.append(KRaftVersionRecord(version=0, kraft_version=kraft_version))
            controls.append(voters_to_record(voters))
        self._append_controls(controls)

    @property
    def size_bytes(self) -> int:
        return self._part.size_bytes

    def append(self, values: list[bytes]) -> None:
        """Write a data batch. Raises OSError."""
        records = [(self._now_ms, None, value, ()) for value in values]
        data = build_batch(
            records, BatchFields(base_offset=self._next_offset, leader_epoch=self.snapshot_id.leader_epoch)
        )
        self._next_offset += len(values)
        self._part.append(data)

    def finish(self) -> None:
        """Write the footer."""
        self._append_controls([SnapshotFooterRecord(version=0)])

    def sync(self) -> None:
        self._part.sync()

    def freeze(self) -> None:
        """Rename it durably to its final name: it is now complete."""
        self._part.freeze()

    def abort(self) -> None:
        self._part.abort()

    def _append_controls(self, controls: "list[RaftControl]") -> None:
        data = build_raft_control(
            controls,
            base_offset=self._next_offset,
            leader_epoch=self.snapshot_id.leader_epoch,
            timestamp_ms=self._now_ms,
        )
        self._next_offset += len(controls)
        self._part.append(data)


class PartFile:
    """An incomplete snapshot (.part), written here or downloaded in pieces."""

    def __init__(self, disk: Disk, directory: str, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.size_bytes = 0
        self._disk = disk
        self._directory = directory
        self._final_path = f"{directory}/{snapshot_name(snapshot_id)}"
        self._path = f"{self._final_path}.part"
        self._file = disk.open(self._path, create=True)
        self._file.truncate(0)

    def append(self, data: bytes) -> None:
        self._file.pwrite((data,), self.size_bytes)
        self.size_bytes += len(data)

    def sync(self) -> None:
        failpoint("quorum.snapshot.before_sync")
        self._file.sync()

    def open_reader(self) -> SnapshotReader:
        """Return a reader of the .part file, to check it before `freeze`. Raises StorageError."""
        return SnapshotReader(self._disk, self._directory, self.snapshot_id, suffix=".part")

    def freeze(self) -> None:
        self._file.close()
        failpoint("quorum.snapshot.before_rename")
        self._disk.rename(self._path, self._final_path)
        self._disk.sync_directory(self._directory)
        failpoint("quorum.snapshot.after_rename")

    def abort(self) -> None:
        self._file.close()
        self._disk.delete(self._path)


class SnapshotStore:
    """The snapshots in one directory: lists them, caches their sizes and ages, deletes those no longer needed."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self._facts: dict[OffsetAndEpoch, SnapshotFacts] = {}
        self._pending_deletions: list[tuple[str, int]] = []
        """Files renamed to .deleted: (path, due time in ms)."""

    def complete(self) -> list[OffsetAndEpoch]:
        """Return the complete snapshots, oldest first."""
        parsed = (parse_name(name) for name in self._disk.list_directory(self.directory))
        return sorted(found[0] for found in parsed if found is not None and found[1] == RAFT_SNAPSHOT_SUFFIX)

    def clear_remains(self) -> None:
        """Delete .part and .deleted files left by a crash. Only at the start."""
        for name in self._disk.list_directory(self.directory):
            found = parse_name(name)
            if found is not None and found[1] != RAFT_SNAPSHOT_SUFFIX:
                self._disk.delete(f"{self.directory}/{name}")

    def path_of(self, snapshot_id: OffsetAndEpoch) -> str:
        return f"{self.directory}/{snapshot_name(snapshot_id)}"

    def open_reader(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        return SnapshotReader(self._disk, self.directory, snapshot_id)

    def facts_of(self, snapshot_id: OffsetAndEpoch) -> SnapshotFacts:
        """Return size and age; cached, as a snapshot does not change. Raises StorageError, OSError."""
        facts = self._facts.get(snapshot_id)
        if facts is None:
            reader = self.open_reader(snapshot_id)
            file = self._disk.open(reader.path, writable=False)
            try:
                facts = SnapshotFacts(snapshot_id, file.size(), reader.last_contained_log_timestamp_ms)
            finally:
                file.close()
            self._facts[snapshot_id] = facts
        return facts

    def schedule_deletion(self, snapshot_ids: Iterable[OffsetAndEpoch], due_ms: int) -> None:
        """Rename snapshots to .deleted now; delete them at due_ms, as readers may still use them."""
        for snapshot_id in snapshot_ids:
            path = self.path_of(snapshot_id)
            if self._disk.exists(path):
                self._disk.rename(path, f"{path}.deleted")
                self._pending_deletions.append((f"{path}.deleted", due_ms))
            self._facts.pop(snapshot_id, None)
            logger.info("Marked snapshot %s for deletion", snapshot_name(snapshot_id))

    def delete_due_snapshots(self, now_ms: int) -> None:
        waiting = []
        for path, due_ms in self._pending_deletions:
            if due_ms <= now_ms:
                self._disk.delete(path)
            else:
                waiting.append((path, due_ms))
        self._pending_deletions = waiting


def snapshots_to_trim_to(
    facts: list[SnapshotFacts], *, log_bytes: int, max_bytes: int, max_age_ms: int, now_ms: int
) -> OffsetAndEpoch | None:
    """Return the snapshot that the log should begin with by metadata.max.retention.bytes and .ms; None to keep all.

    Snapshots are dropped oldest first, while log and snapshots together are too large, or the snapshot is too old; the
    latest is kept. A negative limit means none. As in Kafka, log_bytes stays the same: only whole segments are deleted.
    """
    keep_from = 0
    total_bytes = log_bytes + sum(fact.size_bytes for fact in facts)
    while keep_from < len(facts) - 1:
        fact = facts[keep_from]
        is_too_large = 0 <= max_bytes < total_bytes
        is_too_old = 0 <= max_age_ms < now_ms - fact.last_contained_log_timestamp_ms
        if not (is_too_large or is_too_old):
            break
        total_bytes -= fact.size_bytes
        keep_from += 1
    return facts[keep_from].snapshot_id if keep_from > 0 else None
