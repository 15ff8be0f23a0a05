"""Whether an Avro schema can read what another one wrote: the rules of Avro's schema resolution.

As Java's SchemaCompatibility finds them, with the places and the texts that Confluent's registry answers.
"""

from itertools import islice
from typing import Final

from kafkapy.registry.formats.avro_model import MISSING, Avro
from kafkapy.registry.formats.parsed import MAX_REASONS, Budget

PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""The writer's types that a reader's type can read beside its own."""
MEMBERS_PER_STEP: Final = 8
"""Fields and symbols of the types of a pair, which are compared by name."""


def backward_errors(reader: Avro, writer: Avro) -> list[str]:
    """Return why `reader` cannot read what `writer` wrote; empty if it can."""
    return _Comparison().between(reader, writer, ())


class _Comparison:
    """Compares each pair of schemas once; a pair that is being compared is compatible with itself."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[str]] = {}
        self._budget = Budget()

    def between(self, reader: Avro, writer: Avro, place: tuple[str, ...]) -> list[str]:
        key = (id(reader), id(writer))
        if key in self._known:
            return self._known[key]
        members = len(reader.fields) + len(writer.fields) + len(reader.symbols) + len(writer.symbols)
        self._budget.spend(1 + members // MEMBERS_PER_STEP)
        self._known[key] = []
        found = self._compare(reader, writer, place)[:MAX_REASONS]
        self._budget.spend(len(found))
        self._known[key] = found
        return found

    def _compare(self, reader: Avro, writer: Avro, place: tuple[str, ...]) -> list[str]:
        kind, written = _kind(reader), _kind(writer)
        if kind != written:
            return self._of_different(reader, writer, place)
        match kind:
            case "array" | "map":
                below = "items" if kind == "array" else "values"
                return self.between(reader.branches[0], writer.branches[0], (*place, below))
            case "fixed":
                return _names(reader, writer, place) + _sizes(reader, writer, place)
            case "enum":
                return _names(reader, writer, place) + _symbols(reader, writer, place)
            case "record":
                return _names(reader, writer, place) + self._fields(reader, writer, place)
            case "union":
                found = []
                for index, branch in enumerate(writer.branches):
                    if self.between(reader, branch, ()):
                        found.append(_missing_branch(branch, (*place, str(index))))
                return found
        return []

    def _of_different(self, reader: Avro, writer: Avro, place: tuple[str, ...]) -> list[str]:
        if writer.type == "union":  # compatible if every branch is
            reasons = (each for branch in writer.branches for each in self.between(reader, branch, ()))
            return list(islice(reasons, MAX_REASONS))
        if reader.type == "union":
            if any(not self.between(branch, writer, ()) for branch in reader.branches):
                return []
            return [_missing_branch(writer, place)]
        if writer.type in PROMOTIONS.get(reader.type, ()):
            return []
        text = f"reader type: {_kind(reader).upper()} not compatible with writer type: {_kind(writer).upper()}"
        path = _path(place)
        description = f"The type (path '{path}') of a field in the %s schema does not match with the %s schema"
        return [_difference("TYPE_MISMATCH", description, text)]

    def _fields(self, reader: Avro, writer: Avro, place: tuple[str, ...]) -> list[str]:
        found: list[str] = []
        by_name = {each.name: each for each in writer.fields}
        for index, each in enumerate(reader.fields):
            if len(found) >= MAX_REASONS:
                break
            here = (*place, "fields", str(index))
            written = next((by_name[name] for name in (each.name, *each.aliases) if name in by_name), None)
            if written is not None:
                found += self.between(each.schema, written.schema, (*here, "type"))
            elif each.default is MISSING:
                if each.schema.type == "enum" and each.schema.symbol_default is not None:
                    found += self.between(each.schema, writer, (*here, "type"))
                    continue
                description = (
                    f"The field '{each.name}' at path '{_path(here)}' in the %s schema has no default value and is "
                    "missing in the %s schema"
                )
                found.append(_difference("READER_FIELD_MISSING_DEFAULT_VALUE", description, each.name))
        return found


def _kind(schema: Avro) -> str:
    return "record" if schema.type == "error" else schema.type


def _names(reader: Avro, writer: Avro, place: tuple[str, ...]) -> list[str]:
    if reader.simple_name == writer.simple_name:  # their namespaces do not matter
        return []
    description = f"The name of the schema has changed (path '{_path((*place, 'name'))}')"
    return [_difference("NAME_MISMATCH", description, f"expected: {writer.name}")]


def _sizes(reader: Avro, writer: Avro, place: tuple[str, ...]) -> list[str]:
    if reader.size == writer.size:
        return []
    description = (
        f"The size of FIXED type field at path '{_path((*place, 'size'))}' in the %s schema does not match with the "
        "%s schema"
    )
    return [_difference("FIXED_SIZE_MISMATCH", description, f"expected: {writer.size}, found: {reader.size}")]


def _symbols(reader: Avro, writer: Avro, place: tuple[str, ...]) -> list[str]:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.symbol_default is not None:
        return []
    shown = f"[{', '.join(missing)}]"
    description = (
        f"The %s schema is missing enum symbols '{shown}' at path '{_path((*place, 'symbols'))}' in the %s schema"
    )
    return [_difference("MISSING_ENUM_SYMBOLS", description, shown)]


def _missing_branch(writer: Avro, place: tuple[str, ...]) -> str:
    description = f"The %s schema is missing a type inside a union field at path '{_path(place)}' in the %s schema"
    text = f"reader union lacking writer type: {_kind(writer).upper()}"
    return _difference("MISSING_UNION_BRANCH", description, text)


def _path(place: tuple[str, ...]) -> str:
    """Return a JSON pointer."""
    return "/" + "/".join(each.replace("~", "~0").replace("/", "~1") for each in place)


def _difference(kind: str, description: str, information: str) -> str:
    return f"{{errorType:'{kind}', description:'{description}', additionalInfo:'{information}'}}"
