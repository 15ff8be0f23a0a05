"""One broker process for all compat tests; each test has topics of its own.

KAFKAPY_COMPAT_SERVER=apache runs the same tests against Apache Kafka 4.4.0: that is how they are proved right.
"""

import gc
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.class_archive import jvm_options
from harness.servers import ApacheKafka, Kafkapy, Server, java
from tests.support.java_tools import OWN_JVM, JavaTools, are_here
from tools.kafka import kcat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What makes a JVM cheap that runs each piece of code a few times only."""

COMPAT_DIRECTORY = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if COMPAT_DIRECTORY in item.path.parents:
            item.add_marker(pytest.mark.compat)


def new_server(directory: Path, properties: dict[str, str] | None = None) -> Server:
    kind = ApacheKafka if os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache" else Kafkapy
    return kind(directory, properties)


@pytest.fixture(scope="session", autouse=True)
def short_lived_jvms() -> Iterator[None]:
    """Let every JVM that a test starts do without its second compiler, and map Kafka's classes: half the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", " ".join(("-XX:TieredStopAtLevel=1", *jvm_options())))
        yield


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker for all tests that do not stop it."""
    with new_server(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def bootstrap(server: Server) -> str:
    return server.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own; nothing is created."""
    name: str = request.node.name
    return "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")


@pytest.fixture(scope="session")
def tools() -> Iterator[JavaTools]:
    """Apache Kafka's tools in one JVM; skip where its jars are missing."""
    if not are_here():
        pytest.skip("Apache Kafka's jars or Java are missing: run `make tools`")
    with JavaTools() as running:
        yield running


@pytest.fixture(scope="session")
def java_tool(tools: JavaTools) -> Callable[..., str]:
    """Run a class of Apache Kafka's tools, or a source file, and return its standard output."""

    def run(main_class: str, *arguments: str, stdin: str = "", timeout_s: float = 180) -> str:
        if main_class.endswith((".java", *OWN_JVM)):
            command = java(main_class, *arguments, options=QUICK_JVM.split())
            ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s)
            status, output, text = ended.returncode, ended.stdout, f"{ended.stdout}\n{ended.stderr}"
        else:
            status, text, output = tools.call(main_class, *arguments, stdin=stdin, timeout_s=timeout_s)
        assert status == 0, f"{main_class} failed:\n{text}"
        return output

    return run


@pytest.fixture(autouse=True)
def py4j_closes_its_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    """Py4J leaves sockets of ended threads to the garbage collector: let it find them while nobody minds."""
    yield
    if request.node.get_closest_marker("spark") is not None:
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One Spark session for all tests: to start one costs more than most of them."""
    if shutil.which("java") is None:
        pytest.skip("Java 17 is missing")
    from spark_jobs.config import SparkConfig
    from spark_jobs.connector import are_fetched
    from spark_jobs.session import start_session

    if not are_fetched():
        pytest.skip("Spark's Kafka connector is missing: run `make spark-jars`")
    options = {"spark.driver.extraJavaOptions": QUICK_JVM}
    config = SparkConfig(bootstrap_servers="", master="local[2]", shuffle_partitions=2, spark=options)
    session = start_session(config, "tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def run_kcat() -> Callable[..., str]:
    program = kcat()
    if program is None:
        pytest.skip("kcat is missing: run `make tools`")

    def run(*arguments: str, stdin: str = "") -> str:
        result = subprocess.run([program, *arguments], input=stdin, capture_output=True, text=True, timeout=180)
        assert result.returncode == 0, f"kcat {arguments} failed:\n{result.stdout}\n{result.stderr}"
        return result.stdout

    return run
