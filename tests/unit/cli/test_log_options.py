"""--log-level, --log-format and --log-file of `kafkapy start`, played with a process."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest


def start(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kafkapy", "start", "--data-dir", str(tmp_path / "data"), "--port", "0", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def played(tmp_path: Path, *options: str) -> str:
    """Start and stop; return what is on stderr."""
    with start(tmp_path, *options) as process:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        process.terminate()
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    return errors


def test_json_on_stderr_with_a_level_for_one_logger(tmp_path: Path) -> None:
    errors = played(tmp_path, "--log-format", "json", "--log-level", "ERROR", "--log-level", "kafkapy.server=INFO")
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {line["logger"] for line in lines} == {"kafkapy.server"}
    assert lines[-1]["message"] == "Shut down completed"


def test_a_file_in_place_of_stderr_and_kafkas_name_of_a_logger(tmp_path: Path) -> None:
    file = tmp_path / "broker.log"
    options = ("--log-file", str(file), "--log-level", "org.apache.kafka=info", "--log-file-size", "1K")
    assert played(tmp_path, *options, "--log-file-count", "100") == ""
    numbered = sorted(tmp_path.glob("broker.log*"), key=lambda path: -int(path.suffix[1:]) if path != file else 1)
    text = "".join(path.read_text() for path in numbered)
    assert len(numbered) > 1
    assert all(re.match(r"\[[^]]+\] (INFO|WARN) .* \(kafkapy[\w.]*\)$", line) for line in text.splitlines()), text
    assert text.splitlines()[-1].endswith("INFO Shut down completed (kafkapy.server)")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--log-level", "LOUD"), "LOUD: the level is one of TRACE, DEBUG"),
        (("--log-level", "kafka=LOUD"), "kafka=LOUD: the level is one of"),
        (("--log-file-size", "0"), "0 is no number of bytes"),
        (("--log-file-count", "-1"), "-1 is no number of files"),
        (("--log-file", "/nowhere/log"), "No such file or directory"),
    ],
)
def test_what_is_wrong_is_reported_in_a_line(tmp_path: Path, option: tuple[str, ...], words: str) -> None:
    with start(tmp_path, *option) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (1, 2)
    assert words in errors
    assert "Traceback" not in errors
