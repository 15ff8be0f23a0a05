"""The console beside a broker: what the start refuses, and that it imports none of it."""

import subprocess
import sys

import pytest

from kafkapy.__main__ import main
from kafkapy.cli.console_child import ConsoleChild
from kafkapy.config.load import load
from kafkapy.errors import ConfigError

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "C",
    "controller.quorum.voters": "1@localhost:2",
    "log.dirs": "/nowhere",
    "listeners": "SASL_SSL://:1,C://:2",
    "listener.security.protocol.map": "SASL_SSL:SASL_SSL,C:PLAINTEXT,P:PLAINTEXT",
    "inter.broker.listener.name": "SASL_SSL",
}


def child(**changed: str) -> ConsoleChild:
    config, _ = load(NODE | {key.replace("_", "."): value for key, value in changed.items()})
    return ConsoleChild(config, 8080, None)


def test_where_clients_log_in_the_console_needs_a_configuration() -> None:
    with pytest.raises(ConfigError, match="--console-config"):
        child()


def test_it_charts_the_metrics_that_the_node_serves() -> None:
    plain = {"listeners": "P://:1,C://:2", "inter_broker_listener_name": "P"}
    assert "http://127.0.0.1:9404/metrics" in child(**plain, kafkapy_admin_listener="0.0.0.0:9404")._options
    assert "--metrics" not in child(**plain)._options


def test_a_start_imports_nothing_of_the_console() -> None:
    script = (
        "import sys; import kafkapy.cli.start, kafkapy.server.broker;"
        "heavy = ('kafkapy.console', 'kafkapy.decoders', 'kafkapy.cli.console', 'starlette', 'jinja2', 'uvicorn');"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["--listen", "192.0.2.1:8080"], "a token is needed"),
        (["--listen", ":8080"], "0.0.0.0 is no loopback address: a token is needed"),
        (["--schema-registry", "/none"], "neither an http URL nor a directory"),
        (["--command-config", "/none"], "/none cannot be read"),
    ],
)
def test_a_console_that_cannot_start_says_why(arguments, output, capsys, monkeypatch) -> None:
    monkeypatch.delenv("KAFKAPY_CONSOLE_TOKEN", raising=False)
    assert main(["console", *arguments]) == 1
    assert output in capsys.readouterr().err


def test_a_taken_port_is_one_line(capsys, monkeypatch) -> None:
    import socket

    monkeypatch.delenv("KAFKAPY_CONSOLE_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["console", "--listen", f"127.0.0.1:{taken.getsockname()[1]}"]) == 1
    assert "choose another by --listen" in capsys.readouterr().err
