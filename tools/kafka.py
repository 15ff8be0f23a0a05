"""Fetch what tests and comparisons run: jars of Kafka 4.4.0, 4.3.1 and of old clients (Maven Central), kcat, Chromium,
zsh and fish (Debian), kafkajs (npm).

`python -m tools.kafka` fills .tools/ (once; what is complete is left alone), and builds the Go clients where Go is.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.go_clients import SOURCES, build
from tools.kafkajs import fetch_kafkajs
from tools.maven import ToolsMissing, maven_copy

KAFKA_VERSION = "4.4.0"
PREVIOUS_VERSION = "4.3.1"
"""The release before it: swaps of directories, mixed clusters and migrations are tested with both."""
TOOLS = Path(__file__).resolve().parent.parent / ".tools"


def kafka_libs(version: str) -> Path:
    """Return where the jars of a release of Apache Kafka are."""
    return TOOLS / f"kafka-{version}" / "libs"


JAVA_LIBS = kafka_libs(KAFKA_VERSION)

LOG4J_VERSION = "2.25.4"
"""That of Kafka's own log4j-core."""

STREAMS_LIBS = TOOLS / f"kafka-streams-{KAFKA_VERSION}"
"""Kafka Streams with all that it needs: a classpath of its own."""

NEIGHBOUR_VERSION = PREVIOUS_VERSION
"""That of Connect, MirrorMaker and the examples: the newest of which Maven finds all jars."""
NEIGHBOUR_STREAMS_LIBS = TOOLS / f"kafka-streams-{NEIGHBOUR_VERSION}"
NEIGHBOUR_LIBS = TOOLS / f"kafka-neighbours-{NEIGHBOUR_VERSION}"
"""Connect's file connectors, MirrorMaker 2, the examples of Kafka Streams: without what they need of other jars."""

UPSTREAM_TESTS_VERSION = PREVIOUS_VERSION
"""Of 4.4.0 Maven has no jars of the classifier `test`."""
UPSTREAM_TESTS_LIBS = TOOLS / f"kafka-upstream-tests-{UPSTREAM_TESTS_VERSION}"
"""Apache Kafka's own integration tests, with all that they need: a class path of its own."""
BOUNCY_CASTLE_VERSION = "1.80"
BOUNCY_CASTLE_LIBS = TOOLS / f"bouncy-castle-{BOUNCY_CASTLE_VERSION}"
"""What Apache Kafka's tests make certificates with."""

JMX_EXPORTER_VERSION = "1.0.1"
JMX_EXPORTER_LIBS = TOOLS / "jmx-exporter"
"""Prometheus' JMX exporter, the agent by which Apache Kafka's metrics are scraped."""

ICEBERG_VERSION = "1.10.1"
ICEBERG_REST_LIBS = TOOLS / f"iceberg-rest-{ICEBERG_VERSION}"
"""Apache Iceberg's own REST catalogue, as its tests run it."""

OLD_CLIENTS = ("0.9.0.1", "0.10.0.1", "0.10.2.2")


def old_client_libs(version: str) -> Path:
    """Return where the jars of an old Java client, with its verifiable producer and consumer, are."""
    return TOOLS / f"kafka-clients-{version}"


SYSTEMD = Path("/run/systemd/system")
"""Is there where systemd runs: sd_booted(3)."""

KCAT_MISSING = "kcat is missing and cannot be installed from here: install it (Debian: kafkacat)"


def fetch_old_clients() -> None:
    for version in OLD_CLIENTS:
        target = old_client_libs(version)
        if not target.exists():
            print(f"fetching the clients of Apache Kafka {version} from Maven Central", flush=True)
            group = "org.apache.kafka"
            maven_copy([(group, "kafka-clients", version), (group, "kafka-tools", version)], target)


def fetch_kafka(version: str = KAFKA_VERSION) -> None:
    target = kafka_libs(version)
    if (target / f"kafka_2.13-{version}.jar").exists():
        return
    print(f"fetching Apache Kafka {version} from Maven Central", flush=True)
    maven_copy([("org.apache.kafka", each, version) for each in ("kafka_2.13", "kafka-tools")], target)


def fetch_streams() -> None:
    for version, target in ((KAFKA_VERSION, STREAMS_LIBS), (NEIGHBOUR_VERSION, NEIGHBOUR_STREAMS_LIBS)):
        if not target.exists():
            print(f"fetching Kafka Streams {version} from Maven Central", flush=True)
            maven_copy([("org.apache.kafka", "kafka-streams", version)], target)


def fetch_neighbours(target: Path = NEIGHBOUR_LIBS) -> None:
    if not target.exists():
        print(
            f"fetching MirrorMaker, Connect's connectors and Streams' examples {NEIGHBOUR_VERSION} from Maven Central",
            flush=True,
        )
        names = ("connect-file", "connect-mirror", "connect-mirror-client", "kafka-streams-examples")
        logging = ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION)
        wanted = [("org.apache.kafka", each, NEIGHBOUR_VERSION) for each in names]
        maven_copy([*wanted, logging], target, transitive=False)


def fetch_upstream_tests(target: Path = UPSTREAM_TESTS_LIBS) -> None:
    if not target.exists():
        print(f"fetching Apache Kafka's own tests {UPSTREAM_TESTS_VERSION} from Maven Central", flush=True)
        group, version = "org.apache.kafka", UPSTREAM_TESTS_VERSION
        modules = (
            "kafka-clients", "kafka-clients-integration-tests", "kafka-group-coordinator", "kafka-metadata",
            "kafka-raft", "kafka-server", "kafka-server-common", "kafka-storage", "kafka-tools", "kafka_2.13",
        )  # fmt: skip
        tests = [(group, each, version, "test") for each in modules]
        libs = [(group, each, version) for each in ("kafka-streams", "kafka-test-common-runtime", "kafka-tools")]
        others = [
            ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
            ("org.hamcrest", "hamcrest", "3.0"),
            ("org.mockito", "mockito-core", "5.20.0"),
        ]
        maven_copy([*tests, *libs, *others], target)


