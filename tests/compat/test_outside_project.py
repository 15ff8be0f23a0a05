"""A team's project outside this repository: the wheel, a venv of its own, tests in three Python clients, under xdist.

The same tests run against Apache Kafka, without those of faults: their outcomes are the same.
"""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.quick_kafka import QuickKafka
from tools.compiled import ROOT, copy_files, layered_environment, tracked_files
from tools.packages import PIP_INSTALL

pytestmark = pytest.mark.long

FILES = ROOT / "tests" / "support" / "outside_project"
NAMES = ("of_confluent", "of_aiokafka", "of_kafka_python", "of_faults")
BUILD = "import sys; out = sys.argv[1]; from setuptools.build_meta import *; build_wheel(out)"
LEAST = 40
WORKERS = "2"
OPTIONS = ("-q", "-p", "no:cacheprovider", "--strict-markers", "-n", WORKERS, "--junitxml", "outcome.xml")
CHECK = "import kafkapy; print(kafkapy.__file__)"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment that has the wheel of this tree; clients are those of this environment."""
    directory = tmp_path_factory.mktemp("wheel")
    copy_files(directory / "source", tracked_files())
    (directory / "out").mkdir()
    found = layered_environment(directory / "venv")
    build = [str(found), "-c", BUILD, str(directory / "out")]
    subprocess.run(build, cwd=directory / "source", check=True, stdout=subprocess.DEVNULL)
    (wheel,) = (directory / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "kafkapy/testing/__init__.py" in archive.namelist()
    subprocess.run([str(found), *PIP_INSTALL, "--no-deps", str(wheel)], check=True)
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(FILES / "fixtures.py", tmp_path / "conftest.py")
    for name in NAMES:
        shutil.copy(FILES / f"{name}.py", tmp_path / f"test_{name}.py")
    return tmp_path


def outcomes(python: Path, project: Path, servers: str = "") -> dict[str, str]:
    """Run the project's tests; return what became of each: passed, failed or skipped."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    environment["KAFKA_SERVERS"] = servers
    where = subprocess.run(
        [python, "-c", CHECK], cwd=project, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(where.stdout).is_relative_to(python.parents[1]), f"another kafkapy: {where.stdout}"
    command = [str(python), "-m", "pytest", *OPTIONS]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout[-5000:], done.stderr[-2000:])
    cases = ElementTree.parse(project / "outcome.xml").iter("testcase")
    return {
        f"{case.get('classname')}::{case.get('name')}": next((each.tag for each in case), "passed") for case in cases
    }


def test_forty_tests_of_a_team_have_the_same_outcome_against_apache_kafka(python: Path, project: Path) -> None:
    here = outcomes(python, project)
    assert {name: outcome for name, outcome in here.items() if outcome != "passed"} == {}
    assert len(here) >= LEAST
    with QuickKafka(project / "kafka") as kafka:
        there = outcomes(python, project, kafka.bootstrap)
    skipped = {name for name, outcome in there.items() if outcome == "skipped"}
    assert skipped == {name for name in here if "of_faults" in name}
    assert {name: there[name] for name in here if name not in skipped} == dict.fromkeys(here.keys() - skipped, "passed")
