"""No module of kafkapy imports itself by way of others, imports for type checkers included.

Layers between packages and inside of them are contracts of import-linter (pyproject.toml); this finds the circles that
run inside one row.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOG = frozenset(f"kafkapy.storage.log.{name}" for name in ("flush", "log", "plain_append"))
"""Functions of Log, each file a concern: they take the Log that calls them."""
CONNECTIONS = frozenset(f"kafkapy.reactor.{name}" for name in ("link", "processor", "turn_queue"))
"""A processor has links and a queue of those whose turn comes; a link wakes its processor."""

Imports = Mapping[str, set[str]]


def imports_of(root: Path, package: str) -> Imports:
    """Return what each module of a package imports of it."""
    paths = {".".join(path.relative_to(root).with_suffix("").parts): path for path in (root / package).rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        imported: set[str] = set()
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                imported |= {name if name in modules else node.module for name in names}
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
        found[module] = (imported & modules.keys()) - {module}
    return found


def circles(imports: Imports) -> set[frozenset[str]]:
    """Return the sets of modules that reach each other."""
    reached = {module: reachable(imports, module) for module in imports}
    mutual = {module: frozenset(other for other in reached[module] if module in reached[other]) for module in imports}
    return {group for group in mutual.values() if group}


def reachable(imports: Imports, module: str) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        for imported in imports[waiting.pop()] - found:
            found.add(imported)
            waiting.append(imported)
    return found


def test_modules_import_in_one_direction() -> None:
    assert circles(imports_of(ROOT, "kafkapy")) == {LOG, CONNECTIONS}


def test_a_circle_is_found(tmp_path: Path) -> None:
    files = {
        "house/__init__.py": "",
        "house/above.py": "from house import below\nfrom house.wing.room import Room",
        "house/below.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.wing.room import Room",
        "house/wing/__init__.py": "",
        "house/wing/room.py": "def enter():\n    import house.below",
    }
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    assert circles(imports_of(tmp_path, "house")) == {frozenset(("house.below", "house.wing.room"))}
