"""Compiled installations: what a manifest proves of the source, and what is said of it."""

import importlib
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from kafkapy import compiled
from tools.compiled import listed_modules

SOURCE = b"POSITION = 1\n"


@pytest.fixture
def package(tmp_path) -> Path:
    """A package with one compiled module."""
    package = tmp_path / "kafkapy"
    (package / "record").mkdir(parents=True)
    (package / "record" / "walk.py").write_bytes(SOURCE)
    (package / compiled.MANIFEST).write_text(f"{zlib.crc32(SOURCE)} {len(SOURCE)} kafkapy/record/walk.py\n")
    return package


def test_unchanged_source_passes(package) -> None:
    compiled.check_sources(str(package))


def test_changed_source_is_refused(package) -> None:
    (package / "record" / "walk.py").write_bytes(SOURCE.replace(b"1", b"2"))
    with pytest.raises(ImportError, match=r"kafkapy/record/walk\.py has changed since it was compiled"):
        compiled.check_sources(str(package))


def test_missing_source_is_refused(package) -> None:
    (package / "record" / "walk.py").unlink()
    with pytest.raises(ImportError, match=r"kafkapy/record/walk\.py is gone"):
        compiled.check_sources(str(package))


def test_package_without_a_manifest_is_interpreted(tmp_path) -> None:
    compiled.check_sources(str(tmp_path))
    assert compiled.manifest(str(tmp_path)) == []


def test_import_of_a_stale_package_fails_before_its_modules_load(tmp_path) -> None:
    package = tmp_path / "kafkapy"
    package.mkdir()
    for name in ("__init__.py", "compiled.py", "version.py"):
        (package / name).write_bytes((Path(compiled.PACKAGE) / name).read_bytes())
    (package / "types.py").write_text("")
    (package / compiled.MANIFEST).write_text("1 1 kafkapy/types.py\n")
    command = [sys.executable, "-c", "import kafkapy.types"]
    result = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("ImportError: kafkapy/types.py has changed since it was compiled")


def test_compiled_module_without_a_manifest_is_named(monkeypatch, tmp_path) -> None:
    module = type(sys)("kafkapy.left_over")
    module.__file__ = str(tmp_path / "left_over.so")
    monkeypatch.setitem(sys.modules, "kafkapy.left_over", module)
    assert compiled.unlisted_modules() == [module.__file__]


def test_listed_modules_exist_once_each() -> None:
    modules = listed_modules()
    assert modules
    assert len(modules) == len(set(modules))
    assert [module for module in modules if not (Path(compiled.PACKAGE) / module).is_file()] == []


def test_no_listed_class_inherits_slots_from_an_unlisted_one() -> None:
    """mypyc says nothing of it, but the compiled module then fails when it is imported."""
    names = {f"kafkapy.{path.removesuffix('.py').replace('/', '.')}" for path in listed_modules()}
    wrong = [
        f"{name}.{cls.__name__}"
        for name in sorted(names)
        for cls in vars(importlib.import_module(name)).values()
        if isinstance(cls, type) and cls.__module__ == name
        for base in cls.__mro__[1:]
        if base.__module__ not in names and base.__dict__.get("__slots__")
    ]
    assert wrong == []


def test_no_unlisted_class_inherits_from_a_listed_one() -> None:
    """An interpreted class inherits from a compiled one only if that is opened.

    Classes are compared by name. A base class that the module itself defines does not count as a listed one.
    """
    package = Path(compiled.PACKAGE)
    sources = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    listed = listed_modules()
    text = "".join(sources[path] for path in listed)
    made = set(re.findall(r"^class (\w+)", text, re.M))
    made -= set(re.findall(r"allow_interpreted_subclasses=True\)\nclass (\w+)", text))
    wrong = [
        f"{path}: {base}"
        for path, source in sorted(sources.items())
        if path not in listed
        for base in re.findall(r"^class \w+\((\w+)", source, re.MULTILINE)
        if base in made and not re.search(rf"^class {base}\b", source, re.MULTILINE)
    ]
    assert wrong == []
