"""Directories formatted at transaction.version 0, 1 and 2: what is told, what works, how records are written."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.servers import CLUSTER_ID, Kafkapy, free_port
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.batches import batches
from tests.support.client_requests import create_topic, until
from tests.support.features import feature_levels
from tests.support.transactions import TransactionalProducer, last_stable_offset, read_committed
from tests.support.wire import WireClient

pytestmark = pytest.mark.ours

VALUE_VERSIONS = {0: 0, 1: 1, 2: 1}
"""Of the records in `__transaction_state`: the first two bytes of a value."""


def formatted(directory: Path, level: int) -> Kafkapy:
    """Return a broker that is not started, its directory formatted at a level of transaction.version."""
    server = Kafkapy(directory)
    port, controller_port = server.port, free_port()
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "log.dirs": str(directory),
    }
    file = Path(f"{directory}.properties")
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    arguments = ["storage", "format", "-t", CLUSTER_ID, "-c", str(file)]
    arguments += ["--feature", f"transaction.version={level}"]
    result = subprocess.run([sys.executable, "-m", "kafkapy", *arguments], capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stdout + result.stderr
    server.properties = {key: value for key, value in properties.items() if key != "log.dirs"}
    return server


@pytest.mark.parametrize("level", [0, 1, 2])
def test_transactions_work_at_each_level(tmp_path: Path, level: int) -> None:
    with formatted(tmp_path / "data", level) as broker, WireClient(broker.bootstrap) as client:
        assert feature_levels(client).get("transaction.version", 0) == level
        create_topic(client, "orders")
        producer = TransactionalProducer(client, "t")
        assert producer.init() == ErrorCode.NONE
        for value, is_committed in ((b"a", True), (b"b", False), (b"c", True)):
            assert producer.add("orders", version=3) == {"orders": ErrorCode.NONE}
            assert producer.send("orders", value, version=11) == ErrorCode.NONE
            assert producer.end(commit=is_committed, version=4) == ErrorCode.NONE
        assert producer.epoch == 0, "clients of before keep their epoch"
        until(lambda: last_stable_offset(client, "orders") == 6)
        assert read_committed(client, "orders") == [b"a", b"c"]
        newer = TransactionalProducer(client, "t")
        assert producer.add("orders", version=3) == {"orders": ErrorCode.NONE}
        assert newer.init() == ErrorCode.NONE
        assert newer.epoch == 2, "the abort has its own"
    data = (tmp_path / "data" / "__transaction_state-0" / f"{0:020}.log").read_bytes()
    values = [record.value for batch in batches(data) for record in batch.records() if record.value is not None]
    assert {int.from_bytes(value[:2], "big") for value in values} == {VALUE_VERSIONS[level]}
