"""JSON Schemas of the registry: drafts 4 to 2020-12, checked by jsonschema. Nothing outside the references is read."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kafkapy.registry.formats.json_differences import harmless_kinds
from kafkapy.registry.formats.json_model import Loader, Node
from kafkapy.registry.formats.json_rules import differences
from kafkapy.registry.formats.parsed import SchemaSyntaxError, json_of
from kafkapy.registry.model import SchemaReference
from kafkapy.registry.records import dumps

MAX_COMPARED: Final = 4_000_000
"""Pairs of values that jsonschema may compare when it looks for equal ones and cannot sort them: some seconds."""


class JsonSchema:
    """formats.parsed.ParsedSchema."""

    kind = "JSON"

    def __init__(
        self, text: str, references: tuple[SchemaReference, ...] = (), resolved: Mapping[str, str] | None = None
    ) -> None:
        """Raises SchemaSyntaxError."""
        self.references = references
        self.resolved = dict(resolved or {})
        self.content = _loads(text)
        _check(self.content)
        self._loader = Loader(self.content, {name: _loads(each) for name, each in self.resolved.items()})
        _visit_all(self._loader.root())
        self.canonical = dumps(self.content)

    def normalized(self) -> "JsonSchema":
        ordered = json.dumps(self.content, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        return JsonSchema(ordered, self.references, self.resolved)

    def validate_as_new(self) -> None:
        """Do nothing: the constructor checks all there is."""

    def formatted(self, style: str) -> str:
        return self.canonical

    def backward_errors(self, previous: "JsonSchema", *, lenient: bool) -> list[str]:
        found = differences(previous._loader.root(), self._loader.root(), lenient=lenient)
        harmless = harmless_kinds(lenient=lenient)
        return [str(each) for each in found if each.kind not in harmless]

    def has_top_level_field(self, name: str) -> bool:
        properties = self.content.get("properties") if isinstance(self.content, Mapping) else None
        return isinstance(properties, Mapping) and name in properties


def _check(content: Any) -> None:
    """Check a schema's keywords. Raises SchemaSyntaxError for impossible values."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for

    if not isinstance(content, Mapping | bool):
        raise SchemaSyntaxError("it is neither an object nor a boolean")
    if isinstance(content, Mapping) and not isinstance(content.get("$schema", ""), str):
        raise SchemaSyntaxError("#/$schema: it is no text")
    validator = validator_for(content, default=Draft7Validator)
    is_unique = bool(validator.META_SCHEMA.get("properties", {}).get("enum", {}).get("uniqueItems"))
    if sum(len(each) ** 2 for each in _unsorted(content, ("type", "enum") if is_unique else ("type",))) > MAX_COMPARED:
        raise SchemaSyntaxError("it lists too many values of several types")
    try:
        validator.check_schema(content)
    except SchemaError as error:
        raise SchemaSyntaxError(f"#/{'/'.join(map(str, error.absolute_path))}: {error.message}") from error
    except RecursionError as error:
        raise SchemaSyntaxError("it is nested too deeply") from error


def _unsorted(content: Any, keywords: tuple[str, ...]) -> Iterator[list[Any]]:
    """Yield the lists in which jsonschema looks for equal values, and compares each value with each other one."""
    left = [content]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, Mapping):
            left += each.values()
            named = [each.get(keyword) for keyword in (*keywords, "required")]
            for keyword in ("dependencies", "dependentRequired"):
                named += each[keyword].values() if isinstance(each.get(keyword), Mapping) else ()
            for listed in named:
                if isinstance(listed, list) and not _can_be_sorted(listed):
                    yield listed


def _can_be_sorted(values: list[Any]) -> bool:
    types = {type(each) for each in values}
    return types <= {str} or types <= {int, float}


def _visit_all(root: Node) -> None:
    """Load all nested schemas, so that each $ref is known to exist. Raises SchemaSyntaxError."""
    seen: set[int] = set()
    left = [root]
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        left += node.parts
        for keyword in ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas"):
            left += node.all_below(keyword).values()
        for keyword in ("items", "prefixItems"):
            left += node.each_below(keyword)
        for keyword in ("additionalProperties", "additionalItems", "not", "contains", "propertyNames", "items"):
            if isinstance(node.raw.get(keyword), Mapping | bool):
                below = node.below(keyword)
                left += [] if below is None else [below]


def _loads(text: str) -> Any:
    try:
        return json_of(text)
    except ValueError as error:
        raise SchemaSyntaxError(f"Invalid JSON: {error}") from error
