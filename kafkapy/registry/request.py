"""The body of a registration or a look-up, checked. Raises RegistryError for what is no such body."""

from collections.abc import Mapping
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.registry.errors import RegistryError, invalid_version
from kafkapy.registry.model import SchemaReference
from kafkapy.registry.records import references_of

KINDS: Final = ("JSON", "PROTOBUF", "AVRO")
NEW_ID: Final = -1
NEW_VERSION: Final = 0
LATEST: Final = -1


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
        raise RegistryError(400, "the body is no JSON object")
    try:
        return SchemaRequest(
            schema=_of_type(body, "schema", str, ""),
            kind=_of_type(body, "schemaType", str, "AVRO"),
            references=references_of(body.get("references")),
            metadata=_of_type(body, "metadata", dict, None),
            rule_set=_of_type(body, "ruleSet", dict, None),
            version=_of_type(body, "version", int, NEW_VERSION),
            id=_of_type(body, "id", int, NEW_ID),
        )
    except ValueError as error:
        raise RegistryError(422, str(error)) from error


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
    number = int(shown) if shown.removeprefix("-").isascii() and shown.removeprefix("-").isdigit() else 0
    if number != LATEST and not 0 < number < 1 << 31:
        raise invalid_version(text)
    return number
