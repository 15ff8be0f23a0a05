"""The formats by name: what `--key-format`, `--value-format` and the console's forms take."""

import json
from typing import Any, Final

from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.internal import INTERNAL_TOPICS, decode_internal
from kafkapy.decoders.plain import PLAIN, decode_text, jsonable
from kafkapy.decoders.registry import MAGIC_AND_ID_BYTES, SchemaRegistry
from kafkapy.decoders.schemas import SchemaDecoder
from kafkapy.named_tuple import NamedTuple

BY_SCHEMA: Final = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}
INTERNAL: Final = "internal"
AUTO: Final = "auto"
"""Choose by the data: the format of an internal topic, of a schema id, a JSON object or array, text, else hex."""
FORMATS: Final = (AUTO, *PLAIN, *BY_SCHEMA, INTERNAL)


class Decoded(NamedTuple):
    """value: can be encoded as JSON. format: the one that was used. error: why the requested format does not fit."""

    value: Any
    format: str
    error: str | None = None


def check_format(name: str) -> None:
    """Raise DecodeError for a format that does not exist."""
    if name not in FORMATS:
        raise DecodeError(f"no format is called {name}: {', '.join(FORMATS)}")


class Decoders:
    """Decodes keys by one format and values by another. Data that does not fit is shown as text, with the reason."""

    def __init__(self, key_format: str, value_format: str, registry: SchemaRegistry | None = None) -> None:
        for name in (key_format, value_format):
            check_format(name)
            if name in BY_SCHEMA and registry is None:
                raise DecodeError(f"{name} needs a schema registry, or a directory of schemas")
        self._key_format = key_format
        self._value_format = value_format
        self._schemas = None if registry is None else SchemaDecoder(registry)

    def key(self, topic: str, key: bytes | None) -> Decoded:
        if self._is_internal(self._key_format, topic):
            return self._internal(topic, key, None, 0)
        return self._decode(self._key_format, key)

    def value(self, topic: str, key: bytes | None, value: bytes | None) -> Decoded:
        if self._is_internal(self._value_format, topic):
            return self._internal(topic, key, value, 1)
        return self._decode(self._value_format, value)

    def _is_internal(self, name: str, topic: str) -> bool:
        return name == INTERNAL or (name == AUTO and topic in INTERNAL_TOPICS)

    def _internal(self, topic: str, key: bytes | None, value: bytes | None, side: int) -> Decoded:
        data = (key, value)[side]
        if data is None:
            return Decoded(None, INTERNAL)
        try:
            return Decoded(decode_internal(topic, key, value)[side], INTERNAL)
        except DecodeError as error:
            return Decoded(decode_text(data), "text", str(error))

    def _decode(self, name: str, data: bytes | None) -> Decoded:
        if data is None:
            return Decoded(None, name)
        if name == AUTO:
            return self._guess(data)
        try:
            if name in BY_SCHEMA:
                assert self._schemas is not None, "checked when the format was chosen"
                return Decoded(self._schemas.decode(data, BY_SCHEMA[name]), name)
            return Decoded(PLAIN[name](data), name)
        except DecodeError as error:
            return Decoded(decode_text(data), "text", str(error))

    def _guess(self, data: bytes) -> Decoded:
        if self._schemas is not None and len(data) >= MAGIC_AND_ID_BYTES and data[0] == 0:
            try:
                return Decoded(self._schemas.decode(data), "schema")
            except DecodeError as error:
                return Decoded(data.hex(), "hex", str(error))
        if data[:1] in (b"{", b"["):
            try:
                return Decoded(jsonable(json.loads(data)), "json")
            except (ValueError, RecursionError, DecodeError):
                pass
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return Decoded(data.hex(), "hex")
        is_binary = any(letter < " " and letter not in "\t\n\r" for letter in text)
        return Decoded(data.hex(), "hex") if is_binary else Decoded(text, "text")
