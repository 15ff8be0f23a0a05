"""Parses Kafka's message schemas: a JSON file becomes a checked `MessageSpec`.

A spec file has name, type, apiKey, validVersions, flexibleVersions, listeners, fields and commonStructs; a field has
name, type, versions, nullableVersions, taggedVersions, tag, default, ignorable, mapKey, entityType, zeroCopy and the
fields of the struct it defines. Unknown keys and types are refused. Source: the README of Kafka's message
specifications, KIP-482.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from keyword import iskeyword
from pathlib import Path
from typing import Any

from kafkapy.named_tuple import NamedTuple

NO_VERSION = 32767

INT_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
PRIMITIVES = {*INT_RANGES, "bool", "float64", "uuid", "string", "bytes", "records"}
MESSAGE_TYPES = {"request", "response", "header", "metadata", "coordinator-key", "coordinator-value", "data"}
MESSAGE_KEYS = {
    "apiKey", "type", "name", "listeners", "validVersions", "flexibleVersions", "fields", "commonStructs",
    "latestVersionUnstable",
}  # fmt: skip
FIELD_KEYS = {
    "name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "default", "ignorable", "mapKey",
    "entityType", "zeroCopy", "flexibleVersions", "fields", "about",
}  # fmt: skip

RESERVED_ATTRIBUTES = {"self", "read", "write", "decode", "encode", "unknown_tagged_fields"}
RESERVED_STRUCTS = {"Message", "MessageStruct", "Records", "Data", "Writer", "Struct"}


class SpecError(Exception):
    """An invalid or unsupported schema; the error names the message and the field."""


class Versions(NamedTuple):
    """An inclusive range of versions; empty when low > high."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


NONE = Versions(0, -1)


@dataclass(frozen=True)
class FieldSpec:
    """A field: `type` is a primitive or the name of a struct, `default` the Python value or EMPTY_STRUCT."""

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: Any
    ignorable: bool
    flexible: Versions | None

    @property
    def attribute(self) -> str:
        """The Python name, with an underscore appended if it is a keyword or reserved."""
        name = snake_case(self.name)
        return f"{name}_" if iskeyword(name) or name in RESERVED_ATTRIBUTES else name

    @property
    def json_name(self) -> str:
        return self.name[:1].lower() + self.name[1:]

    @property
    def is_struct(self) -> bool:
        return self.type not in PRIMITIVES


@dataclass(frozen=True)
class StructSpec:
    name: str
    fields: tuple[FieldSpec, ...]


@dataclass(frozen=True)
class MessageSpec:
    """A message; `structs` holds its nested structs by name, inner before outer.

    `path`: its file, relative to protocol_specs.
    """

    name: str
    type: str
    path: str
    api_key: int
    valid: Versions
    flexible: Versions
    listeners: tuple[str, ...]
    latest_version_unstable: bool
    root: StructSpec
    structs: dict[str, StructSpec] = field(compare=False)

    @property
    def group(self) -> str:
        """The directory of its file, which is the kind of message."""
        return self.path.partition("/")[0]

    @property
    def module(self) -> str:
        return snake_case(self.name)

    @property
    def flexible_from(self) -> int:
        """The first flexible version, NO_VERSION if there is none."""
        low = max(self.flexible.low, self.valid.low)
        return low if low in self.flexible and low in self.valid else NO_VERSION


@cache
def snake_case(name: str) -> str:
    """Convert a spec's CamelCase name to a Python name: TopicId -> topic_id, KRaftVersion -> kraft_version."""
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def parse_versions(text: str | None, default: Versions = NONE) -> Versions:
    """Parse "none", "3", "1-4" or "2+"."""
    if text is None:
        return default
    match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
    if text == "none":
        return NONE
    if match is None:
        raise SpecError(f"not a range of versions: {text!r}")
    low = int(match[1])
    return Versions(low, NO_VERSION if match[2] else int(match[3] or low))


def load_specs(root: Path) -> list[MessageSpec]:
    """Return the specs of every JSON file under `root`, by name. Raises SpecError."""
    specs = [load_spec(path) for path in sorted(root.rglob("*.json"))]
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise SpecError(f"defined twice: {sorted({name for name in names if names.count(name) > 1})}")
    return sorted(specs, key=lambda spec: spec.name)


def load_spec(path: Path) -> MessageSpec:
    try:
        return parse_spec(json.loads(path.read_text("utf-8")), path=f"{path.parent.name}/{path.name}")
    except (ValueError, KeyError, SpecError) as error:
        raise SpecError(f"{path}: {error!r}") from error


def parse_spec(source: dict[str, Any], path: str = "") -> MessageSpec:
    """Check one schema and return it. Raises SpecError."""
    _refuse_unknown_keys(source, MESSAGE_KEYS, source["name"])
    if source["type"] not in MESSAGE_TYPES:
        raise SpecError(f"unknown message type {source['type']!r}")
    valid = parse_versions(source["validVersions"])
    if valid.low > valid.high or valid.high == NO_VERSION:
        raise SpecError(f"{source['name']} needs a closed range of valid versions")
    parser = _StructParser(source)
    root = parser.parse_struct(source["name"], source["fields"])
    parser.check_complete(root)
    return MessageSpec(
        name=source["name"],
        type=source["type"],
        path=path,
        api_key=source.get("apiKey", -1),
        valid=valid,
        flexible=parse_versions(source.get("flexibleVersions")),
        listeners=tuple(source.get("listeners", ())),
        latest_version_unstable=source.get("latestVersionUnstable", False),
        root=root,
        structs=parser.structs,
    )


