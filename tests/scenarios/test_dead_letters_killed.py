"""A broker process kills itself around the append of a dead letter, and around the appends of states before and after.

None is lost. One is there twice only if the broker died after its append, and before the append that it is done: then
Apache Kafka writes it twice, too.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Kafkapy
from kafkapy.server.process.failpoints import VARIABLE
from kafkapy.share.letter_headers import OFFSET_HEADER
from tests.support.client_requests import LATEST, batch_of, consume, create_topic, list_offset, produce, until
from tests.support.group_configs import set_group_configs
from tests.support.offsets import find_coordinator
from tests.support.share_members import ShareMember
from tests.support.wire import ConnectionClosed, WireClient

pytestmark = [pytest.mark.long, pytest.mark.ours]

ACCEPT, REJECT = 1, 3
GROUP, TOPIC, DEAD = "g", "orders", "dlq.orders"
REJECTED = 1
PROPERTIES = {
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}
ARCHIVING, ARCHIVED = 2, 3
"""The appends of states: the first initialises the state."""
CASES = [
    (f"share.write.before_append=kill@{ARCHIVING}", False, 1),
    (f"share.write.after_append=kill@{ARCHIVING}", True, 1),
    ("share.dead_letter.before_append=kill", True, 1),
    ("share.dead_letter.after_append=kill", True, 2),
    (f"share.write.before_append=kill@{ARCHIVED}", True, 2),
    (f"share.write.after_append=kill@{ARCHIVED}", True, 1),
]


class Worker:
    """Rejects one of three records, until the broker dies, and again after its start if it comes again."""

    def __init__(self) -> None:
        self.topic_id = b""
        self.given: list[int] = []
        """The offsets that came, in order."""

    def prepare(self, broker: Kafkapy) -> None:
        with WireClient(broker.bootstrap) as client:
            self.topic_id = create_topic(client, TOPIC)
            create_topic(client, DEAD, errors_deadletterqueue_group_enable="true")
            own = {"share_auto_offset_reset": "earliest", "errors_deadletterqueue_topic_name": DEAD}
            set_group_configs(client, GROUP, **own)
            assert produce(client, TOPIC, batch_of(3)).error_code == 0

    def work(self, broker: Kafkapy) -> None:
        """Acknowledge what comes, until the rejected record is a dead letter and nothing is left."""
        with WireClient(broker.bootstrap) as client:
            find_coordinator(client, GROUP)
            member = ShareMember(client, GROUP, self.topic_id)
            member.join(TOPIC)

            def is_done() -> bool:
                response = member.fetch(max_wait_ms=500)
                ranges = [
                    each for topic in response.responses for part in topic.partitions for each in part.acquired_records
                ]
                for each in ranges:
                    offsets = range(each.first_offset, each.last_offset + 1)
                    self.given += offsets
                    types = [REJECT if offset == REJECTED else ACCEPT for offset in offsets]
                    member.acknowledge((each.first_offset, each.last_offset, types))
                return not ranges and REJECTED in letters(client)

            until(is_done)


def letters(client: WireClient) -> list[int]:
    end = list_offset(client, DEAD, LATEST).offset
    found = consume(client, DEAD, offset=0, end_offset=end)
    return [int(dict(each.headers)[OFFSET_HEADER] or b"") for each in found]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafkapy]:
    server = Kafkapy(tmp_path / "data", PROPERTIES)
    yield server
    server.stop()


@pytest.mark.parametrize(("point", "is_rejected", "count"), CASES, ids=[point for point, _, _ in CASES])
def test_a_dead_letter_is_not_lost(
    broker: Kafkapy, point: str, count: int, monkeypatch: pytest.MonkeyPatch, *, is_rejected: bool
) -> None:
    worker = Worker()
    monkeypatch.setenv(VARIABLE, point)
    broker.start()
    worker.prepare(broker)
    with pytest.raises((ConnectionClosed, OSError)):
        worker.work(broker)
    assert broker.process is not None
    assert broker.process.wait(60) == -signal.SIGKILL
    assert worker.given == [0, 1, 2]
    monkeypatch.delenv(VARIABLE)
    broker.start()
    worker.work(broker)
    assert worker.given == ([0, 1, 2] if is_rejected else [0, 1, 2, 0, 1, 2])
    with WireClient(broker.bootstrap) as client:
        assert letters(client) == [REJECTED] * count
