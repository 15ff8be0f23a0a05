"""Print the source of places in kafkapy: `python -m tools.show storage/log/log.py::Log.roll timer/wheel.py`.

A place is a file, or file::function, file::Class, file::Class.method, as docs/questions.md names them; files are below
kafkapy/, or below the root. A file alone shows its docstring and what it defines, with the first line of each
docstring. Class.method or a name alone, as docs/chains.md has them, is looked for in kafkapy/: many definitions are
listed.
"""

import ast
import re
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
GENERATED = ROOT / "kafkapy" / "protocol" / "messages"
MOST_SHOWN = 3
"""A name with more definitions gets a list of them."""


def show(place: str) -> str:
    """Return the lines of a place, numbered. Raises LookupError if there is no such file or definition."""
    if re.fullmatch(r"[A-Za-z_]\w*(\.(?!py$)\w+)?", place):
        return show_name(place)
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


def show_name(name: str) -> str:
    """Return the definitions of a name, in whichever files they are. Raises LookupError if there is none."""
    found = list(places_of(name))
    if not found:
        raise LookupError(f"no {name} in kafkapy/")
    if len(found) > MOST_SHOWN:
        return "\n".join(f"{path}:{line} {defined}" for path, defined, line in found)
    return "\n\n".join(show(f"{path}::{defined}") for path, defined, _ in found)


def places_of(name: str) -> Iterator[tuple[str, str, int]]:
    """Yield (file, dotted name, line) of each definition; a name without a class is looked for within classes, too."""
    first = name.partition(".")[0]
    beginnings = (f"class {first}",) if "." in name else (f"def {first}(", f"class {first}", f"\n{first}")
    for path, text in sources():
        if not any(each in text for each in beginnings):
            continue  # parsing takes longest
        tree = ast.parse(text)
        classes = [each.name for each in tree.body if isinstance(each, ast.ClassDef)]
        for wanted in [name, *([] if "." in name else [f"{each}.{name}" for each in classes])]:
            try:
                yield path, wanted, lines_of(tree, wanted, path)[0]
            except LookupError:
                continue


@cache
def sources() -> list[tuple[str, str]]:
    """Return the path and text of each module of kafkapy that is written by hand."""
    paths = [each for each in sorted((ROOT / "kafkapy").rglob("*.py")) if GENERATED not in each.parents]
    return [(each.relative_to(ROOT).as_posix(), each.read_text(encoding="utf-8")) for each in paths]


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
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for `| head`
    sys.exit(main())
