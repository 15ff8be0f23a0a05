"""What storage raises beyond the families of kafkapy.errors, and the error codes that it answers with."""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.errors import KafkapyError
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
TRANSACTION_COORDINATOR_FENCED: Final = ErrorCode.TRANSACTION_COORDINATOR_FENCED.value
KAFKA_STORAGE_ERROR: Final = ErrorCode.KAFKA_STORAGE_ERROR.value
INVALID_RECORD: Final = ErrorCode.INVALID_RECORD.value
INCONSISTENT_TOPIC_ID: Final = ErrorCode.INCONSISTENT_TOPIC_ID.value


class NeedsWorker(KafkapyError):
    """An append whose records take too long to check for the event loop: run `check` in the IoPool, append its result.

    Not a failure. `check` raises what the append would have raised, and returns what Log.append_checked takes; it takes
    at most needed_bytes of memory.
    """

    def __init__(self, check: "Callable[[], ValidatedRecords]", needed_bytes: int) -> None:
        super().__init__()
        self.check = check
        self.needed_bytes = needed_bytes


class NeedsWarming(KafkapyError):
    """A read that would have to wait for the disk: run `warm` in the IoPool, then ask again.

    Not a failure: the page that an index lookup or a header scan needs is not in the page cache.
    """

    def __init__(self, file: File, position: int, length: int) -> None:
        super().__init__(file.path, position, length)
        self.file = file
        self.position = position
        self.length = length

    def warm(self) -> None:
        """Bring the bytes into the page cache. Blocks; a pure call on a File, fit for a worker.

        Raises OSError. A file that was closed meanwhile (its segment was deleted) is fine: asking again tells.
        """
        try:
            self.file.warm(self.length, self.position)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise


class CorruptSnapshotError(KafkapyError):
    """A producer snapshot whose version, length or CRC is wrong; the cure is an older one, or the log itself."""


class CheckpointError(KafkapyError):
    """A checkpoint, partition.metadata or meta.properties file that cannot be read as what it should be."""
