"""Comparisons that mean something else once they are compiled.

mypyc knows no `__eq__` of a class that `kafkapy.dataclass` made. If both operands of `==` or `!=` are values of one
such class, and the class is of a compiled module, the compiled comparison is that of their identity, and mypyc says
nothing of it. mypy knows the operands' types, so it finds them; `make compiled` refuses to build then.
"""

import ast
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import mypy.build
import mypy.main
from mypy.nodes import ComparisonExpr, Expression
from mypy.types import Instance, Type, get_proper_type

Place: TypeAlias = tuple[int, int, int | None, int | None]
"""First line and column, last line and column of an expression."""


def identity_comparisons(paths: Sequence[Path]) -> list[str]:
    """Return a line for each such comparison of modules that are to be compiled. Raises CompileError of mypy.

    mypy tells an expression's place but not its file: there is a line for each file with a comparison in that place.
    """
    names = ["--config-file", "pyproject.toml", "--explicit-package-bases", "--no-warn-unused-ignores"]
    sources, options = mypy.main.process_options([*names, *map(str, paths)])
    options.export_types = options.preserve_asts = True
    options.incremental = False
    found = _by_identity(mypy.build.build(sources, options).types, {source.module for source in sources})
    return [
        f"{path}:{place[0]}: compiled, two values of {found[place]} are compared by identity"
        for path in paths
        for place in sorted(found.keys() & _comparisons(path))
    ]


def _by_identity(types: dict[Expression, Type], compiled: set[str]) -> dict[Place, str]:
    """Return the places, each with the name of the class."""
    found: dict[Place, list[str]] = defaultdict(list)
    for expression in types:
        if not isinstance(expression, ComparisonExpr):
            continue
        operands = [get_proper_type(types.get(operand)) for operand in expression.operands]
        for operator, first, second in zip(expression.operators, operands, operands[1:], strict=False):
            if operator in ("==", "!=") and _are_of_one(first, second, compiled):
                place = (expression.line, expression.column, expression.end_line, expression.end_column)
                found[place].append(str(first))
    return {place: " or ".join(names) for place, names in found.items()}


def _are_of_one(first: object, second: object, compiled: set[str]) -> bool:
    """Whether both are of one compiled class that `dataclass` gives its equality."""
    if not isinstance(first, Instance) or not isinstance(second, Instance) or first.type is not second.type:
        return False
    equality = first.type.get_method("__eq__")
    has_own_equality = equality is not None and equality.info.fullname != "builtins.object"
    return "dataclass" in first.type.metadata and first.type.module_name in compiled and not has_own_equality


def _comparisons(path: Path) -> set[Place]:
    tree = ast.parse(path.read_bytes())
    return {
        (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
    }
