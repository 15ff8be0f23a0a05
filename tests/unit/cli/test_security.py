"""`kafkapy security init`, and the broker that it leaves ready to start."""

import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from harness.servers import free_port
from kafkapy.__main__ import main
from kafkapy.config.properties import parse_properties
from kafkapy.server import secure_setup

PASSWORD = re.compile(r"Password of alice, shown once .*: (\S+)\n")


def kafkapy(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafkapy", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def test_a_secured_broker_takes_two_commands(tmp_path: Path):
    directory, port = tmp_path / "secure", free_port()
    directory.mkdir(mode=0o755)
    done = kafkapy("security", "init", directory, "--user", "alice", "--port", port)
    shown = PASSWORD.match(done.stdout)
    assert shown is not None, done.stderr
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes["broker.pem"] == modes["server.properties"] == modes["client.properties"] == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    kept = [path for path in directory.rglob("*") if path.is_file() and shown[1].encode() in path.read_bytes()]
    assert kept == [directory / "client.properties"]
    command = [sys.executable, "-m", "kafkapy", "start", str(directory / "server.properties")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            assert broker.stdout.readline().startswith("kafkapy ready on ")
            _check_who_gets_in(directory, port, shown[1])
            made = kafkapy("security", "token", "create", "-b", f"localhost:{port}", *with_config(directory))
            assert (made.returncode, made.stderr) == (0, "")
        finally:
            broker.terminate()


@pytest.mark.parametrize("host", ["b\u00fccher.example", "a,b", ""])
def test_a_name_that_no_certificate_can_have_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    assert main(["security", "init", str(tmp_path / "secure"), "--host", host]) == 1
    assert "kafkapy: a host's name may have letters" in capsys.readouterr().err
    assert not (tmp_path / "secure").exists()


def test_a_directory_of_any_name_is_read_back_from_the_properties(tmp_path: Path) -> None:
    directory = tmp_path / "two\nlines"
    secure_setup.set_up(directory, user="alice", host="localhost", port=9092)
    properties = parse_properties((directory / "server.properties").read_text())
    assert properties["ssl.keystore.location"] == str(directory / "broker.pem")


def test_of_two_commands_at_once_one_ends(tmp_path: Path) -> None:
    secure_setup._write_certificates(tmp_path, "localhost")
    before = (tmp_path / "broker.pem").read_text()
    with pytest.raises(FileExistsError):
        secure_setup._write_certificates(tmp_path, "localhost")
    assert (tmp_path / "broker.pem").read_text() == before


def with_config(directory: Path) -> list[str]:
    return ["--command-config", str(directory / "client.properties")]


def _check_who_gets_in(directory: Path, port: int, password: str) -> None:
    config = {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(directory / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "log_level": 0,
    }
    admin = AdminClient({**config, "sasl.password": password})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
    with pytest.raises(KafkaException):
        AdminClient({**config, "sasl.password": "x"}).list_topics(timeout=1)


@pytest.mark.parametrize(
    ("prepare", "arguments", "reason"),
    [
        (lambda path: (path / "a").write_text(""), [], "is not empty: nothing was changed"),
        (lambda path: None, ["--user", "a b"], "a user's name may have letters, digits, _ and -, not 'a b'"),
    ],
)
def test_what_cannot_be_set_up_is_one_line(
    tmp_path: Path, prepare: Callable[[Path], object], arguments: list[str], reason: str
):
    prepare(tmp_path)
    before = list(tmp_path.iterdir())
    done = kafkapy("security", "init", tmp_path, *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert reason in done.stderr
    assert list(tmp_path.iterdir()) == before
