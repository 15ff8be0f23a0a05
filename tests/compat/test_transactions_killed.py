"""kill -9 of the broker and of copiers amid transactions: the copies equal the sources, once and in order.

Copiers by librdkafka (tests/support/copier.py) in both group protocols, and Apache Kafka's TransactionalMessageCopier
in both of its modes. A read_committed consumer reads along and must see the same. 20,000 records in transactions of 750
and two kills; with KAFKAPY_SOAK_SEEDS 100,000 and twelve.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Server, java
from tests.compat.conftest import QUICK_JVM, new_server
from tests.support.copying import (
    BROKER_PROPERTIES,
    LOAD,
    PARTITIONS,
    SHORT,
    SOURCES,
    check_copies_through_kills,
    fill_sources,
    only_soaked,
)
from tests.support.group_starts import commit_starts
from tools.kafka import JAVA_LIBS

pytestmark = pytest.mark.long


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with new_server(tmp_path / "data", BROKER_PROPERTIES) as running:
        fill_sources(running.bootstrap, LOAD.records)
        yield running


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafkas_copies_are_exact(broker: Server, protocol: str) -> None:
    commit_starts(broker.bootstrap, "copiers", SOURCES, PARTITIONS)
    command = [sys.executable, "-m", "tests.support.copier", broker.bootstrap, "copiers", protocol]
    of_load = [str(LOAD.transaction_records), *SOURCES]
    check_copies_through_kills(broker, [[*command, f"copier-{slot}", *of_load] for slot in range(2)])


def java_copier(broker: Server, transactional_id: str, topic: str, partition: int, *mode: str) -> list[str]:
    return java(
        "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", broker.bootstrap,
        "--transactional-id", transactional_id, "--input-topic", topic, "--output-topic", f"{topic}-copy",
        "--input-partition", str(partition), "--consumer-group", f"java-{topic}", "--max-messages", "-1",
        "--transaction-size", str(LOAD.transaction_records), "--enable-random-aborts", *mode,
        heap="128m", options=QUICK_JVM.split(),
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["group", pytest.param("assigned", marks=only_soaked)])
def test_javas_copies_are_exact(broker: Server, mode: str) -> None:
    """Members of a group, who commit with its metadata, or one copier for each partition, in no group."""
    if not JAVA_LIBS.is_dir():
        pytest.skip("Apache Kafka's jars are missing: run `make tools`")
    options = ["--group-mode", "--use-group-metadata"] if mode == "group" else []
    commands = [
        java_copier(broker, f"java-{topic}-{number}", topic, number, *options)
        for topic in SOURCES
        for number in range(1 if LOAD is SHORT else PARTITIONS)
    ]
    check_copies_through_kills(broker, commands)
