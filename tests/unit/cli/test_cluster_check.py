"""`kafkapy cluster check`: exit status and what it prints. tests/compat/test_migration.py asks clusters."""

import json
from pathlib import Path

import pytest

from kafkapy.__main__ import main

FILE = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=1@localhost:9093
"""


def properties(directory: Path, more: str = "") -> str:
    path = directory / "server.properties"
    path.write_text(FILE + more)
    return str(path)


def test_a_file_in_whose_way_nothing_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "check", "--config", properties(tmp_path)]) in (0, None)
    assert capsys.readouterr().out == "nothing is in the way\n"


def test_a_key_that_kafkapy_cannot_do_ends_with_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = properties(tmp_path, "alter.config.policy.class.name=a.B\nmetric.reporters=a.C\n")
    assert main(["cluster", "check", "--config", path]) == 1
    policy = "alter.config.policy.class.name=a.B: no policy is loaded: configs that it refuses would be accepted"
    shown = f"in the way:\n  {path}: {policy}\nto know:\n  {path}: without effect: metric.reporters\n"
    assert capsys.readouterr().out == shown
    assert main(["cluster", "check", "--json", "--config", path]) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert first == {"kind": "blocks", "subject": path, "text": policy, "remedy": ""}
    assert second["kind"] == "note"


def test_a_cluster_that_does_not_answer_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "check", "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "kafkapy: " in capsys.readouterr().err


def test_a_file_that_is_not_there_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "check", "--config", "/nowhere"]) == 1
    assert "/nowhere" in capsys.readouterr().err