def fetch_bouncy_castle(target: Path = BOUNCY_CASTLE_LIBS) -> None:
    if not target.exists():
        print(f"fetching Bouncy Castle {BOUNCY_CASTLE_VERSION} from Maven Central", flush=True)
        maven_copy([("org.bouncycastle", "bcpkix-jdk18on", BOUNCY_CASTLE_VERSION)], target)


def fetch_jmx_exporter(target: Path = JMX_EXPORTER_LIBS) -> None:
    if not target.exists():
        print(f"fetching Prometheus' JMX exporter {JMX_EXPORTER_VERSION} from Maven Central", flush=True)
        agent = ("io.prometheus.jmx", "jmx_prometheus_javaagent", JMX_EXPORTER_VERSION)
        maven_copy([agent], target, transitive=False)


def fetch_iceberg_rest(target: Path = ICEBERG_REST_LIBS) -> None:
    if not target.exists():
        print(f"fetching Apache Iceberg's REST catalogue {ICEBERG_VERSION} from Maven Central", flush=True)
        core = ("org.apache.iceberg", "iceberg-core", ICEBERG_VERSION)
        jetty = [("org.eclipse.jetty", each, "11.0.25") for each in ("jetty-server", "jetty-servlet")]
        hadoop = [("org.apache.hadoop", f"hadoop-client-{each}", "3.4.1") for each in ("api", "runtime")]
        others = [("org.xerial", "sqlite-jdbc", "3.46.0.0"), ("org.slf4j", "slf4j-simple", "2.0.17")]
        maven_copy([core, (*core, "tests"), *jetty, *hadoop, *others], target)


def fetch_logging_libs() -> Path:
    """Return where the jar is with which Kafka's classes write logs; what compares log lines puts it on the path."""
    target = TOOLS / "log4j-slf4j-impl"
    if not target.exists():
        maven_copy([("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION)], target, transitive=False)
    return target


def install(package: str, missing: str, failed: str) -> None:
    """Install a Debian package where we may (as root); print `missing` where we may not, `failed` if it fails.

    RUNLEVEL=1 keeps Debian from starting the package's service, except where systemd runs.
    """
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(missing, flush=True)
        return
    environment = {**os.environ, "RUNLEVEL": "1"}
    installing = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
    for command in (["apt-get", "update", "-qq"], installing):
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            print(failed, flush=True)
            return


def fetch_kcat() -> None:
    """Install kcat where we may (root on Debian); elsewhere say so, and the tests that use it skip themselves."""
    if not kcat():
        missing = f"{KCAT_MISSING}: its tests will be skipped, and the benchmark needs it"
        install("kafkacat", missing, "kcat could not be installed: its tests will be skipped")


def kcat() -> str | None:
    """Return the path of kcat (Debian calls it kafkacat in older releases), None where there is none."""
    return shutil.which("kcat") or shutil.which("kafkacat")


CHROMIUM_MISSING = "Chromium is missing and cannot be installed from here: install it (Debian: chromium)"


def fetch_chromium() -> None:
    """Install Chromium where we may (root on Debian); elsewhere say so, and the console's tests skip themselves."""
    if not chromium():
        missing = f"{CHROMIUM_MISSING}: the console's tests in it will be skipped"
        install("chromium", missing, "Chromium could not be installed: the console's tests in it will be skipped")


def chromium() -> str | None:
    """Return the path of Chromium or Chrome, None where there is neither."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path is not None), None)


def fetch_shells() -> None:
    """Install the shells, beside bash, whose completion is tested; where we may not, their tests skip themselves."""
    for shell in ("zsh", "fish"):
        if shutil.which(shell) is None:
            skipped = "the tests of its completion will be skipped"
            missing = f"{shell} is missing and cannot be installed from here: install it (Debian: {shell}): {skipped}"
            install(shell, missing, f"{shell} could not be installed: {skipped}")


def fetch_prometheus() -> None:
    """Install Prometheus and promtool where we may; elsewhere the tests that run them skip themselves.

    Not where systemd runs: the package would start a server there that listens on all addresses, now and at each boot.
    """
    if shutil.which("prometheus") is None:
        skipped = "its tests will be skipped"
        missing = f"prometheus is missing and cannot be installed from here: install it (Debian: prometheus): {skipped}"
        if SYSTEMD.exists():
            print(missing, flush=True)
            return
        install("prometheus", missing, f"prometheus could not be installed: {skipped}")


def main() -> int:
    try:
        fetch_kafka()
        fetch_kafka(PREVIOUS_VERSION)
        fetch_streams()
        fetch_neighbours()
        fetch_upstream_tests()
        fetch_bouncy_castle()
        fetch_old_clients()
        fetch_jmx_exporter()
        fetch_iceberg_rest()
        fetch_kcat()
        fetch_chromium()
        fetch_shells()
        fetch_prometheus()
        for why_not in (fetch_kafkajs(), *map(build, SOURCES)):
            if why_not:
                print(f"{why_not}: its tests will be skipped", flush=True)
    except ToolsMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"fetching failed (exit {error.returncode}): {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
