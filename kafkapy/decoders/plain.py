"""The formats that need no schema: text, numbers, UUIDs, JSON, hex, base64, MessagePack.

Numbers are those of Kafka's own serializers (org.apache.kafka.common.serialization): big-endian, of a fixed size.
"""

import base64
import datetime
import decimal
import json
import math
import struct
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kafkapy.decoders.bounds import MAX_DEPTH, check_messagepack
from kafkapy.decoders.errors import DecodeError

Decode: TypeAlias = Callable[[bytes], Any]
"""Returns what json.dumps takes. Raises DecodeError."""


def decode_text(data: bytes) -> str:
    """Invalid UTF-8 is shown as \\xff."""
    return data.decode("utf-8", "backslashreplace")


def decode_json(data: bytes) -> Any:
    try:
        return jsonable(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from error


def decode_boolean(data: bytes) -> bool:
    if data not in (b"\x00", b"\x01"):
        raise DecodeError("a boolean is one byte, 0 or 1")
    return data == b"\x01"


def decode_uuid(data: bytes) -> str:
    """Kafka's UUIDSerializer writes 36 characters; 16 bytes are taken for the UUID itself."""
    try:
        return str(uuid.UUID(bytes=data) if len(data) == 16 else uuid.UUID(data.decode("ascii")))
    except ValueError as error:
        raise DecodeError(f"not a UUID: {len(data)} bytes") from error


def decode_messagepack(data: bytes) -> Any:
    try:
        import msgpack
    except ImportError as error:
        raise DecodeError("messagepack needs a library: pip install msgpack") from error
    check_messagepack(data)
    try:
        return jsonable(msgpack.unpackb(data, strict_map_key=False, timestamp=0))
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:  # of lists as keys
        raise DecodeError(f"not MessagePack: {error}") from error


def number(name: str, layout: str) -> Decode:
    """Return the decoder of a number; `layout` is one of struct's."""
    packed = struct.Struct(layout)

    def decode(data: bytes) -> Any:
        if len(data) != packed.size:
            raise DecodeError(f"{name} has {packed.size} bytes, not {len(data)}")
        return jsonable(packed.unpack(data)[0])

    return decode


PLAIN: Final[dict[str, Decode]] = {
    "text": decode_text,
    "json": decode_json,
    "hex": bytes.hex,
    "base64": lambda data: base64.b64encode(data).decode("ascii"),
    "short": number("a short", ">h"),
    "integer": number("an integer", ">i"),
    "long": number("a long", ">q"),
    "float": number("a float", ">f"),
    "double": number("a double", ">d"),
    "boolean": decode_boolean,
    "uuid": decode_uuid,
    "messagepack": decode_messagepack,
}


def jsonable(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON has it: bytes as base64, times as ISO 8601, not-a-number as text. Raises DecodeError."""
    if depth > MAX_DEPTH:
        raise DecodeError(f"nested deeper than {MAX_DEPTH}")
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): jsonable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item, depth + 1) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime.date | datetime.time | datetime.datetime):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    return str(value)
