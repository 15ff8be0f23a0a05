"""Schemas by their number: from a schema registry over HTTP, or from files of a directory.

A serializer of such a registry writes five bytes before its data: a zero, and the schema's number as an int32.
A directory has the files NUMBER.avsc (Avro), NUMBER.json (JSON Schema) and NUMBER.desc (Protobuf: the FileDescriptorSet
that `protoc --include_imports --descriptor_set_out` writes). Over HTTP, Protobuf needs a registry that serves
?format=serialized, as Confluent's: the text of a .proto file is not parsed here.

Neither the numbers, which come from records, nor the schemas can be trusted: requests, bytes and time are bounded. A
redirect is an error, so that requests go to the registry named on the command line alone.
"""

import base64
import binascii
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.decoders.errors import DecodeError
from kafkapy.types import INT32_MAX

MAGIC_AND_ID_BYTES: Final = 5
TIMEOUT_S: Final = 5.0
"""A search waits for it, once for each schema."""
MAX_SCHEMA_BYTES: Final = 4 << 20
"""Bytes read for a schema and its references."""
MAX_CACHED_BYTES: Final = 64 << 20
"""Bytes of cached schemas as text; parsed they take some times as much."""
MAX_ERROR_BYTES: Final = 1 << 14
"""Bytes read of a 404: a server that is not a registry may send a long page."""
READ_BYTES: Final = 1 << 16
"""Bytes of one read of a response, so that MAX_SCHEMA_BYTES ends it in time."""
MAX_SCHEMAS: Final = 1000
"""The cache is cleared when full: the numbers come from records, which anybody may have written."""
RETRY_S: Final = 30.0
SILENCE_S: Final = 5.0
"""How long no schema is requested after a registry did not answer: each of a thousand records may name another."""
MAX_TOTAL_S: Final = 20.0
"""For a schema, with those that it refers to."""
MAX_VERSIONS: Final = 50
"""Versions of a subject on a page: each is a request to the registry."""
MAX_REFERENCES: Final = 100
"""Each is a request to the registry, and one schema may name any number."""


@dataclass(frozen=True, slots=True)
class Schema:
    """`kind`: AVRO, JSON or PROTOBUF; `text`: the schema, for Protobuf serialized FileDescriptorProtos by name."""

    kind: str
    text: str
    references: tuple[str, ...] = ()
    """The schemas that this one refers to, each after those that it refers to itself."""
    names: tuple[str, ...] = ()
    """What each of the references is called in the schemas that refer to it: a $ref of a JSON Schema."""
    descriptors: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        return len(self.text) + sum(map(len, (*self.references, *self.descriptors)))


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A version of a subject: `schema_id` is the number that records have, `kind` AVRO, JSON or PROTOBUF.

    `references`: subjects and versions that the text refers to.
    """

    subject: str
    version: int
    schema_id: int
    kind: str
    text: str
    references: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class _Budget:
    """The limits left for loading a schema: `end_s` on the registry's clock; `seen`: references requested so far."""

    end_s: float
    bytes_left: int = MAX_SCHEMA_BYTES
    seen: set[tuple[str, int]] = field(default_factory=set)


class NotRegisteredError(DecodeError):
    """The registry has no such schema, subject or version."""


