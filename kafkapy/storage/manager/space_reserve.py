"""Room that a broker keeps for itself on the disk of its metadata, for the day when its records have taken the rest.

A full disk refuses records, which hurts nobody's data. But the metadata log must go on: without an election and a
registration the broker does not start, without a record a topic cannot be deleted to make room. So a file of some MiB
is given up when an append finds no room, or when a start finds too little, and written again once there is plenty.
Apache Kafka has no such thing: it takes a full directory offline, and does not start on one.

What is given up must not go to records, whichever directory they are for: several may lie on one disk, and that of the
metadata may be none of log.dirs. Which do is not known, but those that have room enough need not be asked to wait.
"""

import logging
from collections.abc import Iterable
from typing import Final

from kafkapy.seams import Disk
from kafkapy.storage.log_dir import RESUME_FREE_BYTES, LogDirState

RESERVE_FILE: Final = ".kafkapy-reserve"
RESERVE_BYTES: Final = 3 << 20
"""Three times what changes of the metadata leave free (metadata_log.RESERVED_BYTES)."""
_TEXT: Final = b"kafkapy gives this room up for its metadata when the disk is full. "
_TEXT_COUNT: Final = RESERVE_BYTES // len(_TEXT)
_FILE_BYTES: Final = _TEXT_COUNT * len(_TEXT)

logger = logging.getLogger("kafkapy.storage")


class SpaceReserve:
    """The reserve in one log directory. Calls raise OSError."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{RESERVE_FILE}"

    def keep_for_metadata(self, states: Iterable[LogDirState]) -> None:
        """Make room where there is too little for metadata; records of nearly full directories wait for more."""
        if self._disk.free_bytes(self._directory) < RESERVE_BYTES:
            self.give_up()
        if not self._is_due():
            return
        for state in states:
            if not state.is_full and self._disk.free_bytes(state.path) < RESUME_FREE_BYTES:
                logger.warning("The disk of %s is nearly full: records are refused until there is room", state.path)
                state.is_full = True

    def give_up(self) -> None:
        """Make room now."""
        if self._disk.exists(self._path):
            logger.warning("The disk of %s is full: giving up %s for the metadata", self._directory, self._path)
            self._disk.delete(self._path)

    def _is_due(self) -> bool:
        """Return whether the reserve is missing and there is no room for it either: what is free is for metadata."""
        return not self._is_whole() and not self._has_room()

    def _has_room(self) -> bool:
        return self._disk.free_bytes(self._directory) >= RESUME_FREE_BYTES

    def _is_whole(self) -> bool:
        """Return whether the reserve is there; a kill or a full disk may have left a short one."""
        if not self._disk.exists(self._path):
            return False
        file = self._disk.open(self._path, writable=False)
        try:
            return file.size() >= _FILE_BYTES
        finally:
            file.close()

    def renew(self) -> None:
        """Write the reserve where it is missing, before records take what there is of room."""
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
