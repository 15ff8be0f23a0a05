"""The image's entry point: Apache Kafka's environment mapping, and the whole of it run in an empty folder."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from urllib.request import urlopen

import pytest

from harness.servers import free_port

SCRIPT = Path(__file__).parents[3] / "docker" / "entrypoint.py"
ADMIN = {"kafkapy.admin.listener": ":9404"}


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("entrypoint", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_LISTENER_NAME_PLAIN__TEXT_MAX_CONNECTIONS", "listener.name.plain_text.max.connections"),
        (
            "KAFKA_LISTENER_NAME_A_SCRAM___SHA___256_SASL_JAAS_CONFIG",
            "listener.name.a.scram-sha-256.sasl.jaas.config",
        ),
    ],
)
def test_underscores_stand_for_dots_underscores_and_dashes(entrypoint, variable, key) -> None:
    assert entrypoint.key_of(variable) == key


def test_jvm_variables_are_no_keys(entrypoint) -> None:
    environment = {"KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_NODE_ID": "1", "PATH": "/bin", "KAFKA_VERSION": "4.3.1"}
    assert entrypoint.properties_from(environment) == {"node.id": "1"}


def test_environment_is_laid_over_the_mounted_file(entrypoint, tmp_path) -> None:
    mounted, default = tmp_path / "mounted", tmp_path / "default"
    default.write_text("node.id=1\nlog.dirs=/d\n")
    merged = entrypoint.merged_properties
    assert merged({}, mounted, default) == {"node.id": "1", "log.dirs": "/d"} | ADMIN
    assert merged({"KAFKA_NODE_ID": "2"}, mounted, default) == {"node.id": "2", "log.dirs": entrypoint.DATA_DIR} | ADMIN
    mounted.write_text("node.id=3\nlog.dir=/m\n")
    assert merged({"KAFKA_NODE_ID": "4"}, mounted, default) == {"node.id": "4", "log.dir": "/m"} | ADMIN
    mounted.write_text("log.dir=/m\nkafkapy.admin.listener=127.0.0.1:1\n")
    assert merged({}, mounted, default) == {"log.dir": "/m", "kafkapy.admin.listener": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("properties", "last"),
    [
        ({"controller.quorum.voters": "1@h:1", "process.roles": "broker,controller"}, "server.properties"),
        ({"process.roles": "broker,controller"}, "--standalone"),
        ({"process.roles": "broker"}, "--no-initial-controllers"),
    ],
)
def test_quorum_is_formatted_as_its_keys_say(entrypoint, properties, last) -> None:
    command = entrypoint.format_command(properties, Path("server.properties"), "c")
    assert command[-1] == last


@pytest.mark.parametrize(
    ("listener", "address"),
    [
        (":9404", ("127.0.0.1", 9404)),
        ("0.0.0.0:9405", ("127.0.0.1", 9405)),
        ("[::]:9406", ("::1", 9406)),
        (" node.example:9407 ", ("node.example", 9407)),
    ],
)
def test_health_is_requested_of_the_admin_listener(entrypoint, listener: str, address: tuple[str, int]) -> None:
    assert entrypoint.admin_address({"kafkapy.admin.listener": listener}) == address


def test_loggers_of_the_environment_are_options(entrypoint) -> None:
    environment = {"KAFKA_LOG4J_ROOT_LOGLEVEL": "ERROR", "KAFKA_LOG4J_LOGGERS": "kafka=WARN, state.change.logger=INFO"}
    command = entrypoint.start_command(environment, Path("server.properties"))
    levels = ["ERROR", "kafka=WARN", "state.change.logger=INFO"]
    assert command[-6:] == [part for level in levels for part in ("--log-level", level)]


def written(directory: Path) -> list[str]:
    """Return the files of a directory, the data directory's as one."""
    files = {path.relative_to(directory) for path in directory.rglob("*") if not path.is_dir()}
    return sorted({"data" if each.parts[0] == "data" else str(each) for each in files})


def health(environment: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPT), "health"]
    found = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=120)
    return found.returncode, found.stdout


def test_default_properties_are_valid(entrypoint, tmp_path) -> None:
    from kafkapy.config.load import load

    merged = entrypoint.merged_properties({}, tmp_path / "none", SCRIPT.with_name("server.properties"))
    config, warnings = load(merged)
    assert warnings == []
    assert [str(endpoint) for endpoint in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]


def test_compose_file_names_keys_that_exist(entrypoint) -> None:
    from kafkapy.config.definitions import broker_definitions

    names = re.findall(r"^      (KAFKA_\w+):", SCRIPT.with_name("compose.yaml").read_text(), re.MULTILINE)
    assert names
    assert [name for name in names if entrypoint.key_of(name) not in broker_definitions()] == []


def test_entry_point_runs_a_broker_in_an_empty_folder(tmp_path) -> None:
    port = free_port()
    (tmp_path / "tmp").mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "KAFKAPY_HOME": str(tmp_path / "home"),
        "KAFKAPY_MOUNTED_CONFIG": str(tmp_path / "mounted"),
        "KAFKAPY_DATA_DIR": str(tmp_path / "data"),
        "CLUSTER_ID": "AAAAAAAAAAAAAAAAAAAAAQ",
        "KAFKA_NODE_ID": "5",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "5@localhost:9093",
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
        "KAFKA_KAFKAPY_ADMIN_LISTENER": f"127.0.0.1:{port}",
    }
    for _ in range(2):  # a second start finds the directory formatted
        with subprocess.Popen(
            [sys.executable, str(SCRIPT)], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline(), process.stdout.readline()]
            assert health(environment) == (0, '{"missing": {}, "status": "ready"}\n')
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as metrics:
                assert b"kafka_server_" in metrics.read()
            assert written(tmp_path) == ["data", "home/config/server.properties"], "a read-only root is enough"
            process.terminate()
            assert process.wait(60) == 0
        assert health(environment) == (1, "")
        assert re.fullmatch(r"kafkapy ready on 127\.0\.0\.1:\d+ \(cluster A{21}Q, node 5\)\n", lines[1]), lines
