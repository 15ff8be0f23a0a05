"""Room that a broker keeps for itself on the disk of its metadata, for the day when its records have taken the rest.

A full disk refuses records, which hurts nobody's data. But the metadata log must go on: without an election and a
registration the broker does not start, without a record a topic cannot be deleted to make room. So a file of some MiB
is given up when an append finds no room, or when a start finds too little, and written again once there is plenty.
Apache Kafka has no such thing: it takes a full directory offline, and does not start on one.
"""

import logging
from typing import Final

from kafkapy.seams import Disk
from kafkapy.storage.log_dir import RESUME_FREE_BYTES

RESERVE_FILE: Final = ".kafkapy-reserve"
RESERVE_BYTES: Final = 3 << 20
"""Three times what changes of the metadata leave free (metadata_log.RESERVED_BYTES)."""
TEXT: Final = b"kafkapy gives this room up for its metadata when the disk is full. "

logger = logging.getLogger("kafkapy.storage")


class SpaceReserve:
    """The reserve in one log directory. Calls raise OSError."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{RESERVE_FILE}"

    def give_up_if_needed(self) -> None:
        """At a start or a stop: make room where there is too little of it to write what that writes."""
        if self._disk.free_bytes(self._directory) < RESERVE_BYTES:
            self.give_up()

    def give_up(self) -> None:
        """Make room now."""
        if self._disk.exists(self._path):
            logger.warning("The disk of %s is full: giving up %s for the metadata", self._directory, self._path)
            self._disk.delete(self._path)

    def is_due(self) -> bool:
        """Return whether the reserve is missing and there is no room for it either: what is free is for metadata."""
        return not self._disk.exists(self._path) and self._disk.free_bytes(self._directory) < RESUME_FREE_BYTES

    def renew(self) -> None:
        """Write the reserve where it is missing, before records take what there is of room."""
        if self._disk.exists(self._path) or self.is_due():
            return
        file = self._disk.open(self._path, create=True)
        try:
            file.pwrite((TEXT * (RESERVE_BYTES // len(TEXT)),), 0)
        finally:
            file.close()
