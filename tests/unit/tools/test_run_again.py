"""Which failed tests CI runs again, and that one which fails again stays failed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT
from tools.run_again import LAST_FAILED, refusal


def run(directory: Path, failed: list[str]) -> subprocess.CompletedProcess[str]:
    recorded = directory / LAST_FAILED
    recorded.parent.mkdir(parents=True)
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
    reason = refusal(failed)
    assert reason is not None
    assert words in reason
    assert run(tmp_path, failed).returncode == 1


def test_five_of_compat_are_run_again() -> None:
    assert refusal([f"tests/compat/test_b.py::test_{number}" for number in range(5)]) is None


def test_a_test_that_passes_alone_is_named(tmp_path: Path) -> None:
    again = run(tmp_path, ["tests/compat/test_it.py::test_good"])
    assert again.returncode == 0
    assert "passed alone, look at them: tests/compat/test_it.py::test_good" in again.stdout


def test_a_test_that_fails_again_stays_failed(tmp_path: Path) -> None:
    again = run(tmp_path, ["tests/compat/test_it.py::test_bad", "tests/compat/test_it.py::test_good"])
    assert again.returncode == 1
    assert "not all passed alone" in again.stdout
