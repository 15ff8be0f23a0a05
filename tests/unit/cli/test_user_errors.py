"""What a user meets who mistypes, has no broker, or ends a command early: a line, at once, and no traceback."""

import contextlib
import io
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.main import command as root
from tests.support.client_requests import until

pytest.importorskip("confluent_kafka")

REFUSED = "127.0.0.1:1"
END_S = 9.0
"""Ctrl-C ends a command within a second on a machine at rest; without the limit it takes 10 s and more."""
OWN_PARSERS = {
    *("start", "console", "registry", "record", "replay", "storage", "protocol", "dump-log", "completion", "man"),
}


def commands(group: object = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every command that typer parses, with its path."""
    command = root() if group is None else group
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        if name not in OWN_PARSERS:
            yield from commands(each, (*path, name))


HELPED = [path for path, _ in commands()] + [
    ("start",),
    ("storage",),
    ("storage", "format"),
    ("storage", "info"),
    ("storage", "random-uuid"),
    ("protocol",),
    ("protocol", "decode"),
    ("dump-log",),
    ("console",),
    ("registry",),
    ("record",),
    ("replay",),
    ("completion",),
    ("man",),
]


def kafkapy(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kafkapy", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, **{"stdin": subprocess.DEVNULL, **options})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    """A listener that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


@pytest.mark.parametrize("path", HELPED, ids=" ".join)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help(path, option, capsys) -> None:
    try:
        status = main([*path, option])
    except SystemExit as ended:
        status = ended.code
    assert status == 0
    assert "usage: kafkapy" in capsys.readouterr().out.lower()


def test_every_option_and_argument_is_explained() -> None:
    unexplained = [
        f"{' '.join(path)} {each.name}"
        for path, command in commands()
        for each in command.params
        if not getattr(each, "help", None)
    ]
    assert unexplained == []


def test_the_overview_names_the_version_option(capsys) -> None:
    main(["--help"])
    assert "--version" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topics", "create", "t", "-p", "-5"], "-5 is not a count: at least 1, or -1"),
        (["topics", "create", "t", "-p", "0"], "0 is not a count: at least 1, or -1"),
        (["topics", "create", "t", "-p", "100001"], "--partitions"),
        (["topics", "create", "t", "-r", "-2"], "-2 is not a count: at least 1, or -1"),
        (["topics", "alter", "t", "-p", "-5"], "--partitions"),
        (["produce", "t", "-p", "-5"], "--partition"),
        (["produce", "t", "-p", "99999999999"], "--partition"),
        (["consume", "t", "-p", "-1"], "--partition"),
        (["consume", "t", "-o", "9" * 20], "--offset"),
        (["consume", "t", "-B", "-o", "3"], "--from-beginning, --offset and --from"),
        (["consume", "t", "-g", "g", "-o", "3"], "no --partition, no --offset"),
        (["groups", "reset", "g", "-t", "t:-1", "--to", "latest"], "'t:-1' must read TOPIC or TOPIC:0,1"),
        (["groups", "reset", "g", "-t", "t", "--to", "9" * 20], "is none of: earliest, latest"),
        (["topics", "nonsense"], "No such command 'nonsense'"),
        (["nonsense"], "No such command 'nonsense'"),
        (["topics", "list", "--nonsense"], "No such option: --nonsense"),
    ],
)
def test_a_command_that_is_not_understood_is_one_line(arguments, message, capsys) -> None:
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert message in output.err
    assert output.err.endswith(" -h)\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["topics", "create", "t"],
        ["configs", "describe", "--broker", "1"],
        ["groups", "list"],
        ["groups", "reset", "g", "-t", "t", "--to", "latest"],
        ["consume", "t"],
        ["produce", "t"],
    ],
)
def test_a_refused_connection_is_reported_at_once(arguments, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"one\n"), isatty=lambda: False))
    started_s = time.monotonic()
    assert main([*arguments, "-b", REFUSED]) == 1
    assert time.monotonic() - started_s < END_S
    assert capsys.readouterr().err == f"kafkapy: no broker answers at {REFUSED}: Connection refused\n"


