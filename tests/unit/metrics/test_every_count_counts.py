"""Every count that a node keeps for /metrics is changed somewhere, and every method that counts is called.

That a count moves when it should is asked beside Apache Kafka: tests/compat/test_metrics_beside_apache.py.
"""

import ast
from collections.abc import Iterator
from functools import cache

from tests.support.pages import ROOT

KEPT_IN = (*(ROOT / "kafkapy/metrics").glob("*.py"), ROOT / "kafkapy/protocol/traffic.py")


@cache
def code() -> list[ast.Module]:
    """Return all modules but those that show metrics, and messages."""
    paths = [path for path in (ROOT / "kafkapy").rglob("*.py") if not path.name.endswith("_gauges.py")]
    return [ast.parse(path.read_text()) for path in paths if "messages" not in path.parts]


def attributes(node: ast.AST) -> set[str]:
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def is_zero(value: ast.expr) -> bool:
    return ast.unparse(value) in ("0", "0.0", "new_histogram()", "Counter()")


def counts() -> Iterator[tuple[str, str]]:
    """Yield (class, attribute) of what begins at zero."""
    for path in KEPT_IN:
        for kind in (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.ClassDef)):
            for node in (each for made in kind.body if is_init(made) for each in ast.walk(made)):
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and is_zero(node.value):
                    yield from ((kind.name, name) for target in targets if target for name in attributes(target))


def is_init(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__init__"


def changed(node: ast.AST) -> Iterator[str]:
    """Yield the attributes that statements outside of __init__ change, or may: what a call or a loop is given."""
    if is_init(node):
        return
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        yield from attributes(node.target)
    elif isinstance(node, ast.Assign):
        yield from (name for target in node.targets for name in attributes(target))
    elif isinstance(node, ast.For):
        yield from attributes(node.iter)
    elif isinstance(node, ast.Call):
        yield from (name for given in node.args for name in attributes(given))
    for child in ast.iter_child_nodes(node):
        yield from changed(child)


def test_every_count_is_changed_somewhere() -> None:
    found = list(counts())
    assert ("TopicTraffic", "produce_conversions") in found
    assert ("ConnectionTraffic", "failed_reauthentications") in found
    moving = {name for module in code() for name in changed(module)}
    assert [each for each in found if each[1] not in moving] == []


def test_every_method_that_counts_is_called() -> None:
    methods = {
        node.name
        for path in KEPT_IN
        for kind in ast.walk(ast.parse(path.read_text()))
        if isinstance(kind, ast.ClassDef)
        for node in kind.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith(("note", "count"))
    }
    assert "count_conversions" in methods
    used = {name for module in code() for name in attributes(module)}
    assert methods - used == set()
