"""The records of the topic _schemas, as Confluent's Schema Registry writes and reads them: keys and values in JSON.

| keytype | key | value |
|---|---|---|
| SCHEMA | subject, version, magic 1 | subject, version, id, schemaType, references, ..., schema, deleted |
| CONFIG, MODE | subject (none: of all), magic 0 | subject and the settings |
| DELETE_SUBJECT | subject, magic 0 | subject, and the version up to which all are deleted softly |
| CLEAR_SUBJECT | subject, magic 0 | subject: its deleted versions are forgotten |
| CONTEXT | tenant, context, magic 0 | tenant, context |
| NOOP | magic 0 | none: written to learn the end of the topic |

A schema's tombstone deletes it for good. Order and absence of fields are those of Confluent's: keys of a compacted
topic must be equal byte for byte.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from kafkapy.registry.model import SchemaReference, StoredSchema

TENANT: Final = "default"
SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escaped half of a surrogate pair: allowed in JSON, but not in UTF-8."""
NOOP: Final = b'{"keytype":"NOOP","magic":0}'


def dumps(value: Any) -> str:
    """Return JSON as Confluent's registry writes it: without spaces, and with as few escapes as possible."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def schema_key(subject: str, version: int) -> bytes:
    return dumps({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}).encode()


def schema_value(schema: StoredSchema) -> bytes:
    value: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    return dumps(value | schema.content_json() | {"deleted": schema.deleted}).encode()


def subject_key(kind: str, subject: str | None) -> bytes:
    """Return the key of a CONFIG, MODE, DELETE_SUBJECT or CLEAR_SUBJECT."""
    named = {} if subject is None else {"subject": subject}
    return dumps({"keytype": kind, **named, "magic": 0}).encode()


def subject_value(subject: str | None, values: Mapping[str, Any]) -> bytes:
    named = {} if subject is None else {"subject": subject}
    return dumps({**named, **values}).encode()


def context_key(context: str) -> bytes:
    return dumps({"keytype": "CONTEXT", "tenant": TENANT, "context": context, "magic": 0}).encode()


def context_value(context: str) -> bytes:
    return dumps({"tenant": TENANT, "context": context}).encode()


def parse_json(data: bytes | None) -> dict[str, Any] | None:
    """Return an object; None for anything else, also if a text in it is half of a surrogate pair."""
    if data is None:
        return None
    try:
        found = json.loads(data.decode())
        if SURROGATE.search(data):
            dumps(found).encode()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def parse_schema(value: Mapping[str, Any], timestamp_ms: int | None) -> StoredSchema | None:
    """Return the schema in the value of a SCHEMA record; None without one, or if it is not understood."""
    subject, version, schema_id, schema = (value.get(name) for name in ("subject", "version", "id", "schema"))
    if not isinstance(subject, str) or not isinstance(version, int) or not isinstance(schema_id, int):
        return None
    schema_type = value.get("schemaType") or "AVRO"
    if not isinstance(schema, str) or not isinstance(schema_type, str):
        return None
    try:
        references = references_of(value.get("references"))
    except ValueError:
        return None
    found = StoredSchema(
        subject=subject,
        version=version,
        id=schema_id,
        schema=schema,
        schema_type=schema_type,
        references=references,
        metadata=value.get("metadata"),
        rule_set=value.get("ruleSet"),
        deleted=bool(value.get("deleted")),
        timestamp_ms=timestamp_ms,
    )
    return found if _has_guid(found) else None


def _has_guid(schema: StoredSchema) -> bool:
    """Whether texts, metadata and rules have the right types: the guid is computed from them."""
    try:
        return bool(schema.guid)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return False


def references_of(listed: Any) -> tuple[SchemaReference, ...]:
    """Return the references of JSON. Raises ValueError."""
    if listed is not None and not isinstance(listed, list):
        raise ValueError("references are a list")
    found = []
    for each in listed or ():
        if not isinstance(each, Mapping):
            raise ValueError("a reference is an object with name, subject and version")
        name, subject, version = each.get("name"), each.get("subject"), each.get("version")
        if not isinstance(name, str) or not isinstance(subject, str) or not isinstance(version, int):
            raise ValueError("a reference has a name, a subject and a version")
        found.append(SchemaReference(name, subject, version))
    return tuple(found)
