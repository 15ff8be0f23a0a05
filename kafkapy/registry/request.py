"""The body of a registration or a look-up, checked. Raises RegistryError if it is none."""

from collections.abc import Mapping
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.registry.errors import invalid_version, unreadable
from kafkapy.registry.metadata_rules import metadata_of, rule_set_of
from kafkapy.registry.model import SchemaReference
from kafkapy.registry.records import references_of

KINDS: Final = ("JSON", "PROTOBUF", "AVRO")
NEW_ID: Final = -1
NEW_VERSION: Final = 0
LATEST: Final = -1
MAX_DIGITS: Final = 10
"""Of an int32: int() refuses some thousands of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRequest:
    """`version` 0: the next one, -1: only the latest is meant; `id` -1: to be given."""

    schema: str
    kind: str = "AVRO"
    references: tuple[SchemaReference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    version: int = NEW_VERSION
    id: int = NEW_ID


def schema_request(body: Any) -> SchemaRequest:
    if not isinstance(body, Mapping):
        raise unreadable("the body is no JSON object")
    try:
        return SchemaRequest(
            schema=_of_type(body, "schema", str, ""),
            kind=_of_type(body, "schemaType", str, "AVRO"),
            references=references_of(body.get("references")),
            metadata=metadata_of(body.get("metadata"), "metadata"),
            rule_set=rule_set_of(body.get("ruleSet"), "ruleSet"),
            version=_number(body, "version", NEW_VERSION),
            id=_number(body, "id", NEW_ID),
        )
    except ValueError as error:
        raise unreadable(str(error)) from error


def _number(body: Mapping[str, Any], name: str, default: int) -> int:
    """Return an int32, as Java has it. Raises ValueError."""
    found: int = _of_type(body, name, int, default)
    if not -(1 << 31) <= found < 1 << 31:
        raise ValueError(f"{name} is out of range")
    return found


def _of_type(body: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    found = body.get(name)
    if found is None:
        return default
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ValueError(f"{name} is no {kind.__name__}")
    return found


def version_number(text: str) -> int:
    """Return a version; -1 for "latest". Raises RegistryError."""
    shown = text.strip()
    if shown.lower() == "latest":
        return LATEST
    number = int32_of(shown)
    if number is None or (number != LATEST and number < 1):
        raise invalid_version(text)
    return number


def int32_of(text: str) -> int | None:
    """Return the number that a text is; None for anything else, also for one that is no int32, as Java's parseInt."""
    digits = text.removeprefix("-")
    if len(digits.lstrip("0")) > MAX_DIGITS or not digits.isascii() or not digits.isdigit():
        return None
    number = int(digits.lstrip("0") or "0") * (-1 if text.startswith("-") else 1)
    return number if -(1 << 31) <= number < 1 << 31 else None
