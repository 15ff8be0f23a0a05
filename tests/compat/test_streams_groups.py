"""Kafka Streams 4.4.0 with group.protocol=streams (KIP-1071): the words it counts, what tools tell.

The application (StreamsCount.java) counts through a repartition topic into a store with a changelog topic, exactly
once, with two threads. Both topics are made by the broker.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from harness.servers import Server
from tests.compat.conftest import new_server
from tests.compat.test_kafka_streams import PROGRAM, Feed, create
from tests.support.copying import only_soaked
from tests.support.streams_applications import Instance
from tools.kafka import STREAMS_LIBS

pytestmark = pytest.mark.long

GROUPS_TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
PROPERTIES = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
COUNT = 700
TIMEOUT_S = 240
PATIENT = ("producer.transaction.timeout.ms=600000", "max.poll.interval.ms=600000")
"""Of an application that lives on while a broker is away: Apache Kafka ends one whose transaction has timed out."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    if not STREAMS_LIBS.is_dir() or shutil.which("java") is None:
        pytest.skip("Kafka Streams' jars or Java are missing: run `make tools`")
    with new_server(tmp_path / "data", PROPERTIES) as running:
        create(running.bootstrap, "words", "word-counts", partition_count=2)
        yield running


def new_instance(bootstrap: str, directory: Path, *configs: str) -> Instance:
    """Start an instance. `configs`: NAME=VALUE."""
    arguments = [bootstrap, "counting", "words", "word-counts", str(directory / "state"), "streams", *configs]
    return Instance(PROGRAM, directory, *arguments)


def read_until(feed: Feed, count: int, instances: list[Instance], *, sending: bool) -> None:
    """Read so many counts; an instance that has ended is started again.

    One ends on a busy machine by an InvalidTxnStateException, with Apache Kafka too: the coordinator has aborted its
    transaction after producer.transaction.timeout.ms, and Kafka Streams takes that for fatal.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while feed.read < count:
        assert time.monotonic() < deadline, (
            f"{feed.read} of {count} counts came; the application said:\n{[each.printed() for each in instances]}"
        )
        feed.turn() if sending else feed.read_counts()
        for instance in instances:
            if instance.has_ended():
                instance.start()


@only_soaked  # a minute; test_kafka_streams_groups.py has instances that come and are killed in CI
def test_counts_are_exact_while_an_instance_joins_and_another_dies(
    broker: Server, tmp_path: Path, java_tool: Callable[..., str]
) -> None:
    with closing(Feed(broker.bootstrap)) as feed, closing(new_instance(broker.bootstrap, tmp_path / "a")) as first:
        read_until(feed, COUNT, [first], sending=True)
        with closing(new_instance(broker.bootstrap, tmp_path / "b")) as second:
            read_until(feed, 2 * COUNT, [first, second], sending=True)
            first.close()  # its tasks move once its session has expired
            read_until(feed, feed.sent.total(), [second], sending=False)
            members = java_tool(
                GROUPS_TOOL, "--bootstrap-server", broker.bootstrap, "--describe", "--group", "counting", "--members"
            )
            listed = java_tool(GROUPS_TOOL, "--bootstrap-server", broker.bootstrap, "--list", "--state")
        feed.read_counts()
        assert feed.counts == {word: list(range(1, count + 1)) for word, count in feed.sent.items()}
    assert "StreamThread-1" in members, members
    assert Counter(listed.split())["counting"] == 1, listed
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
    assert {"counting-by-word-repartition", "counting-counts-changelog"} <= topics.keys()
