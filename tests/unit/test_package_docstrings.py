"""The docstring of a package names each of its modules and packages, and none that is not there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for path in (ROOT / "kafkapy").rglob("__init__.py"))
GENERATED = {"kafkapy/protocol/messages"}
"""Packages with a module for each message: their names are those of the messages."""
MEMBER = re.compile(r"(?<![\w/.`*])(\w+(?:\.py\b|/))(?![\w/])")
"""A name of this package: topics.py or group/. A path with folders before the name is one of another package."""
FOLDER = re.compile(r"`((?:\w+/)+)`")
"""Another package, as `storage/log/`."""
MACHINES = (
    "group/classic/group.py",
    "group/consumer/group.py",
    "group/shard.py",
    "metadata/controller.py",
    "metadata/loader.py",
    "protocol/client_connection.py",
    "protocol/connection.py",
    "raft/core.py",
    "replication/fetch_session.py",
    "replication/partition.py",
    "runtime/followers/session.py",
    "security/authentication.py",
    "security/quotas.py",
    "share/state_shard.py",
    "telemetry/instances.py",
    "timer/purgatory.py",
    "timer/wheel.py",
    "transaction/shard.py",
)
DRIVER = re.compile(r"Driven\s+by\s+`(?:\w+/)+(?:\w+\.py)?`")
"""That the path exists, test_references.py says."""
MAX_LINES = 25
DEFINITION = re.compile(r" *(?P<kind>(?:async )?def|class) (?P<name>\w+)")


def members(package: Path) -> set[str]:
    """Return the names of a package's modules (with .py) and of the packages in it (with a slash)."""
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py"}
    return modules | {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}


def differences(docstring: str, there: set[str]) -> list[str]:
    """Return in words which members a docstring does not name, and which it names that are not there."""
    named = set(MEMBER.findall(docstring))
    return [f"does not name {name}" for name in sorted(there - named)] + [
        f"names {name}, which is not there" for name in sorted(named - there)
    ]


def absent(docstring: str) -> list[str]:
    """Return the other packages named in a docstring that are not there: below kafkapy/, or in the repository."""
    return [
        name for name in FOLDER.findall(docstring) if not any((at / name).is_dir() for at in (ROOT, ROOT / "kafkapy"))
    ]


def docstring_of(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_the_docstring_of_a_package_names_its_modules(package: Path) -> None:
    docstring = docstring_of(package)
    assert docstring, "no docstring"
    assert len(docstring.splitlines()) <= MAX_LINES
    if str(package.relative_to(ROOT)) not in GENERATED:
        assert differences(docstring, members(package)) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_other_packages_that_a_docstring_names_exist(package: Path) -> None:
    assert absent(docstring_of(package)) == []


def test_another_package_that_is_gone_is_found() -> None:
    assert absent("Called by `storage/log/` and `storage/gone/`.") == ["storage/gone/"]


@pytest.mark.parametrize("module", MACHINES)
def test_a_machine_says_what_drives_it(module: str) -> None:
    assert DRIVER.search(ast.get_docstring(ast.parse((ROOT / "kafkapy" / module).read_text())) or "")


@pytest.mark.parametrize("package", sorted({f"kafkapy/{module.rpartition('/')[0]}" for module in MACHINES}))
def test_a_package_with_a_machine_says_what_drives_it(package: str) -> None:
    assert re.search(r"[Dd]riven\s+by\s+`", docstring_of(ROOT / package))


def test_a_member_that_is_not_named_and_a_name_that_is_no_member_are_found() -> None:
    docstring = (
        "Logs.\n\nlog.py (Log) over reader.py, gone.py; segment/ has files; driven by `runtime/logs/cleaner.py`."
    )
    there = {"log.py", "reader.py", "segment/", "flush.py", "index/"}
    assert differences(docstring, there) == [
        "does not name flush.py",
        "does not name index/",
        "names gone.py, which is not there",
    ]


def test_paths_of_other_packages_are_no_members() -> None:
    assert differences("Called by `handlers/data/`, `storage/log/log.py` and tests/simulator/loop.py.", set()) == []


@pytest.mark.parametrize("package", sorted(GENERATED))
def test_a_generated_package_is_there(package: str) -> None:
    assert ROOT / package in PACKAGES


def without_a_promise(text: str) -> list[str]:
    """Return the functions whose docstring begins with what they raise: what they do has to come first."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.lstrip().startswith('"""Raises ')]
    names = [next(found for line in reversed(lines[:start]) if (found := DEFINITION.match(line))) for start in starts]
    return [found["name"] for found in names if found["kind"] != "class" and found["name"] != "__init__"]


def test_a_docstring_begins_with_what_the_function_does() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "kafkapy").rglob("*.py")}
    found = {path.relative_to(ROOT).as_posix(): without_a_promise(text) for path, text in texts.items()}
    assert {name: functions for name, functions in found.items() if functions} == {}


def test_a_function_without_a_promise_is_found() -> None:
    text = 'def a(\n    b: int,\n) -> None:\n    """{} OSError."""\n'
    assert without_a_promise(text.format("Raises")) == ["a"]
    assert without_a_promise(text.format("Open it. Raises")) == []
