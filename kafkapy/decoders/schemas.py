"""Decodes what a schema registry's serializers wrote: Avro, JSON Schema, Protobuf."""

import io
import json
from typing import Any, Final

from kafkapy.decoders.bounds import AvroBounds, check_schema_depth
from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.plain import decode_json, jsonable
from kafkapy.decoders.registry import Schema, SchemaRegistry, split
from kafkapy.decoders.zigzag import read_zigzag

MAX_PARSED: Final = 1000
INT_BITS: Final = 35
MAX_INDEXES: Final = 64
"""How deep a Protobuf message may be nested in other messages of its file."""


class SchemaDecoder:
    """Decodes by the schemas of one registry; parsed schemas are cached."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._parsed: dict[int, Any] = {}

    def decode(self, data: bytes, kind: str | None = None) -> Any:
        """Decode by the schema that the data names. `kind`: the expected one. Raises DecodeError."""
        schema_id, rest = split(data)
        schema = self._registry.schema(schema_id)
        if kind is not None and schema.kind != kind:
            raise DecodeError(f"schema {schema_id} is of the kind {schema.kind}")
        if schema.kind == "JSON":
            return decode_json(rest)
        if len(self._parsed) >= MAX_PARSED:
            self._parsed.clear()
        if schema.kind == "AVRO":
            return self._avro(schema_id, schema, rest)
        if schema.kind == "PROTOBUF":
            return self._protobuf(schema_id, schema, rest)
        raise DecodeError(f"schema {schema_id} is of the unknown kind {schema.kind}")

    def _avro(self, schema_id: int, schema: Schema, data: bytes) -> Any:
        try:
            if schema_id not in self._parsed:
                self._parsed[schema_id] = parse_avro(schema)
            import fastavro

            parsed, named = self._parsed[schema_id]
            AvroBounds(named, data).check(parsed)
            return jsonable(fastavro.schemaless_reader(io.BytesIO(data), parsed, None))
        except MissingLibraryError:
            raise
        except DecodeError as error:
            raise DecodeError(f"not of schema {schema_id}: {error}") from error
        except Exception as error:  # fastavro raises whatever its parts do: EOFError, KeyError, TypeError, ...
            raise DecodeError(f"not of schema {schema_id}: {_reason(error)}") from error

    def _protobuf(self, schema_id: int, schema: Schema, data: bytes) -> Any:
        try:
            if schema_id not in self._parsed:
                self._parsed[schema_id] = parse_protobuf(schema)
            from google.protobuf import json_format, message_factory

            _, file = self._parsed[schema_id]
            indexes, rest = message_indexes(data)
            described = list(file.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                described = described.nested_types[index]
            message = message_factory.GetMessageClass(described).FromString(rest)
            return jsonable(json_format.MessageToDict(message, preserving_proto_field_name=True))
        except DecodeError:
            raise
        except Exception as error:  # protobuf's errors differ by implementation
            raise DecodeError(f"not of schema {schema_id}: {_reason(error)}") from error


class MissingLibraryError(DecodeError):
    """A library of a format is not installed; the message says how to install it."""


def parse_avro(schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return fastavro's parsed schema, and the named schemas in it. Raises DecodeError, and what fastavro raises."""
    try:
        import fastavro
    except ImportError as error:
        raise MissingLibraryError("avro needs a library: pip install fastavro") from error
    named: dict[str, Any] = {}
    for text in (*schema.references, schema.text):
        loaded = json.loads(text)
        check_schema_depth(loaded)
        parsed = fastavro.parse_schema(loaded, named_schemas=named)
    return parsed, named


def parse_protobuf(schema: Schema) -> tuple[Any, Any]:
    """Return a descriptor pool with the files, and the last file. Raises DecodeError, and what protobuf raises."""
    try:
        from google.protobuf import descriptor_pool
    except ImportError as error:
        raise MissingLibraryError("protobuf needs a library: pip install protobuf") from error
    pool = descriptor_pool.DescriptorPool()
    last = None
    for each in (*_well_known(schema), *schema.descriptors):
        last = pool.AddSerializedFile(each)
    return pool, last


def parse_json_schema(schema: Schema) -> Any:
    """Return a validator that can read only the schema and its references.

    Raises DecodeError, and what jsonschema raises. A schema without $schema is of draft 7.
    """
    try:
        from jsonschema.validators import Draft7Validator, validator_for
        from jsonschema_specifications import REGISTRY
        from referencing import Resource
        from referencing.jsonschema import DRAFT7
    except ImportError as error:
        raise MissingLibraryError("JSON Schema needs a library: pip install jsonschema") from error
    content = json.loads(schema.text)
    check_schema_depth(content)
    known: list[tuple[str, Resource[Any]]] = [
        (name, Resource.from_contents(json.loads(text), default_specification=DRAFT7))
        for name, text in zip(schema.names, schema.references, strict=True)
    ]
    kind = validator_for(content, default=Draft7Validator)
    kind.check_schema(content)
    return kind(content, registry=REGISTRY.with_resources(known))


def message_indexes(data: bytes) -> tuple[list[int], bytes]:
    """Return the path of the message type in the file, and the encoded message after it.

    The path is zigzag varints: a count, then the index at each level of nesting. A count of 0 means the first message
    type of the file.
    """
    count, position = read_zigzag(data, 0, INT_BITS)
    if not 0 <= count <= MAX_INDEXES:
        raise DecodeError(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, position = read_zigzag(data, position, INT_BITS)
        if index < 0:
            raise DecodeError(f"message index {index}")
        indexes.append(index)
    return indexes or [0], data[position:]


def _well_known(schema: Schema) -> list[bytes]:
    """Return the files of Google's well-known types that the schema imports but does not contain."""
    from importlib import import_module

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    files = [FileDescriptorProto.FromString(each) for each in schema.descriptors]
    present = {each.name for each in files}
    wanted = sorted({name for each in files for name in each.dependency} - present)
    found = []
    for name in wanted:
        if name.startswith("google/protobuf/"):
            module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
            found.append(bytes(module.DESCRIPTOR.serialized_pb))
    return found


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")
