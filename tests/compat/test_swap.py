"""One directory, both brokers: Apache Kafka goes on where kafkapy stopped, and kafkapy where Apache Kafka did."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from benchmarks.servers import ApacheKafka, Kafkapy
from tests.compat.test_confluent_kafka import consume, create, produce
from tests.compat.test_restart import facts
from tools.kafka import JAVA_LIBS


@pytest.mark.skipif(not JAVA_LIBS.is_dir(), reason="Apache Kafka's jars are missing: run `make tools`")
def test_there_and_back_again(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with Kafkapy(directory) as ours:
        create(AdminClient({"bootstrap.servers": ours.bootstrap}), "kept", 3, retention_ms="7200000")
        produce(ours.bootstrap, "kept", 300, **{"compression.type": "zstd", "enable.idempotence": True})
        before = facts(ours.bootstrap, "kept")
    for turn, kind in enumerate((ApacheKafka, Kafkapy, ApacheKafka, Kafkapy)):
        with kind(directory) as server:
            assert facts(server.bootstrap, "kept") == before
            count = 300 + 100 * turn
            assert [m.offset() for m in consume(server.bootstrap, "kept", count)] == list(range(count))
            assert produce(server.bootstrap, "kept", 100) == list(range(count, count + 100))
