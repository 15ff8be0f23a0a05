"""The node under systemd, which the test plays, and its unit file."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkapy.cli.start import new_parser

UNIT = Path(__file__).parents[4] / "packaging" / "kafkapy.service"


@contextmanager
def supervised(
    tmp_path: Path, *options: str, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """Start a node; yield its process, and the socket that it notifies."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(path))
        notified.settimeout(60)
        command = [sys.executable, "-m", "kafkapy", "start", "--data-dir", str(tmp_path / "data"), "--port", "0"]
        environment = {**os.environ, "NOTIFY_SOCKET": str(path), **variables}
        with subprocess.Popen(
            [*command, *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process, notified
            finally:
                process.kill()


def reported(notified: socket.socket) -> dict[str, str]:
    """Return the assignments of the next notification."""
    return dict(line.split("=", 1) for line in notified.recv(4096).decode().split("\n"))  # type: ignore[misc]


def notified_until(notified: socket.socket, name: str) -> dict[str, str]:
    while name not in (found := reported(notified)):
        pass
    return found


def test_systemd_is_notified_of_start_watchdog_and_stop(tmp_path: Path) -> None:
    with supervised(tmp_path, WATCHDOG_USEC="400000") as (process, notified):
        starting = reported(notified)
        assert starting == {"EXTEND_TIMEOUT_USEC": "30000000", "STATUS": "Starting"}
        assert notified_until(notified, "READY")["STATUS"].startswith("Serving on 127.0.0.1:")
        for _ in range(3):
            assert reported(notified) == {"WATCHDOG": "1"}
        process.terminate()
        assert notified_until(notified, "STOPPING") == {"STOPPING": "1", "STATUS": "Stopping"}
        assert process.wait(60) == 0


def test_a_watchdog_of_another_process_is_not_fed(tmp_path: Path) -> None:
    with supervised(tmp_path, WATCHDOG_USEC="1000", WATCHDOG_PID="1") as (process, notified):
        notified_until(notified, "READY")
        process.terminate()
        assert "STOPPING" in reported(notified)
        assert process.wait(60) == 0


def test_a_socket_that_nobody_reads_is_a_warning(tmp_path: Path) -> None:
    with supervised(tmp_path, NOTIFY_SOCKET=str(tmp_path / "nobody")) as (process, _):
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert errors.count("Cannot notify systemd") == 1
    assert process.returncode == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_the_unit_file_is_one(tmp_path: Path) -> None:
    """As it is but for the command, which is not installed here."""
    text = UNIT.read_text()
    assert "ExecStart=/opt/kafkapy/bin/kafkapy start " in text
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace("/opt/kafkapy/bin/kafkapy", "/bin/true"))
    found = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    about_it = [line for line in found.stderr.splitlines() if UNIT.stem in line]
    assert (found.returncode, about_it) == (0, []), found.stderr


def test_the_unit_file_starts_with_options_that_exist() -> None:
    line = next(line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart="))
    given = new_parser().parse_args(line.split()[2:])
    assert (given.file, given.stop_timeout) == ("/etc/kafkapy/server.properties", 300)
