"""Apache Kafka as tests run it: a small JVM that compiles little. Comparisons run it as its own scripts do."""

from pathlib import Path

from harness.servers import QUICK_JVM, ApacheKafka, PreviousKafka


class QuickKafka(ApacheKafka):
    """An Apache Kafka that takes a third less CPU until it has started."""

    def __init__(self, directory: Path, properties: dict[str, str] | None = None) -> None:
        super().__init__(directory, properties)
        self.heap, self.jvm_options = "384m", QUICK_JVM


class QuickPreviousKafka(QuickKafka):
    """The release before it."""

    version = PreviousKafka.version
