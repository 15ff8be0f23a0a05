"""Schemas by their number: from a schema registry over HTTP, or from files of a directory.

A serializer of such a registry writes five bytes before its data: a zero, and the schema's number as an int32.
A directory has the files NUMBER.avsc (Avro), NUMBER.json (JSON Schema) and NUMBER.desc (Protobuf: the FileDescriptorSet
that `protoc --include_imports --descriptor_set_out` writes). Over HTTP, Protobuf needs a registry that serves
?format=serialized, as Confluent's: the text of a .proto file is not parsed here.
"""

import base64
import binascii
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.decoders.errors import DecodeError

MAGIC_AND_ID_BYTES: Final = 5
TIMEOUT_S: Final = 5.0
MAX_SCHEMA_BYTES: Final = 4 << 20
MAX_SCHEMAS: Final = 1000
"""The cache is cleared when full: the numbers come from records, which anybody may have written."""
RETRY_S: Final = 30.0
MAX_REFERENCES: Final = 100


@dataclass(frozen=True, slots=True)
class Schema:
    """`kind`: AVRO, JSON or PROTOBUF; `text`: the schema, for Protobuf serialized FileDescriptorProtos by name."""

    kind: str
    text: str
    references: tuple[str, ...] = ()
    """The schemas that this one refers to, each after those that it refers to itself."""
    descriptors: tuple[bytes, ...] = ()


class SchemaRegistry:
    """`location`: an http:// or https:// URL, or a directory. Raises DecodeError for anything else."""

    def __init__(self, location: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        scheme = urllib.parse.urlsplit(location).scheme
        if scheme not in ("http", "https") and not Path(location).is_dir():
            raise DecodeError(f"{location}: neither an http URL nor a directory")
        self._url = location.rstrip("/") if scheme in ("http", "https") else None
        self._directory = Path(location)
        self._clock_s = clock_s
        self._schemas: dict[int, Schema] = {}
        self._failures: dict[int, tuple[float, str]] = {}

    def schema(self, schema_id: int) -> Schema:
        """Return a schema, and remember it. A failure is remembered for RETRY_S. Raises DecodeError."""
        known = self._schemas.get(schema_id)
        if known is not None:
            return known
        failed_s, reason = self._failures.get(schema_id, (-RETRY_S, ""))
        if reason and self._clock_s() - failed_s < RETRY_S:
            raise DecodeError(reason)
        if len(self._schemas) + len(self._failures) >= MAX_SCHEMAS:
            self._schemas.clear()
            self._failures.clear()
        try:
            found = self._of_file(schema_id) if self._url is None else self._of_registry(schema_id)
        except DecodeError as error:
            self._failures[schema_id] = (self._clock_s(), str(error))
            raise
        self._schemas[schema_id] = found
        return found

    def _of_file(self, schema_id: int) -> Schema:
        for suffix, kind in (("avsc", "AVRO"), ("json", "JSON"), ("desc", "PROTOBUF")):
            path = self._directory / f"{schema_id}.{suffix}"
            if not path.is_file():
                continue
            try:
                if kind == "PROTOBUF":
                    return Schema(kind, "", descriptors=_files_of_set(path.read_bytes()))
                return Schema(kind, path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise DecodeError(f"{path}: {error}") from error
        raise DecodeError(f"schema {schema_id} has no file in {self._directory}")

    def _of_registry(self, schema_id: int) -> Schema:
        described = self._get(f"/schemas/ids/{schema_id}")
        kind = described.get("schemaType", "AVRO")
        if kind != "PROTOBUF":
            references = self._referred_by(described, "", set())
            return Schema(kind, described["schema"], tuple(each["schema"] for each in references))
        described = self._get(f"/schemas/ids/{schema_id}?format=serialized")
        files = [*self._referred_by(described, "?format=serialized", set()), described]
        return Schema(kind, "", descriptors=tuple(_descriptor(each) for each in files))

    def _referred_by(self, described: dict[str, Any], query: str, seen: set[tuple[str, int]]) -> list[dict[str, Any]]:
        """Return what a schema refers to, each after what it refers to itself, once (`seen`)."""
        found = []
        for reference in described.get("references") or ():
            try:
                subject, version = str(reference["subject"]), int(reference["version"])
            except (KeyError, TypeError, ValueError) as error:
                raise DecodeError("the schema registry names a reference without subject and version") from error
            if (subject, version) in seen:
                continue
            if len(seen) >= MAX_REFERENCES:
                raise DecodeError(f"a schema with more than {MAX_REFERENCES} references")
            seen.add((subject, version))
            quoted = urllib.parse.quote(subject, safe="")
            referred = {**self._get(f"/subjects/{quoted}/versions/{version}{query}"), "name": reference.get("name")}
            found += [*self._referred_by(referred, query, seen), referred]
        return found

    def _get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self._url}{path}", headers={"Accept": "application/vnd.schemaregistry.v1+json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                answer = json.loads(response.read(MAX_SCHEMA_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise DecodeError(f"the schema registry answers {error.code} to {path}") from error
        except (OSError, ValueError) as error:
            raise DecodeError(f"the schema registry does not answer: {error}") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise DecodeError(f"the schema registry's answer to {path} has no schema")
        return answer


def split(data: bytes) -> tuple[int, bytes]:
    """Return the number of the schema, and the data. Raises DecodeError without the five bytes."""
    if len(data) < MAGIC_AND_ID_BYTES or data[0] != 0:
        raise DecodeError("it does not begin with a schema registry's five bytes")
    return int.from_bytes(data[1:MAGIC_AND_ID_BYTES], "big"), data[MAGIC_AND_ID_BYTES:]


def _descriptor(described: dict[str, Any]) -> bytes:
    """Return the serialized FileDescriptorProto, named as the files that import it name it."""
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
    except ImportError as error:
        raise DecodeError("protobuf needs a library: pip install protobuf") from error
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(described["schema"], validate=True))
    except (binascii.Error, ValueError) as error:
        raise DecodeError("the schema registry serves no serialized Protobuf schemas") from error
    except Exception as error:  # protobuf's DecodeError, whose module differs by implementation
        raise DecodeError(f"not a serialized Protobuf schema: {error}") from error
    if described.get("name"):
        file.name = described["name"]
    return bytes(file.SerializeToString())


def _files_of_set(data: bytes) -> tuple[bytes, ...]:
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
    except ImportError as error:
        raise DecodeError("protobuf needs a library: pip install protobuf") from error
    return tuple(bytes(each.SerializeToString()) for each in FileDescriptorSet.FromString(data).file)
