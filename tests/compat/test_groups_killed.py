"""kill -9 of the broker amid rebalances, with stock consumers of each protocol: no record and no commit is lost."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message

from harness.servers import Server
from tests.compat.conftest import new_server
from tests.compat.test_groups_consumer import GROUP_PROPERTIES, create, produce
from tests.support.committed import committed_offsets
from tests.support.group_starts import commit_starts

pytestmark = pytest.mark.long

TOPIC, GROUP, PARTITIONS, RECORDS = "orders", "g", 4, 120
TIMEOUT_S = 90
CLASSIC = {"group.protocol": "classic", "heartbeat.interval.ms": 300, "session.timeout.ms": 6_000}
PROTOCOLS = {
    "eager": {**CLASSIC, "partition.assignment.strategy": "range"},
    "cooperative": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with new_server(tmp_path / "data", GROUP_PROPERTIES) as running:
        yield running


class Readers:
    """Consumers that commit each record after they have read it, and what they were told is committed."""

    def __init__(self, broker: Server, settings: dict[str, object]) -> None:
        self.broker = broker
        self.settings = settings
        self.consumers: list[Consumer] = []
        self.seen: set[str] = set()
        self.acknowledged: dict[int, int] = {}
        self.uncommitted: dict[Consumer, Message] = {}
        """What a consumer read last, if its commit failed: while it keeps the partition nobody reads that again."""

    def add(self) -> None:
        basics = {"bootstrap.servers": self.broker.bootstrap, "group.id": GROUP, "enable.auto.commit": False}
        patience = {"reconnect.backoff.max.ms": 200, "log_level": 0, "auto.offset.reset": "earliest"}
        consumer = Consumer({**basics, **patience, **self.settings})
        consumer.subscribe([TOPIC])
        self.consumers.append(consumer)

    def poll(self) -> None:
        """Have each consumer read and commit one record, if there is one."""
        for consumer in self.consumers:
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                self.seen.add(message.value().decode())
                self.uncommitted[consumer] = message
            if consumer in self.uncommitted:
                self.commit(consumer, self.uncommitted[consumer])

    def commit(self, consumer: Consumer, message: Message) -> None:
        """Commit what was read, unless another consumer has the partition by now: that one reads it again."""
        owned = {each.partition for each in consumer.assignment()}
        if message.partition() in owned:
            try:
                (position,) = consumer.commit(message, asynchronous=False)
            except KafkaException:  # amid a rebalance, or the broker has just gone: tried again
                return
            if position.error is not None:
                return
            self.acknowledged[position.partition] = position.offset
        del self.uncommitted[consumer]

    def poll_until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_done():
            assert time.monotonic() < deadline, [consumer.assignment() for consumer in self.consumers]
            self.poll()

    def committed(self) -> dict[int, int]:
        return committed_offsets(self.broker.bootstrap, GROUP)

    def kill_broker(self) -> None:
        """Nothing that was acknowledged is gone afterwards; a commit whose response was lost may be there, too."""
        self.broker.stop(signal.SIGKILL)
        self.broker.start()
        found = self.committed()
        assert all(found[partition] >= offset for partition, offset in self.acknowledged.items()), found

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_lost_when_the_broker_is_killed_amid_rebalances(broker: Server, protocol: str) -> None:
    create(broker.bootstrap, TOPIC, PARTITIONS)
    produce(broker.bootstrap, TOPIC, RECORDS, PARTITIONS)
    commit_starts(broker.bootstrap, GROUP, [TOPIC], PARTITIONS)
    with closing(Readers(broker, PROTOCOLS[protocol])) as readers:
        readers.add()
        readers.add()
        readers.poll_until(lambda: len(readers.seen) >= 20)
        readers.add()
        readers.poll()
        readers.kill_broker()
        readers.poll_until(lambda: len(readers.seen) >= 70)
        readers.add()
        readers.consumers.pop(0).close()
        readers.kill_broker()
        readers.poll_until(lambda: len(readers.seen) == RECORDS)
        readers.poll_until(lambda: sum(readers.committed().values()) == RECORDS)
        assert readers.committed() == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
