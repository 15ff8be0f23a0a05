"""Three real nodes in trouble, stock clients of three kinds: what was acknowledged is there, once and in order.

Nodes are killed (also at failpoints, two or all at once), stopped, paused for longer than their session, cut off from
each other in both directions or in one, and slowed down; their disks are full or fail (only as root); their wall clocks
are a minute apart. After each fault all is healed, and every client must get on. min.insync.replicas is 2.

In the end: no acknowledged record is missing, none of an idempotent producer is there twice or out of order, no
answered commit is lost, groups of both protocols have seen every record, the replicas' logs are the same bytes, and
transactional copiers have copied the records, each once and in order.

Each of four kinds of faults goes on for 25 s. With KAFKAPY_CHAOS_SECONDS (`make chaos`) it is for so long, kills are
apart from failpoints and pauses from partitions, and a run of all kinds together follows; KAFKAPY_CHAOS_SEED chooses.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkapy.server.cluster import queries
from kafkapy.server.process.system_clock import CLOCK_OFFSET
from tests.support import chaos, topics
from tests.support.chaos import Chaos, Fault
from tests.support.chaos_clients import (
    PARTITIONS,
    AioWriter,
    ConfluentWriter,
    Copies,
    Group,
    JavaWriter,
    Writer,
    copier_commands,
    stopping,
)
from tests.support.committed import committed
from tests.support.eventually import eventually, eventually_reaches
from tests.support.idempotence import values_of
from tests.support.migrating import differing_logs, log_of, records_of
from tests.support.mounted_disks import MountedDisk
from tests.support.proxied_nodes import NODE_IDS, ProxiedNodes

pytestmark = [pytest.mark.long, pytest.mark.ours]

IS_LONG = "KAFKAPY_CHAOS_SECONDS" in os.environ
SECONDS = int(os.environ.get("KAFKAPY_CHAOS_SECONDS", "25"))
KINDS = {**chaos.FAULTS, "all": chaos.ALL} if IS_LONG else chaos.SHORT_FAULTS
SEED = int(os.environ.get("KAFKAPY_CHAOS_SEED", "1"))
PROGRESS_S = 300
STANDSTILL_S = 60
"""A copy may take longer than PROGRESS_S under load, but it has to grow within this time."""
LATER = 1_000_000_000
"""The numbers from here on are not the writers'."""
TOPICS = ("by-librdkafka", "by-aiokafka", "by-java")
COPIED = TOPICS[1:]
"""Transactional copiers copy these; each by a group of another protocol."""
TOPIC_SETTINGS = {"min.insync.replicas": "2", "segment.bytes": "1048576", "index.interval.bytes": "500"}
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    "controller.quorum.fetch.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.request.timeout.ms": "1500",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}
GROUPS: dict[str, dict[str, object]] = {
    "classic": {"group.protocol": "classic", "session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
    "consumer": {"group.protocol": "consumer"},
}


@pytest.fixture
def disks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[int, MountedDisk]]:
    """A disk of each node's own, if the kind of fault is "disks"."""
    with contextlib.ExitStack() as undo:
        found: dict[int, MountedDisk] = {}
        for node_id in NODE_IDS if "disks" in request.node.name else ():
            try:
                found[node_id] = MountedDisk(tmp_path / f"disk-{node_id}")
            except (OSError, CalledProcessError) as error:
                pytest.skip(f"there is no disk to be had here: {error}")
            undo.callback(found[node_id].close)
            (tmp_path / f"disk-{node_id}" / "data").mkdir()
            (tmp_path / f"node-{node_id}").symlink_to(tmp_path / f"disk-{node_id}" / "data")
        yield found


@pytest.fixture
def cluster(tmp_path: Path, disks: dict[int, MountedDisk], java_tool: Callable[..., str]) -> Iterator[ProxiedNodes]:
    """Three nodes with a topic for each producer and one for its copy; skipped without Java."""
    nodes = ProxiedNodes(tmp_path, PROPERTIES)
    for node, offset_ms in zip(nodes.nodes.values(), chaos.CLOCK_OFFSETS_MS, strict=True):
        node.more_environment[CLOCK_OFFSET] = str(offset_ms)
    with nodes as running:
        names = [*TOPICS, *(f"{topic}-copy" for topic in COPIED)]
        topics.create(running.bootstrap, *names, partitions=PARTITIONS, replicas=3, config=TOPIC_SETTINGS)
        eventually(lambda: under_replicated(running) == [])
        yield running


def under_replicated(cluster: ProxiedNodes) -> list[str]:
    found = queries.partitions(queries.asking(("127.0.0.1", cluster.nodes[1].port)))
    return found.under_replicated + found.offline


class Clients:
    """All clients of a run."""

    def __init__(self, cluster: ProxiedNodes, directory: Path) -> None:
        bootstrap = cluster.bootstrap
        self.writers: list[Writer] = [
            ConfluentWriter(bootstrap, TOPICS[0]),
            AioWriter(bootstrap, TOPICS[1]),
            JavaWriter(directory, bootstrap, TOPICS[2]),
        ]
        self.groups = [Group(bootstrap, TOPICS, name, settings) for name, settings in GROUPS.items()]
        self.copies = Copies(copier_commands(bootstrap, *COPIED), directory)

    def all(self) -> list[Any]:
        return [*self.writers, *self.groups, self.copies]

    def counts(self) -> dict[str, int]:
        """Return what each client has got done so far."""
        written = {writer.topic: writer.acknowledged_count() for writer in self.writers}
        return written | {group.name: group.seen_count() for group in self.groups}

    def wait_for_progress(self) -> None:
        before = self.counts()
        eventually(
            lambda: all(count > before[name] for name, count in self.counts().items()),
            PROGRESS_S,
            what=f"that all get further than {before}",
        )


