"""Interactive queries of Kafka Streams 4.4.0: each instance finds the others by the endpoints that the broker names.

StreamsQueries.java counts words. Whichever instance is asked for a count, it finds the instance that has the key with
StreamsMetadata, which a streams group's members have from the answers to their heartbeats, and asks it over HTTP.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from confluent_kafka import Producer

from harness.servers import Server, free_port
from tests.compat.conftest import new_server
from tests.compat.test_transactions import create
from tests.support.eventually import eventually
from tests.support.streams_applications import Instance
from tools.kafka import STREAMS_LIBS

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not STREAMS_LIBS.is_dir() or shutil.which("java") is None, reason="`make tools` brings the jars"
    ),
]

PROGRAM = Path(__file__).with_name("StreamsQueries.java")
PROPERTIES = {
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "10000",
    "group.streams.num.standby.replicas": "1",
    "offsets.topic.num.partitions": "1",
}
PARTITIONS = 4
WORDS = [f"word{number}" for number in range(20)]
TIMEOUT_S = 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with new_server(tmp_path / "data", PROPERTIES) as running:
        create(running.bootstrap, "words", partition_count=PARTITIONS)
        yield running


class Queried(Instance):
    """An instance that answers queries at a port."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.port = free_port()
        arguments = [bootstrap, "queried", "words", str(directory / "state"), str(self.port), "group.protocol=streams"]
        super().__init__(PROGRAM, directory, *arguments, heap="128m")

    def ask(self, path: str) -> str:
        """Return an answer, empty if there is none now."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read().decode()
        return text if response.status == 200 else ""

    def counts(self) -> dict[str, int]:
        """Return the counts of all words; empty while one is not answered, or has not been counted yet."""
        answers = {word: self.ask(f"/count?{word}") for word in WORDS}
        if any(text in ("", "null") for text in answers.values()):
            return {}
        return {word: int(text) for word, text in answers.items()}

    def owners(self) -> dict[str, str]:
        return {word: self.ask(f"/owner?{word}") for word in WORDS}


def produce(bootstrap: str, sent: Counter[str], first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        word = WORDS[number * number % len(WORDS)]
        producer.produce("words", word, partition=number % PARTITIONS)
        sent[word] += 1
    assert producer.flush(60) == 0


def test_every_instance_answers_for_all(broker: Server, tmp_path: Path) -> None:
    sent: Counter[str] = Counter(WORDS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for word in WORDS:
        producer.produce("words", word, partition=0)
    assert producer.flush(60) == 0
    produce(broker.bootstrap, sent, 0, 500)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(closing(Queried(broker.bootstrap, tmp_path / name))) for name in ("first", "second")
        )
        ports = {str(first.port), str(second.port)}
        eventually(lambda: first.owners() == second.owners() and shared(first.owners()) == ports, TIMEOUT_S)
        for instance in (first, second):
            eventually(lambda instance=instance: instance.counts() == sent, TIMEOUT_S)
        assert first.ask("/instances") == second.ask("/instances")
        for owner in first.owners().values():
            active, standby, _ = owner.split(" ")
            assert {active, standby} == ports, "the copy is in the other instance"
        first.kill()
        produce(broker.bootstrap, sent, 500, 200)
        eventually(lambda: second.counts() == sent, TIMEOUT_S)
        assert shared(second.owners()) == {str(second.port)}
        assert str(first.port) not in second.ask("/instances")


def shared(owners: dict[str, str]) -> set[str]:
    """Return the ports of the instances that have keys."""
    return {owner.split(" ")[0] for owner in owners.values()}
