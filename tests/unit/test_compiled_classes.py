"""What mypyc compiles but gets wrong at run time, in the modules of `packaging/compiled_modules.txt`."""

import ast
from pathlib import Path

from tools.compiled import listed_modules

ROOT = Path(__file__).parents[2]


def aliases_of_special_methods(source: str) -> list[str]:
    """Return the special methods that a class body sets to another's name: KeyError when an instance is printed."""
    classes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    assigned = [each for node in classes for each in node.body if isinstance(each, ast.Assign)]
    names = [target.id for each in assigned for target in each.targets if isinstance(target, ast.Name)]
    return [name for name in names if name.startswith("__") and name not in ("__slots__", "__hash__")]


def test_an_alias_is_found() -> None:
    assert aliases_of_special_methods("class A:\n    def __str__(self): ...\n    __repr__ = __str__\n") == ["__repr__"]


def test_no_compiled_class_has_one() -> None:
    modules = listed_modules()
    assert len(modules) > 90
    found = {name: aliases_of_special_methods((ROOT / "kafkapy" / name).read_text()) for name in modules}
    assert {name: aliases for name, aliases in found.items() if aliases} == {}
