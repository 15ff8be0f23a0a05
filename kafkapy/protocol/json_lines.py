"""Converts messages to JSON and back, in the conventions of Kafka's JsonConverters, for tools and tests.

Field names are lowerCamelCase; bytes and records are base64; a uuid is 22 characters of unpadded URL-safe base64. A
tagged field at its default is omitted, and a missing one gets its default. All other fields of the version are
required. Non-finite float64 values are "NaN", "Infinity" and "-Infinity". Unknown tagged fields, which Kafka's
converters drop, are in "unknownTaggedFields": {"<tag>": base64}.
"""

import base64
import math
from functools import cache
from sys import modules
from typing import Any

from kafkapy.errors import quoted
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.api import message_type
from kafkapy.protocol.field_table import FIELDS
from kafkapy.protocol.primitives import EncodeError, Message, MessageStruct
from kafkapy.seams import FileRegion
from kafkapy.types import uuid_from_string, uuid_to_string

UNKNOWN = "unknownTaggedFields"
INT_TYPES = {"int8", "int16", "uint16", "int32", "uint32", "int64"}


class Field(NamedTuple):
    """A field in one version."""

    json_name: str
    attribute: str
    type: str
    is_array: bool
    is_nullable: bool
    is_tagged: bool


class Shape(NamedTuple):
    """A struct in one version; `default` is an instance with all defaults, used only for comparison."""

    make: type[MessageStruct]
    default: MessageStruct
    fields: tuple[Field, ...]


def to_json(message: Message, version: int) -> dict[str, Any]:
    """Return the JSON object of a message at `version`."""
    return _struct_to_json(message, message.NAME, message.NAME, version)


def from_json(name: str, version: int, value: Any) -> Message:
    """Return the message called `name` from its JSON object.

    Raises EncodeError for a wrong type, a missing or unknown field, or an unsupported version; ProtocolError for an
    unknown message name.
    """
    kind = message_type(name)
    if not kind.MIN_VERSION <= version <= kind.MAX_VERSION:
        raise EncodeError(f"{name} has no version {version}")
    message = _struct_from_json(value, name, name, version, name)
    assert isinstance(message, Message)
    return message


@cache
def _shape(message: str, struct: str, version: int) -> Shape:
    make: type[MessageStruct] = getattr(modules[message_type(message).__module__], struct)
    fields = (_field(row, version) for row in FIELDS[message][struct])
    return Shape(make, make(), tuple(field for field in fields if field is not None))


def _field(row: str, version: int) -> Field | None:
    """Parse a line of the field table for `version`; return None if the version does not have the field."""
    json_name, attribute, type_name, versions, nullable, tagged = row.split()
    if not _contains(versions, version):
        return None
    return Field(
        json_name=json_name,
        attribute=attribute,
        type=type_name.removeprefix("[]"),
        is_array=type_name.startswith("[]"),
        is_nullable=_contains(nullable, version) or type_name == "records",
        is_tagged=_contains(tagged, version),
    )


def _contains(versions: str, version: int) -> bool:
    if versions == "none":
        return False
    low, high = versions.split("-")
    return int(low) <= version <= int(high)


# To JSON.


def _struct_to_json(value: MessageStruct, struct: str, message: str, version: int) -> dict[str, Any]:
    shape = _shape(message, struct, version)
    result = {}
    for field in shape.fields:
        item = getattr(value, field.attribute)
        if field.is_tagged and item == getattr(shape.default, field.attribute):
            continue
        result[field.json_name] = _value_to_json(item, field, message, version)
    unknown: dict[int, bytes] | None = getattr(value, "unknown_tagged_fields")  # noqa: B009
    if unknown:
        result[UNKNOWN] = {str(tag): _base64(data) for tag, data in unknown.items()}
    return result


def _value_to_json(value: Any, field: Field, message: str, version: int) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_item_to_json(item, field.type, message, version) for item in value]
    return _item_to_json(value, field.type, message, version)


def _item_to_json(value: Any, kind: str, message: str, version: int) -> Any:
    if kind in INT_TYPES or kind in {"string", "bool"}:
        return value
    if kind == "uuid":
        return uuid_to_string(value)
    if kind == "records":
        return _base64(value.read() if isinstance(value, FileRegion) else value)
    if kind == "bytes":
        return _base64(value)
    if kind == "float64":
        return _float_to_json(value)
    return _struct_to_json(value, kind, message, version)


def _base64(data: bytes | memoryview) -> str:
    return base64.b64encode(data).decode("ascii")


def _float_to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# From JSON.


def _struct_from_json(value: Any, struct: str, message: str, version: int, where: str) -> MessageStruct:
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    shape = _shape(message, struct, version)
    given: dict[str, Any] = {}
    for field in shape.fields:
        if field.json_name in value:
            place = f"{where}.{field.json_name}"
            given[field.attribute] = _value_from_json(value[field.json_name], field, message, version, place)
        elif not field.is_tagged:
            raise EncodeError(f"{where} lacks {quoted(field.json_name)}, which version {version} has")
    unknown = value.keys() - {field.json_name for field in shape.fields} - {UNKNOWN}
    if unknown:
        raise EncodeError(f"{where} has {', '.join(sorted(unknown))}, which version {version} has not")
    if UNKNOWN in value:
        given["unknown_tagged_fields"] = _unknown_from_json(value[UNKNOWN], f"{where}.{UNKNOWN}")
    return shape.make(**given)


def _unknown_from_json(value: Any, where: str) -> dict[int, bytes]:
    if not isinstance(value, dict) or not all(tag.isascii() and tag.isdigit() for tag in value):
        raise _wrong(where, "an object with tags for keys", value)
    return {int(tag): _bytes_from_json(data, where) for tag, data in value.items()}


def _value_from_json(value: Any, field: Field, message: str, version: int, where: str) -> Any:
    if value is None:
        if not field.is_nullable:
            raise _wrong(where, "not null", value)
        return None
    if not field.is_array:
        return _item_from_json(value, field.type, message, version, where)
    if not isinstance(value, list):
        raise _wrong(where, "an array", value)
    return [_item_from_json(item, field.type, message, version, f"{where}[{i}]") for i, item in enumerate(value)]


def _item_from_json(value: Any, kind: str, message: str, version: int, where: str) -> Any:
    if kind in INT_TYPES:
        if type(value) is not int:
            raise _wrong(where, "an integer", value)
        return value
    if kind == "bool":
        if type(value) is not bool:
            raise _wrong(where, "true or false", value)
        return value
    if kind == "float64":
        return _float_from_json(value, where)
    if kind in {"string", "uuid", "bytes", "records"}:
        return _text_from_json(value, kind, where)
    return _struct_from_json(value, kind, message, version, where)


def _text_from_json(value: Any, kind: str, where: str) -> str | bytes:
    if not isinstance(value, str):
        raise _wrong(where, "a string", value)
    if kind == "string":
        return value
    if kind == "uuid":
        try:
            return uuid_from_string(value)
        except ValueError as error:
            raise EncodeError(f"{where}: {error}") from error
    return _bytes_from_json(value, where)


def _bytes_from_json(value: Any, where: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (ValueError, TypeError) as error:
        raise _wrong(where, "base64", value) from error


def _float_from_json(value: Any, where: str) -> float:
    if type(value) in (int, float):
        return float(value)
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise _wrong(where, "a number", value)


def _wrong(where: str, expected: str, value: Any) -> EncodeError:
    text = repr(value)
    return EncodeError(f"{where} should be {expected}, is {text if len(text) <= 60 else text[:57] + '...'}")
