"""Apache Kafka's command line tools, run one after the other in one JVM, whose start costs most of the time."""

import base64
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tools.kafka import JAVA_LIBS

SOURCE: Final = Path(__file__).parents[1] / "compat" / "ToolRunner.java"
CLASSES: Final = {
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}
"""By the names of the scripts."""


TIMED_OUT: Final = 124
OWN_JVM: Final = ("ConsoleProducer", "ConsoleConsumer", "ConsoleShareConsumer", "VerifiableShareConsumer")
"""These count records in static fields and end by a shutdown hook."""


class Printed(NamedTuple):
    """How a tool ended, and all that it printed."""

    status: int
    text: str


class Ended(NamedTuple):
    """How a class ended, all that it printed, and what of that was standard output."""

    status: int
    text: str
    output: str


def are_here() -> bool:
    return JAVA_LIBS.is_dir() and shutil.which("java") is not None


class JavaTools:
    """The JVM that runs them, started with the first one; a context manager that ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def run(self, script: str, *arguments: str) -> Printed:
        """Run a tool, by its script's name, to its end."""
        ended = self.call(CLASSES[script], *arguments)
        return Printed(ended.status, ended.text)

    def call(self, main_class: str, *arguments: str, stdin: str = "", timeout_s: float = 180) -> Ended:
        """Run a class that has a main method to its end. Raises TimeoutError."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        words = (stdin, main_class, *arguments)
        process.stdin.write("\t".join((str(int(timeout_s * 1000)), *map(_encoded, words))) + "\n")
        process.stdin.flush()
        response = process.stdout.readline().strip("\n").split("\t")
        assert len(response) == 3, f"the JVM of the tools has ended in {main_class}"
        status, output, text = int(response[0]), _decoded(response[1]), _decoded(response[2])
        if status == TIMED_OUT:
            raise TimeoutError(f"{main_class} runs for more than {timeout_s} s:\n{text}")
        return Ended(status, text, output)

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{JAVA_LIBS}/*"]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                [*command, str(SOURCE)], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
        return self._process


def _encoded(word: str) -> str:
    return base64.b64encode(word.encode()).decode()


def _decoded(printed: str) -> str:
    """Return the text without what SLF4J says of itself."""
    lines = base64.b64decode(printed).decode().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("SLF4J"))
