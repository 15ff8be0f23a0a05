"""Which failed tests CI runs again, and that one which fails again stays failed; what `make` tells of a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT
from tools.run_again import LAST_FAILED, STATUS, TESTS_FAILED, refusal

PYTHON = """#!/bin/sh
case "$*" in *"-m pytest"*) echo "$*" >>ran; mkdir -p .pytest_cache; exit 3;; esac
"""
"""What ends as pytest does after an error of its own."""


def run(directory: Path, failed: list[str], status: str = TESTS_FAILED) -> subprocess.CompletedProcess[str]:
    recorded = directory / LAST_FAILED
    recorded.parent.mkdir(parents=True)
    (directory / STATUS).write_text(f"{status}\n")
    recorded.write_text(json.dumps(dict.fromkeys(failed, True)))
    tests = directory / "tests" / "compat"
    tests.mkdir(parents=True)
    (tests / "test_it.py").write_text("def test_good() -> None: ...\ndef test_bad() -> None:\n    assert 1 == 2\n")
    command = [sys.executable, "-m", "tools.run_again"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        ([], "no test is recorded"),
        (["tests/unit/test_a.py::test_a", "tests/compat/test_b.py::test_b"], "tests/unit/test_a.py::test_a"),
        ([f"tests/compat/test_b.py::test_{number}" for number in range(6)], "6 tests failed"),
    ],
)
def test_what_does_not_come_of_load_is_not_run_again(failed: list[str], words: str, tmp_path: Path) -> None:
    reason = refusal(TESTS_FAILED, failed)
    assert reason is not None
    assert words in reason
    assert run(tmp_path, failed).returncode == 1


def test_five_of_compat_are_run_again() -> None:
    assert refusal(TESTS_FAILED, [f"tests/compat/test_b.py::test_{number}" for number in range(5)]) is None


@pytest.mark.parametrize("status", ["2", "3", "137", ""])
def test_a_run_that_ended_before_all_tests_had_run_stays_failed(status: str, tmp_path: Path) -> None:
    again = run(tmp_path, ["tests/compat/test_it.py::test_good"], status)
    assert again.returncode == 1
    assert f"pytest ended with status {status or 'unknown'}, so not all tests were run" in again.stdout


def test_a_test_that_passes_alone_is_named(tmp_path: Path) -> None:
    again = run(tmp_path, ["tests/compat/test_it.py::test_good"])
    assert again.returncode == 0
    assert "passed alone, look at them: tests/compat/test_it.py::test_good" in again.stdout


def test_a_test_that_fails_again_stays_failed(tmp_path: Path) -> None:
    again = run(tmp_path, ["tests/compat/test_it.py::test_bad", "tests/compat/test_it.py::test_good"])
    assert again.returncode == 1
    assert "not all passed alone" in again.stdout


def make(directory: Path, target: str) -> int:
    """Make a target of the Makefile with PYTHON in place of Python; return the exit status."""
    python = directory / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o700)
    for name in ("requirements.lock", "pyproject.toml", ".venv/.ready", ".venv/.tests-ready"):
        (directory / name).touch()
    command = ["make", "-f", str(ROOT / "Makefile"), target, "PYTHON=true"]
    environment = {"PATH": os.environ["PATH"]}  # nothing of a make that runs this test
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=False).returncode


def test_make_tells_how_pytest_ended(tmp_path: Path) -> None:
    assert make(tmp_path, "test-all") != 0
    assert (tmp_path / STATUS).read_text() == "3\n"


def test_another_python_beside_it_does_not_overwrite_what_failed(tmp_path: Path) -> None:
    assert make(tmp_path, "test-python") != 0
    assert "-p no:cacheprovider" in (tmp_path / "ran").read_text()