class _Unreachable(DecodeError):
    """The registry did not answer, and probably would not for another schema."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any) -> None:
        """Leave a redirect to be an HTTPError."""


class SchemaRegistry:
    """`location`: an http:// or https:// URL, or a directory. Raises DecodeError for anything else."""

    def __init__(self, location: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        try:
            scheme, netloc, *_ = urllib.parse.urlsplit(location)
        except ValueError as error:
            raise DecodeError(f"the schema registry's URL: {error}") from error
        if scheme in ("http", "https") and "@" in netloc:
            raise DecodeError("the schema registry's URL has a user and password, which are not sent")
        if scheme not in ("http", "https") and not Path(location).is_dir():
            raise DecodeError(f"{location}: neither an http URL nor a directory")
        self._url = location.rstrip("/") if scheme in ("http", "https") else None
        self._directory = Path(location)
        self._clock_s = clock_s
        self._schemas: dict[int, Schema] = {}
        self._failures: dict[int, tuple[float, str]] = {}
        """When a schema could not be had, by id, and why."""
        self._cached_bytes = 0
        self._silence: tuple[float, str] = (-SILENCE_S, "")
        """When the registry last did not answer, and why."""
        self._open = urllib.request.build_opener(_NoRedirects).open

    def schema(self, schema_id: int) -> Schema:
        """Return a schema, and remember it. A failure is remembered for RETRY_S. Raises DecodeError."""
        known = self._schemas.get(schema_id)
        if known is not None:
            return known
        failed_s, reason = self._failures.get(schema_id, (-RETRY_S, ""))
        if reason and self._clock_s() - failed_s < RETRY_S:
            raise DecodeError(reason)
        silent_s, reason = self._silence
        if reason and self._clock_s() - silent_s < SILENCE_S:
            raise DecodeError(reason)
        if len(self._schemas) + len(self._failures) >= MAX_SCHEMAS or self._cached_bytes >= MAX_CACHED_BYTES:
            self._schemas.clear()
            self._failures.clear()
            self._cached_bytes = 0
        try:
            found = self._of_file(schema_id) if self._url is None else self._of_registry(schema_id)
        except _Unreachable as error:
            self._silence = (self._clock_s(), str(error))
            raise
        except DecodeError as error:
            self._failures[schema_id] = (self._clock_s(), str(error))
            raise
        self._schemas[schema_id] = found
        self._cached_bytes += found.size
        return found

    def latest(self, subject: str) -> int:
        """Return the number of a subject's latest schema. Raises DecodeError."""
        if self._url is None:
            raise DecodeError(f"{self._directory} has schemas by number, not {subject}")
        path = f"{_path_of_versions(subject)}/latest"
        found = self._get(path, self._budget()).get("id")
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= INT32_MAX:
            raise DecodeError(f"the schema registry's response to {path} has no id")
        return found

    @property
    def has_subjects(self) -> bool:
        """Whether it is a registry over HTTP: a directory has schemas by number alone."""
        return self._url is not None

    def subjects(self) -> list[str]:
        """Return the subjects that have schemas, sorted, those of other contexts too. Raises DecodeError."""
        return sorted(each for each in self._list("/subjects", self._budget()) if isinstance(each, str))

    def newest_versions(self, subject: str) -> list[SubjectVersion]:
        """Return the versions of a subject, the newest first, at most MAX_VERSIONS of them. Raises DecodeError."""
        budget = self._budget()
        numbers = [each for each in self._list(_path_of_versions(subject), budget) if type(each) is int]
        return [self._version(subject, number, budget) for number in sorted(numbers, reverse=True)[:MAX_VERSIONS]]

    def _version(self, subject: str, number: int, budget: _Budget) -> SubjectVersion:
        path = f"{_path_of_versions(subject)}/{number}"
        found = self._get(path, budget)
        schema_id = found.get("id")
        if type(schema_id) is not int:
            raise DecodeError(f"the schema registry's response to {path[:200]} has no id")
        listed = tuple((each, version) for each, version, _ in _references(found))
        return SubjectVersion(subject, number, schema_id, str(found.get("schemaType", "AVRO")), found["schema"], listed)

    def level(self, subject: str) -> str:
        """Return the level of compatibility that holds for a subject. Raises DecodeError."""
        path = f"/config/{urllib.parse.quote(subject, safe='')}?defaultToGlobal=true"
        found = self._json(path, self._budget())
        return str(found.get("compatibilityLevel", "")) if isinstance(found, dict) else ""

    def _budget(self) -> _Budget:
        return _Budget(self._clock_s() + MAX_TOTAL_S)

    def _list(self, path: str, budget: _Budget) -> list[Any]:
        found = self._json(path, budget)
        if not isinstance(found, list):
            raise DecodeError(f"the schema registry's response to {path[:200]} is no list")
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
        budget = self._budget()
        described = self._get(f"/schemas/ids/{schema_id}", budget)
        kind = str(described.get("schemaType", "AVRO"))
        if kind != "PROTOBUF":
            references = self._referred_by(described, "", budget)
            texts, names = (tuple(each[field] for each in references) for field in ("schema", "name"))
            return Schema(kind, described["schema"], texts, names)
        described = self._get(f"/schemas/ids/{schema_id}?format=serialized", budget)
        files = [*self._referred_by(described, "?format=serialized", budget), described]
        return Schema(kind, "", descriptors=tuple(_descriptor(each) for each in files))

    def _referred_by(self, described: dict[str, Any], query: str, budget: _Budget) -> list[dict[str, Any]]:
        """Return the schemas that one refers to: each once, after those that it refers to itself."""
        found = []
        for subject, version, name in _references(described):
            if (subject, version) in budget.seen:
                continue
            if len(budget.seen) >= MAX_REFERENCES:
                raise DecodeError(f"a schema with more than {MAX_REFERENCES} references")
            budget.seen.add((subject, version))
            referred = {**self._get(f"{_path_of_versions(subject)}/{version}{query}", budget), "name": name}
            found += [*self._referred_by(referred, query, budget), referred]
        return found

    def _get(self, path: str, budget: _Budget) -> dict[str, Any]:
        response = self._json(path, budget)
        if not isinstance(response, dict) or not isinstance(response.get("schema"), str):
            raise DecodeError(f"the schema registry's response to {path[:200]} has no schema")
        return response

    def _json(self, path: str, budget: _Budget) -> Any:
        """Return the JSON of a response; None if it is none. Raises DecodeError."""
        if self._url is None:
            raise DecodeError(f"{self._directory} has schemas by number, not by subject")
        self._check_time(budget)
        shown = path[:200]
        request = urllib.request.Request(
            f"{self._url}{path}", headers={"Accept": "application/vnd.schemaregistry.v1+json"}
        )
        try:
            with self._open(request, timeout=TIMEOUT_S) as response:
                body = self._read(response, budget)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error, shown) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise _Unreachable(f"the schema registry does not answer: {_reason_of(error)}") from error
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return None

    def _refusal(self, error: urllib.error.HTTPError, shown: str) -> DecodeError:
        """Return the error of a response that is none: any web server answers 404, a registry says what is missing."""
        if error.code != http.HTTPStatus.NOT_FOUND:
            return DecodeError(f"the schema registry answers {error.code} to {shown}")
        if _is_by_registry(error):
            return NotRegisteredError(f"the schema registry answers 404 to {shown}")
        return DecodeError(f"{self._url} answers 404 to {shown}, and not as a schema registry does: is the URL right?")

    def _read(self, response: Any, budget: _Budget) -> bytes:
        body = bytearray()
        while part := response.read1(READ_BYTES):
            body += part
            budget.bytes_left -= len(part)
            if budget.bytes_left < 0:
                raise DecodeError(f"a schema of more than {MAX_SCHEMA_BYTES} bytes")
            self._check_time(budget)
        return bytes(body)

    def _check_time(self, budget: _Budget) -> None:
        if self._clock_s() > budget.end_s:
            raise _Unreachable(f"the schema registry takes more than {MAX_TOTAL_S:g} s for a schema")


