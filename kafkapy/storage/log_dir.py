"""A log directory's health, shared by its logs: once its disk has failed, nothing in it is served until a restart."""

import errno
import logging
from collections.abc import Callable
from typing import Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR

logger = logging.getLogger("kafkapy.storage")

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
SHORTAGES: Final = (*NO_SPACE, *NO_DESCRIPTORS, errno.ENOMEM)
"""What passes: the disk has not failed."""

RESUME_FREE_BYTES: Final = 8 << 20
"""Once a disk was full, records are let in again where so much is free: the rest is for metadata and checkpoints."""


class LogDirState:
    """Whether a log directory is online, and whether it is full.

    `on_directory_failed` is called once, when it stops being online; `on_full` each time when an append finds no room
    any more, `on_room` when there is room again.
    """

    __slots__ = ("_free_bytes", "is_full", "offline_reason", "on_directory_failed", "on_full", "on_room", "path")

    def __init__(
        self,
        path: str,
        on_directory_failed: Callable[["LogDirState"], None] | None = None,
        *,
        on_full: Callable[["LogDirState"], None] | None = None,
        on_room: Callable[["LogDirState"], None] | None = None,
        free_bytes: Callable[[str], int] | None = None,
    ) -> None:
        """free_bytes(path): the room there is; where it is not given, every append finds out for itself."""
        self.path = path
        self.offline_reason: str | None = None
        self.is_full = False
        """Whether an append found no room, and `check_room` has found none since."""
        self.on_directory_failed = on_directory_failed
        self.on_full = on_full
        self.on_room = on_room
        self._free_bytes = free_bytes

    @property
    def is_offline(self) -> bool:
        return self.offline_reason is not None

    def check_online(self) -> None:
        """Raise StorageError when the directory is offline."""
        if self.offline_reason is not None:
            raise StorageError(self.path, f"offline: {self.offline_reason}")

    def go_offline(self, reason: str) -> None:
        """Take the directory out of service until the next start."""
        if self.offline_reason is None:
            self.offline_reason = reason
            logger.error("Stopping serving logs in dir %s: %s", self.path, reason)
            if self.on_directory_failed is not None:
                self.on_directory_failed(self)

    def note_full(self) -> None:
        """Refuse records until `check_room` finds room."""
        if not self.is_full:
            self.is_full = True
            if self.on_full is not None:
                self.on_full(self)

    def check_room(self) -> None:
        """Raise ApiError KAFKA_STORAGE_ERROR while the disk is still too full for records.

        Raises StorageError where the directory is gone.
        """
        try:
            free_bytes = self._free_bytes(self.path) if self._free_bytes is not None else RESUME_FREE_BYTES
        except OSError as error:
            raise self.failure(error, f"looking for room in {self.path}") from error
        if free_bytes < RESUME_FREE_BYTES:
            raise ApiError(KAFKA_STORAGE_ERROR, f"no room in {self.path}: {free_bytes} bytes are free")
        self.is_full = False
        if self.on_room is not None:
            self.on_room(self)

    def failure(self, error: OSError, doing: str) -> ApiError | StorageError:
        """Return what an OSError means: a shortage leaves the directory online, all else does not.

        A deviation from Apache Kafka, which takes it offline in every case: a full disk gets room again.
        """
        message = f"{doing}: {error.strerror or error}"
        if error.errno in NO_SPACE:
            self.note_full()
        if error.errno in SHORTAGES:
            logger.warning("No room in dir %s: %s", self.path, message)
            return ApiError(KAFKA_STORAGE_ERROR, message)
        self.go_offline(message)
        return StorageError(self.path, message)
