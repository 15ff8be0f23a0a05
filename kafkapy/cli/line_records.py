"""Lines of text as records: what `produce` reads without --json.

A line is a value; key and value with --key-separator; or fields by --format, the pattern that consume prints by:
`%T %k %v`. A field ends at the text that follows it in the pattern, the last one at the end of the line.
"""

import json
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkapy.cli.chosen import similar
from kafkapy.cli.moments import moment_ms
from kafkapy.cli.received import pattern_parts
from kafkapy.errors import quoted

if TYPE_CHECKING:
    from kafkapy.decoders.registry import SchemaRegistry

LineReader = Callable[[bytes], dict[str, Any]]
"""Returns the arguments of a Producer's produce() for a line. Raises ValueError."""
FIELDS: Final = {"k": "key", "v": "value", "s": "value", "h": "headers", "p": "partition", "T": "ms", "d": "time"}
IGNORED: Final = ("t", "o")
"""Topic and offset, which only consume prints."""


def reader_of(pattern: str | None, key_separator: str | None) -> LineReader:
    """Return the reader for a pattern, a key separator, or neither. Raises ValueError for an invalid pattern."""
    if pattern is not None:
        return _by_pattern(pattern)
    if key_separator is None:
        return lambda line: {"value": line}
    separator = key_separator.encode()

    def split(line: bytes) -> dict[str, Any]:
        key, found, value = line.partition(separator)
        if not found:
            raise ValueError(f"there is no {quoted(key_separator)} between key and value")
        return {"value": value, "key": key}

    return split


def _by_pattern(pattern: str) -> LineReader:
    expression = _compiled(pattern)

    def read(line: bytes) -> dict[str, Any]:
        found = expression.fullmatch(line)
        if found is None:
            raise ValueError(f"it does not read {pattern}")
        fields = found.groupdict()
        record: dict[str, Any] = {name: fields[name] for name in ("key", "value") if name in fields}
        record.setdefault("value", None)
        if "headers" in fields:
            record["headers"] = [_header(each) for each in fields["headers"].split(b",") if each]
        if "partition" in fields:
            record["partition"] = int(fields["partition"])
        if "ms" in fields:
            record["timestamp"] = int(fields["ms"])
        if "time" in fields:
            record["timestamp"] = moment_ms(fields["time"].decode(), int(time.time() * 1000))
        return record

    return read


def _compiled(pattern: str) -> re.Pattern[bytes]:
    """Return the pattern as an expression with a group for each field. Raises ValueError."""
    parts: list[str] = []
    for letter, literal in pattern_parts(pattern):
        if letter in ("", "%"):
            parts.append(re.escape(literal or "%"))
            continue
        if letter not in FIELDS and letter not in IGNORED:
            raise ValueError(f"--format: %{letter} is none of {', '.join(f'%{each}' for each in (*FIELDS, *IGNORED))}")
        if parts and parts[-1].startswith("("):
            raise ValueError(f"--format: nothing separates %{letter} from what is before it")
        expression = r"-?\d{1,18}" if letter in "pTo" else ".*?"
        name = FIELDS.get(letter)
        if any(f"<{name}>" in each for each in parts):
            raise ValueError(f"--format: %{letter} is there twice")
        parts.append(f"(?P<{name}>{expression})" if name is not None else f"(?:{expression})")
    if parts and parts[-1].endswith(".*?)"):
        parts[-1] = parts[-1].replace(".*?)", ".*)")
    return re.compile("".join(parts).encode(), re.DOTALL)


def _header(text: bytes) -> tuple[str, bytes]:
    name, equals, value = text.partition(b"=")
    if not equals:
        raise ValueError(f"the header {quoted(name.decode('utf-8', 'replace'))} must read name=value")
    return name.decode(), value


def with_nulls(read: LineReader, marker: str) -> LineReader:
    """Return a reader for which a key or value that is `marker` is null: a tombstone."""
    data = marker.encode()

    def read_nulls(line: bytes) -> dict[str, Any]:
        record = read(line)
        return {name: None if name in ("key", "value") and each == data else each for name, each in record.items()}

    return read_nulls


def encoder_of(location: str, schema: str) -> Callable[[bytes], bytes]:
    """Return the encoder of JSON text for a schema: by its id, or the latest of a subject. Raises ValueError."""
    from kafkapy.decoders.encode import SchemaEncoder
    from kafkapy.decoders.errors import DecodeError
    from kafkapy.decoders.registry import NotRegisteredError, SchemaRegistry

    try:
        registry = SchemaRegistry(location)
        encoder = SchemaEncoder(registry, int(schema) if schema.isdecimal() else registry.latest(schema))
    except NotRegisteredError as error:
        raise ValueError(f"the schema registry has no {_schema_in_words(registry, schema)}") from error
    except DecodeError as error:
        raise ValueError(str(error)) from error

    def encode(text: bytes) -> bytes:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is not JSON: {error}") from error
        try:
            return encoder.encode(value)
        except DecodeError as error:
            raise ValueError(str(error)) from error

    return encode


def _schema_in_words(registry: "SchemaRegistry", schema: str) -> str:
    """Return the error of a missing schema or subject, with similar subjects."""
    from kafkapy.decoders.errors import DecodeError

    if schema.isdecimal():
        return f"schema {schema}"
    try:
        return f"subject {schema}.{similar(schema, registry.subjects())}"
    except DecodeError:
        return f"subject {schema}"
