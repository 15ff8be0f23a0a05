"""A class owns its fields (STYLE.md, rule 18): nobody else writes those of a log, its directory or a partition."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

KAFKAPY = Path(__file__).parents[2] / "kafkapy"
OWNERS = {
    "storage/log/log.py::Log": ("log", "_log"),
    "storage/log_dir.py::LogDirState": ("state", "log_dir"),
    "replication/partition.py::Partition": ("partition",),
}
"""By class: the names by which others know an instance."""
GIVEN_ONCE = {"LogDirState": {"on_flushed"}, "Partition": {"traffic"}}
"""Set by who makes the instance, if something is counted."""


NAMES = "|".join(name for names in OWNERS.values() for name in names)
WRITTEN = re.compile(rf"\b(?:{NAMES})\.\w+(?:: [^=\n]+)? ?[-+|&]?=[^=]")
"""Lines that may write such a field: only files with one are parsed."""


@cache
def suspects() -> dict[Path, ast.Module]:
    texts = {path: path.read_text() for path in sorted(KAFKAPY.rglob("*.py")) if "messages" not in path.parts}
    return {path: ast.parse(text) for path, text in texts.items() if WRITTEN.search(text)}


def written(tree: ast.AST) -> list[ast.Attribute]:
    return [each for each in ast.walk(tree) if isinstance(each, ast.Attribute) and not isinstance(each.ctx, ast.Load)]


def name_of(value: ast.expr) -> str:
    return ast.unparse(value).rpartition(".")[2]


@pytest.mark.parametrize("owner", OWNERS)
def test_a_class_alone_writes_its_fields(owner: str) -> None:
    path, _, name = owner.partition("::")
    (own,) = [
        node
        for node in ast.parse((KAFKAPY / path).read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    fields = {each.attr for each in written(own) if name_of(each.value) == "self"} - GIVEN_ONCE.get(name, set())
    assert len(fields) > 3
    others = [
        f"{other.relative_to(KAFKAPY)}:{each.lineno}: {ast.unparse(each)}"
        for other, tree in suspects().items()
        if other != KAFKAPY / path
        for each in written(tree)
        if each.attr in fields and name_of(each.value) in OWNERS[owner]
    ]
    assert others == []