@pytest.mark.parametrize("servers", ["{refused},{server}", "PLAINTEXT://{server}"])
def test_any_of_the_servers_that_answers_will_do(servers, server, capsys) -> None:
    assert main(["topics", "list", "-b", servers.format(refused=REFUSED, server=server)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("servers", "reason"), [("127.0.0.1:99999", "not a port"), (",", "no HOST:PORT is given")])
def test_an_address_that_is_none_is_reported(servers, reason, capsys) -> None:
    assert main(["topics", "list", "-b", servers]) == 1
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("command", ["topics list", "consume t", "produce t"])
def test_ctrl_c_ends_a_command_that_waits_for_a_broker(command, silent_server) -> None:
    address = f"127.0.0.1:{silent_server.getsockname()[1]}"
    with kafkapy(*command.split(), "-b", address, stdin=subprocess.PIPE) as process:
        process.stdin.write(b"one\n")
        process.stdin.close()
        accepted = [silent_server.accept()[0] for _ in range(2)]  # our own check, then librdkafka
        process.send_signal(signal.SIGINT)
        interrupted_s = time.monotonic()
        process.wait(60)
        took_s = time.monotonic() - interrupted_s
        output = process.stderr.read().decode()
    for each in accepted:
        each.close()
    assert took_s < END_S
    assert "Traceback" not in output


def test_ctrl_c_reports_what_was_delivered(server) -> None:
    with kafkapy("produce", "half", "-b", server, stdin=subprocess.PIPE) as process:
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        until(lambda: "half" in topics_of(server))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b"kafkapy: interrupted: Produced 2 records to half.\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_consumer_that_is_stopped_leaves_its_group(number, server) -> None:
    assert main(["topics", "create", f"of-{number}", "-b", server]) == 0
    with kafkapy("consume", f"of-{number}", "-g", f"g-{number}", "-b", server) as process:
        try:
            until(lambda: members_of(f"g-{number}", server) == 1)
            process.send_signal(number)
            assert process.wait(60) == 0
        finally:
            process.kill()
        assert members_of(f"g-{number}", server) == 0


def members_of(group: str, server: str) -> int:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": server})  # its requests end with it
    try:
        return len(admin.describe_consumer_groups([group])[group].result(60).members)
    except KafkaException:
        return 0  # there is no such group yet


def topics_of(server: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "kafkapy", "topics", "list", "-b", server], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("command", ["consume many -B -e", "protocol decode"])
def test_a_reader_that_has_seen_enough_is_no_failure_worth_words(command, server, tmp_path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b'{"message": "x"}\n' * 20_000)
    if command.startswith("consume"):
        assert main(["produce", "many", "-q", "-b", server, str(lines)]) == 0
    arguments = [*command.split(), *(["-b", server] if command.startswith("consume") else [])]
    with lines.open("rb") as stdin, kafkapy(*arguments, stdin=stdin, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == b""


def on_terminal(*arguments: str, typed: bytes, until_shown: bytes) -> tuple[int, bytes]:
    """Run a command on a terminal of its own, type once something is shown; return its status and all it showed."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "kafkapy", *arguments]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True) as process:
        os.close(slave)
        shown = b""
        while until_shown not in shown:
            shown += os.read(master, 1024)
        os.write(master, typed) if typed else process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # EIO: the other end has closed
            while more := os.read(master, 1024):
                shown += more
        status = process.wait(60)
    os.close(master)
    return status, shown


def test_a_terminal_is_prompted(server) -> None:
    refused, _ = on_terminal("produce", "typed", "-b", server, typed=b"\n", until_shown=b"no such topic: typed")
    assert refused == 1
    command = ("produce", "typed", "--create", "-b", server)
    status, shown = on_terminal(*command, typed=b"one\n\x04", until_shown=b"> ")
    assert status == 0
    assert shown.count(b"> ") == 2
    assert b"Produced 1 record to typed, partition 0, offset 0." in shown


def test_a_terminal_shows_that_a_consumer_waits(server) -> None:
    assert main(["topics", "create", "empty", "-b", server]) == 0
    waiting = b"waiting for records of empty"
    status, shown = on_terminal("consume", "empty", "-b", server, typed=b"", until_shown=waiting)
    assert status == 0
    assert b"Ctrl-C ends" in shown


def test_a_reset_names_the_members_in_its_way(server, capsys) -> None:
    from confluent_kafka import Consumer

    assert main(["topics", "create", "reset", "-b", server]) == 0
    consumer = Consumer({"bootstrap.servers": server, "group.id": "busy", "client.id": "reader"})
    consumer.subscribe(["reset"])
    try:
        until(lambda: consumer.poll(0.1) is None and consumer.assignment())
        capsys.readouterr()
        arguments = ["groups", "reset", "busy", "-t", "reset", "--to", "latest", "-b", server]
        assert main([*arguments, "--json"]) == 0
        output = capsys.readouterr()
        assert json.loads(output.out)[0]["after"] == 0
        assert "busy has members, --execute would be refused until they stop: reader (" in output.err
        assert main([*arguments, "--execute"]) == 1
        assert "busy has members, stop them first: reader (" in capsys.readouterr().err
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["start", "--port", "x"], "kafkapy: argument --port: x is not a port: 0 to 65535 (see kafkapy start -h)"),
        (["storage", "format"], "kafkapy: the following arguments are required: "),
        (["dump-log"], "kafkapy: no file was given (see kafkapy dump-log -h)"),
        (["console", "--lisn", "1"], "kafkapy: unrecognized arguments: --lisn 1. Did you mean --listen? (see"),
        (["start", "--prt=1"], "kafkapy: unrecognized arguments: --prt=1. Did you mean --port or --set? (see"),
        (["start", "--zzz"], "kafkapy: unrecognized arguments: --zzz (see kafkapy start -h)"),
        (["topics", "list", "--jsn"], "kafkapy: No such option: --jsn. Did you mean --json? (see kafkapy topics list"),
        (["acls"], "kafkapy: No such command 'acls'. It is `kafkapy security acl`. (see kafkapy -h)"),
        (["consume", "t", "--exit"], "kafkapy: No such option: --exit. Here it is --until-end (-e). (see kafkapy"),
        (["profile", "create", "x"], "kafkapy: No such command 'create'. Here it is kafkapy profile add. (see kafkapy"),
        (
            ["configs", "alter", "orders", "-b", "127.0.0.1:1"],
            "kafkapy: Got unexpected extra argument(s) (orders) Say whose configs by --topic, --broker or --group, a "
            "change by --set KEY=VALUE. (see kafkapy configs alter -h)",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, line, capsys) -> None:
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = ended.code
    (error,) = capsys.readouterr().err.splitlines()
    assert (status, error.startswith(line)) == (2, True), error


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("retention.ms=1h", "retention.ms is in milliseconds: retention.ms=3600000"),
        ("retention.ms=7 d", "retention.ms is in milliseconds: retention.ms=604800000"),
        ("segment.bytes=10MB", "segment.bytes is in bytes: segment.bytes=10485760"),
        ("retention.mss=3", "Did you mean retention.ms"),
    ],
)
def test_a_refused_config_says_what_may_have_been_meant(setting, hint, server, capsys) -> None:
    main(["topics", "create", "hinted", "--if-not-exists", "-b", server])
    assert main(["configs", "alter", "-t", "hinted", "--set", setting, "-b", server]) == 1
    assert hint in capsys.readouterr().err
    assert main(["topics", "create", "refused", "--config", setting, "-b", server]) == 1
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("command", ["console", "registry"])
def test_the_port_of_a_server_that_is_no_broker_is_named_as_it_is_there(command: str, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([command, "--port", "8081"])
    assert "Here it is --listen HOST:PORT (see kafkapy" in capsys.readouterr().err
