"""Disk space that a broker reserves for its metadata log, for when records have filled the disk.

When the disk is full, records are refused, which loses no data. But the metadata log must still be written: the broker
cannot start without an election and a registration, and a topic cannot be deleted to free space without a record. So a
file of a few MiB is deleted when an append finds no space, or a start finds too little, and written again when there is
enough. Apache Kafka has no such reserve: it takes a full directory offline, and does not start on one.

The released space must not be used for records, in any log directory: several may share a disk, even with a metadata
directory outside log.dirs. Which ones do is unknown, so every directory with little free space refuses records.
"""

import logging
from collections.abc import Iterable
from typing import Final

from kafkapy.seams import Disk
from kafkapy.storage.log_dir import RESUME_FREE_BYTES, LogDirState

RESERVE_FILE: Final = ".kafkapy-reserve"
RESERVE_BYTES: Final = 3 << 20
"""Three times the space that metadata changes must leave free (metadata_log.RESERVED_BYTES)."""
_TEXT: Final = b"kafkapy gives this room up for its metadata when the disk is full. "
_TEXT_COUNT: Final = RESERVE_BYTES // len(_TEXT)
_FILE_BYTES: Final = _TEXT_COUNT * len(_TEXT)

logger = logging.getLogger("kafkapy.storage")


class SpaceReserve:
    """The reserve file in one log directory. Methods raise OSError."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{RESERVE_FILE}"

    def keep_for_metadata(self, states: Iterable[LogDirState]) -> None:
        """Delete the reserve if there is too little space for metadata; nearly full directories then refuse records."""
        if self._disk.free_bytes(self._directory) < RESERVE_BYTES:
            self.give_up()
        if not self._is_due():
            return
        for state in states:
            if not state.is_full and self._disk.free_bytes(state.path) < RESUME_FREE_BYTES:
                logger.warning("The disk of %s is nearly full: records are refused until there is room", state.path)
                state.refuse_appends()

    def give_up(self) -> None:
        """Delete the reserve file, to free its space for metadata."""
        if self._disk.exists(self._path):
            logger.warning("The disk of %s is full: giving up %s for the metadata", self._directory, self._path)
            self._disk.delete(self._path)

    def _is_due(self) -> bool:
        """Return whether the reserve is missing and there is no space to write it: free space is for metadata only."""
        return not self._is_whole() and not self._has_room()

    def _has_room(self) -> bool:
        return self._disk.free_bytes(self._directory) >= RESUME_FREE_BYTES

    def _is_whole(self) -> bool:
        """Return whether the reserve file has its full size; a kill or a full disk may have left a short one."""
        if not self._disk.exists(self._path):
            return False
        file = self._disk.open(self._path, writable=False)
        try:
            return file.size() >= _FILE_BYTES
        finally:
            file.close()

    def renew(self) -> None:
        """Write the reserve if it is missing or short and there is enough space, before records use it up."""
        if self._is_whole() or not self._has_room():
            return
        file = self._disk.open(self._path, create=True)
        try:
            file.pwrite((_TEXT * _TEXT_COUNT,), 0)
        except OSError:
            self._disk.delete(self._path)
            raise
        finally:
            file.close()
