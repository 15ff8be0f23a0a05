"""docs/chains.md names what the code defines, in the files named beside it, and tells the counts that are kept."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.simulator.hot_paths import kept

ROOT = Path(__file__).parents[2]
CHAINS = (ROOT / "docs" / "chains.md").read_text()
NAME = re.compile(r"`(?:[A-Z]\w*\.)?([A-Za-z_]\w*)(?:\(\))?`")
"""The last part of `Class.method`: test_members.py compares both."""
BEHIND_FILE = re.compile(r"`?((?:\w+/)+\w+\.py)`?\s+`(?:\w+\.)?(\w+)`")
BEFORE_FILE = re.compile(r"`(?:\w+\.)?(\w+)`\s+\((?:the\s+)?((?:\w+/)+\w+\.py)\b")
TOLD_COUNT: Final = re.compile(r"(\d+)\s+calls\s+of\s+Python\s+functions\s+in\s+(\d+)\s+modules")
GOALS: Final = {
    "creation of a topic of one partition, version 4": (520, None),
    "heartbeat": (90, 30),
    "heartbeat, KIP-848": (90, 30),
    "end of a transaction of one partition": (200, None),
}
"""The most functions and modules of the ways that were once too long; hot_path_counts.json has what they take."""
UNTOLD: Final = {"heartbeat"}
NEAR: Final = 0.03
"""A document need not follow each call."""
OUTSIDE = {"__transaction_state", "__consumer_offsets", "AssertionError"}
"""Topics, and what Python defines."""


@cache
def defined_in(path: Path) -> set[str]:
    """Return what a module defines: classes, functions, fields and constants."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def files_and_names(text: str) -> set[tuple[str, str]]:
    return {*BEHIND_FILE.findall(text), *((file, name) for name, file in BEFORE_FILE.findall(text))}


def missing(text: str) -> list[tuple[str, str]]:
    """Return the names that are not in the files named beside them."""
    return [
        (file, name)
        for file, name in sorted(files_and_names(text))
        if not (path := ROOT / "kafkapy" / file).exists() or name not in defined_in(path)
    ]


def test_names_are_in_the_files_beside_them() -> None:
    assert len(files_and_names(CHAINS)) > 30
    assert missing(CHAINS) == []


def test_all_names_are_defined() -> None:
    names = set(NAME.findall(CHAINS)) - OUTSIDE
    texts = (path for path in (ROOT / "kafkapy").rglob("*.py") if "messages" not in path.parts)
    definitions = re.compile(
        r"^\s*(?:async )?(?:def|class) (\w+)|^\s*(?:self\.)?(\w+)(?:: [^=\n]+)? =|^\s+(\w+): ", re.M
    )
    known = {name for path in texts for found in definitions.findall(path.read_text()) for name in found}
    assert len(names) > 100
    assert names - known == set()


@pytest.mark.parametrize(
    "text",
    ["`storage/log_dir.py` `gone`", "`Gone.gone` (storage/log_dir.py): so", "`LogDirState` (storage/log/gone.py)"],
)
def test_a_name_that_is_gone_is_found(text: str) -> None:
    assert len(missing(text)) == 1


@pytest.mark.parametrize("path", GOALS)
def test_a_way_that_was_too_long_stays_short(path: str) -> None:
    most_functions, most_modules = GOALS[path]
    counts = kept()[path]
    assert counts["functions"] <= most_functions
    assert most_modules is None or counts["modules"] <= most_modules


def test_the_counts_told_are_those_kept() -> None:
    counts = [kept()[path] for path in GOALS if path not in UNTOLD]
    told = [(int(functions), int(modules)) for functions, modules in TOLD_COUNT.findall(CHAINS)]
    assert len(told) == len(counts)
    for (functions, modules), count in zip(told, counts, strict=True):
        assert functions == pytest.approx(count["functions"], rel=NEAR)
        assert modules == pytest.approx(count["modules"], rel=NEAR)
