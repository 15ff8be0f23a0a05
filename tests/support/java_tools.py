"""Apache Kafka's command line tools, run one after the other in one JVM, whose start costs most of the time."""

import base64
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
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}
"""By the names of the scripts."""


class Printed(NamedTuple):
    """How a tool ended, and all that it printed."""

    status: int
    text: str


class JavaTools:
    """A context manager over the JVM that runs them."""

    def __enter__(self) -> Self:
        command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{JAVA_LIBS}/*"]
        self._process = subprocess.Popen(
            [*command, str(SOURCE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, script: str, *arguments: str) -> Printed:
        """Run a tool to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join((CLASSES[script], *arguments)) + "\n")
        self._process.stdin.flush()
        status, _, text = self._process.stdout.readline().strip().partition("\t")
        lines = base64.b64decode(text).decode().splitlines(keepends=True)
        return Printed(int(status), "".join(line for line in lines if not line.startswith("SLF4J:")))
