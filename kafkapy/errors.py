"""The error families. What is raised tells who is at fault and what ends because of it.

ApiError        expected: becomes an error code in the answer; nothing ends.
ProtocolError   the peer sent what cannot be read: its connection closes.
StorageError    a disk failed or is corrupt: that log directory goes offline.
ConfigError     a value that cannot work, found at start: the process does not start.
AssertionError  our own mistake: the partition at fault goes offline; without one, the process stops.
"""


class KafkapyError(Exception):
    """Base of the families below; caught only at the edges of the process."""


class ApiError(KafkapyError):
    """An expected failure, carried to the client as its error code (kafkapy.protocol.error_code) and message."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"error {self.code}: {self.message}"


class ProtocolError(KafkapyError):
    """Bytes from a peer that cannot be read as what they claim to be."""


class StorageError(KafkapyError):
    """A log directory that cannot be read or written any more."""

    def __init__(self, log_dir: str, message: str) -> None:
        super().__init__(log_dir, message)
        self.log_dir = log_dir
        self.message = message

    def __str__(self) -> str:
        return f"log directory {self.log_dir}: {self.message}"


class CorruptIndexError(KafkapyError):
    """An index file that does not hold what its format demands; the cure is to rebuild it from the log."""


class ConfigError(KafkapyError):
    """A configuration that cannot work: names the key, the value and what is allowed."""

    def __init__(self, key: str, value: object, message: str) -> None:
        super().__init__(key, value, message)
        self.key = key
        self.value = value
        self.message = message

    def __str__(self) -> str:
        return f"Invalid value {self.value} for configuration {self.key}: {self.message}"
