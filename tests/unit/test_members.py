"""`Class.member` in docstrings, comments and the documents about the code names a member that the class has."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MEMBER = re.compile(r"\b([A-Z]\w*[a-z]\w*)\.(_?[a-z]\w+)\b")
NOT_OURS = {("SecurityProtocol", "id"), ("LocalLog", "splitOverflowedSegment"), ("Node", "js")}
"""Members of Apache Kafka's classes, of which ours have the names; and Node.js."""
OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
MODULES = [path for path in sorted((ROOT / "kafkapy").rglob("*.py")) if "messages" not in path.parts]


class Classes:
    """The members of all our classes by name, as their source has them: methods, fields, what self is given."""

    def __init__(self) -> None:
        self.members: defaultdict[str, set[str]] = defaultdict(set)
        self._bases: defaultdict[str, set[str]] = defaultdict(set)
        for path in MODULES:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    self._add(node)

    def has(self, name: str, member: str) -> bool:
        bases = self._bases.get(name, set()) - {name}
        return (
            member in OF_NAMED_TUPLES
            or member in self.members.get(name, ())
            or any(self.has(base, member) for base in bases)
        )

    def _add(self, node: ast.ClassDef) -> None:
        self._bases[node.name] |= {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
        for each in ast.walk(node):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                self.members[node.name].add(each.name)
            elif isinstance(each, ast.Attribute):
                self.members[node.name].add(each.attr)
            elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                self.members[node.name].add(each.id)


@cache
def classes() -> Classes:
    return Classes()


def missing(text: str) -> list[tuple[str, str]]:
    known = classes()
    return [
        (name, member)
        for name, member in MEMBER.findall(text)
        if name in known.members and (name, member) not in NOT_OURS and not known.has(name, member)
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_members_named_in_the_documents_exist(document: Path) -> None:
    assert missing(document.read_text()) == []


def test_members_named_in_the_code_exist() -> None:
    found = {path.name: missing(path.read_text()) for path in MODULES}
    assert {name: gone for name, gone in found.items() if gone} == {}


def test_a_member_that_is_gone_is_found() -> None:
    assert missing("`Log.read` and `Log.read_gone` of Gone.read") == [("Log", "read_gone")]
