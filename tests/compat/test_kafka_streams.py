"""Kafka Streams 4.4.0, exactly_once_v2: an application is killed with -9 while words flow; its counts are exact.

The application (StreamsCount.java) counts words through a repartition topic into a store with a changelog topic. It
writes a count for each word it reads: of a word that was sent n times a read_committed consumer gets 1, 2, ... n.
"""

import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.servers import Server
from tests.compat.conftest import new_server
from tests.compat.test_transactions import create
from tests.support.streams_applications import Instance
from tools.kafka import STREAMS_LIBS

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).with_name("StreamsCount.java")
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
WORDS = [f"word-{number}" for number in range(7)]
PARTITIONS = 2
IN_FRONT = 300
"""So many words are on their way, to be counted."""
STEP = 700
"""So many counts are read between two kills."""
TIMEOUT_S = 240


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    if not STREAMS_LIBS.is_dir() or shutil.which("java") is None:
        pytest.skip("Kafka Streams' jars or Java are missing: run `make tools`")
    with new_server(tmp_path / "data", PROPERTIES) as running:
        create(running.bootstrap, "words", "word-counts", partition_count=PARTITIONS)
        yield running


class Feed:
    """Sends words, and reads the counts that become committed."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition("word-counts", number, 0) for number in range(PARTITIONS)])
        self.sent: Counter[str] = Counter()
        self.counts: dict[str, list[int]] = {}
        self.read = 0

    def turn(self) -> None:
        for number in range(self.sent.total(), self.read + IN_FRONT):
            word = WORDS[number % len(WORDS)]
            self._producer.produce("words", word.encode(), partition=number % PARTITIONS)
            self.sent[word] += 1
        self._producer.poll(0)
        self.read_counts()

    def read_counts(self) -> None:
        for message in self._consumer.consume(1000, 0.1):
            if message.error() is None:
                self.counts.setdefault(message.key().decode(), []).append(int.from_bytes(message.value(), "big"))
                self.read += 1

    def close(self) -> None:
        self._consumer.close()


def run_until(application: Instance, feed: Feed, count: int, *, sending: bool = True) -> None:
    """Read so many counts; the application is started again whenever it ends."""
    deadline = time.monotonic() + TIMEOUT_S
    while feed.read < count:
        assert time.monotonic() < deadline, (
            f"{feed.read} of {count} counts came; the application said:\n{application.printed()}"
        )
        feed.turn() if sending else feed.read_counts()
        if application.has_ended():
            application.start()


def test_counts_are_exact_over_kills(broker: Server, tmp_path: Path) -> None:
    state_directory = tmp_path / "state"
    arguments = [broker.bootstrap, "counting", "words", "word-counts", str(state_directory)]
    with closing(Instance(PROGRAM, tmp_path, *arguments)) as application, closing(Feed(broker.bootstrap)) as feed:
        run_until(application, feed, STEP)
        application.kill()  # its store is there again, and not to be trusted
        run_until(application, feed, 2 * STEP)
        application.kill()
        shutil.rmtree(state_directory)  # another process in the place of the first
        run_until(application, feed, 3 * STEP)
        broker.stop(signal.SIGKILL)
        broker.start()
        run_until(application, feed, 4 * STEP)
        run_until(application, feed, feed.sent.total(), sending=False)
        feed.read_counts()
        assert feed.counts == {word: list(range(1, count + 1)) for word, count in feed.sent.items()}
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
    assert {"counting-by-word-repartition", "counting-counts-changelog"} <= topics.keys()
