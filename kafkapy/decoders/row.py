"""A record as a JSON object that restores it exactly: what `consume --json` prints and `produce --json` reads.

    {"topic", "partition", "offset", "timestamp_ms", "key", "value", "headers": {name: value}}

Where that is not exact, more fields say what the bytes are: "key_base64", "value_base64", and "headers_base64", a list
of [name, base64 or null], when a header is repeated or not text. produce prefers them. Limit: librdkafka takes the
timestamp 0 for "now".
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final

from kafkapy.decoders.formats import Decoded
from kafkapy.errors import quoted
from kafkapy.named_tuple import NamedTuple

FIELDS: Final = frozenset(
    (
        *("topic", "partition", "offset", "timestamp_ms", "headers", "headers_base64"),
        *(f"{name}{more}" for name in ("key", "value") for more in ("", "_base64", "_error")),
    )
)
"""All that a row may have."""
Headers = Sequence[tuple[str, bytes | None]]


class ConsumedRecord(NamedTuple):
    """A record as it was consumed."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def row_of(record: ConsumedRecord, decoded_key: Decoded, decoded_value: Decoded) -> dict[str, Any]:
    topic, partition, offset, timestamp_ms, key, value, headers = record
    row = {"topic": topic, "partition": partition, "offset": offset, "timestamp_ms": timestamp_ms}
    _add(row, "key", key, decoded_key)
    _add(row, "value", value, decoded_value)
    shown = {name: None if each is None else each.decode("utf-8", "backslashreplace") for name, each in headers}
    row["headers"] = shown
    if _headers_of(shown) != list(headers):
        row["headers_base64"] = [[name, None if each is None else _base64(each)] for name, each in headers]
    return row


def record_of(row: Any) -> dict[str, Any]:
    """Return the arguments of a Producer's produce(). Raises ValueError for an object that is no record."""
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    unknown = next((name for name in row if name not in FIELDS), None)
    if unknown is not None:
        raise ValueError(f"no field is called {quoted(unknown)}: {', '.join(sorted(FIELDS))}")
    record: dict[str, Any] = {"key": _restored(row, "key"), "value": _restored(row, "value")}
    headers = row.get("headers_base64")
    if headers is not None:
        record["headers"] = [(name, _decoded("headers_base64", value)) for name, value in _pairs(headers)]
    elif row.get("headers"):
        if not isinstance(row["headers"], dict):
            raise ValueError("headers: not a JSON object")
        record["headers"] = _headers_of(row["headers"])
    if row.get("partition") is not None:
        record["partition"] = _integer(row, "partition")
    if row.get("timestamp_ms") is not None and _integer(row, "timestamp_ms") >= 0:
        record["timestamp"] = _integer(row, "timestamp_ms")
    return record


def bytes_of(value: Any) -> bytes | None:
    """Return the bytes that produce sends for a JSON value: text as UTF-8, null as null, everything else as JSON."""
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value)).encode("utf-8")


def _add(row: dict[str, Any], name: str, data: bytes | None, decoded: Decoded) -> None:
    row[name] = decoded.value
    if decoded.error is not None:
        row[f"{name}_error"] = decoded.error
    if data is not None and _sent_for(decoded.value) != data:
        row[f"{name}_base64"] = _base64(data)


def _sent_for(value: Any) -> bytes | None:
    try:
        return bytes_of(value)
    except UnicodeEncodeError:  # JSON may hold half of a surrogate pair
        return None


def _restored(row: dict[str, Any], name: str) -> bytes | None:
    exact = row.get(f"{name}_base64")
    return bytes_of(row.get(name)) if exact is None else _decoded(f"{name}_base64", exact)


def _headers_of(headers: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    return [(name, bytes_of(value)) for name, value in headers.items()]


def _pairs(headers: Any) -> list[tuple[str, Any]]:
    is_list = isinstance(headers, list)
    if not is_list or not all(
        isinstance(each, list) and len(each) == 2 and isinstance(each[0], str) for each in headers
    ):
        raise ValueError("headers_base64: not a list of [name, base64]")
    return [(name, value) for name, value in headers]


def _decoded(name: str, text: Any) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"{name}: not base64")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name}: not base64: {error}") from error


def _integer(row: dict[str, Any], name: str) -> int:
    value = row[name]
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{name}: not a number")
    return int(value)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
