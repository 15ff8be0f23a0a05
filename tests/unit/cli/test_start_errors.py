"""What `kafkapy start` says of a mistake: one line that names what was given, and what to do."""

import logging
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.cli.failure import reason_of
from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.server.process.distributions import foreign_distributions

ENTRY_POINTS = "[console_scripts]\nkafkapy={}\n"


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Return what `kafkapy start` says when it does not start."""
    from kafkapy.__main__ import main

    assert main(["start", "--port", "0", *map(str, arguments)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1, output.err
    return output.err


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ApiError(ErrorCode.UNSUPPORTED_VERSION, "group.version is at level 9"), "group.version is at level 9"),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT), "REQUEST_TIMED_OUT"),
    ],
)
def test_what_a_controller_refuses_is_reported_in_its_words(error, reason) -> None:
    assert reason_of(error) == reason


def test_a_data_directory_that_is_a_file_is_called_one(tmp_path, capsys) -> None:
    (tmp_path / "data").touch()
    assert f"{tmp_path}/data is a file, not a directory" in refused(capsys, "--data-dir", tmp_path / "data")


def test_a_file_among_the_log_directories_of_a_properties_file_is_called_one(tmp_path, capsys) -> None:
    (tmp_path / "data").touch()
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:1\nlog.dirs={tmp_path}/data\n"
    )
    assert f"{tmp_path}/data is a file, not a directory" in refused(capsys, path)


@pytest.mark.parametrize("key", ["node.id", "broker.id"])
def test_the_key_that_was_given_is_blamed(key, tmp_path, capsys) -> None:
    output = refused(capsys, "--data-dir", tmp_path / "data", "--set", f"{key}=x")
    assert output.startswith(f"kafkapy: Invalid value x for configuration {key}: Not a number of type INT")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_a_secured_listener_is_blamed_itself(protocol, tmp_path, capsys) -> None:
    output = refused(capsys, "--data-dir", tmp_path / "data", "--set", f"listeners={protocol}://127.0.0.1:0")
    assert "CONTROLLER" not in output
    assert "inter.broker" not in output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("node.id=1\ncluster.id=x\n", "it lacks version"),
        ("version=1\nnode.id=1\n", "it lacks cluster.id"),
        ("version=1\ncluster.id=x\n", "it lacks node.id"),
        ("version=0\nnode.id=1\ncluster.id=x\n", "its version is 0, not 1"),
        ("version=1\nnode.id=one\ncluster.id=x\n", "its node.id is one, not a number"),
    ],
)
def test_a_damaged_meta_properties_is_reported_in_words(text, problem, tmp_path, capsys) -> None:
    (tmp_path / "meta.properties").write_text(text)
    assert f"malformed {tmp_path}/meta.properties: {problem}" in refused(capsys, "--data-dir", tmp_path)


def test_a_taken_port_is_reported_with_the_way_out(tmp_path, capsys) -> None:
    names = ("", "asyncio", "kafka.request.logger")
    before = [(logging.getLogger(name).handlers[:], logging.getLogger(name).level) for name in names]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        output = refused(capsys, "--data-dir", tmp_path, "--port", port)
    after = [(logging.getLogger(name).handlers[:], logging.getLogger(name).level) for name in names]
    assert after == before, "what else runs in this process logs as it did"
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in output
    assert "--port" in output


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def speak(broker: Broker, output: bytes) -> None:
    """Send bytes and wait until the broker closes the connection, without a response."""
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as client:
        client.sendall(output)
        assert client.recv(1) == b""


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("output", "name"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", "HTTP"),
        (b"POST / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP"),
        (client_hello(), "TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
    ],
)
def test_another_protocol_spoken_to_the_port_is_named(output, name, broker, caplog) -> None:
    speak(broker, output)
    (line,) = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert f"the client speaks {name}" in line


def test_an_unknown_key_of_an_embedded_broker_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"num\.partitionz.*did you mean num\.partitions") as caught:
        Broker(properties={"num.partitionz": 1})
    assert caught[0].filename == __file__


def installed(site: Path, name: str, entry_point: str) -> None:
    (site / f"{name}.dist-info").mkdir(parents=True)
    (site / f"{name}.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS.format(entry_point))


def test_a_distribution_of_the_same_import_name_is_found(tmp_path) -> None:
    installed(tmp_path / "site", "kafkapy-0.3.1", "kafkapy.main:app")
    installed(tmp_path / "site", "kafkapy_broker-0.1.0", "kafkapy.__main__:main")
    installed(tmp_path / "older", "kafkapy-0.1.0", "kafkapy.__main__:main")  # this broker, before it had its name
    path = [str(tmp_path / "missing"), str(tmp_path / "older"), str(tmp_path / "site")]
    assert foreign_distributions(path) == [f"{tmp_path}/site/kafkapy-0.3.1.dist-info"]


def test_a_start_that_finds_both_says_so(tmp_path) -> None:
    installed(tmp_path / "site", "kafkapy-0.3.1", "kafkapy.main:app")
    program = f"import sys; sys.path.append({str(tmp_path / 'site')!r}); from kafkapy.__main__ import main; main()"
    command = [sys.executable, "-c", program, "start", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("kafkapy ready on ")
        process.terminate()
        _, output = process.communicate(timeout=60)
    assert "kafkapy-0.3.1.dist-info is another project" in output
    assert "pip uninstall kafkapy" in output
