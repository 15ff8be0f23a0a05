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


class LogDirState:
    """Whether a log directory is online. `on_offline` is called once, when it stops being so."""

    __slots__ = ("offline_reason", "on_offline", "path")

    def __init__(self, path: str, on_offline: Callable[["LogDirState"], None] | None = None) -> None:
        self.path = path
        self.offline_reason: str | None = None
        self.on_offline = on_offline

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
            if self.on_offline is not None:
                self.on_offline(self)

    def failure(self, error: OSError, doing: str) -> ApiError | StorageError:
        """Return what an OSError means: out of space or descriptors leaves the directory online, all else does not.

        A deviation from Apache Kafka, which takes it offline in every case: a full disk gets room again.
        """
        message = f"{doing}: {error.strerror or error}"
        if error.errno in NO_SPACE or error.errno in NO_DESCRIPTORS:
            logger.warning("No room in dir %s: %s", self.path, message)
            return ApiError(KAFKA_STORAGE_ERROR, message)
        self.go_offline(message)
        return StorageError(self.path, message)
