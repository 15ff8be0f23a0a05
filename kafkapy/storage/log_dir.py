"""A log directory's state, shared by its logs: after its disk has failed, it stays offline until a restart.

Every failure ends in `LogDirState.go_offline`. What follows is a chain of callbacks. `LogManager._directory_failed`
takes the logs out of service. `Node._directory_failed` stops the node if it was the metadata's directory or the last
one, and calls the listeners of `Node.add_directory_listener`: `ReplicaManager.directory_failed` takes the partitions
offline, `BrokerLifecycle.directory_failed` sends a heartbeat. By that the controller elects other leaders
(`PartitionControl.change_directories`).
"""

import errno
import logging
from collections.abc import Callable
from typing import Final, Protocol

from kafkapy.errors import ApiError, StorageError, cause_of
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR

logger = logging.getLogger("kafkapy.storage")

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
SHORTAGES: Final = (*NO_SPACE, *NO_DESCRIPTORS, errno.ENOMEM)
"""Errors of a temporary shortage: the disk has not failed."""

RESUME_FREE_BYTES: Final = 8 << 20
"""After a disk was full, appends resume at this much free space; below it, space is for metadata and checkpoints."""


class HasPendingFiles(Protocol):
    """A log with files of deleted segments, which wait to be unlinked. Implemented by LocalLog."""

    @property
    def directory(self) -> str: ...

    @property
    def has_pending_files(self) -> bool: ...

    def pop_due_files(self, now_ms: int) -> list[str]: ...

    def put_back(self, paths: list[str], now_ms: int) -> None: ...


class LogDirState:
    """Whether a log directory is online, and whether it is full.

    `on_directory_failed` is called once, when it goes offline; `on_full` each time an append finds the disk full,
    `on_room` when there is space again.
    """

    __slots__ = (
        "_free_bytes",
        "is_full",
        "logs_with_pending_files",
        "offline_reason",
        "on_directory_failed",
        "on_flushed",
        "on_full",
        "on_room",
        "path",
    )

    def __init__(
        self,
        path: str,
        on_directory_failed: Callable[["LogDirState"], None] | None = None,
        *,
        on_full: Callable[["LogDirState"], None] | None = None,
        on_room: Callable[["LogDirState"], None] | None = None,
        free_bytes: Callable[[str], int] | None = None,
    ) -> None:
        """free_bytes(path): the free space; without it `check_room` always succeeds, and each append tries to write."""
        self.path = path
        self.offline_reason: str | None = None
        self.is_full = False
        """Whether an append failed for lack of space and `check_room` has found none since."""
        self.logs_with_pending_files: dict[HasPendingFiles, None] = {}
        """Logs with files of deleted segments (`track_pending_files`), so that no one has to walk all logs for them."""
        self.on_directory_failed = on_directory_failed
        self.on_full = on_full
        self.on_room = on_room
        self._free_bytes = free_bytes
        self.on_flushed: Callable[[int], None] | None = None
        """Called on the loop's thread with how long each flush of a log took, in microseconds. Set once, if ever."""

    @property
    def is_offline(self) -> bool:
        return self.offline_reason is not None

    def check_online(self) -> None:
        """Raise StorageError if the directory is offline."""
        if self.offline_reason is not None:
            raise StorageError(self.path, f"offline: {self.offline_reason}")

    def go_offline(self, reason: str) -> None:
        """Take the directory out of service until the next start."""
        if self.offline_reason is None:
            self.offline_reason = reason
            logger.error("Stopping serving logs in dir %s: %s", self.path, reason)
            if self.on_directory_failed is not None:
                self.on_directory_failed(self)

    def track_pending_files(self, log: HasPendingFiles) -> None:
        """Add or remove a log that may have gained its first files of deleted segments, or lost its last."""
        if log.has_pending_files:
            self.logs_with_pending_files[log] = None
        else:
            self.logs_with_pending_files.pop(log, None)

    def mark_full(self) -> None:
        """Refuse appends until `check_room` finds space."""
        if not self.is_full:
            self.refuse_appends()
            if self.on_full is not None:
                self.on_full(self)

    def refuse_appends(self) -> None:
        """Make appends call `check_room` first: the disk is full, or nearly."""
        self.is_full = True

    def check_room(self) -> None:
        """Raise ApiError KAFKA_STORAGE_ERROR while less than RESUME_FREE_BYTES are free; else allow appends again.

        Raises StorageError if the directory is missing.
        """
        try:
            free_bytes = self._free_bytes(self.path) if self._free_bytes is not None else RESUME_FREE_BYTES
        except OSError as error:
            raise self.handle_os_error(error, f"looking for room in {self.path}") from error
        if free_bytes < RESUME_FREE_BYTES:
            raise ApiError(KAFKA_STORAGE_ERROR, f"no room in {self.path}: {free_bytes} bytes are free")
        self.is_full = False
        if self.on_room is not None:
            self.on_room(self)

    def handle_os_error(self, error: OSError, doing: str) -> ApiError | StorageError:
        """Apply an OSError to the state of the directory; return the error to raise.

        A shortage becomes an ApiError; any other error takes the directory offline and becomes a StorageError.
        Deviation: Apache Kafka takes the directory offline in every case. Here a shortage does not, because a full disk
        can get space again.
        """
        message = f"{doing}: {error.strerror or error}"
        if error.errno in NO_SPACE:
            self.mark_full()
        if error.errno in SHORTAGES:
            logger.warning("No room in dir %s: %s", self.path, message)
            return ApiError(KAFKA_STORAGE_ERROR, message)
        self.go_offline(message)
        return StorageError(self.path, message)


def lacks_space(error: BaseException) -> bool:
    """Whether an error is, or was caused by, an OSError that says that the disk has no space."""
    return _errno_of(error) in NO_SPACE


def is_shortage(error: BaseException) -> bool:
    """Whether an error is, or was caused by, an OSError of a temporary shortage: the disk has not failed."""
    return _errno_of(error) in SHORTAGES


def _errno_of(error: BaseException) -> int | None:
    cause = error if isinstance(error, OSError) else cause_of(error)
    return cause.errno if isinstance(cause, OSError) else None
