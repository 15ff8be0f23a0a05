"""docs/security.md: each snippet of each client runs against a node that `kafkapy security init` has made."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from harness.servers import free_port, java
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.new_kcat import new_kcat
from tools.kafka import JAVA_LIBS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.ours
PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
BLOCK: Final = re.compile(r"^## (?P<title>.+?)\n(?:(?!^## ).)*?^```(?P<language>\w+)\n(?P<text>.+?)^```", re.M | re.S)
SNIPPETS: Final = {each["title"]: (each["language"], each["text"]) for each in BLOCK.finditer(PAGE.read_text())}
CLIENTS: Final = {title: title.split(",")[0] for title in SNIPPETS if title != "Spark"}


class Secure:
    """A node made by the page's first command, and a directory of programs that its snippets call."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.programs = directory / "bin"
        self.programs.mkdir()
        self._write("kafkapy", [sys.executable, "-m", "kafkapy"])
        if JAVA_LIBS.is_dir() and shutil.which("java") is not None:
            self._write("kafka-topics.sh", java("org.apache.kafka.tools.TopicCommand"))
        kcat = new_kcat(self.programs)
        if kcat is not None:
            self._write("kcat", ["env", f"LD_LIBRARY_PATH={kcat.environment['LD_LIBRARY_PATH']}", kcat.program])
        init = ["security", "init", "secure", "--user", "alice", "--port", str(self.port)]
        printed = self.run([str(self.programs / "kafkapy"), *init])
        self.password = printed.split("properties, too): ")[1].split()[0]

    def _write(self, name: str, command: list[str]) -> None:
        path = self.programs / name
        path.write_text(f'#!/bin/sh\nexec {" ".join(f"{part!r}" for part in command)} "$@"\n')
        path.chmod(0o700)

    def run(self, command: list[str]) -> str:
        environment = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}
        done = subprocess.run(
            command, cwd=self.directory, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def of_this_node(self, snippet: str) -> str:
        return snippet.replace("localhost:9092", f"localhost:{self.port}").replace("PASSWORD", self.password)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    made = Secure(tmp_path_factory.mktemp("page"))
    command = [str(made.programs / "kafkapy"), "start", str(made.directory / "secure" / "server.properties")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            assert broker.stdout.readline().startswith("kafkapy ready on ")
            create = ["topics", "create", "orders", "--if-not-exists", "-b", f"localhost:{made.port}"]
            made.run([str(made.programs / "kafkapy"), *create, "--command-config", "secure/client.properties"])
            yield made
        finally:
            broker.terminate()


def test_the_page_has_each_client() -> None:
    assert [*SNIPPETS] == [
        "Java's clients and console tools, all `kafkapy` commands",
        "confluent-kafka",
        "aiokafka",
        "kafka-python",
        "kcat",
        "Spark",
        "Further users and rights",
    ]


@pytest.mark.parametrize("title", CLIENTS, ids=CLIENTS.values())
def test_a_snippet_runs(secure: Secure, title: str) -> None:
    language, snippet = SNIPPETS[title]
    text = secure.of_this_node(snippet)
    if language == "python":
        secure.run([sys.executable, "-c", text])
        return
    for program in ("kafka-topics.sh", "kcat"):
        if program in text and not (secure.programs / program).exists():
            pytest.skip(f"{program} is missing: run `make tools`")
    text = text.replace("topics create orders ", "topics create new-orders ")
    secure.run(["bash", "-euo", "pipefail", "-c", text])


@pytest.mark.spark
@pytest.mark.skipif(SOAK_FACTOR == 1, reason="`make soak`: Spark reads with the same options in test_spark_security.py")
def test_sparks_snippet_runs(secure: Secure, spark: "SparkSession", capsys: pytest.CaptureFixture[str]) -> None:
    text = secure.of_this_node(SNIPPETS["Spark"][1]).replace("secure/ca.pem", str(secure.directory / "secure/ca.pem"))
    exec(text, {"spark": spark})
    assert int(capsys.readouterr().out) >= 0
