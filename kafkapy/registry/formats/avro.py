"""Avro schemas of the registry. fastavro checks the defaults of new ones, if validateNewSchemas is set."""

from collections.abc import Mapping
from typing import Any

from kafkapy.registry.formats.avro_model import Avro, AvroParser, to_json
from kafkapy.registry.formats.avro_rules import backward_errors
from kafkapy.registry.formats.parsed import SchemaSyntaxError, json_of
from kafkapy.registry.model import SchemaReference
from kafkapy.registry.records import dumps


class AvroSchema:
    """formats.parsed.ParsedSchema."""

    kind = "AVRO"

    def __init__(
        self, text: str, references: tuple[SchemaReference, ...] = (), resolved: Mapping[str, str] | None = None
    ) -> None:
        """Raises SchemaSyntaxError."""
        self.references = references
        self.resolved = dict(resolved or {})
        parser = AvroParser()
        for each in self.resolved.values():
            parser.parse(_loads(each))
        self._known = set(parser.names)
        self.root = parser.parse(_loads(text))
        self.canonical = dumps(to_json(self.root, set(self._known)))

    def normalized(self) -> "AvroSchema":
        """As Confluent's registry: names and types as they are, properties by name."""
        schema = AvroSchema(self.canonical, self.references, self.resolved)
        schema.canonical = dumps(to_json(_with_sorted_props(schema.root, set()), set(self._known)))
        return schema

    def validate_as_new(self) -> None:
        import fastavro
        from fastavro.schema import SchemaParseException

        named: dict[str, Any] = {}
        try:
            for each in self.resolved.values():
                fastavro.parse_schema(_loads(each), named_schemas=named)
            fastavro.parse_schema(_loads(self.canonical), named_schemas=named)
        except (SchemaParseException, ValueError) as error:
            raise SchemaSyntaxError(str(error)) from error

    def formatted(self, style: str) -> str:
        if style == "resolved":
            return dumps(to_json(self.root, set()))
        return self.canonical

    def backward_errors(self, previous: "AvroSchema", *, lenient: bool) -> list[str]:
        return backward_errors(self.root, previous.root)

    def has_top_level_field(self, name: str) -> bool:
        return any(each.name == name for each in self.root.fields)


def _with_sorted_props(schema: Avro, seen: set[int]) -> Avro:
    """Sort the properties of a schema and of nested ones; return it."""
    if id(schema) in seen:
        return schema
    seen.add(id(schema))
    schema.props = dict(sorted(schema.props.items()))
    for each in schema.fields:
        each.props = dict(sorted(each.props.items()))
        _with_sorted_props(each.schema, seen)
    for branch in schema.branches:
        _with_sorted_props(branch, seen)
    return schema


def _loads(text: str) -> Any:
    """Return the JSON of a schema; a bare word is the name of a type, as in Java's parser."""
    try:
        return json_of(text)
    except ValueError as error:
        if text.strip().replace(".", "").isidentifier():
            return text.strip()
        raise SchemaSyntaxError(str(error)) from error
