"""Shared by the source generators: line wrapping like ruff's, names, defaults, and the names a module uses."""

from collections.abc import Iterable

from kafkapy.protocol.codegen.layout import MessageLayouts, StructLayout
from kafkapy.protocol.codegen.spec import EMPTY_STRUCT, INT_RANGES, FieldSpec, snake_case

LINE_LENGTH = 120
ANNOTATIONS = {
    "bool": "bool", "float64": "float", "uuid": "bytes", "string": "str", "bytes": "bytes", "records": "Records",
    **dict.fromkeys(INT_RANGES, "int"),
}  # fmt: skip
HELPERS = {"string": "string", "bytes": "byte_string", "records": "records"}
"""The names in primitives.py for types that carry their length."""


class Body:
    """Collects what a generated module uses: names from primitives.py, and compiled struct formats."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._formats: dict[tuple[str, str], str] = {}

    def use(self, name: str) -> str:
        self.names.add(name)
        return name

    def format(self, verb: str, codes: Iterable[str]) -> str:
        """Return the module-level name of struct's pack or unpack_from for these format codes."""
        codes = list(codes)
        letters = "".join({"?": "t", "16s": "u"}.get(code, code) for code in codes)
        name = f"_{verb}_{letters}"
        self._formats[(name, verb)] = ">" + "".join(codes)
        return name

    def formats(self) -> list[str]:
        methods = {"pack": "pack", "unpack": "unpack_from"}
        return [
            f'{name}: Final = Struct("{codes}").{methods[verb]}'
            for (name, verb), codes in sorted(self._formats.items())
        ]


def wrap(
    opening: str, items: list[str], closing: str, indent: str, *, bare: bool = False, trailing_comma: bool = True
) -> list[str]:
    """Return `opening items closing` on one line if it fits, otherwise one item per line, each with a comma.

    Without `trailing_comma`, all items go on one indented line if they fit, as ruff formats a call.
    """
    line = f"{indent}{opening}{', '.join(items)}{closing}"
    if bare:
        line = line.replace("(", "").replace(")", "")
    if len(line) <= LINE_LENGTH:
        return [line]
    together = f"{indent}    {', '.join(items)}"
    if not trailing_comma and len(together) <= LINE_LENGTH:
        return [f"{indent}{opening}", together, f"{indent}{closing}"]
    return [f"{indent}{opening}", *(f"{indent}    {item}," for item in items), f"{indent}{closing}"]


def function_name(verb: str, layouts: MessageLayouts, layout: StructLayout) -> str:
    """Return the name of the function that reads or writes a layout; it contains the layout's first version."""
    return f"_{verb}_{snake_case(layout.spec.name)}_v{layouts.first_version[layout]}"


def default_value(field: FieldSpec, body: Body) -> str:
    """Return the Python expression of a field's default."""
    if field.default is EMPTY_STRUCT:
        return f"{field.type}()"
    if field.default == ():
        return "[]"
    if field.type == "uuid" and field.default is not None:
        return body.use("ZERO_UUID")
    if isinstance(field.default, str):
        return '"' + field.default.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(field.default).replace("b''", 'b""')
