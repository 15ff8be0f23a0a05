"""docs/migration.md: its commands, run in their order on one node, which becomes kafkapy's and Apache Kafka's again.

What Apache Kafka's start and stop scripts do, the harness does: only its jars are here. With three nodes under load:
test_migration.py.
"""

import os
import shlex
import shutil
from pathlib import Path
from typing import Final

import pytest

from harness.servers import QUICK_JVM, ApacheKafka, java
from tests.support.eventually import eventually
from tests.support.pages import ROOT, Block, Reader, blocks, new_reader
from tools.kafka import JAVA_LIBS

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="it has both kinds as it is"),
    pytest.mark.skipif(not JAVA_LIBS.is_dir() or shutil.which("java") is None, reason="`make tools` brings the jars"),
]
PAGE: Final = ROOT / "docs" / "migration.md"
TOOLS: Final = {
    "kafka-features.sh": "org.apache.kafka.tools.FeatureCommand",
    "kafka-metadata-quorum.sh": "org.apache.kafka.tools.MetadataQuorumCommand",
}
TIMEOUT_S: Final = 120


def test_the_commands_of_the_page_take_a_node_there_and_back(tmp_path: Path) -> None:
    node = ApacheKafka(tmp_path / "node")
    node.heap, node.jvm_options = "256m", QUICK_JVM
    replaced = {"/etc/kafka/server.properties": str(node.properties_file), "HOST": node.bootstrap}
    with node, new_reader(tmp_path, replaced) as reader:
        for name, main_class in TOOLS.items():
            command = java(main_class, heap="128m", options=QUICK_JVM)
            reader.write_program(name, f'exec {shlex.join(command)} "$@"')
        printed = [run(reader, node, block) for block in blocks(PAGE.read_text())]
    assert any("LeaderId:" in text for text in printed)
    assert sum("nothing is in the way" in text for text in printed) == 4


def run(reader: Reader, node: ApacheKafka, block: Block) -> str:
    """Run a block; what Apache Kafka's scripts would do is done by the harness."""
    if block.text.startswith("kafka-server-stop.sh"):
        node.stop(timeout_s=TIMEOUT_S)
        return ""
    if block.text.startswith("kafka-server-start.sh"):
        node.start(TIMEOUT_S)
        return ""
    if block.words.startswith("background"):
        printed = reader.run(block)
        reader.replace("PID", str(reader.background.pid))
        return printed
    if "kafkapy cluster check" in block.text and block.status == 0:
        return str(eventually(lambda: passed(reader, block), TIMEOUT_S))  # a feature's level comes a moment later
    printed = reader.run(block)
    if "kill -TERM" in block.text:
        assert reader.background.wait(TIMEOUT_S) == 0
    return printed


def passed(reader: Reader, block: Block) -> str | None:
    """Return what a block printed, None if it ended with another status."""
    try:
        return reader.run(block)
    except AssertionError:
        return None
