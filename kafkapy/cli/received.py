"""A consumed record with its decoded key and value, the filters of `consume`, and its formats."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkapy.cli.failure import note
from kafkapy.cli.moments import shown_time
from kafkapy.errors import quoted

if TYPE_CHECKING:
    from kafkapy.decoders.formats import Decoded, Decoders

Filter = Callable[["Received"], bool]
NOT_JSON: Final = object()


class Received:
    """A message of librdkafka; decoded when it is first used."""

    __slots__ = ("_decoders", "_key", "_value", "message")

    def __init__(self, message: Any, decoders: "Decoders") -> None:
        self.message = message
        self._decoders = decoders
        self._key: Decoded | None = None
        self._value: Decoded | None = None

    @property
    def key(self) -> "Decoded":
        if self._key is None:
            self._key = self._decoders.key(self.message.topic(), self.message.key())
        return self._key

    @property
    def value(self) -> "Decoded":
        if self._value is None:
            self._value = self._decoders.value(self.message.topic(), self.message.key(), self.message.value())
        return self._value

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        return self.message.headers() or []

    def json(self) -> Any:
        """Return the value as JSON, NOT_JSON if it is none."""
        decoded = self.value
        if not isinstance(decoded.value, str) or decoded.format not in ("text", "auto"):
            return decoded.value
        try:
            return json.loads(decoded.value)
        except (ValueError, RecursionError):
            return NOT_JSON

    def key_line(self) -> bytes:
        return _line(self.message.key(), self.key)

    def value_line(self) -> bytes:
        return _line(self.message.value(), self.value)


def _line(data: bytes | None, decoded: "Decoded") -> bytes:
    """Return the printed form of a key or value: text byte for byte, other formats as JSON."""
    if decoded.error is not None:
        note(decoded.error)
    if data is None or decoded.format == "text":
        return b"null" if data is None else data
    return _text(decoded).encode("utf-8", "backslashreplace")


def _text(decoded: "Decoded") -> str:
    return decoded.value if isinstance(decoded.value, str) else json.dumps(decoded.value, ensure_ascii=False)


# -- filters --------------------------------------------------------------------------------------------------------


def filters_of(*, key: str | None, grep: str | None, headers: Sequence[str], json_paths: Sequence[str]) -> list[Filter]:
    """Return the filters that all have to accept a record. Raises ValueError."""
    found: list[Filter] = []
    if key is not None:
        wanted = key.encode("utf-8", "surrogateescape")  # as sent: JSON is decoded to other text with a registry
        found.append(
            lambda each: each.message.key() is not None and (each.message.key() == wanted or _text(each.key) == key)
        )
    found += [_header_filter(text) for text in headers]
    if grep is not None:
        found.append(_grep_filter(grep))
    if json_paths:
        found += [_path_filter(text) for text in json_paths]
    return found


def _header_filter(text: str) -> Filter:
    name, equals, value = text.partition("=")
    wanted = value.encode()
    return lambda received: any(each == name and (not equals or found == wanted) for each, found in received.headers)


def _grep_filter(text: str) -> Filter:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(f"--grep {quoted(text)} is no regular expression: {error}") from error

    def is_found(received: Received) -> bool:
        given = ((received.message.value(), received.value), (received.message.key(), received.key))
        return any(data is not None and pattern.search(_text(decoded)) is not None for data, decoded in given)

    return is_found


def _path_filter(text: str) -> Filter:
    from kafkapy.decoders.errors import DecodeError
    from kafkapy.decoders.json_path import JsonPath

    try:
        path = JsonPath(text)
    except DecodeError as error:
        raise ValueError(f"--jsonpath: {error}") from error
    return lambda received: (value := received.json()) is not NOT_JSON and path.is_met(value)


# -- formats --------------------------------------------------------------------------------------------------------

ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
PART: Final = re.compile(r"%(.)|\\(.)|([^%\\]+)", re.DOTALL)


def _headers(received: Received) -> bytes:
    return b",".join(name.encode() + b"=" + (b"null" if value is None else value) for name, value in received.headers)


FIELDS: Final[dict[str, Callable[[Received], bytes]]] = {
    "t": lambda received: received.message.topic().encode(),
    "p": lambda received: b"%d" % received.message.partition(),
    "o": lambda received: b"%d" % received.message.offset(),
    "k": Received.key_line,
    "v": Received.value_line,
    "s": Received.value_line,
    "h": _headers,
    "T": lambda received: b"%d" % received.message.timestamp()[1],
    "d": lambda received: shown_time(received.message.timestamp()[1]).encode(),
    "%": lambda received: b"%",
}
"""By the letter after %: kcat's, with v and d besides."""
FORMAT_HELP: Final = (
    "Print by this pattern: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %d time, %T its ms, "
    "\\n, \\t."
)


def pattern_parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a --format: ("k", "") for %k, ("", text) for text. Raises ValueError at a last % alone.

    A \\n at its end, which kcat needs, adds nothing: a record is a line.
    """
    for found in PART.finditer(text):
        letter, escaped, plain = found.groups()
        if escaped == "n" and found.end() == len(text):
            return
        yield letter or "", "" if letter else plain or ESCAPES.get(escaped, f"\\{escaped}")
    if text.endswith("%") and not text.endswith("%%"):
        raise ValueError("--format: it ends with %, write %% for one")


def format_of(text: str) -> Callable[[Received], bytes]:
    """Return the function that turns a record into a line. Raises ValueError."""
    parts: list[Callable[[Received], bytes] | bytes] = []
    for letter, literal in pattern_parts(text):
        if letter and letter not in FIELDS:
            raise ValueError(f"--format: %{letter} is none of {', '.join(f'%{each}' for each in FIELDS)}")
        parts.append(FIELDS[letter] if letter else literal.encode())
    return lambda received: b"".join(each if isinstance(each, bytes) else each(received) for each in parts) + b"\n"


def text_format(key_separator: str | None) -> Callable[[Received], bytes]:
    if key_separator is None:
        return lambda received: received.value_line() + b"\n"
    separator = key_separator.encode()
    return lambda received: received.key_line() + separator + received.value_line() + b"\n"


def json_format(received: Received) -> bytes:
    """Return a record as JSON, from which produce --json restores it."""
    from kafkapy.decoders.row import ConsumedRecord, row_of

    message = received.message
    record = ConsumedRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        received.headers,
    )
    row = row_of(record, received.key, received.value)
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
