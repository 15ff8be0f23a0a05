"""Dead letters that cannot be written: what Apache Kafka 4.4.0 and kafkapy make of the record that was given up.

It is archived, does not come again, and the share partition goes on; ours says in its log why there is no letter.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, TopicPartition

from harness.servers import Kafkapy, Server
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from tests.compat.test_dead_letters import ENABLED, NAME, PROPERTIES, Cluster
from tests.support.quick_kafka import QuickKafka
from tests.support.wire import WireClient

pytestmark = [pytest.mark.ours, pytest.mark.long]  # it starts both brokers itself

NO_TOPICS_MADE = {**PROPERTIES, "errors.deadletterqueue.auto.create.topics.enable": "false"}
MISSING = "does not exist, and errors.deadletterqueue.auto.create.topics.enable is false"
SECONDS = 60

Outcome = tuple[list[int], int, int | None]
"""The jobs in the order in which they came; the group's lag; the end of the dead-letter topic."""


class LoggedCluster(Cluster):
    """Ours, whose log says why there is no letter."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._log = Path(f"{server.directory}.log")

    def lines_of(self, group: str) -> list[str]:
        return [line for line in self._log.read_text().splitlines() if f"of {group}:" in line]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, LoggedCluster]]:
    """Apache Kafka's, and ours."""
    directory: Path = tmp_path_factory.mktemp("letters")
    with (
        QuickKafka(directory / "apache", NO_TOPICS_MADE) as apache,
        Kafkapy(directory / "ours", NO_TOPICS_MADE) as ours,
    ):
        yield Cluster(apache), LoggedCluster(ours)


class Jobs:
    """A topic whose jobs a group of its own consumes, with a dead-letter topic."""

    def __init__(self, cluster: Cluster, name: str, dead: str) -> None:
        self._cluster = cluster
        self._topic, self._group, self._dead = f"jobs-{name}", f"group-{name}", dead
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self.seen: list[int] = []
        cluster.create(self._topic, 1)
        cluster.configure(self._group, **{NAME: dead})

    def do(self, number: int, *, is_rejected: bool) -> None:
        """Produce a job, and consume until it has come; any other one that comes is accepted."""
        self._producer.produce(self._topic, b"job %d" % number)
        assert self._producer.flush(SECONDS) == 0

        def choose(found: int, _delivery_count: int) -> AcknowledgeType:
            self.seen.append(found)
            return AcknowledgeType.REJECT if is_rejected and found == number else AcknowledgeType.ACCEPT

        self._cluster.consume(self._topic, self._group, choose, lambda: number in self.seen)

    def outcome(self) -> Outcome:
        """Return what came of it, once nothing is left to be done."""
        self.wait_until_done()
        return self.seen, self._lag(), self._letter_count()

    def wait_until_done(self) -> None:
        deadline = time.monotonic() + SECONDS
        while (lag := self._lag()) != 0:
            assert time.monotonic() < deadline, lag

    def _lag(self) -> int:
        """Return the records that are not done. The start offset is that of the last write, which may be behind."""
        topic = DescribeShareGroupOffsetsRequestTopic(self._topic, partitions=[0])
        group = DescribeShareGroupOffsetsRequestGroup(self._group, topics=[topic])
        with WireClient(self._cluster.bootstrap) as client:
            response = client.call(DescribeShareGroupOffsetsRequest(groups=[group]), 1)
        (partition,) = response.groups[0].topics[0].partitions
        assert partition.error_code == 0, response
        lag: int = partition.lag
        return lag

    def _letter_count(self) -> int | None:
        consumer = Consumer({"bootstrap.servers": self._cluster.bootstrap, "group.id": "reader", "log_level": 0})
        try:
            end: int = consumer.get_watermark_offsets(TopicPartition(self._dead, 0), timeout=30)[1]
        except KafkaException:
            return None
        finally:
            consumer.close()
        return end


@pytest.mark.parametrize(
    ("name", "dead", "configs", "letters", "why"),
    [
        ("missing", "dlq.missing", None, None, f"topic dlq.missing {MISSING}"),
        ("unnamed", "dead", ENABLED, 0, "topic dead does not begin with errors.deadletterqueue.topic.name.prefix=dlq."),
        ("closed", "dlq.closed", {}, 0, "topic dlq.closed does not have errors.deadletterqueue.group.enable=true"),
        ("small", "dlq.small", {**ENABLED, "max.message.bytes": "100"}, 0, "MESSAGE_TOO_LARGE from broker 1"),
        ("compacted", "dlq.keyed", {**ENABLED, "cleanup.policy": "compact"}, 0, "INVALID_RECORD from broker 1"),
    ],
)
def test_what_has_no_letter_is_archived_all_the_same(
    clusters: tuple[Cluster, LoggedCluster],
    name: str,
    dead: str,
    configs: dict[str, str] | None,
    letters: int | None,
    why: str,
) -> None:
    outcomes: list[Outcome] = []
    for cluster in clusters:
        if configs is not None:
            cluster.create(dead, 1, **configs)
        jobs = Jobs(cluster, name, dead)
        jobs.do(0, is_rejected=True)
        jobs.do(1, is_rejected=False)
        outcomes.append(jobs.outcome())
    assert outcomes[0] == outcomes[1]
    assert outcomes[1] == ([0, 1], 0, letters)
    (line,) = clusters[1].lines_of(f"group-{name}")
    assert "Offsets 0 to 0 of" in line
    assert "are archived without a dead letter" in line
    assert why in line


def test_a_topic_that_wants_more_replicas_than_it_has_takes_letters(clusters: tuple[Cluster, LoggedCluster]) -> None:
    outcomes = []
    for cluster in clusters:
        cluster.create("dlq.few", 1, **ENABLED, **{"min.insync.replicas": "2"})
        jobs = Jobs(cluster, "few", "dlq.few")
        jobs.do(0, is_rejected=True)
        cluster.read("dlq.few", 1)
        outcomes.append(jobs.outcome())
    assert outcomes[0] == outcomes[1]
    assert outcomes[1][2] == 1


def test_a_topic_that_is_deleted_has_had_its_letters_and_the_next_ones_are_lost(
    clusters: tuple[Cluster, LoggedCluster],
) -> None:
    outcomes = []
    for cluster in clusters:
        cluster.create("dlq.gone", 1, **ENABLED)
        jobs = Jobs(cluster, "gone", "dlq.gone")
        jobs.do(0, is_rejected=True)
        assert len(cluster.read("dlq.gone", 1)) == 1
        cluster.admin.delete_topics(["dlq.gone"])["dlq.gone"].result(SECONDS)
        jobs.do(1, is_rejected=True)
        jobs.do(2, is_rejected=False)
        outcomes.append(jobs.outcome())
    assert outcomes[0] == outcomes[1]
    assert outcomes[1][0] == [0, 1, 2]
    assert outcomes[1][2] is None
    (line,) = clusters[1].lines_of("group-gone")
    assert "Offsets 1 to 1 of" in line
    assert f"topic dlq.gone {MISSING}" in line
