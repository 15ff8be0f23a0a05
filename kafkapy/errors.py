"""The error families. The class of an error determines what fails because of it.

ApiError        an expected failure: becomes an error code in the response; nothing else fails.
ProtocolError   a peer sent bytes that cannot be parsed: its connection is closed.
StorageError    a disk failed or is corrupt: that log directory goes offline.
ConfigError     an invalid configuration value, found at start: the process does not start.
AssertionError  a bug in kafkapy: the affected partition goes offline; if there is none, the process stops.
"""

from collections.abc import Iterable, Sequence
from typing import Final

MAX_REPEATED_LENGTH: Final = 300
"""Of a message that is in a response more than once: longer than those about names that a topic may have."""


def quoted(text: str) -> str:
    """Return text in quotes, with unprintable characters escaped: for messages with text from outside."""
    return repr(text)


def repeated(text: str | None) -> str | None:
    """Return a message that the response has already, for another partition of the same topic.

    Deviation: Apache Kafka repeats a message about a name of any length with each of the topic's partitions. Here all
    but the first have its beginning only, because of a name of 30,000 letters for 90,000 partitions it would be 2.7 GB.
    """
    return text if text is None or len(text) <= MAX_REPEATED_LENGTH else f"{text[:MAX_REPEATED_LENGTH]}..."


def first_of(names: Sequence[str], most: int) -> str:
    """Return the first `most` names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def unknown(what: str, name: str, known: Iterable[str], most: int = 5) -> str:
    """Return a message that a name does not exist, with up to `most` existing ones."""
    return f"there is no {what} {quoted(name)}; there are: {first_of(sorted(known), most) or 'none'}"


def near(name: str, known: Iterable[str]) -> str:
    """Return which existing names a wrong one may mean, as the end of a message: "" if none is like it."""
    import difflib  # only for a mistake: 2 ms

    by_lower = {each.lower(): each for each in known}
    found = [by_lower[each] for each in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    return f"; is it {' or '.join(found)}?" if found else ""


def described(error: BaseException) -> str:
    """Return the class and the text of an unexpected error, for a message: `KeyError: 'version'`."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cause_of(error: BaseException) -> BaseException | None:
    """Return the error that led to this one. Code that mypyc compiled sets no __cause__, but the context."""
    return error.__cause__ or error.__context__


class KafkapyError(Exception):
    """Base class of the families below; caught only at the outermost level of the process."""


class ApiError(KafkapyError):
    """An expected failure, carried to the client as its error code (kafkapy.protocol.error_code) and message."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        name = getattr(self.code, "name", None) or f"error {self.code}"
        return f"{name}: {self.message}" if self.message else name


class ProtocolError(KafkapyError):
    """Bytes from a peer that do not parse as the message they claim to be."""


class StorageError(KafkapyError):
    """A log directory can no longer be read or written."""

    def __init__(self, log_dir: str, message: str) -> None:
        super().__init__(log_dir, message)
        self.log_dir = log_dir
        self.message = message

    def __str__(self) -> str:
        return f"log directory {self.log_dir}: {self.message}"


class CorruptIndexError(KafkapyError):
    """An index file violates its format; the caller rebuilds it from the log."""


class ConfigError(KafkapyError):
    """An invalid configuration: names the key, the value and what is allowed."""

    def __init__(self, key: str, value: object, message: str) -> None:
        super().__init__(key, value, message)
        self.key = key
        self.value = value
        self.message = message

    def __str__(self) -> str:
        return f"Invalid value {self.value} for configuration {self.key}: {self.message}"
