"""What the registry asks of a schema, whatever its format: Avro, JSON Schema, Protobuf."""

from collections.abc import Mapping
from typing import Protocol, Self

from kafkapy.errors import KafkapyError
from kafkapy.registry.model import SchemaReference


class SchemaSyntaxError(KafkapyError):
    """A text that is no schema of its format; the message says what is wrong."""


class ParsedSchema(Protocol):
    """`references`: how the schema was given; `resolved`: the texts of what it refers to, by name."""

    kind: str
    references: tuple[SchemaReference, ...]
    resolved: Mapping[str, str]

    @property
    def canonical(self) -> str:
        """The text that is stored, and by which schemas are told apart."""

    def normalized(self) -> Self:
        """Return the schema with everything in one order, for `normalize=true`."""

    def validate_as_new(self) -> None:
        """Check what `validateNewSchemas` adds: defaults of their types. Raises SchemaSyntaxError."""

    def formatted(self, style: str) -> str:
        """Return the text in a style that the format has; an unknown style is the canonical text."""

    def backward_errors(self, previous: Self, *, lenient: bool) -> list[str]:
        """Return why this schema cannot read what `previous` wrote; "%s" twice for "new" and "old", in this order."""

    def has_top_level_field(self, name: str) -> bool:
        """Whether the record, object or first message has a field."""
