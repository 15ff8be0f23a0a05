"""A log's `.snapshot` files: producer state at an offset, so that recovery replays the log only from there on."""

from collections.abc import Iterable

from kafkapy.seams import Disk, failpoint
from kafkapy.storage.errors import CorruptSnapshotError
from kafkapy.storage.file_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, offset_of, segment_file
from kafkapy.storage.log_dir import NO_SPACE
from kafkapy.storage.producers.state import ProducerEntry, ProducerState, decode_snapshot


class ProducerSnapshots:
    """The offsets of the snapshots on disk. `unsynced`: those that the next flush makes durable."""

    __slots__ = ("_disk", "directory", "last_offset", "offsets", "unsynced")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self.offsets: list[int] = []
        self.last_offset = 0
        self.unsynced: list[int] = []

    def find(self, names: Iterable[str]) -> None:
        """Set the offsets from the file names in the directory."""
        found = [name for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        self.offsets = sorted(offset for offset in map(offset_of, found) if offset is not None)

    @property
    def latest(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def path(self, offset: int) -> str:
        assert offset >= 0, f"a snapshot at {offset}"
        return segment_file(self.directory, offset, SNAPSHOT_SUFFIX)

    def write_if_there_is_room(self, state: ProducerState) -> None:
        """Like maybe_take, but on a full disk write nothing: a later snapshot will do. Raises OSError."""
        try:
            self.maybe_take(state)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._disk.delete(self.path(state.map_end_offset))

    def maybe_take(self, state: ProducerState, offset: int | None = None) -> bool:
        """Write the state if it is newer than the last snapshot; return whether it was. Raises OSError.

        offset: where the log goes on, if that is above the state's end. The next flush syncs the file. Recovery detects
        a partial file by its CRC and uses an older one.
        """
        offset = state.map_end_offset if offset is None else offset
        assert offset >= state.map_end_offset, f"a snapshot at {offset} of producers as of {state.map_end_offset}"
        if offset <= self.last_offset:
            return False
        path = self.path(offset)
        data = state.encode_snapshot()
        file = self._disk.open(path, create=True)
        try:
            # A file of this name may be left of an earlier run, and be longer.
            file.truncate(len(data))
            failpoint("log.snapshot.before_write")
            file.pwrite((data,), 0)
        finally:
            file.close()
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()
        self.last_offset = offset
        self.unsynced.append(offset)
        return True

    def read_latest(self) -> tuple[int, list[ProducerEntry]] | None:
        """Return (offset, entries) of the newest valid snapshot, or None; delete damaged ones."""
        while self.offsets:
            offset = self.offsets[-1]
            try:
                return offset, decode_snapshot(self._disk.read_file(self.path(offset)))
            except (CorruptSnapshotError, FileNotFoundError):
                self.delete(offset)
        return None

    def delete(self, offset: int) -> None:
        """Delete a snapshot, if it exists."""
        if offset in self.offsets:
            self.offsets.remove(offset)
            if offset in self.unsynced:
                self.unsynced.remove(offset)
            self._disk.delete(self.path(offset))

    def mark_deleted(self, offset: int) -> str | None:
        """Rename a snapshot to .deleted, like its segment's files; return the new path, None if there is none."""
        if offset not in self.offsets:
            return None
        path = self.path(offset)
        self._disk.rename(path, path + DELETED_SUFFIX)
        self.offsets.remove(offset)
        if offset in self.unsynced:
            self.unsynced.remove(offset)
        return path + DELETED_SUFFIX

    def delete_outside(self, start_offset: int, end_offset: int) -> None:
        """Delete the snapshots that are not in (start_offset, end_offset]."""
        for offset in [offset for offset in self.offsets if not start_offset < offset <= end_offset]:
            self.delete(offset)

    def delete_strays(self, base_offsets: set[int]) -> None:
        """Delete the snapshots that are not at a base offset; keep the newest if it is not below the last one."""
        strays = [offset for offset in self.offsets if offset not in base_offsets]
        if strays and strays[-1] >= max(base_offsets, default=0):
            strays.pop()
        for offset in strays:
            self.delete(offset)
