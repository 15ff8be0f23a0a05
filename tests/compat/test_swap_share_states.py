"""One directory, both brokers: the states of share partitions that one kept, the other reads and carries on.

Each is stopped in order, or killed. Share groups are off (share.version 0), for which the coordinator of their states
does not ask, in either broker.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.servers import CLUSTER_ID, Kafkapy, Server
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.persister import StateBatch
from tests.support.client_requests import create_topic, until
from tests.support.share_states import StateClient
from tests.support.wire import WireClient
from tools.kafka import JAVA_LIBS
from tools.record_transactions import SmallKafka

pytestmark = pytest.mark.long

PROPERTIES = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}
TURNS = (
    (Kafkapy, signal.SIGTERM),
    (SmallKafka, signal.SIGKILL),
    (Kafkapy, signal.SIGKILL),
    (SmallKafka, signal.SIGTERM),
)
WRITES = 5
"""Writes of a turn: more than the updates after which a snapshot is written."""


class Kept:
    """What both brokers must know: one share partition goes on, the other is deleted and begins anew each turn."""

    def __init__(self) -> None:
        self.topic_id = b""
        self.offset = 0
        self.leader_epoch = 0

    def begin(self, client: WireClient) -> None:
        self.topic_id = create_topic(client, "orders", 2)
        for partition in (0, 1):
            state = StateClient(client, "g", self.topic_id, partition)
            state.find()
            until(lambda: state.initialize() == ErrorCode.NONE)  # noqa: B023

    def check_and_go_on(self, client: WireClient) -> None:
        state = StateClient(client, "g", self.topic_id)
        state.find()
        until(lambda: state.summary().error_code == 0)
        self._check(state)
        self.leader_epoch += 1
        assert state.read(self.leader_epoch).error_code == ErrorCode.NONE
        assert state.write(leader=self.leader_epoch - 1) == ErrorCode.FENCED_LEADER_EPOCH
        for _ in range(WRITES):
            runs = [(self.offset, self.offset, 2, 1), (self.offset + 1, self.offset + 2, 0, 1)]
            self.offset += 1
            written = state.write(*runs, leader=self.leader_epoch, start=self.offset - 1, count=self.offset)
            assert written == ErrorCode.NONE
        other = StateClient(client, "g", self.topic_id, 1)
        assert other.delete() == ErrorCode.NONE
        assert other.read().error_code == ErrorCode.INVALID_REQUEST
        assert other.initialize(start_offset=self.offset) == ErrorCode.NONE

    def _check(self, state: StateClient) -> None:
        summary = state.summary()
        assert (summary.leader_epoch, summary.delivery_complete_count) == (self.leader_epoch, self.offset or -1)
        read = state.read(self.leader_epoch)
        last = self.offset - 1
        expected = [StateBatch(last, last, 2, 1), StateBatch(last + 1, last + 2, 0, 1)] if self.offset else []
        assert (read.start_offset, read.state_batches) == (last, expected)
        other = StateClient(state.client, "g", self.topic_id, 1)
        assert other.summary().start_offset == (self.offset or -1)


@pytest.mark.skipif(not JAVA_LIBS.is_dir(), reason="Apache Kafka's jars are missing: run `make tools`")
def test_each_broker_carries_on_the_states_that_the_other_kept(tmp_path: Path) -> None:
    directory, kept = tmp_path / "data", Kept()
    format_directory(directory)
    for kind, with_signal in TURNS:
        server: Server = kind(directory, PROPERTIES)
        server.prepare()
        server.start()
        try:
            with WireClient(server.bootstrap) as client:
                if not kept.topic_id:
                    kept.begin(client)
                kept.check_and_go_on(client)
        finally:
            server.stop(with_signal)
    with Kafkapy(directory, PROPERTIES) as ours, WireClient(ours.bootstrap) as client:
        kept.check_and_go_on(client)


def format_directory(directory: Path) -> None:
    """Format for both brokers: voters in the log, as both write them."""
    command = [sys.executable, "-m", "kafkapy", "storage", "format", "--standalone", "-t", CLUSTER_ID]
    properties = SmallKafka(directory, PROPERTIES)
    properties.write_properties()
    subprocess.run([*command, "-c", str(properties.properties_file)], check=True, capture_output=True)
