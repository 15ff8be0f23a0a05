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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.compat.conftest import new_server
from tests.compat.test_share_groups import PROPERTIES, begin_with_the_first
from tests.support import topics
from tests.support.share_history import Act, Event, Place, breaches
from tests.support.share_worker import GROUP, LOCK_S, TOPIC

PARTITIONS, RECORDS, MEMBERS, LIMIT = 4, 2_000, 6, 5
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


def wait_for(running: list[Worker], count: int) -> None:
    deadline = time.monotonic() + TIME_S
    while len(finished(running)) < count:
        assert time.monotonic() < deadline, f"{len(finished(running))} of {count} are finished"
        time.sleep(0.1)


def test_members_and_a_node_that_are_killed_lose_nothing_and_repeat_nothing_accepted(tmp_path: Path) -> None:
    with new_server(tmp_path / "data", {**PROPERTIES, "group.share.record.lock.duration.ms": "2000"}) as server:
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
            wait_for(running, RECORDS // 5)
            running[0].kill()
            wait_for(running, 2 * RECORDS // 5)
            killed_s = time.monotonic()
            server.stop(signal.SIGKILL)
            server.start()
            restarted = Event(killed_s, time.monotonic(), "", Act.RESTARTED)
            running[1].kill()
            wait_for(running, RECORDS)
        events = [event for each in running for event in each.events]
    sent = [(number % PARTITIONS, number // PARTITIONS) for number in range(RECORDS)]
    assert {event.act for event in events} >= {Act.ACCEPT, Act.RELEASE, Act.REJECT, Act.GONE}
    assert breaches([*events, restarted], sent, lock_s=LOCK_S, limit=LIMIT) == []
