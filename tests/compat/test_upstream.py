"""Apache Kafka's own integration tests, of its test jars, with clusters that are processes of kafkapy.

Their JUnit extension gives each test a cluster in the test's own process. Here a class of the same name stands first on
the class path (upstream/RaftClusterInvocationContext.java), and each node is `kafkapy start` with the properties that
the test wants of its servers. Tests in Scala extend QuorumTestHarness, whose method that makes a quorum is replaced
before it is loaded (upstream/HarnessQuorum.java). A node that does not end cleanly fails its test, too.

upstream/invocations.tsv names the methods, which invocations of each have passed, and why it is left out if it is ("*"
is each method of a class). With both, the reason is that of its other invocations. Methods that it does not name, and
other invocations without a reason, have not been run. The whole takes hours: `make soak` runs it. Its small part is
`long`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.copying import only_soaked
from tools.kafka import BOUNCY_CASTLE_LIBS, UPSTREAM_TESTS_LIBS

SOURCES = Path(__file__).with_name("upstream")
ROOT = SOURCES.parents[2]
INVOCATIONS = SOURCES / "invocations.tsv"
MAIN = "org.apache.kafka.common.test.UpstreamTests"
SHORT = [
    "org.apache.kafka.clients.admin.AdminFenceProducersTest",
    "org.apache.kafka.tools.GetOffsetShellTest#testTopicPatternArg,testPartitionsArg,testNoFilterOptions",
    "kafka.server.HeartbeatRequestTest",
    "kafka.server.DelegationTokenRequestsTest",
]
"""Raw requests, a client, a tool; one that extends QuorumTestHarness."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK"),
    pytest.mark.skipif(not UPSTREAM_TESTS_LIBS.is_dir(), reason="Apache Kafka's tests are missing: run `make tools`"),
]


@dataclass(frozen=True, slots=True)
class Method:
    """A line of invocations.tsv: `reason` is empty, or says why the method, or what it does not name, is left out."""

    in_class: str
    name: str
    invocations: tuple[str, ...]
    """Such as "2 combined": number and kind of the cluster."""
    reason: str


def listed() -> Iterator[Method]:
    for line in INVOCATIONS.read_text().splitlines()[1:]:
        in_class, name, invocations, reason = line.split("\t")
        yield Method(in_class, name, tuple(filter(None, invocations.split(","))), reason)


def run_methods(wanted: Iterable[Method]) -> list[str]:
    """Return what UpstreamTests is to be told to run these."""
    by_class: dict[str, list[str]] = {}
    for each in wanted:
        by_class.setdefault(each.in_class, []).append(each.name)
    return [f"{in_class}#{','.join(names)}" for in_class, names in by_class.items()]


def invocation(method: str, number_and_kind: str) -> str:
    """Return the name that RaftClusterInvocationContext gives it."""
    number, kind = number_and_kind.split()
    return f"{method} [{number}] {kind}"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("classes")
    sources = [str(each) for each in sorted(SOURCES.glob("*.java"))]
    subprocess.run(["javac", "-cp", f"{UPSTREAM_TESTS_LIBS}/*", "-d", str(target), *sources], check=True)
    return target


def outcomes_of(classes: Path, directory: Path, wanted: list[str], *, only: str = "") -> list[list[str]]:
    """Return a list for each invocation: outcome, class, method, the invocation's name, seconds, message."""
    options = {
        "java.io.tmpdir": str(directory),
        "log4j2.configurationFile": str(SOURCES / "log4j2.properties"),
        "upstream.logs": str(directory),
        "upstream.only": only,
        "upstream.python": sys.executable,
    }
    settings = [f"-D{key}={value}" for key, value in options.items()]
    class_path = f"{classes}:{UPSTREAM_TESTS_LIBS}/*:{BOUNCY_CASTLE_LIBS}/*"
    command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", *settings, "-cp", class_path]
    with open(directory / "errors", "wb") as errors:
        ran = subprocess.run(
            [*command, MAIN, *wanted],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert ran.returncode == 0, f"Java ended with status {ran.returncode}, maybe amid the tests: {directory / 'errors'}"
    lines = [line.split("\t") for line in ran.stdout.splitlines() if line.count("\t") == 5]
    return [line for line in lines if line[0] != "aborted"]


def test_a_part_of_apache_kafkas_own_tests(classes: Path, tmp_path: Path) -> None:
    outcomes = outcomes_of(classes, tmp_path, SHORT, only="combined")
    assert {line[1] for line in outcomes} == {each.partition("#")[0] for each in SHORT}
    assert [line for line in outcomes if line[0] != "successful"] == []


def test_what_ends_amid_its_tests_has_not_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nprintf 'successful\\tTest\\ta\\ta [1] combined\\t0.1\\t\\n'\nexit 3\n")
    java.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(AssertionError, match="Java ended with status 3"):
        outcomes_of(tmp_path, tmp_path, ["Test#a,b"])


@only_soaked
@pytest.mark.parametrize("in_class", sorted({each.in_class for each in listed() if each.invocations}))
def test_what_is_listed_passes(classes: Path, tmp_path: Path, in_class: str) -> None:
    wanted = [each for each in listed() if each.in_class == in_class and each.invocations]
    outcomes = outcomes_of(classes, tmp_path, run_methods(wanted))
    in_part = {each.name for each in wanted if each.reason}
    assert [line for line in outcomes if line[0] != "successful" and line[2] not in in_part] == []
    passed = {line[3] for line in outcomes if line[0] == "successful"}
    assert {invocation(each.name, one) for each in wanted for one in each.invocations} <= passed
