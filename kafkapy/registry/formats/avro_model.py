"""Avro schemas as a tree: parsed from JSON by the rules of Avro 1.12, and printed as Java's parser prints them."""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.registry.formats.parsed import SchemaSyntaxError

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED: Final = ("record", "error", "enum", "fixed")
MAX_DEPTH: Final = 200
"""Types within each other: a schema is read by functions that call themselves, and Python allows some 1,000 calls."""
_NAME: Final = re.compile(r"[^\W\d]\w*\Z")
_RESERVED: Final = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_FIELD_RESERVED: Final = frozenset(("default", "doc", "name", "order", "type", "aliases"))
MISSING: Final = object()
"""The mark for "no default": null is a default."""


@dataclass(slots=True, eq=False)
class Avro:
    """A schema. `type`: a primitive, record, error, enum, fixed, array, map or union.

    `name`: with its namespace, of the named types. `branches`: of a union, and the items of an array or map.
    """

    type: str
    name: str = ""
    doc: str | None = None
    fields: "list[AvroField]" = field(default_factory=list)
    branches: "list[Avro]" = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    symbol_default: str | None = None
    size: int = 0
    aliases: list[str] = field(default_factory=list)
    props: dict[str, Any] = field(default_factory=dict)

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]


@dataclass(slots=True, eq=False)
class AvroField:
    name: str
    schema: Avro
    doc: str | None
    default: Any
    order: str
    aliases: list[str]
    props: dict[str, Any]


