"""Processes that kafkapy starts run nothing of the working directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkapy.child_command import child_command, child_environment

ROOT = Path(__file__).parents[2]


def test_a_module_in_the_working_directory_is_not_run(tmp_path: Path) -> None:
    for name in ("json.py", "argparse.py", "kafkapy.py"):
        (tmp_path / name).write_text("raise SystemExit('run from the working directory')")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    call = b'{"id": 1, "call": "os:getppid", "arguments": {}}\n'
    for command, given in (
        (child_command("kafkapy", "--version"), b""),
        (child_command("kafkapy.reactor.helper_main"), call),
    ):
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=environment,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(given)
        process.stdin.flush()
        line = process.stdout.readline()  # before stdin ends: a helper ends at once then, even during a call
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, b"")
        assert line


def test_a_checkout_that_is_not_installed_is_found_by_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `python -m kafkapy` in its directory, which the parent has as the first entry of sys.path."""
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    assert child_environment()["PYTHONPATH"] == f"{ROOT}{os.pathsep}/elsewhere"
    monkeypatch.setattr(sys, "path", ["/usr/bin", str(ROOT)])
    assert child_environment()["PYTHONPATH"] == "/elsewhere"
