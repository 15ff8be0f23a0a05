"""Runs of members of a share group of several makes, as processes whose events are read until they are killed."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from harness.servers import QUICK_JVM, java
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from tests.support.share_history import UNKNOWN_S, Act, Breach, Event, Place, Position
from tests.support.wire import WireClient
from tools.go_clients import SHARE_WORKER, build

LOCK_S: Final = 2.0
JAVA_WORKER: Final = Path(__file__).parents[1] / "compat" / "ShareWorker.java"
VERIFIABLE_PATTERN: Final = ("accept",) * 9 + ("reject",)
"""By the last digit of the offset. It releases nothing, because it would release the same records up to the limit."""
PARTITIONS: Final = 8
SILENT_S: Final = 20.0
PROPERTIES: Final = {
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "3000",
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}
"""A killed member may be the only one that is assigned some partition, until its session has timed out."""


def why_no_go() -> str:
    """Return why there is no worker of franz-go, "" if there is one."""
    return build(SHARE_WORKER, offline=True)


def command_of(make: str, servers: str, name: str, group: str) -> list[str]:
    """Return the command of a member: of "librdkafka", "java", "verifiable" (Kafka's tool) or "franz"."""
    arguments = [servers, name, group, str(LOCK_S)]
    if make == "librdkafka":
        return [sys.executable, "-m", "tests.support.share_worker", *arguments]
    if make == "franz":
        return [str(SHARE_WORKER), *arguments]
    if make == "java":
        return java(str(JAVA_WORKER), *arguments, heap="128m", options=QUICK_JVM)
    tool = ("--bootstrap-server", servers, "--topic", group, "--group-id", group, "--verbose")
    pattern = ("--acknowledgement-mode", "sync", "--ack-pattern", ",".join(VERIFIABLE_PATTERN))
    return java("org.apache.kafka.tools.VerifiableShareConsumer", *tool, *pattern, heap="128m", options=QUICK_JVM)


class Member:
    """A process, whose events are read by a thread.

    knows_locks: its client says when a record that it delivers was locked, or has none that waits for a poll.
    """

    def __init__(self, make: str, servers: str, name: str, group: str, log: Path, *, knows_locks: bool) -> None:
        self.name = name
        self.make = make
        self.events: list[Event] = []
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command_of(make, servers, name, group), stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.begun_s = time.monotonic()
        self._knows_locks = knows_locks
        self._verifiable = VerifiableEvents(name)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{") and line.endswith("}\n"):  # else the kill cut it off
                self.events += self._events_of(json.loads(line))

    def _events_of(self, fields: dict[str, Any]) -> Iterable[Event]:
        if self.make == "verifiable":
            return self._verifiable.of(fields)
        place, act = (fields["place"][0], fields["place"][1]), Act(fields["act"])
        event = Event(**{**fields, "place": place, "act": act})
        if act is Act.DELIVERED and not self._knows_locks:
            event = replace(event, begin_s=UNKNOWN_S)
        return [event]

    def kill(self) -> None:
        if self.process.returncode is not None:
            return
        at_s = time.monotonic()
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.events.append(Event(at_s, time.monotonic(), self.name, Act.GONE))


class VerifiableEvents:
    """What VerifiableShareConsumer prints, as events: its clock is the wall's, and it knows no delivery counts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._offset_s = time.monotonic() - time.time()
        self._before_s = 0.0

    def of(self, fields: dict[str, Any]) -> Iterable[Event]:
        at_s = fields["timestamp"] / 1000 + self._offset_s
        before_s, self._before_s = self._before_s, at_s
        end_s = at_s + 0.002
        if fields["name"] == "record_data":
            yield Event(UNKNOWN_S, end_s, self._name, Act.DELIVERED, (fields["partition"], int(fields["offset"])))
        elif fields["name"] == "offsets_acknowledged":
            for each in fields["partitions"]:
                for offset in each["offsets"]:
                    act = Act(VERIFIABLE_PATTERN[offset % len(VERIFIABLE_PATTERN)])
                    place = (each["partition"], offset)
                    yield Event(before_s, end_s, self._name, act if fields["success"] else Act.UNKNOWN, place)


class Run:
    """All members that a history has had, the killed ones, too."""

    def __init__(
        self, servers: str, group: str, directory: Path, *, knows_locks: bool, replaces_silent: bool = False
    ) -> None:
        """directory: what members print as errors goes there. replaces_silent: as replace_silent() says."""
        self.replaces_silent = replaces_silent
        self._directory = directory
        self.members: list[Member] = []
        self.restarts: list[Event] = []
        self._servers, self._group = servers, group
        self._knows_locks = knows_locks

    def begin(self, make: str) -> Member:
        name = f"{make} {len(self.members)}"
        knows_locks = make == "franz" or (make == "librdkafka" and self._knows_locks)
        log = self._directory / f"{name.replace(' ', '-')}.log"
        member = Member(make, self._servers, name, self._group, log, knows_locks=knows_locks)
        self.members.append(member)
        return member

    @property
    def alive(self) -> list[Member]:
        return [each for each in self.members if each.process.poll() is None]

    @property
    def events(self) -> list[Event]:
        return [event for each in self.members for event in list(each.events)] + self.restarts

    def told(self, found: Iterable[Breach]) -> str:
        """Return breaches with all that is known of their records."""
        events = sorted(self.events, key=lambda each: each.end_s)
        return "\n".join(
            f"{each.rule.name} {each.place}: "
            + "; ".join(
                f"{event.act} by {event.member} {event.begin_s:.3f} to {event.end_s:.3f}, {event.delivery_count}"
                for event in events
                if event.place == each.place or event.act in (Act.GONE, Act.RESTARTED)
            )
            for each in list(found)[:20]
        )

    def ended(self, limit: int) -> set[Place]:
        """Return the records that are done by what their members have printed."""
        acts = (Act.ACCEPT, Act.REJECT)
        return {each.place for each in self.events if each.act in acts or each.delivery_count >= limit}

    def replace_silent(self) -> None:
        """Kill members that have delivered nothing for long, and begin others.

        Where Apache Kafka leads a partition, franz-go may fetch it from broker 0 for ever once it has acknowledged
        records too late (handlers/share/acknowledgements.py), and be the only member that is assigned it. If it is the
        broker that hangs, the next member hangs as well.
        """
        for each in self.alive:
            heard_s = max([each.begun_s, *(event.end_s for event in list(each.events)[-1:])])
            if time.monotonic() - heard_s > SILENT_S:
                each.kill()
                self.begin("librdkafka")

    @contextmanager
    def broken_nodes(self) -> Iterator[None]:
        """Note that locks and delivery counts may be forgotten, and leaders moved, while this goes on."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.restarts.append(Event(began_s, time.monotonic(), "", Act.RESTARTED))

    def close(self) -> None:
        for each in self.members:
            each.kill()


def wait_for(is_done: Callable[[], bool], time_s: float, what: Callable[[], object] = str) -> None:
    deadline = time.monotonic() + time_s
    while not is_done():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


def positions(group: str, servers: str) -> dict[int, tuple[int, int]]:
    """Return start offset and lag of each partition, by the group's coordinator; none while it does not say it."""
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, topics=None)])
    for server in servers.split(","):
        with suppress(OSError), WireClient(server) as client:
            (found,) = client.call(request, 1).groups
            parts = [each for topic in found.topics for each in topic.partitions if not each.error_code]
            if not found.error_code and parts:
                return {each.partition_index: (each.start_offset, each.lag) for each in parts}
    return {}


