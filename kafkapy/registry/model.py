"""Schemas as they are stored, the levels of compatibility and the modes. Pure."""

import enum
import hashlib
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from kafkapy.dataclass import dataclass

Settings: TypeAlias = dict[str, Any]
"""The settings of a CONFIG, as in JSON: compatibilityLevel, normalize, alias, compatibilityGroup, ..."""


RULE_KINDS: Final = ("migrationRules", "domainRules", "encodingRules")
"""The lists of rules that a rule set has."""


class Level(enum.StrEnum):
    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class Mode(enum.StrEnum):
    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"

    @property
    def imports(self) -> bool:
        """Whether clients give versions and ids with the schemas."""
        return self in (Mode.IMPORT, Mode.FORWARD)

    @property
    def is_read_only(self) -> bool:
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A reference to a schema. `name`: its name in the referring one; `version` -1: the latest."""

    name: str
    subject: str
    version: int

    def json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """A version of a subject. `metadata`, `rule_set`: JSON, never changed."""

    subject: str
    version: int
    id: int
    schema: str
    schema_type: str = "AVRO"
    references: tuple[SchemaReference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    deleted: bool = False
    timestamp_ms: int | None = None

    @property
    def guid(self) -> str:
        return guid_of(self.schema, self.references, self.metadata, self.rule_set)

    def json(self) -> dict[str, Any]:
        """Return the response of GET /subjects/NAME/versions/N."""
        found: dict[str, Any] = {"subject": self.subject, "version": self.version, "id": self.id, "guid": self.guid}
        timestamp = {} if self.timestamp_ms is None else {"ts": self.timestamp_ms}
        return found | self.content_json() | timestamp | {"deleted": self.deleted}

    def content_json(self) -> dict[str, Any]:
        """Return the fields of a schema in responses and records, in their order."""
        found: dict[str, Any] = {"schemaType": self.schema_type}
        if self.references:
            found["references"] = [each.json() for each in self.references]
        if self.metadata is not None:
            found["metadata"] = self.metadata
        if self.rule_set is not None:
            found["ruleSet"] = self.rule_set
        return found | {"schema": self.schema}


def guid_of(
    schema: str,
    references: tuple[SchemaReference, ...],
    metadata: Mapping[str, Any] | None,
    rule_set: Mapping[str, Any] | None,
) -> str:
    """Return the id of a schema's content in all registries: the MD5 of its parts, in the order of Confluent's."""
    digest = hashlib.md5(schema.encode(), usedforsecurity=False)
    for each in references:
        digest.update(each.name.encode() + each.subject.encode() + each.version.to_bytes(4, "big", signed=True))
    if metadata is not None:
        digest.update(b"\1")
        _add_metadata(digest, metadata)
    if rule_set is not None:
        digest.update(b"\1")
        for rule in rules_of(rule_set):
            _add_rule(digest, rule)
        digest.update((rule_set.get("enableAt") or "").encode())
    return str(uuid.UUID(bytes=digest.digest()))


def rules_of(rule_set: Mapping[str, Any]) -> Iterator[Any]:
    for kind in RULE_KINDS:
        yield from rule_set.get(kind) or ()


def _add_metadata(digest: Any, metadata: Mapping[str, Any]) -> None:
    for name, tags in sorted((metadata.get("tags") or {}).items()):
        digest.update("".join((name, *sorted(tags))).encode())
    for name, value in sorted((metadata.get("properties") or {}).items()):
        digest.update(f"{name}{value}".encode())
    digest.update("".join(sorted(metadata.get("sensitive") or ())).encode())


def _add_rule(digest: Any, rule: Mapping[str, Any]) -> None:
    digest.update("".join(rule.get(name) or "" for name in ("name", "doc", "kind", "mode", "type")).encode())
    digest.update("".join(sorted(rule.get("tags") or ())).encode())
    digest.update("".join(f"{name}{value}" for name, value in sorted((rule.get("params") or {}).items())).encode())
    digest.update("".join(rule.get(name) or "" for name in ("expr", "onSuccess", "onFailure")).encode())
    digest.update(b"\1" if rule.get("disabled") else b"")
