"""`kafkapy start` as a process: what it prints, how it ends, what it imports; and what it makes of its arguments."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.cli.addresses import address, connectable
from kafkapy.cli.start import properties_of_file, with_port
from kafkapy.errors import ConfigError
from kafkapy.storage.offline.format import with_absolute_directories

READY = re.compile(r"kafkapy ready on 127\.0\.0\.1:(\d+) \(cluster ([\w-]{22}), node (\d+)\)\n")


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "kafkapy", *map(str, arguments)]


@contextmanager
def started(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running node and its first line."""
    process = subprocess.Popen(command("start", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def refused(*arguments: object) -> str:
    """What a command says on stderr that fails with 1 and says nothing else: one line."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_says_one_line_when_ready_and_stops_cleanly(tmp_path, stop) -> None:
    with started("--data-dir", tmp_path / "data", "--port", 0) as (process, line):
        ready = READY.fullmatch(line)
        assert ready is not None, line
        assert int(ready[1]) > 0
        socket.create_connection(("127.0.0.1", int(ready[1])), 60).close()
        process.send_signal(stop)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "", "")
    assert (tmp_path / "data/.kafka_cleanshutdown").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_what_cannot_be_printed_or_logged_ends_nothing(tmp_path) -> None:
    data_dir = tmp_path / "data"
    with open("/dev/full", "w") as full:
        arguments = command("start", "--data-dir", data_dir, "--port", 0, "--log-level", "INFO")
        with subprocess.Popen(arguments, stdout=full, stderr=full) as process:
            try:
                wait_until((data_dir / ".kafkapy-reserve").exists)  # written once it serves
                process.terminate()
                assert process.wait(60) == 0
            finally:
                process.kill()
    assert (data_dir / ".kafka_cleanshutdown").exists()


def test_formatted_directory_keeps_cluster_and_node(tmp_path) -> None:
    lines = []
    for _ in range(2):
        with started("--data-dir", tmp_path / "data", "--port", 0) as (process, line):
            lines.append(READY.fullmatch(line))
            process.terminate()
            process.wait(60)
    first, second = lines
    assert first is not None
    assert second is not None
    assert first[2] == second[2]
    assert f"cluster.id={first[2]}" in (tmp_path / "data/meta.properties").read_text()


def test_directory_in_use_and_port_taken_are_one_line(tmp_path) -> None:
    with started("--data-dir", tmp_path / "data", "--port", 0) as (_, line):
        ready = READY.fullmatch(line)
        assert ready is not None
        assert "Failed to acquire lock on file .lock" in refused("start", "--data-dir", tmp_path / "data", "--port", 0)
        taken = refused("start", "--data-dir", tmp_path / "other", "--port", ready[1])
    assert f"cannot listen on 127.0.0.1:{ready[1]}: Address already in use" in taken


def test_directory_that_cannot_be_written_is_one_line(tmp_path) -> None:
    (tmp_path / "file").touch()
    assert "Not a directory" in refused("start", "--data-dir", tmp_path / "file" / "data")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("num.partitions=0", ["num.partitions", "0", "at least 1", "[1,...]"]),
        ("num.partitions=many", ["num.partitions", "many", "Not a number of type INT", "[1,...]"]),
        ("compression.type=zip", ["compression.type", "zip", "[uncompressed, zstd, lz4, snappy, gzip, producer]"]),
        ("log.retention.ms=0", ["log.retention.ms", "unlimited (-1)"]),
        ("no-equals-sign", ["--set", "no-equals-sign"]),
    ],
)
def test_bad_values_name_key_value_and_what_is_allowed(tmp_path, setting, words) -> None:
    printed = refused("start", "--data-dir", tmp_path / "data", "--set", setting)
    assert all(word in printed for word in words), printed
    assert not (tmp_path / "data").exists()


def test_missing_file_and_unformatted_directory_are_one_line(tmp_path) -> None:
    assert "No such file" in refused("start", tmp_path / "server.properties")
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n"
        "listener.security.protocol.map=C:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        "listeners=PLAINTEXT://127.0.0.1:0,C://127.0.0.1:0\ncontroller.quorum.bootstrap.servers=127.0.0.1:1\n"
        f"log.dirs={tmp_path}/data\n"
    )
    assert "kafkapy storage format" in refused("start", path)


def test_file_is_run_as_it_is_and_unknown_keys_are_warned_of(tmp_path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:9,CONTROLLER://127.0.0.1:0\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:1\nno.such.key=1\n"
        f"log.dirs={tmp_path}/data\n"
    )
    subprocess.run(
        command("storage", "format", "-c", path, "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "--standalone"),
        check=True,
        capture_output=True,
    )
    with started(path, "--port", 0) as (process, line):
        ready = READY.fullmatch(line)
        assert ready is not None
        assert (ready[2], ready[3]) == ("AAAAAAAAAAAAAAAAAAAAAQ", "7")
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert "Unknown configuration key no.such.key is ignored" in errors


def test_start_imports_neither_typer_nor_rich_nor_pydantic() -> None:
    program = (
        "import sys; from kafkapy.__main__ import main; import kafkapy.server.run\n"
        "main(['start', '--data-dir', '/dev/null/x', '--port', '0'])\n"
        "print(sorted({'typer', 'rich', 'click', 'pydantic', 'confluent_kafka'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


COLLECTIONS = """
import gc, os, signal, sys
from kafkapy.__main__ import main

collected, freezes, freeze = [], [], gc.freeze
gc.callbacks.append(lambda phase, info: collected.append(phase))

def note():
    freezes.append(collected.count("start"))
    freeze()
    if len(freezes) == 2:  # it has started
        print(freezes[1], flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

gc.freeze = note
sys.exit(main())
"""


def test_imports_are_not_searched_for_garbage(tmp_path) -> None:
    """Else 40 collections, a thirtieth of the start, look at modules and classes, which all stay."""
    command = [sys.executable, "-c", COLLECTIONS, "start", "--data-dir", tmp_path / "data", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[0]) <= 20


FREEZES = """
import gc, os, signal, sys
from kafkapy.__main__ import main
from kafkapy.server import run
from kafkapy.server.process import heap

heap.CHANGES_PER_FREEZE = 50
freezes, freeze, freeze_heap = [], gc.freeze, run.freeze_heap
gc.freeze = lambda: (freezes.append("while it starts"), freeze())

def of_the_start():
    freeze_heap()
    freezes[-1] = "by the start"
    if freezes.count("by the start") == 2:
        print(freezes.index("by the start", 1) - 1, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

run.freeze_heap = of_the_start
sys.exit(main())
"""


@pytest.mark.parametrize(("partitions", "freezes"), [(1, 0), (120, 2)])
def test_logs_are_kept_out_of_collections_while_they_are_loaded(tmp_path, partitions, freezes) -> None:
    """Else a node that starts with 20,000 logs is held for 200 ms by a full collection of what it has loaded."""
    with Broker(tmp_path / "data") as broker:
        broker.create_topics("orders", partitions=partitions)
    command = [sys.executable, "-c", FREEZES, "start", "--data-dir", tmp_path / "data", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    during_start = int(done.stdout.splitlines()[0])
    assert during_start >= freezes
    assert during_start == 0 or freezes


@pytest.mark.parametrize(
    ("properties", "listeners", "advertised"),
    [
        ({}, "PLAINTEXT://:7", None),
        ({"listeners": "A://h:1,C://h:2", "controller.listener.names": "C"}, "A://h:7,C://h:2", None),
        ({"listeners": "C://h:2,A://[::1]:1", "controller.listener.names": "C"}, "C://h:2,A://[::1]:7", None),
        (
            {"listeners": "A://h:1,B://h:2", "advertised.listeners": "B://x:2,A://x:1"},
            "A://h:7,B://h:2",
            "B://x:2,A://x:7",
        ),
    ],
)
def test_port_is_the_first_client_listeners(properties, listeners, advertised) -> None:
    changed = with_port(properties, 7)
    assert (changed["listeners"], changed.get("advertised.listeners")) == (listeners, advertised)


def test_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("log.dirs=/a\nmetadata.log.dir=/m\nnum.partitions=1\n")
    assert properties_of_file(str(path), None, "/b", {"num.partitions": "3"}) == {
        "log.dirs": "/b",
        "num.partitions": "3",
    }


def test_file_in_java_s_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("broker.rack=caf\xe9\n".encode("latin-1"))
    assert properties_of_file(str(path), None, None, {}) == {"broker.rack": "café"}


def test_broken_escape_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.rack=\\u12\n")
    with pytest.raises(ConfigError):
        properties_of_file(str(path), None, None, {})


@pytest.mark.parametrize(
    ("bound", "shown"),
    [
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("0.0.0.0:1", "localhost:1"),
        (":::1", "localhost:1"),
        ("::1:9092", "[::1]:9092"),
        ("[::1]:9092", "[::1]:9092"),
    ],
)
def test_address_is_one_that_a_client_can_use(bound, shown) -> None:
    assert connectable(bound) == shown


@pytest.mark.parametrize("text", ["[]:8080", ":", "8080", ":x", ":65536"])
def test_what_names_no_address_listens_nowhere(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="HOST:PORT"):
        address(text, may_lack_host=True)


def test_relative_directories_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Apache Kafka: DescribeLogDirs and AlterReplicaLogDirs name them so."""
    monkeypatch.chdir(tmp_path)
    given = {"log.dirs": "data/a, /b", "metadata.log.dir": "m", "cordoned.log.dirs": "*", "num.partitions": "2"}
    assert with_absolute_directories(given) == {
        **given,
        "log.dirs": f"{tmp_path}/data/a,/b",
        "metadata.log.dir": f"{tmp_path}/m",
    }