def _is_by_registry(error: urllib.error.HTTPError) -> bool:
    """Whether a 404 has the code of what a registry lacks: a subject (40401), a version (40402), a schema (40403)."""
    try:
        code = json.loads(error.read(MAX_ERROR_BYTES))["error_code"]
    except (KeyError, OSError, RecursionError, TypeError, ValueError, http.client.HTTPException):
        return False
    return isinstance(code, int) and code // 100 == http.HTTPStatus.NOT_FOUND


def split(data: bytes) -> tuple[int, bytes]:
    """Return the number of the schema, and the data. Raises DecodeError without the five bytes."""
    if len(data) < MAGIC_AND_ID_BYTES or data[0] != 0:
        raise DecodeError("it does not begin with a schema registry's five bytes")
    return int.from_bytes(data[1:MAGIC_AND_ID_BYTES], "big"), data[MAGIC_AND_ID_BYTES:]


def _path_of_versions(subject: str) -> str:
    return f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"


def _references(described: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Return subject, version and name of each schema that one refers to."""
    listed = described.get("references") or []
    try:
        return [(str(each["subject"]), int(each["version"]), str(each.get("name") or "")) for each in listed]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise DecodeError("the schema registry names a reference without subject and version") from error


def _reason_of(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError):  # its text has the reason in <urlopen error ...>
        reason = error.reason
        return str(getattr(reason, "strerror", None) or reason)[:200]
    return str(error)[:200] if isinstance(error, OSError) else f"{type(error).__name__}: {str(error)[:200]}"


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
        file.name = str(described["name"])
    return bytes(file.SerializeToString())


def _files_of_set(data: bytes) -> tuple[bytes, ...]:
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
    except ImportError as error:
        raise DecodeError("protobuf needs a library: pip install protobuf") from error
    return tuple(bytes(each.SerializeToString()) for each in FileDescriptorSet.FromString(data).file)
