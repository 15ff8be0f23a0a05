"""Encodes JSON values as a schema registry's serializers do: five bytes that name the schema, then the data.

JSON values are those that the decoders print: bytes as base64, times as ISO 8601, decimals as text. Of a Protobuf file
the first message is written.
"""

import base64
import binascii
import datetime
import decimal
import io
import json
from collections.abc import Callable
from typing import Any, Final

from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.registry import Schema, SchemaRegistry
from kafkapy.decoders.schemas import parse_avro, parse_json_schema, parse_protobuf
from kafkapy.errors import quoted

FIRST_MESSAGE: Final = b"\0"
"""The message indexes of a file's first message, in short."""
NOT_FINITE: Final = ("nan", "inf", "-inf")
Named = dict[str, Any]


class SchemaEncoder:
    """Encodes values by one schema, which is fetched once. Raises DecodeError."""

    def __init__(self, registry: SchemaRegistry, schema_id: int) -> None:
        schema = registry.schema(schema_id)
        self._schema_id = schema_id
        self._encode = _encoder(schema)

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a JSON value. Raises DecodeError, which says what does not fit."""
        try:
            data = self._encode(value)
        except (DecodeError, RecursionError) as error:
            reason = str(error) if isinstance(error, DecodeError) else "it is nested too deep"
            raise DecodeError(f"not of schema {self._schema_id}: {reason}") from error
        return b"\0" + self._schema_id.to_bytes(4, "big") + data


def _encoder(schema: Schema) -> Callable[[Any], bytes]:
    try:
        match schema.kind:
            case "AVRO":
                return _avro(schema)
            case "JSON":
                return _json(schema)
            case "PROTOBUF":
                return _protobuf(schema)
    except DecodeError:
        raise
    except Exception as error:  # fastavro and protobuf raise whatever their parts do
        raise DecodeError(f"not a schema: {type(error).__name__}: {str(error)[:200]}") from error
    raise DecodeError(f"a schema of the unknown kind {schema.kind}")


def _json(schema: Schema) -> Callable[[Any], bytes]:
    validator = parse_json_schema(schema)

    def encode(value: Any) -> bytes:
        try:
            wrong = next(validator.iter_errors(value), None)
        except Exception as error:  # a $ref to what is not there, or an expression that is none
            raise DecodeError(f"not a schema: {type(error).__name__}: {str(error)[:200]}") from error
        if wrong is not None:
            raise DecodeError(f"{wrong.json_path.removeprefix('$') or 'it'}: {wrong.message[:200]}")
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")

    return encode


def _protobuf(schema: Schema) -> Callable[[Any], bytes]:
    _, file = parse_protobuf(schema)
    from google.protobuf import json_format, message_factory

    described = next(iter(file.message_types_by_name.values()))
    message_type = message_factory.GetMessageClass(described)

    def encode(value: Any) -> bytes:
        try:
            return FIRST_MESSAGE + bytes(json_format.ParseDict(value, message_type()).SerializeToString())
        except Exception as error:  # protobuf's errors differ by implementation
            raise DecodeError(str(error)[:200]) from error

    return encode


def _avro(schema: Schema) -> Callable[[Any], bytes]:
    parsed, named = parse_avro(schema)
    import fastavro

    def encode(value: Any) -> bytes:
        out = io.BytesIO()
        prepared = _prepared(parsed, value, named, "")
        try:
            fastavro.schemaless_writer(out, parsed, prepared)
        except Exception as error:  # fastavro raises whatever its parts do
            raise DecodeError(f"{type(error).__name__}: {str(error)[:200]}") from error
        return out.getvalue()

    return encode


# -- JSON as Avro has it --------------------------------------------------------------------------------------------


def _prepared(schema: Any, value: Any, named: Named, path: str) -> Any:
    """Return a JSON value as fastavro takes it. Raises DecodeError. path: where it is, as `.user.name`."""
    if isinstance(schema, list):
        return _of_union(schema, value, named, path)
    if isinstance(schema, str):
        return _prepared(named[schema], value, named, path) if schema in named else _plain(schema, value, path)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _prepared(kind, value, named, path)
    if kind in ("record", "error"):
        return _of_record(schema, _checked(value, dict, "an object", path), named, path)
    if kind == "array":
        items = _checked(value, list, "a list", path)
        return [_prepared(schema["items"], each, named, f"{path}[{index}]") for index, each in enumerate(items)]
    if kind == "map":
        pairs = _checked(value, dict, "an object", path)
        return {name: _prepared(schema["values"], each, named, f"{path}.{name}") for name, each in pairs.items()}
    if kind == "enum":
        if value not in schema["symbols"]:
            raise DecodeError(f"{path or 'it'} is none of {', '.join(schema['symbols'])}")
        return value
    logical = LOGICAL.get(str(schema.get("logicalType", "")))
    if logical is not None and isinstance(value, str):
        try:
            return logical(value)
        except (ValueError, decimal.InvalidOperation) as error:
            raise DecodeError(f"{path or 'it'}: {quoted(value)} is no {schema['logicalType']}") from error
    return _plain(kind, value, path)


LOGICAL: Final[dict[str, Callable[[str], Any]]] = {
    "date": datetime.date.fromisoformat,
    "decimal": decimal.Decimal,
    **dict.fromkeys(("time-millis", "time-micros"), datetime.time.fromisoformat),
    **dict.fromkeys(
        ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"),
        datetime.datetime.fromisoformat,
    ),
}


def _of_union(branches: list[Any], value: Any, named: Named, path: str) -> Any:
    """Return the value as the first branch that it fits."""
    reasons = []
    for each in branches:
        try:
            return _prepared(each, value, named, path)
        except DecodeError as error:
            reasons.append(str(error))
    raise DecodeError(reasons[-1] if len(branches) <= 2 and reasons else f"{path or 'it'} fits no type of its union")


def _of_record(schema: Any, value: dict[str, Any], named: Named, path: str) -> dict[str, Any]:
    fields = {each["name"]: each for each in schema["fields"]}
    unknown = next((name for name in value if name not in fields), None)
    if unknown is not None:
        raise DecodeError(f"{path or schema['name']} has no field {quoted(unknown)}: {', '.join(fields)}")
    missing = next((name for name, each in fields.items() if name not in value and "default" not in each), None)
    if missing is not None:
        raise DecodeError(f"{path or schema['name']} needs the field {missing}")
    defaults = {name: data for name, each in fields.items() if (data := _default_bytes(each)) is not None}
    return defaults | {
        name: _prepared(fields[name]["type"], each, named, f"{path}.{name}") for name, each in value.items()
    }


def _default_bytes(field: dict[str, Any]) -> bytes | None:
    """Return a default of bytes, which a schema has as text of the letters 0 to 255; None for other fields."""
    kind = field["type"][0] if isinstance(field["type"], list) else field["type"]
    name = kind.get("type") if isinstance(kind, dict) else kind
    default = field.get("default")
    return default.encode("latin-1") if name in ("bytes", "fixed") and isinstance(default, str) else None


def _plain(kind: str, value: Any, path: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "null" if value is None:
            return None
        case "boolean" if isinstance(value, bool):
            return value
        case "int" | "long" if is_number and isinstance(value, int):
            return value
        case "float" | "double" if is_number or value in NOT_FINITE:
            return float(value)
        case "string" if isinstance(value, str):
            return value
        case "bytes" | "fixed" if isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except binascii.Error as error:
                raise DecodeError(f"{path or 'it'} is not base64") from error
    raise DecodeError(f"{path or 'it'} is no {kind}")


def _checked(value: Any, kind: type, what: str, path: str) -> Any:
    if not isinstance(value, kind):
        raise DecodeError(f"{path or 'it'} is not {what}")
    return value
