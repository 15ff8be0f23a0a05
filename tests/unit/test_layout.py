"""Where tests and their libraries are: unit tests mirror the code, libraries import no test."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"
LIBRARIES = ("tests/support", "tests/simulator", "harness", "benchmarks", "tools", "spark_jobs", "kafkapy")
IMPORT_OF_TEST = re.compile(
    r"^\s*(?:from|import) tests\.(?:unit|golden|property|scenarios|sim|texts|compat)\b|^\s*from \S+ import test_",
    re.MULTILINE,
)


def test_unit_tests_mirror_the_code() -> None:
    """A folder of tests/unit is one of kafkapy, or of the repository beside it (tools, benchmarks, tests/support)."""
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")}
    places = (ROOT / "kafkapy", ROOT, ROOT / "tests")
    assert len(folders) > 20
    assert {folder for folder in folders if not any((place / folder).is_dir() for place in places)} == set()


def test_libraries_import_no_test() -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for library in LIBRARIES
        for path in (ROOT / library).rglob("*.py")
        if IMPORT_OF_TEST.search(path.read_text())
    ]
    assert found == []


def test_an_import_of_a_test_is_found() -> None:
    assert IMPORT_OF_TEST.search("import os\nfrom tests.unit.storage import x\n")
    assert IMPORT_OF_TEST.search("from tests.support import test_x")
    assert not IMPORT_OF_TEST.search("from tests.support import logs")
