"""Parses schemas with those that they refer to, and caches some of them."""

import threading
from collections import OrderedDict
from typing import Any, Final

from kafkapy.registry.errors import InvalidSchemaError, RegistryError
from kafkapy.registry.formats.parsed import ParsedSchema, SchemaSyntaxError
from kafkapy.registry.model import SchemaReference, StoredSchema
from kafkapy.registry.request import KINDS, SchemaRequest
from kafkapy.registry.state import RegistryState

MAX_PARSED: Final = 1000
"""The default of Confluent's schema.cache.size."""
MAX_PARSED_CHARACTERS: Final = 1 << 20
"""Characters of all cached schemas with their references: a parsed Avro schema takes 35 times its text."""
MAX_SCHEMA_CHARACTERS: Final = 1 << 20
"""A record of _schemas is at most 1 MB (max.message.bytes) unless the topic says otherwise."""
NEEDED: Final = {
    "AVRO": ("kafkapy.registry.formats.avro", "AvroSchema", "fastavro"),
    "JSON": ("kafkapy.registry.formats.json_schema", "JsonSchema", "jsonschema"),
    "PROTOBUF": ("kafkapy.registry.formats.protobuf", "ProtobufSchema", "protobuf proto-schema-parser"),
}


class Schemas:
    """The parsed schemas of a state; used by any thread."""

    def __init__(self, state: RegistryState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._parsed: OrderedDict[tuple[Any, ...], ParsedSchema] = OrderedDict()
        self._parsed_characters = 0

    def of_stored(self, stored: StoredSchema) -> ParsedSchema:
        """Parse a registered schema.

        Raises InvalidSchemaError, for what another registry accepted or a reference that was deleted.
        """
        return self.parse(stored.subject, stored.schema_type, stored.schema, stored.references)

    def of_request(self, subject: str, request: SchemaRequest) -> ParsedSchema:
        """Parse the schema of a request. Raises InvalidSchemaError."""
        if not request.schema.strip():
            raise InvalidSchemaError("Empty schema")
        return self.parse(subject, request.kind, request.schema, request.references)

    def parse(self, subject: str, kind: str, text: str, references: tuple[SchemaReference, ...]) -> ParsedSchema:
        """Parse a schema with those that it refers to. Raises InvalidSchemaError."""
        if kind not in KINDS:
            raise InvalidSchemaError(f"Invalid schema type {kind}")
        if len(text) > MAX_SCHEMA_CHARACTERS:
            raise RegistryError(42209, "Register operation failed because schema is too large")
        try:
            resolved = self._state.resolve(subject, references)
        except LookupError as error:
            raise InvalidSchemaError(_refusal_text(subject, kind, text, references, str(error.args[0]))) from error
        except RecursionError as error:
            raise InvalidSchemaError(_refusal_text(subject, kind, text, references, "too many references")) from error
        texts = {name: each.schema for name, each in resolved.items()}
        key = (kind, text, references, tuple(texts.items()))
        with self._lock:
            found = self._parsed.get(key)
            if found is not None:
                self._parsed.move_to_end(key)
                return found
        try:
            new: ParsedSchema = _format(kind)(text, references, texts)
        except SchemaSyntaxError as error:
            raise InvalidSchemaError(_refusal_text(subject, kind, text, references, str(error))) from error
        self._remember(key, new)
        return new

    def _remember(self, key: tuple[Any, ...], parsed: ParsedSchema) -> None:
        """Remember a schema, and forget those that were used least recently, so that all are within the bounds."""
        with self._lock:
            if key in self._parsed:
                return  # another thread has parsed it meanwhile
            self._parsed[key] = parsed
            self._parsed_characters += _characters(key)
            while len(self._parsed) > MAX_PARSED or self._parsed_characters > MAX_PARSED_CHARACTERS:
                forgotten, _ = self._parsed.popitem(last=False)
                self._parsed_characters -= _characters(forgotten)
            assert self._parsed_characters >= 0, "more was forgotten than remembered"


def _characters(key: tuple[Any, ...]) -> int:
    """Return the length of a schema's text and of those that it refers to."""
    _, text, _, texts = key
    return len(text) + sum(len(each) for _, each in texts)


def _format(kind: str) -> Any:
    """Return the class of a format. Raises InvalidSchemaError without its library."""
    from importlib import import_module

    module, name, packages = NEEDED[kind]
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise InvalidSchemaError(f"Schemas of the type {kind} need {packages}: pip install {packages}") from error


def _refusal_text(subject: str, kind: str, text: str, references: tuple[SchemaReference, ...], details: str) -> str:
    listed = "".join(f"{{name='{each.name}', subject='{each.subject}', version={each.version}}}" for each in references)
    described = f"{{subject={subject},version=0,id=-1,schemaType={kind},references=[{listed}],schema={text[:2000]}}}"
    return f"Invalid schema {described} with refs [{listed}] of type {kind}, details: {details}"
