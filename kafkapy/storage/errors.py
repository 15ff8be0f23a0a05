"""Storage exceptions beyond the families of kafkapy.errors, and the error codes that storage returns."""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.errors import KafkapyError, StorageError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.seams import File

if TYPE_CHECKING:
    from kafkapy.record.append_rules import ValidatedRecords

OFFSET_OUT_OF_RANGE: Final = ErrorCode.OFFSET_OUT_OF_RANGE.value
CORRUPT_MESSAGE: Final = ErrorCode.CORRUPT_MESSAGE.value
MESSAGE_TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE.value
RECORD_LIST_TOO_LARGE: Final = ErrorCode.RECORD_LIST_TOO_LARGE.value
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.value
INVALID_PRODUCER_EPOCH: Final = ErrorCode.INVALID_PRODUCER_EPOCH.value
INVALID_TXN_STATE: Final = ErrorCode.INVALID_TXN_STATE.value
UNKNOWN_PRODUCER_ID: Final = ErrorCode.UNKNOWN_PRODUCER_ID.value
TRANSACTION_COORDINATOR_FENCED: Final = ErrorCode.TRANSACTION_COORDINATOR_FENCED.value
KAFKA_STORAGE_ERROR: Final = ErrorCode.KAFKA_STORAGE_ERROR.value
INVALID_RECORD: Final = ErrorCode.INVALID_RECORD.value
INCONSISTENT_TOPIC_ID: Final = ErrorCode.INCONSISTENT_TOPIC_ID.value


class NeedsWorker(KafkapyError):
    """Not a failure: checking an append's records would block the event loop for too long.

    Run `check` in the IoPool and pass its result to Log.append_checked. It raises what the append would have raised,
    and needs at most needed_bytes of memory.
    """

    def __init__(self, check: "Callable[[], ValidatedRecords]", needed_bytes: int) -> None:
        super().__init__()
        self.check = check
        self.needed_bytes = needed_bytes


class NeedsWarming(KafkapyError):
    """Not a failure: a read needs bytes of an index or a log that are not in the page cache.

    Run `warm` in the IoPool, then read again.
    """

    def __init__(self, file: File, position: int, length: int) -> None:
        super().__init__(file.path, position, length)
        self.file = file
        self.position = position
        self.length = length

    def warm(self) -> None:
        """Read the bytes into the page cache. Blocks; safe on a worker, as it touches only the File.

        Raises OSError, but not if the file was closed in the meantime (its segment was deleted); then read again.
        """
        try:
            self.file.warm(self.length, self.position)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise


class CorruptSnapshotError(KafkapyError):
    """A producer snapshot has a wrong version, length or CRC. Recovery uses an older snapshot, or the log itself."""


class DamagedLogError(StorageError):
    """A log cannot be loaded although its disk works, after an unclean stop. Its log directory stays online."""


class CheckpointError(KafkapyError):
    """A checkpoint, partition.metadata or meta.properties file is malformed."""
