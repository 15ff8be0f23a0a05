"""A broker process kills itself around an append of the share coordinator, while it loads, snapshots or prunes.

Whatever the step, what was answered stays.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Kafkapy
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.server.process.failpoints import VARIABLE
from kafkapy.share.persister import StateBatch
from tests.support.client_requests import create_topic, until
from tests.support.share_states import StateClient
from tests.support.wire import ConnectionClosed, WireClient

pytestmark = [pytest.mark.long, pytest.mark.ours]

PROPERTIES = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "share.coordinator.cold.partition.snapshot.interval.ms": "300",
    "share.coordinator.state.topic.prune.interval.ms": "500",
}
INITIALIZED = 1
"""The appends before the first write."""
KILLED_AT = 13


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafkapy]:
    server = Kafkapy(tmp_path / "data", PROPERTIES)
    yield server
    server.stop()


class Work:
    """Writes one offset after another as acknowledged, until the broker dies."""

    def __init__(self) -> None:
        self.topic_id = b""
        self.answered = 0

    def run(self, broker: Kafkapy) -> None:
        with WireClient(broker.bootstrap) as client:
            self.topic_id = create_topic(client, "orders")
            state = StateClient(client, "g", self.topic_id)
            state.find()
            assert state.initialize() == ErrorCode.NONE
            for offset in range(100_000):
                assert state.write((offset, offset, 2, 1), count=offset + 1) == ErrorCode.NONE
                self.answered = offset + 1

    def check(self, broker: Kafkapy, *possible: int) -> None:
        """Check that one of these numbers of writes is there, and that writes go on."""
        with WireClient(broker.bootstrap) as client:
            state = StateClient(client, "g", self.topic_id)
            state.find()
            until(lambda: state.summary().error_code == 0)
            written = state.summary().delivery_complete_count
            assert written in possible
            assert state.read().state_batches == [StateBatch(0, written - 1, 2, 1)]
            assert state.write((written + 9, written + 9, 2, 1), count=written + 1) == ErrorCode.NONE


def run_until_killed(broker: Kafkapy, point: str, work: Work | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, point)
    try:
        broker.start()
        if work is not None:
            work.run(broker)
    except (ConnectionClosed, OSError, RuntimeError):
        pass  # it died, at its start or later
    process = broker.process
    assert process is None or process.wait(60) == -signal.SIGKILL
    monkeypatch.delenv(VARIABLE)


@pytest.mark.parametrize(("step", "is_written"), [("before_append", False), ("after_append", True)])
def test_a_write_is_there_or_was_not_answered(
    broker: Kafkapy, step: str, monkeypatch: pytest.MonkeyPatch, *, is_written: bool
) -> None:
    work = Work()
    run_until_killed(broker, f"share.write.{step}=kill@{KILLED_AT}", work, monkeypatch)
    assert work.answered == KILLED_AT - INITIALIZED - 1
    broker.start()
    work.check(broker, work.answered + is_written)


@pytest.mark.parametrize("point", ["share.snapshot.after_append=kill@2", "share.prune.after_delete=kill@2"])
def test_a_kill_amid_maintenance_loses_nothing(broker: Kafkapy, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    run_until_killed(broker, point, work, monkeypatch)
    assert work.answered > 0
    broker.start()
    work.check(broker, work.answered, work.answered + 1)


def test_a_kill_while_states_are_loaded_changes_nothing(broker: Kafkapy, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    run_until_killed(broker, f"share.write.before_append=kill@{KILLED_AT}", work, monkeypatch)
    run_until_killed(broker, "share.load.replayed=kill", None, monkeypatch)
    broker.start()
    work.check(broker, work.answered)