def play(trouble: Chaos, clients: Clients, faults: Sequence[Fault], seconds: int) -> None:
    """Have each fault once, in some order, and go on until the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        for fault in trouble.random.sample(faults, len(faults)):
            clients.wait_for_progress()
            trouble.run(fault)
        clients.wait_for_progress()
        if time.monotonic() >= deadline:
            return


def check(cluster: ProxiedNodes, clients: Clients) -> None:
    eventually(lambda: under_replicated(cluster) == [], PROGRESS_S, what="full replication")
    for writer in clients.writers:
        writer.stop()
    ends = check_records(cluster, clients.writers)
    check_groups(cluster, clients.groups, ends)
    check_copies(cluster, clients.copies)
    directories = [node.directory for node in cluster.nodes.values()]
    eventually(lambda: not differing_logs(directories, TOPICS), PROGRESS_S, what="equality of the logs")


def check_records(cluster: ProxiedNodes, writers: Sequence[Writer]) -> dict[tuple[str, int], int]:
    """Check what is stored against what was acknowledged; return the number of records by partition."""
    ends: dict[tuple[str, int], int] = {}
    for writer in writers:
        stored = records_of(cluster.bootstrap, writer.topic)
        values = [value for partition in stored.values() for value in partition]
        lost = set(writer.acknowledged()).difference(values)
        assert not lost, f"{writer.topic} lost {sorted(lost)[:20]}"
        if not isinstance(writer, ConfluentWriter):  # see tests.support.idempotence
            assert len(values) == len(set(values)), f"{writer.topic} has duplicates"
        for partition in stored:
            values_of(log_of(cluster.nodes[1].directory, f"{writer.topic}-{partition}"))
        ends |= {(writer.topic, partition): len(found) for partition, found in stored.items()}
    return ends


def check_groups(cluster: ProxiedNodes, groups: Sequence[Group], ends: dict[tuple[str, int], int]) -> None:
    """Check that each group sees every record, that no answered commit is lost, and that one member goes on alone."""
    for group in groups:
        eventually(
            lambda group=group: all(group.seen(*key) == set(range(end)) for key, end in ends.items()),  # type: ignore[misc]
            PROGRESS_S,
            what=f"that {group.name} sees all of {ends}",
        )
        last, answered = group.leave_one()
        add_a_record(cluster, ends)
        eventually(
            lambda last=last: all(end - 1 in last.seen.get(key, ()) for key, end in ends.items()),  # type: ignore[misc]
            PROGRESS_S,
            what=f"that the last member of {group.name} goes on",
        )
        again = {key: (min(seen), answered[key]) for key, seen in last.seen.items() if min(seen) < answered.get(key, 0)}
        assert not again, f"{group.name} has read from, instead of from: {again}"
        group.stop()
        answered = group.committed()
        kept = offsets_of(cluster.bootstrap, group.name)
        lost = {key: (offset, kept.get(key)) for key, offset in answered.items() if kept.get(key, -1) < offset}
        assert not lost, f"{group.name}: committed, kept: {lost}"


def add_a_record(cluster: ProxiedNodes, ends: dict[tuple[str, int], int]) -> None:
    """Produce a further record to each partition; count it in `ends`."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for (topic, partition), end in ends.items():
        producer.produce(topic, b"%d" % (LATER + end), partition=partition)
        ends[topic, partition] = end + 1
    assert producer.flush(PROGRESS_S) == 0


def check_copies(cluster: ProxiedNodes, copies: Copies) -> None:
    """Check that each record is committed to its copy, once and in order."""
    copies.restart()
    for topic in COPIED:
        source = records_of(cluster.bootstrap, topic)

        def copied(topic: str = topic) -> dict[int, list[int]]:
            return records_of(cluster.bootstrap, f"{topic}-copy", isolation_level="read_committed")

        def copied_count(copied: Callable[[], dict[int, list[int]]] = copied) -> int:
            return sum(len(values) for values in copied().values())

        eventually_reaches(copied_count, sum(map(len, source.values())), STANDSTILL_S, what=f"the copy of {topic}")
        assert copied() == source
    copies.stop()


def offsets_of(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    return {partition: each.offset for partition, each in committed(bootstrap, group).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_acknowledged_is_lost_whatever_happens(
    cluster: ProxiedNodes, disks: dict[int, MountedDisk], tmp_path: Path, kind: str
) -> None:
    trouble = Chaos(cluster, TOPICS, SEED, disks)
    clients = Clients(cluster, tmp_path)
    try:
        with stopping(clients.all()):
            play(trouble, clients, KINDS[kind], SECONDS)
            check(cluster, clients)
        print(clients.counts())
    finally:
        print("\n".join(trouble.history))
    unexpected = ("AssertionError",) if disks else ("AssertionError", "Traceback")  # a failed disk is told with one
    for node in cluster.nodes.values():
        log = Path(f"{node.directory}.log").read_text()
        assert not any(word in log for word in unexpected), log[-3000:]
