"""Files that docstrings, comments and the documents about the code name exist."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("kafkapy", "tests", "tools", "benchmarks", "harness", "spark_jobs")
FILE = re.compile(r"(?<![\w/.*<>$])(?:\.\./)*((?:\w+/)*\w+\.py)\b")
MODULE = re.compile(r"`((?:\w+/)+\w+)`")
"""A path without .py, as ARCHITECTURE.md writes most of them."""
EXAMPLES = {"json.py"}
"""Names of files that are not ours."""


@cache
def known() -> dict[str, list[str]]:
    """Return the paths of all our modules by their file's name."""
    found: dict[str, list[str]] = {}
    for folder in CODE:
        for path in (ROOT / folder).rglob("*.py"):
            found.setdefault(path.name, []).append("/" + path.relative_to(ROOT).as_posix())
    return found


def missing(text: str) -> list[str]:
    """Return the files named in a text that are not there."""
    named = [name for name in FILE.findall(text) if name not in EXAMPLES and not (ROOT / name).exists()]
    return [name for name in named if not any(path.endswith("/" + name) for path in known().get(Path(name).name, []))]


def is_module(name: str) -> bool:
    return any((ROOT / at / (name + end)).exists() for at in (".", "kafkapy") for end in ("", ".py"))


@pytest.mark.parametrize("package", sorted(path.name for path in (ROOT / "kafkapy").iterdir() if path.is_dir()))
def test_files_named_in_the_code_exist(package: str) -> None:
    texts = {
        path: path.read_text() for path in (ROOT / "kafkapy" / package).rglob("*.py") if "messages" not in path.parts
    }
    assert {path.name: missing(text) for path, text in texts.items() if missing(text)} == {}


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_and_modules_named_in_the_documents_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    assert missing(text) == []
    assert [name for name in MODULE.findall(text) if not is_module(name)] == []


def test_a_file_that_is_gone_is_found() -> None:
    assert missing("see handlers/data/produce.py and storage/log/gone.py, not ../log/log.py") == ["storage/log/gone.py"]
