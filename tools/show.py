"""Print the source of places in kafkapy: `python -m tools.show storage/log/log.py::Log.roll timer/wheel.py`.

A place is a file, or file::function, file::Class, file::Class.method, as docs/questions.md names them; files are below
kafkapy/, or below the root. A file alone shows its docstring and what it defines, with the first line of each
docstring.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def show(place: str) -> str:
    """Return the lines of a place, numbered. Raises LookupError if there is no such file or definition."""
    name, _, wanted = place.partition("::")
    path = next((each for each in (ROOT / "kafkapy" / name, ROOT / name) if each.is_file()), None)
    if path is None:
        raise LookupError(f"no file {name}")
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    shown = path.relative_to(ROOT).as_posix()
    if not wanted:
        return "\n".join([f"{shown}:", ast.get_docstring(tree) or "", *outline(tree)])
    first, last = lines_of(tree, wanted, place)
    numbered = (f"{number:5} {line}" for number, line in enumerate(text.splitlines()[first - 1 : last], first))
    return "\n".join([f"{shown}:{first}", *numbered])


def lines_of(tree: ast.Module, wanted: str, place: str) -> tuple[int, int]:
    """Return the first and last line of a definition, with its decorators, or of an assignment."""
    found: ast.Module | ast.stmt = tree
    for part in wanted.split("."):
        body = found.body if isinstance(found, ast.Module | ast.ClassDef) else []
        named = next((each for each in body if part in names_of(each)), None)
        if named is None:
            raise LookupError(f"no {part} in {place}")
        found = named
    assert isinstance(found, ast.stmt)
    first = min([found.lineno, *(each.lineno for each in getattr(found, "decorator_list", []))])
    return first, found.end_lineno or first


def names_of(statement: ast.stmt) -> list[str]:
    if isinstance(statement, Definition):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def outline(tree: ast.Module | ast.ClassDef, indent: str = "") -> Iterator[str]:
    """Yield a line for each class, method and function."""
    for each in tree.body:
        if isinstance(each, Definition):
            promise = (ast.get_docstring(each) or "").partition("\n")[0]
            yield f"{each.lineno:5} {indent}{each.name}  {promise}".rstrip()
            if isinstance(each, ast.ClassDef):
                yield from outline(each, indent + "    ")


def main() -> int:
    status = 0
    for place in sys.argv[1:]:
        try:
            print(show(place), end="\n\n")
        except LookupError as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
