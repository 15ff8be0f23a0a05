"""Six members of a share group that accept, release, reject, oversleep and are killed, on a node that is killed, too.

What the members did is judged by tests/support/share_history.py: nothing accepted comes again, none is in two hands,
none comes too often, none is lost.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from tests.compat.conftest import new_server
from tests.compat.test_share_groups import PROPERTIES, begin_with_the_first
from tests.support import topics
from tests.support.share_history import Act, Breach, Event, Place, Rule, breaches
from tests.support.share_worker import GROUP, LOCK_S, TOPIC
from tests.support.wire import WireClient

PARTITIONS, RECORDS, MEMBERS, LIMIT = 4, 2_000, 6, 5
TIMES = {
    "group.share.record.lock.duration.ms": "2000",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "3000",
}
"""A killed member may be the only one that is assigned some partition, until its session has timed out."""
TIME_S = 90


class Worker:
    """A process, whose events are read by a thread."""

    def __init__(self, servers: str, name: str) -> None:
        command = [sys.executable, "-m", "tests.support.share_worker", servers, name, name]
        self.name = name
        self.events: list[Event] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # else the kill cut it off
                fields = json.loads(line)
                place, act = tuple(fields.pop("place")), Act(fields.pop("act"))
                self.events.append(Event(**fields, place=place, act=act))

    def kill(self) -> None:
        at_s = time.monotonic()
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.events.append(Event(at_s, time.monotonic(), self.name, Act.GONE))


@contextmanager
def workers(servers: str) -> Iterator[list[Worker]]:
    running = [Worker(servers, f"worker {number}") for number in range(MEMBERS)]
    try:
        yield running
    finally:
        for each in running:
            if each.process.returncode is None:
                each.kill()


def finished(running: list[Worker]) -> set[Place]:
    ended = (Act.ACCEPT, Act.REJECT)
    return {
        event.place
        for each in running
        for event in list(each.events)
        if event.act in ended or event.delivery_count >= LIMIT
    }


def wait_for(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIME_S
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def lag(servers: str) -> int:
    """Return how many records the group has still to do, by its coordinator; all while that does not say it."""
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(GROUP, topics=None)])
    with WireClient(servers) as client:
        (group,) = client.call(request, 1).groups
    lags = [each.lag for topic in group.topics for each in topic.partitions]
    return sum(lags) if len(lags) == PARTITIONS and min(lags) >= 0 else RECORDS


def test_members_and_a_node_that_are_killed_lose_nothing_and_repeat_nothing_accepted(tmp_path: Path) -> None:
    with new_server(tmp_path / "data", {**PROPERTIES, **TIMES}) as server:
        topics.create(server.bootstrap, TOPIC, partitions=PARTITIONS)
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        begin_with_the_first(admin, GROUP, **{"share.partition.max.record.locks": "100"})
        producer = Producer({"bootstrap.servers": server.bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, f"{number}", partition=number % PARTITIONS)
            if number % 20 == 0:
                producer.flush(60)  # many batches: each fetch acquires some of them
        assert producer.flush(60) == 0
        with workers(server.bootstrap) as running:
            wait_for(lambda: len(finished(running)) >= RECORDS // 5)
            running[0].kill()
            wait_for(lambda: len(finished(running)) >= 2 * RECORDS // 5)
            killed_s = time.monotonic()
            server.stop(signal.SIGKILL)
            server.start()
            restarted = Event(killed_s, time.monotonic(), "", Act.RESTARTED)
            running[1].kill()
            wait_for(lambda: lag(server.bootstrap) == 0)
            wait_for(lambda: Rule.LOST not in {each.rule for each in judged(running, restarted)})  # all is printed
            assert judged(running, restarted) == []
            acts = {event.act for each in running for event in list(each.events)}
    assert acts >= {Act.ACCEPT, Act.RELEASE, Act.REJECT, Act.GONE}


def judged(running: list[Worker], restarted: Event) -> list[Breach]:
    events = [event for each in running for event in list(each.events)]
    sent = [(number % PARTITIONS, number // PARTITIONS) for number in range(RECORDS)]
    return breaches([*events, restarted], sent, lock_s=LOCK_S, limit=LIMIT)