def all_done(run: Run, group: str, servers: str) -> bool:
    """Return whether nothing is left to do; while something is, members that are silent may be replaced."""
    if are_done(positions(group, servers)):
        return True
    if run.replaces_silent:
        run.replace_silent()
    return False


def are_done(found: dict[int, tuple[int, int]], partition_count: int = PARTITIONS) -> bool:
    return len(found) == partition_count and all(lag == 0 for _, lag in found.values())


def with_ends(found: dict[int, tuple[int, int]], ends: dict[int, int]) -> dict[int, Position]:
    return {partition: Position(start, lag, ends[partition]) for partition, (start, lag) in found.items()}


class Transactions:
    """Produces numbered records in transactions, some of which it aborts; what became of a record by its place."""

    def __init__(self, servers: str, topic: str, transactional_id: str) -> None:
        self.committed: list[Place] = []
        self.aborted: list[Place] = []
        self._servers, self._topic, self._id = servers, topic, transactional_id
        self._producer = self._new()

    def _new(self) -> Producer:
        producer = Producer(
            {"bootstrap.servers": self._servers, "transactional.id": self._id, "log_level": 0, "linger.ms": 1}
        )
        producer.init_transactions(60)
        return producer

    def produce(self, count: int, *, is_aborted: bool = False) -> int:
        """Produce so many records in a transaction; return how many of them are committed for certain."""
        places: list[Place] = []

        def delivered(error: object, message: Any) -> None:
            if error is None:
                places.append((message.partition(), message.offset()))

        try:
            self._producer.begin_transaction()
            for number in range(count):
                self._producer.produce(
                    self._topic, f"{self._id} {number}", partition=number % PARTITIONS, on_delivery=delivered
                )
            self._producer.flush(60)
            if is_aborted:
                self._producer.abort_transaction(60)
            else:
                self._producer.commit_transaction(60)
        except KafkaException:
            self._producer = self._new()  # whether it was committed is not known
            return 0
        if is_aborted:
            self.aborted += places
            return 0
        self.committed += places
        return len(places)
