"""Processes in their surroundings: a terminal that hangs up, nohup, standard streams that are closed."""

import contextlib
import fcntl
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.servers import free_port
from kafkapy import Broker

READY = "Kafka Server started"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def reads(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


@contextlib.contextmanager
def node(tmp_path: Path, *, before: Callable[[], None] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A node that serves; what it logs is in `log`. `before` runs in its process before it starts."""
    log = tmp_path / "log"
    arguments = [sys.executable, "-m", "kafkapy", "start", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    with open(log, "w") as file:
        process = subprocess.Popen(
            [*arguments, "--log-level", "INFO"], stdin=subprocess.DEVNULL, stdout=file, stderr=file, preexec_fn=before
        )
    with process:
        try:
            wait_until(lambda: reads(log, READY))
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    "command", [["--version"], ["--help"], ["configs", "explain", "retention"], ["protocol", "-h"]]
)
def test_output_to_a_full_disk_is_one_line_of_error(command: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kafkapy", *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "kafkapy: not all could be written: No space left on device\n"


@pytest.mark.parametrize(("columns", "longest"), [(80, 78), (60, 58), (200, 98), (0, 98)])
def test_help_of_start_is_as_wide_as_the_terminal(columns: int, longest: int) -> None:
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "kafkapy", "start", "--help"]
    with subprocess.Popen(command, stdout=other, stderr=other) as process:
        os.close(other)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the process has ended
            while chunk := os.read(main, 65536):
                shown += chunk
    os.close(main)
    assert process.returncode == 0
    assert longest - 15 <= max(map(len, shown.decode().splitlines())) <= longest


def test_hangup_stops_in_order(tmp_path: Path) -> None:
    """Also where these tests themselves were started with nohup."""
    with node(tmp_path, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL) and None) as process:
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
    assert "Terminating process due to signal SIGHUP" in (tmp_path / "log").read_text()
    assert (tmp_path / "data/.kafka_cleanshutdown").exists()


def test_hangup_that_was_ignored_at_the_start_stays_ignored(tmp_path: Path) -> None:
    """As under nohup: a JVM leaves an ignored SIGHUP alone, too."""
    with node(tmp_path, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)  # delivered after it: a higher number, and one that is not pending
        assert process.wait(60) == 0
    text = (tmp_path / "log").read_text()
    assert "signal SIGTERM" in text
    assert "signal SIGHUP" not in text


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_streams_do_not_spoil_the_stop(tmp_path: Path, closed: tuple[int, ...]) -> None:
    port = free_port()
    data_dir = tmp_path / "data"
    redirections = " ".join(f"{each}>&-" if each else "0<&-" for each in closed)
    others = " ".join(f"{each}>/dev/null" for each in (1, 2) if each not in closed)
    command = f"exec {sys.executable} -m kafkapy start --data-dir {data_dir} --port {port} {others} {redirections}"
    with subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL) as process:
        try:
            wait_until((data_dir / ".kafkapy-reserve").exists)
            socket.create_connection(("127.0.0.1", port), 60).close()
            streams = [os.readlink(f"/proc/{process.pid}/fd/{each}") for each in range(3)]
            assert streams == ["/dev/null"] * 3
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert (data_dir / ".kafka_cleanshutdown").exists()


def test_a_client_command_without_standard_streams_does_its_work() -> None:
    with Broker() as broker:
        command = f"{sys.executable} -m kafkapy topics create orders -b {broker.bootstrap_servers}"
        assert subprocess.run(["sh", "-c", f"{command} 0<&- 1>&- 2>&-"], timeout=120).returncode == 0
        listing = f"{sys.executable} -m kafkapy topics list -b {broker.bootstrap_servers}"
        done = subprocess.run(["sh", "-c", f"{listing} 1>&-"], stderr=subprocess.PIPE, timeout=120)
        assert (done.returncode, done.stderr) == (0, b"")
        listed = subprocess.run(["sh", "-c", f"{listing} 2>&-"], stdout=subprocess.PIPE, timeout=120)
    assert (listed.returncode, b"orders" in listed.stdout) == (0, True)


def test_a_console_without_standard_streams_serves() -> None:
    port = free_port()
    command = f"exec {sys.executable} -m kafkapy console -b 127.0.0.1:1 --listen 127.0.0.1:{port} 0<&- 1>&- 2>&-"
    with subprocess.Popen(["sh", "-c", command]) as process:
        try:
            wait_until(lambda: process.poll() is not None or is_open(port))
            assert process.poll() is None
            process.terminate()
            process.wait(60)
        finally:
            process.kill()


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(b"GET /login HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        return connection.recv(4) == b"HTTP"
    return False