class _StructParser:
    """Collects the structs of one message: inline ones and commonStructs, each defined once, inner before outer."""

    def __init__(self, source: dict[str, Any]) -> None:
        self.message = source["name"]
        self.flexible = parse_versions(source.get("flexibleVersions"))
        self.common = {struct["name"]: struct["fields"] for struct in source.get("commonStructs", [])}
        self.structs: dict[str, StructSpec] = {}

    def parse_struct(self, name: str, fields: list[dict[str, Any]]) -> StructSpec:
        parsed = tuple(self._parse_field(name, field) for field in fields)
        _check_fields(name, parsed)
        return StructSpec(name, parsed)

    def check_complete(self, root: StructSpec) -> None:
        reserved = RESERVED_STRUCTS & {root.name, *self.structs}
        if reserved:
            raise SpecError(f"{self.message}: names of its own module: {sorted(reserved)}")
        if root.name in self.structs:
            raise SpecError(f"{root.name} names both the message and a struct")
        unused = self.common.keys() - self.structs.keys()
        if unused:
            raise SpecError(f"{self.message}: common structs never used: {sorted(unused)}")

    def _parse_field(self, struct: str, source: dict[str, Any]) -> FieldSpec:
        where = f"{struct}.{source['name']}"
        _refuse_unknown_keys(source, FIELD_KEYS, where)
        is_array = source["type"].startswith("[]")
        type_name = source["type"].removeprefix("[]")
        if type_name not in PRIMITIVES:
            self._define(where, type_name, source.get("fields"))
        elif "fields" in source:
            raise SpecError(f"{where}: a {type_name} has no fields")
        tagged = parse_versions(source.get("taggedVersions"))
        if (tagged != NONE) != ("tag" in source):
            raise SpecError(f"{where}: tag and taggedVersions go together")
        if tagged != NONE and tagged.low not in self.flexible:
            raise SpecError(f"{where}: tagged in versions that are not flexible")
        nullable = parse_versions(source.get("nullableVersions"))
        return FieldSpec(
            name=source["name"],
            type=type_name,
            is_array=is_array,
            versions=parse_versions(source.get("versions"), default=tagged),
            nullable=nullable,
            tagged=tagged,
            tag=source.get("tag"),
            default=parse_default(where, type_name, is_array, nullable, source.get("default", "")),
            ignorable=source.get("ignorable", False),
            flexible=parse_versions(source["flexibleVersions"]) if "flexibleVersions" in source else None,
        )

    def _define(self, where: str, name: str, fields: list[dict[str, Any]] | None) -> None:
        if fields is None and name in self.structs:
            return
        definition = fields if fields is not None else self.common.get(name)
        if definition is None:
            raise SpecError(f"{where}: no struct {name}")
        struct = self.parse_struct(name, definition)
        if self.structs.setdefault(name, struct) != struct:
            raise SpecError(f"{where}: {name} is defined twice, differently")


class EmptyStruct:
    """The default of a struct that is not null: all of its fields at their defaults."""

    def __repr__(self) -> str:
        return "EMPTY_STRUCT"


EMPTY_STRUCT = EmptyStruct()


def parse_default(where: str, type_name: str, is_array: bool, nullable: Versions, value: Any) -> Any:
    """Return the Python value of a spec's default; "" means the type's zero value, "null" requires a nullable field.

    A bare JSON null counts as no default, as in Kafka's generator: an empty list, or a struct with default fields.
    """
    if value is None:
        value = ""
    if value == "null" and (nullable != NONE or type_name not in PRIMITIVES or is_array):
        if nullable == NONE:
            raise SpecError(f"{where}: null default, yet no version may be null")
        return None
    if is_array or type_name not in PRIMITIVES:
        if value != "":
            raise SpecError(f"{where}: default {value!r}")
        return () if is_array else EMPTY_STRUCT
    return _parse_primitive(where, type_name, value)


def _parse_primitive(where: str, type_name: str, value: Any) -> Any:
    if type_name in INT_RANGES:
        number = int(value or "0", 0) if isinstance(value, str) else value
        low, high = INT_RANGES[type_name]
        if not low <= number <= high:
            raise SpecError(f"{where}: default {number} is out of range")
        return number
    if type_name == "bool":
        return {"": False, "false": False, "true": True, False: False, True: True}[value]
    if type_name == "string":
        return value
    if type_name == "float64":
        return float(value or 0)
    if value != "":
        raise SpecError(f"{where}: default {value!r}")
    return {"uuid": bytes(16), "bytes": b"", "records": None}[type_name]


def _check_fields(struct: str, fields: tuple[FieldSpec, ...]) -> None:
    attributes = [field.attribute for field in fields]
    if len(set(attributes)) != len(attributes):
        raise SpecError(f"{struct} has two fields of one name: {attributes}")
    tags = sorted(field.tag for field in fields if field.tag is not None)
    if tags != list(range(len(tags))):
        raise SpecError(f"{struct}: tags must be 0, 1, ...: {tags}")


def _refuse_unknown_keys(source: dict[str, Any], known: set[str], where: str) -> None:
    unknown = source.keys() - known
    if unknown:
        raise SpecError(f"{where}: unknown keys {sorted(unknown)}")


def walk(spec: MessageSpec) -> Iterator[StructSpec]:
    """Yield the structs of a message, inner before outer, the message itself last."""
    yield from spec.structs.values()
    yield spec.root
