"""The text of a .proto file as the registry stores it: the layout of Confluent's, without comments.

Made of proto_schema_parser's tree. A message has its parts in one order, whatever order they were written in: reserved,
options, fields, oneofs, groups, extensions, messages, enums. `normalized` sorts what has no order of its own.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from proto_schema_parser import ast

INDENT: Final = "  "


def text_of(tree: ast.File, *, normalized: bool = False) -> str:
    return _Printer(normalized).file(tree)


def _indented(text: str) -> str:
    return "".join(f"{INDENT}{line}\n" for line in text.splitlines())


def _of(elements: Iterable[Any], kind: type) -> list[Any]:
    return [each for each in elements if isinstance(each, kind)]


class _Printer:
    def __init__(self, normalized: bool) -> None:
        self._normalized = normalized

    def file(self, tree: ast.File) -> str:
        parts = tree.file_elements
        head = ""
        if tree.syntax is not None and not (self._normalized and tree.syntax == "proto2"):
            head = f'syntax = "{tree.syntax}";\n'
        for package in _of(parts, ast.Package):
            head += f"package {package.name};\n"
        imports = [each.name for each in _of(parts, ast.Import) if not each.public]
        public = [each.name for each in _of(parts, ast.Import) if each.public]
        if self._normalized:
            imports, public = sorted(set(imports)), sorted(set(public))
        sections = [
            [f'import "{name}";\n' for name in imports] + [f'import public "{name}";\n' for name in public],
            [self.option(each) for each in self._sorted_options(_of(parts, ast.Option))],
            [self.message(each) for each in _of(parts, ast.Message)]
            + [self.enum(each) for each in _of(parts, ast.Enum)],
            [self.extension(each) for each in _of(parts, ast.Extension)],
            [self.service(each) for each in _of(parts, ast.Service)],
        ]
        return head + "".join("\n" + "".join(each) for each in sections if each)

    def message(self, tree: ast.Message) -> str:
        return f"message {tree.name} {{{self._body(tree.elements)}}}\n"

    def _body(self, parts: Sequence[Any]) -> str:
        fields = _of(parts, ast.Field | ast.MapField)  # type: ignore[arg-type]
        oneofs, groups = _of(parts, ast.OneOf), _of(parts, ast.Group)
        if self._normalized:
            fields = sorted(fields, key=lambda each: int(each.number))
            groups = sorted(groups, key=lambda each: int(each.number))
            oneofs = sorted(oneofs, key=_first_number)
        sections = [
            self._reserved(_of(parts, ast.Reserved)),
            [self.option(each) for each in self._sorted_options(_of(parts, ast.Option))],
            [self.field(each) for each in fields],
            [self.oneof(each) for each in oneofs],
            [self.group(each) for each in groups],
            [self._extension_range(each) for each in _of(parts, ast.ExtensionRange)],
            [self.extension(each) for each in _of(parts, ast.Extension)],
            [self.message(each) for each in _of(parts, ast.Message)]
            + [self.enum(each) for each in _of(parts, ast.Enum)],
        ]
        return "".join("\n" + _indented("".join(each)) for each in sections if each)

    def field(self, tree: ast.Field | ast.MapField) -> str:
        if isinstance(tree, ast.MapField):
            kind, label = f"map<{tree.key_type}, {tree.value_type}>", ""
        else:
            kind, label = tree.type, "" if tree.cardinality is None else f"{tree.cardinality.value.lower()} "
        return f"{label}{kind} {tree.name} = {tree.number}{self._bracketed(tree.options)};\n"

    def oneof(self, tree: ast.OneOf) -> str:
        fields = _of(tree.elements, ast.Field)
        if self._normalized:
            fields = sorted(fields, key=lambda each: int(each.number))
        sections = [
            [self.option(each) for each in _of(tree.elements, ast.Option)],
            [self.field(each) for each in fields],
            [self.group(each) for each in _of(tree.elements, ast.Group)],
        ]
        return f"oneof {tree.name} {{{''.join(chr(10) + _indented(''.join(each)) for each in sections if each)}}}\n"

    def group(self, tree: ast.Group) -> str:
        label = "" if tree.cardinality is None else f"{tree.cardinality.value.lower()} "
        return f"{label}group {tree.name} = {tree.number} {{{self._body(tree.elements)}}}\n"

    def enum(self, tree: ast.Enum) -> str:
        values = _of(tree.elements, ast.EnumValue)
        if self._normalized:
            values = sorted(values, key=lambda each: (int(each.number), each.name))
        inner = [
            *self._reserved(_of(tree.elements, ast.EnumReserved)),
            *(self.option(each) for each in self._sorted_options(_of(tree.elements, ast.Option))),
            *(f"{each.name} = {each.number}{self._bracketed(each.options)};\n" for each in values),
        ]
        return f"enum {tree.name} {{{chr(10) if inner else ''}{_indented(''.join(inner))}}}\n"

    def extension(self, tree: ast.Extension) -> str:
        fields = "".join(self.field(each) for each in _of(tree.elements, ast.Field))
        return f"extend {tree.typeName} {{\n{_indented(fields)}}}\n"

    def service(self, tree: ast.Service) -> str:
        sections = [
            [self.option(each) for each in _of(tree.elements, ast.Option)],
            [self._method(each) for each in _of(tree.elements, ast.Method)],
        ]
        return f"service {tree.name} {{{''.join(chr(10) + _indented(''.join(each)) for each in sections if each)}}}\n"

    def _method(self, tree: ast.Method) -> str:
        taken, given = (f"{'stream ' * each.stream}{each.type}" for each in (tree.input_type, tree.output_type))
        options = "".join(self.option(each) for each in _of(tree.elements, ast.Option))
        return (
            f"rpc {tree.name} ({taken}) returns ({given}){f' {{{chr(10)}{_indented(options)}}}' if options else ''};\n"
        )

    def option(self, tree: ast.Option) -> str:
        return f"option {tree.name} = {_value(tree.value)};\n"

    def _bracketed(self, options: Sequence[ast.Option]) -> str:
        shown = [f"{each.name} = {_value(each.value)}" for each in self._sorted_options(options)]
        if not shown:
            return ""
        if len(shown) == 1:
            return f" [{shown[0]}]"
        lines = ",\n".join(shown)
        return f" [\n{_indented(lines)}]"

    def _sorted_options(self, options: Sequence[ast.Option]) -> list[ast.Option]:
        return sorted(options, key=lambda each: each.name) if self._normalized else list(options)

    def _reserved(self, trees: Sequence[ast.Reserved | ast.EnumReserved]) -> list[str]:
        listed = [[*map(str, each.ranges), *(f'"{name}"' for name in each.names)] for each in trees]
        if self._normalized:
            listed = [[one] for each in listed for one in each]
            listed.sort(key=lambda each: (each[0].startswith('"'), _start(each[0]), each[0]))
        return [f"reserved {', '.join(each)};\n" for each in listed]

    def _extension_range(self, tree: ast.ExtensionRange) -> str:
        return f"extensions {', '.join(map(str, tree.ranges))}{self._bracketed(tree.options)};\n"


def _start(shown: str) -> int:
    first = shown.partition(" ")[0]
    return int(first) if first.lstrip("-").isdecimal() else 0


def _first_number(oneof: ast.OneOf) -> int:
    return min((int(each.number) for each in _of(oneof.elements, ast.Field)), default=0)


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{escaped}"'
        case ast.Identifier():
            return value.name
        case ast.MessageLiteral():
            fields = [f"{each.name}: {_value(each.value)}" for each in _of(value.elements, ast.MessageLiteralField)]
            return "{\n" + _indented(",\n".join(fields)) + "}" if fields else "{}"
        case list():
            return "[\n" + _indented(",\n".join(map(_value, value))) + "]" if value else "[]"
    return str(value)
