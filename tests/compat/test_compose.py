"""docker/compose.*.yaml of several nodes: each service's entry point with its environment, in a fresh directory.

There need not be a docker engine: a service's name becomes 127.0.0.1, and each of its ports a free one.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from harness.servers import free_port
from kafkapy.config.definitions import broker_definitions
from tests.support import topics
from tests.support.eventually import eventually

DOCKER = Path(__file__).parents[2] / "docker"
SCRIPT = DOCKER / "entrypoint.py"
FILES = ["compose.combined.yaml", "compose.isolated.yaml"]
ADDRESS = re.compile(r"(?P<host>[\w-]*):(?P<port>\d+)\b")
HOST_LISTENER = re.compile(r"PLAINTEXT_HOST://localhost:(\d+)")
STOP_S = 120

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="our image's entry point"),
]


class Services:
    """The services of one file, as processes."""

    def __init__(self, name: str, directory: Path) -> None:
        self._services: dict[str, Any] = yaml.safe_load((DOCKER / name).read_text())["services"]
        self._directory = directory
        self._ports: dict[tuple[str, str], int] = {}

    @property
    def names(self) -> list[str]:
        return list(self._services)

    def environment(self, name: str) -> dict[str, str]:
        """Return what the container would have, on this machine."""
        own = {key: str(value) for key, value in self._services[name]["environment"].items()}
        translated = {
            key: self._translate(name, value) if key.endswith(("LISTENERS", "VOTERS")) else value
            for key, value in own.items()
        }
        outer = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "CLUSTER_ID"))}
        return {
            **outer,
            **translated,
            "KAFKAPY_HOME": str(self._directory / name),
            "KAFKAPY_MOUNTED_CONFIG": str(self._directory / "none"),
            "KAFKAPY_DATA_DIR": str(self._directory / name / "data"),
            "KAFKA_KAFKAPY_ADMIN_LISTENER": f"127.0.0.1:{self._port(name, 'admin')}",
        }

    def _translate(self, name: str, value: str) -> str:
        """Put free ports in the place of a container's: `host:port` is another service's, or the own one's."""
        published = {each.split(":")[0]: each.split(":")[1] for each in self._services[name].get("ports", ())}

        def address(found: re.Match[str]) -> str:
            host, port = found["host"], found["port"]
            service = host if host in self._services else name
            return f"127.0.0.1:{self._port(service, published.get(port, port))}"

        return ADDRESS.sub(address, value)

    def _port(self, name: str, port: str) -> int:
        return self._ports.setdefault((name, port), free_port())

    def bootstrap(self) -> str:
        """Return what clients on the host connect to: the published ports."""
        return ",".join(f"127.0.0.1:{self._port(name, '9092')}" for name in self.brokers)

    @property
    def brokers(self) -> list[str]:
        return [name for name, service in self._services.items() if "ports" in service]

    def roles(self, name: str) -> str:
        return str(self._services[name]["environment"]["KAFKA_PROCESS_ROLES"])

    def is_healthy(self, name: str) -> bool:
        """Ask as the image's HEALTHCHECK does."""
        command = [sys.executable, str(SCRIPT), "health"]
        return subprocess.run(command, env=self.environment(name), check=False, capture_output=True).returncode == 0

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        home = self._directory / name
        home.mkdir()
        with (home / "output").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT)], env=self.environment(name), stdout=output, stderr=output
            )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.mark.parametrize("file", FILES)
def test_services_become_healthy_when_they_are_of_use(file: str, tmp_path: Path) -> None:
    services = Services(file, tmp_path)
    first, *others = services.names
    with ExitStack() as stack:
        stack.enter_context(services.running(first))
        eventually(lambda: "kafkapy" in (tmp_path / first / "output").read_text())
        assert not services.is_healthy(first)  # one of three controllers is no quorum
        for name in others:
            stack.enter_context(services.running(name))
        for name in services.names:
            eventually(lambda name=name: services.is_healthy(name), what=f"{name} healthy")
        replicate(services.bootstrap())


def replicate(bootstrap: str) -> None:
    """Create a topic with the default of three replicas, and write to it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics.create(bootstrap, "orders", partitions=3, replicas=-1)
    eventually(
        lambda: (
            [len(each.isrs) for each in admin.list_topics("orders", 60).topics["orders"].partitions.values()] == [3] * 3
        )
    )
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(30):
        producer.produce("orders", str(number), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None] * 30


@pytest.mark.parametrize("file", FILES)
def test_each_service_has_a_directory_and_address_of_its_own_and_keys_that_exist(file: str) -> None:
    document = yaml.safe_load((DOCKER / file).read_text())
    services = document["services"].values()
    for every in (
        [each["environment"]["KAFKA_NODE_ID"] for each in services],
        [volume.split(":")[0] for each in services for volume in each["volumes"]],
        [port.split(":")[0] for each in services for port in each.get("ports", ())],
    ):
        assert len(set(every)) == len(every)
    for service in services:
        advertised = service["environment"].get("KAFKA_ADVERTISED_LISTENERS", "")
        assert HOST_LISTENER.findall(advertised) == [port.split(":")[0] for port in service.get("ports", ())]
        keys = [key.removeprefix("KAFKA_").lower().replace("_", ".") for key in service["environment"]]
        assert set(keys) - broker_definitions().keys() == {"cluster.id"}
    volumes = {volume.split(":")[0] for each in services for volume in each["volumes"]}
    assert volumes == document["volumes"].keys()
