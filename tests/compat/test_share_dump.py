"""What share groups leave in the logs: kafkapy dump-log prints it line by line as Apache Kafka's DumpLogSegments."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.servers import Kafkapy
from tests.support.client_requests import batch_of, create_topic, produce
from tests.support.group_configs import set_group_configs
from tests.support.offsets import find_coordinator
from tests.support.share_members import LEAVES, ShareMember
from tests.support.wire import WireClient
from tools.kafka import JAVA_LIBS

pytestmark = [
    pytest.mark.ours,
    pytest.mark.skipif(not JAVA_LIBS.is_dir(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}
GAP, ACCEPT, RELEASE, REJECT = range(4)
LOGS = {"--share-group-state-decoder": "__share_group_state-0", "--offsets-decoder": "__consumer_offsets-0"}
RECORDS = {
    "--share-group-state-decoder": ('{"type":"0","data"', '{"type":"1","data"', '"deliveryState":2', '"startOffset":4'),
    "--offsets-decoder": ('{"type":"11","data"', '{"type":"14","data"', '{"type":"15","data"'),
}
"""Snapshots and updates of a state; epochs, assignments and states of a share group."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a stopped broker on which a share group acknowledged records in each way."""
    path = tmp_path_factory.mktemp("dumped") / "data"
    with Kafkapy(path, PROPERTIES) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_topic(client, "orders")
        set_group_configs(client, "queue", share_auto_offset_reset="earliest")
        find_coordinator(client, "queue")
        assert produce(client, "orders", batch_of(20)).error_code == 0
        member = ShareMember(client, "queue", topic_id)
        member.join("orders")
        assert member.acquire(20) == [(0, 19, 1)]
        for batch in ((0, 3, [ACCEPT]), (5, 5, [REJECT]), (6, 7, [RELEASE]), (8, 9, [ACCEPT, GAP]), (12, 12, [ACCEPT])):
            assert member.acknowledge(batch) == 0
        member.heartbeat(member_epoch=LEAVES)
    return path


@pytest.mark.parametrize("decoder", list(LOGS))
def test_the_logs_of_share_groups_are_dumped_alike(
    directory: Path, java_tool: Callable[..., str], decoder: str
) -> None:
    (segment,) = (directory / LOGS[decoder]).glob("*.log")
    theirs = java_tool(DUMP, decoder, "--files", str(segment))
    command = [sys.executable, "-m", "kafkapy", "dump-log", decoder, str(segment)]
    mine = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for record in RECORDS[decoder]:
        assert record in theirs
    assert mine.splitlines() == theirs.splitlines()
