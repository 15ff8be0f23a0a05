"""One directory, both brokers, a streams group whose tasks are on their way when they change places.

What one broker has told a member to give up, the other waits for; nothing is rebalanced by the change. Each is stopped
in order, or killed. Apache Kafka is 4.4.0, and 4.3.1.
"""

import signal
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from harness.servers import ApacheKafka, Kafkapy, Server, free_port
from kafkapy.protocol.error_code import ErrorCode
from tests.compat.test_kafka_streams import Feed, create
from tests.compat.test_streams_groups import COUNT, new_instance, read_until
from tests.compat.test_swap_queues import format_directory
from tests.support import java_tools
from tests.support.client_requests import create_topic, until
from tests.support.offsets import commit, committed, find_coordinator
from tests.support.quick_kafka import QuickKafka, QuickPreviousKafka
from tests.support.streams_applications import Instance
from tests.support.streams_members import LEAVES, LEAVES_FOR_A_WHILE, StreamsMember, describe, reading
from tests.support.wire import WireClient
from tools.kafka import KAFKA_VERSION, PREVIOUS_VERSION, STREAMS_LIBS

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

TOPIC = GROUP = "joined"
PARTITIONS = 6
PROPERTIES = {
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
of_each_version = pytest.mark.parametrize(
    "kafka", [QuickKafka, QuickPreviousKafka], ids=[KAFKA_VERSION, PREVIOUS_VERSION]
)


def turns(kafka: type[ApacheKafka]) -> list[tuple[type[Kafkapy] | type[ApacheKafka], signal.Signals]]:
    return [
        (kafka, signal.SIGKILL),
        (Kafkapy, signal.SIGKILL),
        (kafka, signal.SIGTERM),
        (Kafkapy, signal.SIGTERM),
        (kafka, signal.SIGTERM),
    ]


class Handover:
    """A member that runs, one that waits for a task of it, and a third that holds tasks while it says nothing.

    `version`: of the heartbeats. With 1 the third is a static member that is away, which 4.3.1 has not.
    """

    def __init__(self, version: int) -> None:
        self._version = version
        self._topology = reading(TOPIC)
        self._members: dict[str, StreamsMember] = {}
        self._committed = 0
        self._turn = 0
        self._third = "third"

    def go_on(self, client: WireClient) -> None:
        """Finish what the other broker began, and begin another move of tasks."""
        self._turn += 1
        find_coordinator(client, GROUP)
        for member in self._members.values():
            member.client = client
        if self._members:
            self._finish(client)
        else:
            self._start(client)
        self._begin(client)

    def _start(self, client: WireClient) -> None:
        create_topic(client, TOPIC, PARTITIONS)
        self._join(client, "runs")
        self._join(client, self._third, **self._instance())
        self._until_assigned({"runs": 3, self._third: 3})
        self._go_away()

    def _begin(self, client: WireClient) -> None:
        """Let a member join, and the one that runs keep the task that it is told to give up."""
        runs = self._members["runs"]
        self._committed += 1
        fields = {"member_id": "runs", "generation_id_or_member_epoch": runs.epoch}
        assert commit(client, GROUP, TOPIC, self._committed, **fields) == [0]
        self._kept = runs.tasks
        waits = self._join(client, "waits")
        until(lambda: self._beat(runs, **self._kept).error_code == 0 and len(partitions(runs)) == 2)
        self._beat(waits)
        assert not partitions(waits)
        self._epochs = (describe(client, GROUP, self._version).group_epoch, runs.epoch, waits.epoch)

    def _finish(self, client: WireClient) -> None:
        runs, waits = self._members["runs"], self._members["waits"]
        described = describe(client, GROUP, self._version)
        assert (described.group_epoch, runs.epoch, waits.epoch) == self._epochs
        assert sorted(each.member_id for each in described.members) == sorted(self._members)
        self._beat(waits)
        assert not partitions(waits), "the other has not given it up"
        assert self._beat(runs, member_epoch=runs.epoch - 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        told = self._beat(runs, **self._kept)
        assert told.error_code == 0
        assert len(partitions(runs)) == 2, "is told again to give it up"
        self._until_assigned({"runs": 2, "waits": 1})
        assert describe(client, GROUP, self._version).group_epoch == self._epochs[0], "nothing is rebalanced"
        assert committed(client, GROUP, TOPIC) == [self._committed]
        if self._version:
            self._return(client)
        self._until_assigned({"runs": 2, "waits": 2, self._third: 2})
        self._beat(self._members.pop("waits"), member_epoch=LEAVES)
        self._until_assigned({"runs": 3, self._third: 3})
        self._go_away()

    def _instance(self) -> dict[str, str]:
        return {"instance_id": "i", "process_id": "process of i"} if self._version else {}

    def _go_away(self) -> None:
        if self._version:
            answer = self._beat(self._members[self._third], member_epoch=LEAVES_FOR_A_WHILE)
            assert (answer.error_code, answer.member_epoch) == (0, LEAVES_FOR_A_WHILE)

    def _return(self, client: WireClient) -> None:
        """Let the static member come back, with another id, to the tasks that it had."""
        gone, self._third = self._members.pop(self._third), f"third-{self._turn}"
        again = self._join(client, self._third, **self._instance())
        assert again.epoch == self._epochs[0]
        assert set(partitions(again)) < set(partitions(gone)), "less the one that it has to give up"

    def _join(self, client: WireClient, member_id: str, **fields: Any) -> StreamsMember:
        member = StreamsMember(client, GROUP, member_id, instance_id=fields.get("instance_id"))
        assert member.join(self._topology, version=self._version, **fields).error_code == 0
        self._members[member_id] = member
        return member

    def _beat(self, member: StreamsMember, **fields: Any) -> Any:
        return member.heartbeat(self._version, **fields)

    def _until_assigned(self, counts: dict[str, int]) -> None:
        """Let these members do as they are told until each has so many tasks, and no two the same."""

        def is_so() -> bool:
            assert all(self._beat(self._members[name]).error_code == 0 for name in counts)
            held = [each for name in counts for each in partitions(self._members[name])]
            assert len(held) == len(set(held))
            return all(len(partitions(self._members[name])) == count for name, count in counts.items())

        until(is_so)


def partitions(member: StreamsMember) -> list[int]:
    return sorted(member.active.get("0", ()))


@of_each_version
def test_each_broker_waits_for_the_tasks_that_the_other_has_called_back(
    kafka: type[ApacheKafka], tmp_path: Path
) -> None:
    directory = tmp_path / "data"
    format_directory(directory, kafka)
    handover = Handover(0 if kafka.version == PREVIOUS_VERSION else 1)
    for kind, with_signal in turns(kafka):
        server = started(kind(directory, PROPERTIES))
        try:
            with WireClient(server.bootstrap) as client:
                handover.go_on(client)
                server.stop(with_signal)
        finally:
            server.stop(signal.SIGKILL)


def started(server: Server) -> Server:
    server.prepare()
    return server.start()


@of_each_version
def test_application_goes_on_while_the_brokers_take_turns(kafka: type[ApacheKafka], tmp_path: Path) -> None:
    """Kafka Streams 4.4.0 with exactly_once_v2 runs on and on; the broker behind its address changes its kind."""
    if not STREAMS_LIBS.is_dir():
        pytest.skip("Kafka Streams' jars are missing: run `make tools`")
    directory, port = tmp_path / "data", free_port()
    format_directory(directory, kafka)
    with ExitStack() as stack:
        feed: Feed | None = None
        for turn, (kind, with_signal) in enumerate(turns(kafka), start=1):
            server = kind(directory, PROPERTIES)
            server.port = port
            started(server)
            stack.callback(server.stop, signal.SIGKILL)
            if feed is None:
                create(server.bootstrap, "words", "word-counts", partition_count=2)
                feed = stack.enter_context(closing(Feed(server.bootstrap)))
                instances = [
                    stack.enter_context(closing(new_instance(server.bootstrap, tmp_path / name))) for name in "ab"
                ]
            read_until(feed, turn * COUNT, instances, sending=True)
            check_still_there(server, instances)
            if turn == len(turns(kafka)):
                read_until(feed, feed.sent.total(), instances, sending=False)
            server.stop(with_signal)
        assert feed is not None
        feed.read_counts()
        assert feed.counts == {word: list(range(1, count + 1)) for word, count in feed.sent.items()}


def check_still_there(server: Server, instances: list[Instance]) -> None:
    """Check that no application has ended, and that its four threads are the group's members."""
    assert not [each.printed() for each in instances if each.has_ended()]
    with WireClient(server.bootstrap) as client:
        until(lambda: len(describe(client, "counting", 0).members) == 4)
