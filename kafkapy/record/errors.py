"""Errors in records. RecordsErrors are ApiErrors: each becomes its partition's error code; no connection closes."""

from typing import Final

from kafkapy.errors import ApiError, KafkapyError
from kafkapy.protocol.error_code import ErrorCode

CORRUPT_MESSAGE: Final = ErrorCode.CORRUPT_MESSAGE.value
MESSAGE_TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE.value
INVALID_TIMESTAMP: Final = ErrorCode.INVALID_TIMESTAMP.value
UNSUPPORTED_COMPRESSION_TYPE: Final = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE.value
INVALID_RECORD: Final = ErrorCode.INVALID_RECORD.value


class RecordsError(ApiError):
    """Base class of the errors of parsing, validating or decompressing records."""


class CorruptRecordError(RecordsError):
    """The header or checksum of a batch is wrong, or its data cannot be decompressed."""

    def __init__(self, message: str) -> None:
        super().__init__(CORRUPT_MESSAGE, message)


class RecordTooLargeError(RecordsError):
    """A batch exceeds max.message.bytes, or would decompress beyond its bound."""

    def __init__(self, message: str) -> None:
        super().__init__(MESSAGE_TOO_LARGE, message)


class InvalidRecordsError(RecordsError):
    """Records must not be appended: they are malformed, or violate a rule of the topic.

    `record_errors` holds (index in the batch, message) of each invalid record; empty if the whole batch is invalid.
    """

    def __init__(
        self, message: str, *, code: int = INVALID_RECORD, record_errors: list[tuple[int, str]] | None = None
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors if record_errors is not None else []


class InvalidSequenceError(InvalidRecordsError):
    """A batch's count of records, offsets or sequence are wrong, or a client's batch has control records.

    Kafka's InvalidOffsetOrSequenceRecordsPerSec counts these.
    """


class MissingCodecError(ApiError):
    """The library of a compression codec is not installed, so that a batch can be neither compressed nor read.

    Not a RecordsError: recovery takes those for damage and truncates the log, but the batch may be valid.
    """

    def __init__(self, codec: str, package: str) -> None:
        super().__init__(
            UNSUPPORTED_COMPRESSION_TYPE,
            f"the compression codec {codec} needs a package that is not installed here: pip install {package}",
        )


class TooHeavyError(KafkapyError):
    """Not a failure: validating the batch would block the event loop for too long, so a worker must do it.

    Raised before anything in the batch is modified.
    """