class AvroParser:
    """Parses schemas that may use the types of earlier ones. Methods raise SchemaSyntaxError."""

    def __init__(self) -> None:
        self.names: dict[str, Avro] = {}

    def parse(self, schema: Any, namespace: str = "", depth: int = 0) -> Avro:
        if depth > MAX_DEPTH:
            raise SchemaSyntaxError(f"more than {MAX_DEPTH} types within each other")
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if not isinstance(schema, Mapping):
            raise SchemaSyntaxError(f"Schema not yet supported: {schema}")
        kind = schema.get("type")
        if isinstance(kind, Mapping | list):  # {"type": {"type": ...}}
            found = self.parse(kind, namespace, depth + 1)
            found.props |= {key: value for key, value in schema.items() if key not in _RESERVED}
            return found
        if not isinstance(kind, str):
            raise SchemaSyntaxError(f"No type: {schema}")
        props = {key: value for key, value in schema.items() if key not in _RESERVED}
        if kind in PRIMITIVES:
            return Avro(kind, props=props)
        if kind in NAMED:
            return self._definition(kind, schema, namespace, props, depth)
        if kind in ("array", "map"):
            items = schema.get("items" if kind == "array" else "values", MISSING)
            if items is MISSING:
                raise SchemaSyntaxError(f"{kind.capitalize()} has no {'items' if kind == 'array' else 'values'} type")
            return Avro(kind, branches=[self.parse(items, namespace, depth + 1)], props=props)
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> Avro:
        if name in PRIMITIVES:
            return Avro(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise SchemaSyntaxError(f'Undefined schema: "{full}"')
        return found

    def _union(self, schemas: list[Any], namespace: str, depth: int) -> Avro:
        branches = [self.parse(each, namespace, depth + 1) for each in schemas]
        seen: set[str] = set()
        for each in branches:
            if each.type == "union":
                raise SchemaSyntaxError("Nested union")
            named = each.name or each.type
            if named in seen:
                raise SchemaSyntaxError(f"Duplicate in union:{named}")
            seen.add(named)
        return Avro("union", branches=branches)

    def _definition(
        self, kind: str, schema: Mapping[str, Any], namespace: str, props: dict[str, Any], depth: int
    ) -> Avro:
        name, within = schema.get("name"), schema.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(within, str):
            raise SchemaSyntaxError(f"No name in schema: {schema}")
        full = name if "." in name or not within else f"{within}.{name}"
        for part in full.split("."):
            if not _NAME.match(part):
                raise SchemaSyntaxError(f"Illegal character in: {part}" if part else "Empty name")
        if full in PRIMITIVES:
            raise SchemaSyntaxError(f"Schemas may not be named after primitives: {full}")
        if full in self.names:
            raise SchemaSyntaxError(f"Can't redefine: {full}")
        found = Avro(kind, full, doc=_text(schema, "doc"), aliases=_aliases(schema), props=props)
        self.names[full] = found  # before its fields, which may have this type
        if kind == "enum":
            self._enum(found, schema)
        elif kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise SchemaSyntaxError(f"Invalid or no size: {size}")
            found.size = size
        else:
            self._fields(found, schema, depth)
        return found

    @staticmethod
    def _enum(found: Avro, schema: Mapping[str, Any]) -> None:
        symbols = schema.get("symbols")
        if not isinstance(symbols, list):
            raise SchemaSyntaxError(f"Enum has no symbols: {found.name}")
        seen: set[str] = set()
        for symbol in symbols:
            if not isinstance(symbol, str) or not _NAME.match(symbol):
                raise SchemaSyntaxError(f"Illegal initial character: {symbol}")
            if symbol in seen:
                raise SchemaSyntaxError(f"Duplicate enum symbol: {symbol}")
            seen.add(symbol)
            found.symbols.append(symbol)
        found.props.pop("default", None)
        if schema.get("default") is not None:
            if schema["default"] not in found.symbols:
                raise SchemaSyntaxError(
                    f"The Enum Default: {schema['default']} is not in the enum symbol set: {found.symbols}"
                )
            found.symbol_default = schema["default"]

    def _fields(self, found: Avro, schema: Mapping[str, Any], depth: int) -> None:
        # One field after the other, each checked in full, as Java's parser does: of several mistakes a client sees the
        # one that it reports, and a type that a field defines is known to the fields after it.
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise SchemaSyntaxError("Record has no fields")
        seen = set()
        for each in fields:
            if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
                raise SchemaSyntaxError(f"No field name: {each}")
            name = each["name"]
            if not _NAME.match(name):
                raise SchemaSyntaxError(f"Illegal character in: {name}")
            if name in seen:
                raise SchemaSyntaxError(f"Duplicate field {name} in record {found.name}")
            seen.add(name)
            if "type" not in each:
                raise SchemaSyntaxError(f"No field type: {each}")
            order = each.get("order", "ascending")
            if order not in ("ascending", "descending", "ignore"):
                raise SchemaSyntaxError(f"No enum constant of a field's order: {order}")
            found.fields.append(
                AvroField(
                    name=name,
                    schema=self.parse(each["type"], found.namespace, depth + 1),
                    doc=_text(each, "doc"),
                    default=each.get("default", MISSING),
                    order=order,
                    aliases=_aliases(each),
                    props={key: value for key, value in each.items() if key not in _FIELD_RESERVED},
                )
            )


def to_json(schema: Avro, known: set[str], namespace: str = "") -> Any:
    """Return the JSON of a schema in the order of Java's; `known`: types to name, without their definition."""
    if schema.type in NAMED:
        if schema.name in known:
            return schema.simple_name if schema.namespace == namespace else schema.name
        known.add(schema.name)
        return _definition_json(schema, known, namespace)
    if schema.type == "union":
        return [to_json(each, known, namespace) for each in schema.branches]
    if schema.type in ("array", "map"):
        items = to_json(schema.branches[0], known, namespace)
        return {"type": schema.type, ("items" if schema.type == "array" else "values"): items, **schema.props}
    return {"type": schema.type, **schema.props} if schema.props else schema.type


def _definition_json(schema: Avro, known: set[str], namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": schema.type, "name": schema.simple_name}
    if schema.namespace != namespace:
        found["namespace"] = schema.namespace
    if schema.doc is not None:
        found["doc"] = schema.doc
    if schema.type == "enum":
        found["symbols"] = schema.symbols
        if schema.symbol_default is not None:
            found["default"] = schema.symbol_default
    elif schema.type == "fixed":
        found["size"] = schema.size
    else:
        found["fields"] = [_field_json(each, known, schema.namespace) for each in schema.fields]
    found |= schema.props
    if schema.aliases:
        found["aliases"] = _short(schema.aliases, schema.namespace)
    return found


def _field_json(each: AvroField, known: set[str], namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": each.name, "type": to_json(each.schema, known, namespace)}
    if each.doc is not None:
        found["doc"] = each.doc
    if each.default is not MISSING:
        found["default"] = each.default
    if each.order != "ascending":
        found["order"] = each.order
    if each.aliases:
        found["aliases"] = each.aliases
    return found | each.props


def _short(aliases: list[str], namespace: str) -> list[str]:
    return [each.rpartition(".")[2] if each.rpartition(".")[0] == namespace else each for each in aliases]


def _text(schema: Mapping[str, Any], key: str) -> str | None:
    found = schema.get(key)
    return found if isinstance(found, str) else None


def _aliases(schema: Mapping[str, Any]) -> list[str]:
    found = schema.get("aliases")
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise SchemaSyntaxError(f"aliases not an array of strings: {found}")
    return list(found)
