"""Each exit status of `kafkapy start`: a process that ends with it, and what the help and the page say of it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkapy.cli.failure import INTERRUPTED
from kafkapy.cli.manual import EXIT_STATUS
from kafkapy.cli.start import new_parser
from kafkapy.server.run import STOP_TIMED_OUT
from tests.support.eventually import eventually
from tests.support.pages import ROOT

STATUS = re.compile(r"\b(\d+) (?:stopped|it could|a wrong|its stop|after a stop|if it could|for a wrong|if the stop)")
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


@contextmanager
def node(tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A node that has been started; what it logs is in `log`."""
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-m", "kafkapy", "start", *options, "--log-level", "INFO"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def serving(tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    with node(tmp_path, "--data-dir", str(tmp_path / "data"), "--port", "0", *options) as process:
        eventually(lambda: "Kafka Server started" in logged(tmp_path))
        yield process


def logged(tmp_path: Path) -> str:
    return (tmp_path / "log").read_text()


def waiting_broker(tmp_path: Path) -> Path:
    """Return the properties of a broker whose controller does not run: its start waits for it."""
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker\nnode.id=2\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:0\ncontroller.quorum.bootstrap.servers=127.0.0.1:1\n"
        f"log.dirs={tmp_path}/data\n"
    )
    command = [
        sys.executable,
        "-m",
        "kafkapy",
        "storage",
        "format",
        "-t",
        "AAAAAAAAAAAAAAAAAAAAAQ",
        "-c",
        str(properties),
    ]
    subprocess.run([*command, "--no-initial-controllers"], check=True, capture_output=True)
    return properties


def test_the_help_and_the_page_name_each_status() -> None:
    page = (ROOT / "docs/howto/systemd.md").read_text().partition("Exit statuses:")[2]
    help_text = new_parser().epilog or ""
    assert STATUS.findall(help_text) == STATUS.findall(page) == ["0", "1", "2", "3"]
    assert re.findall(r"\b(\d+):", EXIT_STATUS) == ["0", "1", "2", str(INTERRUPTED)]
    assert STOP_TIMED_OUT == 3


def test_exit_code_0_after_a_requested_stop(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        process.terminate()
        assert process.wait(60) == 0
    assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


def test_0_after_a_stop_during_a_start_that_waits(tmp_path: Path) -> None:
    with node(tmp_path, str(waiting_broker(tmp_path))) as process:
        eventually(lambda: "No response from the controller yet" in logged(tmp_path))
        process.terminate()
        assert process.wait(60) == 0
    assert "signal SIGTERM" in logged(tmp_path)
    assert "The start was canceled" in logged(tmp_path)
    assert "Traceback" not in logged(tmp_path)


def test_1_if_it_could_not_start(tmp_path: Path) -> None:
    with node(tmp_path, str(tmp_path / "missing.properties")) as process:
        assert process.wait(60) == 1


def test_1_if_it_could_not_go_on(tmp_path: Path) -> None:
    program = """
import sys
from kafkapy.cli.start import _embedded
from kafkapy.errors import StorageError
from kafkapy.server.process import logs
from kafkapy.server import run

config, _ = _embedded(sys.argv[1], 0, {})
fail = lambda server: server.node.fail(StorageError(sys.argv[1], "it is broken"))
with logs.started(logs.LogSettings(levels={})):
    status = run.run_node(config, on_ready=fail, stop_timeout_s=60)
sys.exit(status)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert f"Stopping after a fatal error: log directory {tmp_path}/data: it is broken" in ended.stderr


def test_1_if_the_stop_was_not_clean(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        (tmp_path / "data" / f"{CLEAN_SHUTDOWN}.tmp").mkdir()  # so that the file cannot be written
        process.terminate()
        assert process.wait(60) == 1
    assert "The shutdown was not clean; the next start recovers the logs" in logged(tmp_path)
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


@pytest.mark.parametrize("options", [["--no-such-option"], ["--stop-timeout", "0"], ["--port", "x"]])
def test_2_for_a_wrong_command_line(tmp_path: Path, options: list[str]) -> None:
    with node(tmp_path, *options) as process:
        assert process.wait(60) == 2


def test_exit_code_3_if_the_stop_hangs_and_the_hanging_part_is_logged(tmp_path: Path) -> None:
    """Nobody reads the FIFO, so that opening it blocks: a call that nothing interrupts, as one on a dead disk."""
    with serving(tmp_path, "--stop-timeout", "1") as process:
        hanging = tmp_path / "data" / f"{CLEAN_SHUTDOWN}.tmp"
        os.mkfifo(hanging)
        process.terminate()
        assert process.wait(60) == STOP_TIMED_OUT
    assert "The shutdown took longer than 1 s and was cut off in its step LOGS" in logged(tmp_path)
    assert re.search(r"Thread \S+ was in \S*write_file_atomically", logged(tmp_path))
    hanging.unlink()
    with serving(tmp_path) as process:
        process.terminate()
        assert process.wait(60) == 0
