"""What is wrong with records. All are ApiErrors: they become the error code of their partition, nothing closes."""

from typing import Final

from kafkapy.errors import ApiError, KafkapyError
from kafkapy.protocol.error_code import ErrorCode

CORRUPT_MESSAGE: Final = ErrorCode.CORRUPT_MESSAGE.value
MESSAGE_TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE.value
INVALID_TIMESTAMP: Final = ErrorCode.INVALID_TIMESTAMP.value
UNSUPPORTED_COMPRESSION_TYPE: Final = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE.value
INVALID_RECORD: Final = ErrorCode.INVALID_RECORD.value


class RecordsError(ApiError):
    """Base of what reading, checking or inflating records can raise."""


class CorruptRecordError(RecordsError):
    """A batch whose header or checksum is wrong, or compressed bytes that do not inflate."""

    def __init__(self, message: str) -> None:
        super().__init__(CORRUPT_MESSAGE, message)


class RecordTooLargeError(RecordsError):
    """A batch above max.message.bytes, or one that would inflate beyond its bound."""

    def __init__(self, message: str) -> None:
        super().__init__(MESSAGE_TOO_LARGE, message)


class InvalidRecordsError(RecordsError):
    """Records that may not be appended: a wrong structure, or rules of the topic that they break.

    `record_errors` holds (index of the record in its batch, message) for those at fault, empty where the batch is.
    """

    def __init__(
        self, message: str, *, code: int = INVALID_RECORD, record_errors: list[tuple[int, str]] | None = None
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors if record_errors is not None else []


class TooHeavyError(KafkapyError):
    """Not a failure: checking the batch would keep the event loop for too long, so a worker is to do it.

    Raised before anything of the batch was changed.
    """
