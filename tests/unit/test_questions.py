"""docs/questions.md leads to places that are there: each file, and in it each class, function or field."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUESTIONS = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
PLACE = re.compile(r"`([\w/]+\.py)?((?:::[\w.]+)?)`")


def places_in(text: str) -> list[str]:
    """Return the places of a text; what begins with :: is in the file named before it."""
    found, file = set(), ""
    for named, name in PLACE.findall(text):
        file = named or file
        found.add(file + name)
    return sorted(found)


PLACES = places_in(QUESTIONS)


def is_defined(tree: ast.AST, name: str) -> bool:
    """Whether a module has a definition or an assignment, `Class.method` included."""
    found = tree
    for part in name.split("."):
        body = getattr(found, "body", [])
        named = next((each for each in body if part in names_of(each)), None)
        if named is None:
            return False
        found = named
    return True


def names_of(statement: ast.AST) -> list[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def is_there(place: str) -> bool:
    name, _, wanted = place.partition("::")
    path = ROOT / name if name.startswith(("tests/", "benchmarks/")) else ROOT / "kafkapy" / name
    return path.is_file() and (not wanted or is_defined(ast.parse(path.read_text(encoding="utf-8")), wanted))


def test_the_page_names_places() -> None:
    assert len(PLACES) > 50


@pytest.mark.parametrize("place", PLACES)
def test_each_place_of_the_page_is_there(place: str) -> None:
    assert is_there(place)


def test_a_place_in_the_file_named_before_is_found() -> None:
    text = "`a/b.py::C.d`, then `::C.e` and `C.f`, `c.py`, `::g`"
    assert places_in(text) == ["a/b.py::C.d", "a/b.py::C.e", "c.py", "c.py::g"]


@pytest.mark.parametrize("place", ["storage/gone.py", "storage/log/log.py::Log.gone", "storage/log/log.py::gone"])
def test_a_place_that_is_gone_is_found(place: str) -> None:
    assert not is_there(place)
