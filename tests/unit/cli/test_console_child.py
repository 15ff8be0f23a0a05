"""The console beside a broker is started again when a signal ends it, and stops with the broker."""

import os
import signal
import socket

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli import console_child
from kafkapy.cli.console_child import SERVED_S, ConsoleChild, is_failure
from kafkapy.config.load import load
from tests.support.client_requests import until

pytest.importorskip("confluent_kafka")


def new_child(command_config: str | None = None) -> ConsoleChild:
    config, _ = load(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "log.dirs": "/nowhere",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        }
    )
    return ConsoleChild(config, 0, command_config)


@pytest.fixture
def child():
    running = new_child()
    yield running
    running.stop()


def test_a_console_that_a_signal_ended_is_started_again(child, caplog, monkeypatch) -> None:
    monkeypatch.setattr(console_child, "MAX_RESTARTS", 1)
    with Broker() as broker:
        child.start(broker.bootstrap_servers)
        first = child.pid
        os.kill(first, signal.SIGKILL)
        until(lambda: child.pid != first)
        os.kill(child.pid, signal.SIGKILL)
        until(lambda: "it is not restarted" in caplog.text)
    assert "The console has ended by signal 9: starting it again" in caplog.text


@pytest.mark.parametrize(
    ("status", "lived_s", "expected"), [(-11, 0, True), (1, 0, False), (1, SERVED_S, True), (0, SERVED_S, False)]
)
def test_a_console_that_failed_after_it_served_is_started_again(status: int, lived_s: float, expected: bool) -> None:
    assert is_failure(status, lived_s) is expected


def test_an_exit_status_is_told(caplog, monkeypatch) -> None:
    monkeypatch.setattr(console_child, "MAX_RESTARTS", 0)
    monkeypatch.setattr(console_child, "SERVED_S", 0)
    child = new_child("/nowhere/client.properties")
    child.start("127.0.0.1:9092")
    until(lambda: "The console has ended with exit status" in caplog.text)
    child.stop()


def test_the_option_of_the_start_is_named_when_its_port_is_taken(capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["console", "--end-with-stdin", "--listen", address]) == 1
    assert "choose another by --console-port" in capsys.readouterr().err
