"""JSON Schemas as the rules of compatibility see them: a kind and what belongs to it, `$ref` resolved.

A schema has one kind. One whose keywords are of several (a type beside an enum, properties without a type beside
minLength) is all of them: `combined` with allOf, as Confluent's registry takes it.
"""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from referencing import Registry
from referencing import Resource as JsonResource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, specification_with

from kafkapy.registry.formats.parsed import SchemaSyntaxError

STRING: Final = ("minLength", "maxLength", "pattern", "format")
NUMBER: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
ARRAY: Final = (
    "items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "prefixItems", "unevaluatedItems",
    "minContains", "maxContains",
)  # fmt: skip
OBJECT: Final = (
    "properties", "required", "minProperties", "maxProperties", "dependencies", "patternProperties",
    "additionalProperties", "propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties",
)  # fmt: skip
KEYWORDS: Final = {"array": ARRAY, "object": OBJECT, "number": NUMBER, "string": STRING}
"""By type: the keywords that imply it for a schema without a type."""
CRITERIA: Final = ("allOf", "anyOf", "oneOf")
NEW_ITEMS: Final = ("2020-12",)
"""Drafts with prefixItems and items in place of items and additionalItems."""


class Node:
    """`kind`: string number boolean null object array enum const not combined, empty (also true), false.

    `raw`: the keywords; `criterion` and `parts`: of a combined one.
    """

    __slots__ = ("_digest", "criterion", "kind", "loader", "parts", "raw", "resolver")

    def __init__(self, kind: str, raw: Mapping[str, Any], loader: "Loader", resolver: Any) -> None:
        self.kind = kind
        self.raw = raw
        self.loader = loader
        self.resolver = resolver
        self.criterion = ""
        self.parts: list[Node] = []
        self._digest = b""

    @property
    def digest(self) -> bytes:
        """A digest of the keywords, the same for equal ones."""
        if not self._digest:
            self._digest = sha256(identity_of(self.raw).encode()).digest()
        return self._digest

    def below(self, keyword: str) -> "Node | None":
        """Return the schema of a keyword; None without it."""
        found = self.raw.get(keyword)
        return None if found is None else self.loader.load(found, self.resolver)

    def all_below(self, keyword: str) -> dict[str, "Node"]:
        found = self.raw.get(keyword)
        if not isinstance(found, Mapping):
            return {}
        return {name: self.loader.load(each, self.resolver) for name, each in found.items()}

    def each_below(self, keyword: str) -> list["Node"]:
        found = self.raw.get(keyword)
        return [self.loader.load(each, self.resolver) for each in found] if isinstance(found, list) else []

    @property
    def requires_integer(self) -> bool:
        return self.raw.get("type") == "integer"


class Loader:
    """The nodes of one schema: the same text is the same node, so that recursion ends. Raises SchemaSyntaxError."""

    def __init__(self, root: Any, resolved: Mapping[str, Any]) -> None:
        self._nodes: dict[tuple[int, str], Node] = {}
        self._root = root
        draft = root.get("$schema", "") if isinstance(root, Mapping) else ""
        self.has_new_items = any(each in str(draft) for each in NEW_ITEMS)
        default = specification_with(str(draft).rstrip("#"), default=DRAFT7) if draft else DRAFT7
        resources = [(name, JsonResource.from_contents(each, default)) for name, each in resolved.items()]
        resource = JsonResource.from_contents(root, default)
        registry = _NOTHING_FETCHED.with_resources(resources)
        self._default = default
        self._resolver = registry.resolver_with_root(resource)

    def root(self) -> Node:
        return self.load(self._root, self._resolver)

    def load(self, raw: Any, resolver: Any, forced: str = "") -> Node:
        """Return the node of a schema. `forced`: the type as which it is taken, of those in its list of types."""
        key = (id(raw), forced)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node("empty", {}, self, resolver)
            self._fill(found, raw, forced)
            if found.kind == "$ref":  # the node of the reference replaces this one
                found = self._nodes[key] = self._referred(raw, found.resolver)
        return found

    def _referred(self, raw: Mapping[str, Any], resolver: Any) -> Node:
        seen: set[int] = set()
        while isinstance(raw, Mapping) and isinstance(raw.get("$ref"), str):
            known = self._nodes.get((id(raw), ""))
            if known is not None and known.kind != "$ref":
                return known
            if id(raw) in seen:
                raise SchemaSyntaxError(f"{raw['$ref']} refers to itself")
            seen.add(id(raw))
            try:
                resolved = resolver.lookup(raw["$ref"])
            except (Unresolvable, ValueError) as error:
                raise SchemaSyntaxError(f"Unresolved $ref '{raw['$ref']}'") from error
            raw, resolver = resolved.contents, resolved.resolver
        found = self.load(raw, resolver)
        for each in seen:  # a long chain of references is followed once, and not from each of them
            self._nodes[(each, "")] = found
        return found

    def _fill(self, node: Node, raw: Any, forced: str) -> None:
        if raw is True or raw is False:
            node.kind = "empty" if raw else "false"
            return
        if not isinstance(raw, Mapping):
            raise SchemaSyntaxError(f"a schema is an object or a boolean, not {str(raw)[:100]}")
        if isinstance(raw.get("$id"), str):
            node.resolver = node.resolver.in_subresource(JsonResource.from_contents(raw, self._default))
        node.raw = raw
        if not forced and isinstance(raw.get("$ref"), str):
            node.kind = "$ref"
            return
        kinds = [(forced, "")] if forced else list(_kinds(raw))
        if len(kinds) == 1:
            self._become(node, *kinds[0])
        elif kinds:
            node.kind, node.criterion = "combined", "allOf"
            node.parts = [self._part(node, *each) for each in kinds]

    def _become(self, node: Node, kind: str, criterion: str) -> None:
        node.kind = {"integer": "number"}.get(kind, kind)
        if kind != "combined":
            return
        node.criterion = criterion
        if criterion in CRITERIA:
            node.parts = node.each_below(criterion)
        else:  # a list of types
            node.criterion = "anyOf"
            node.parts = [self.load(node.raw, node.resolver, forced=str(each)) for each in node.raw["type"]]

    def _part(self, node: Node, kind: str, criterion: str) -> Node:
        part = Node("empty", node.raw, self, node.resolver)
        self._become(part, kind, criterion)
        return part


def identity_of(value: Any) -> str:
    """Return a text that equal JSON values have in common, and no others: 1 is 1.0, and is not true."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{json.dumps(name)}:{identity_of(value[name])}' for name in sorted(value))}}}"
    if isinstance(value, list):
        return f"[{','.join(map(identity_of, value))}]"
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)


def _kinds(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the kinds that a schema's keywords have, and the criterion of those that are combined."""
    if isinstance(raw.get("enum"), list):
        yield "enum", ""
    for criterion in CRITERIA:
        if isinstance(raw.get(criterion), list):
            yield "combined", criterion
    if "not" in raw:
        yield "not", ""
    if "const" in raw:
        yield "const", ""
    kind = raw.get("type")
    if isinstance(kind, list):
        yield "combined", "type"
    elif isinstance(kind, str):
        yield kind, ""
    else:
        yield from ((each, "") for each, keywords in KEYWORDS.items() if not raw.keys().isdisjoint(keywords))


def _not_retrieved(uri: str) -> JsonResource[Any]:
    raise SchemaSyntaxError(f"{uri} is no reference of this schema, and nothing is fetched")


_NEW_REGISTRY: Any = Registry
_NOTHING_FETCHED: Final = _NEW_REGISTRY(retrieve=_not_retrieved)
