"""JSON Schemas of the registry: drafts 4 to 2020-12, checked by jsonschema. Nothing outside the references is read."""

import json
from collections.abc import Mapping
from typing import Any

from kafkapy.registry.formats.json_differences import harmless_kinds
from kafkapy.registry.formats.json_model import Loader, Node
from kafkapy.registry.formats.json_rules import differences
from kafkapy.registry.formats.parsed import SchemaSyntaxError
from kafkapy.registry.model import SchemaReference
from kafkapy.registry.records import dumps


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
        """There is nothing beyond what the constructor checks."""

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
    """Raises SchemaSyntaxError for keywords with impossible values."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for

    validator = validator_for(content, default=Draft7Validator)
    try:
        validator.check_schema(content)
    except SchemaError as error:
        raise SchemaSyntaxError(f"#/{'/'.join(map(str, error.absolute_path))}: {error.message}") from error
    except RecursionError as error:
        raise SchemaSyntaxError("it is nested too deeply") from error


def _visit_all(root: Node) -> None:
    """Load every schema within one, so that what a $ref names is known to be there. Raises SchemaSyntaxError."""
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
        return json.loads(text)
    except RecursionError as error:
        raise SchemaSyntaxError("it is nested too deeply") from error
    except ValueError as error:
        raise SchemaSyntaxError(f"Invalid JSON: {error}") from error
