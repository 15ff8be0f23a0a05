"""A dead-letter topic that Java's and Python's share consumers have filled, sent back by the command line and console.

The letters are the broker's own: of a Python group without, of a Java group with a copy of the record.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from starlette.testclient import TestClient

from harness.servers import Server
from kafkapy.console.app import new_app
from kafkapy.console.settings import Settings
from tests.compat.conftest import new_server
from tests.compat.test_dead_letters import COPY, ENABLED, NAME, PROPERTIES
from tests.compat.test_share_groups import ACCEPT, REJECT, begin_with_the_first, member, poll_until
from tests.support.console_pages import OWN, post
from tests.support.topics import create

pytestmark = [pytest.mark.ours, pytest.mark.long]  # it is the command line and the console that are tested

JOBS = ["pack", "send", "bill", "file", "call", "scan"]
REJECTED_BY_PYTHON = (1, 4)
REJECTED_BY_JAVA = (1, 3, 5)
"""By the pattern accept,reject of VerifiableShareConsumer."""

Seen = tuple[bytes | None, bytes | None, list[tuple[str, bytes]] | None, tuple[int, int]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with new_server(tmp_path_factory.mktemp("redrive") / "data", PROPERTIES) as running:
        yield running


@dataclass
class Queue:
    """The topic `NAME`, read by the groups NAME (Python) and NAME-java, and their dead-letter topic dlq.NAME."""

    bootstrap: str
    name: str
    dead: str = field(init=False)

    def __post_init__(self) -> None:
        self.dead = f"dlq.{self.name}"

    def records(self, topic: str, count: int) -> list[Message]:
        """Return the records of partition 0 once it has `count`; fails if it has more."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.partition.eof": True}
        consumer = Consumer(settings)
        try:
            found: list[Message] = []
            deadline_s = time.monotonic() + 120
            while len(found) < count:
                assert time.monotonic() < deadline_s, [each.value() for each in found]
                consumer.assign([TopicPartition(topic, 0, 0)])
                found = []
                while (message := consumer.poll(60)) is not None and message.error() is None:
                    found.append(message)
            assert len(found) == count
            return found
        finally:
            consumer.close()

    def sent_back(self, count: int) -> list[int]:
        """Return the offsets of the records that are in the topic again, with all that they had."""
        records = self.records(self.name, len(JOBS) + count)
        return [
            next(old.offset() for old in records[: len(JOBS)] if seen(old) == seen(new)) for new in records[len(JOBS) :]
        ]

    def redrive(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "kafkapy", "groups", "redrive", self.dead, "-b", self.bootstrap, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def seen(record: Message) -> Seen:
    return record.key(), record.value(), record.headers(), record.timestamp()


@pytest.fixture(scope="module")
def queue(server: Server, java_tool: Callable[..., str]) -> Queue:
    found = Queue(server.bootstrap, "chores")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    create(server.bootstrap, found.name, partitions=1)
    create(server.bootstrap, found.dead, partitions=1, config=ENABLED)
    begin_with_the_first(admin, found.name, **{NAME: found.dead})
    begin_with_the_first(admin, f"{found.name}-java", **{NAME: found.dead, COPY: "true"})
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number, job in enumerate(JOBS):
        producer.produce(found.name, job, f"key {number}", headers=[("own", b"%d" % number)])
    assert producer.flush(60) == 0
    done: list[int] = []
    with member(server.bootstrap, found.name, **{"share.acknowledgement.mode": "explicit"}) as consumer:

        def acknowledge(message: Message) -> None:
            consumer.acknowledge(message, REJECT if message.offset() in REJECTED_BY_PYTHON else ACCEPT)
            done.append(message.offset())

        poll_until(lambda: len(done) == len(JOBS), consumer, acknowledge)
        consumer.commit_sync(30.0)
    java_tool(
        "org.apache.kafka.tools.VerifiableShareConsumer", "--bootstrap-server", server.bootstrap,
        "--topic", found.name, "--group-id", f"{found.name}-java", "--acknowledgement-mode", "sync",
        "--max-messages", str(len(JOBS)), "--ack-pattern", "accept,reject",
    )  # fmt: skip
    return found


def test_letters_of_both_consumers_go_back(queue: Queue) -> None:
    letters = queue.records(queue.dead, len(REJECTED_BY_PYTHON) + len(REJECTED_BY_JAVA))
    of_java = [each for each in letters if ("__dlq.errors.group", b"chores-java") in (each.headers() or [])]
    assert sorted(each.value() or b"" for each in of_java) == [b"file", b"scan", b"send"]
    assert [each.value() for each in letters if each not in of_java] == [None, None]

    shown = queue.redrive("--dry-run")
    rows = [line.split() for line in shown.splitlines() if line.startswith("chores")]
    assert rows == [["chores", "chores", "0", "2"], ["chores-java", "chores", "0", "3"]]
    assert queue.sent_back(0) == []

    assert "Sent 2 records back." in queue.redrive("--group", "chores", "--yes")
    assert queue.sent_back(2) == list(REJECTED_BY_PYTHON)

    (chosen,) = [each for each in of_java if each.value() == b"file"]
    with TestClient(new_app(Settings(servers=queue.bootstrap, allow_changes=True)), base_url=OWN) as page:
        html = page.get("/topic/letters", params={"name": queue.dead}).text
        listed = re.sub(r"<[^>]*>", " ", html.replace("<wbr>", ""))
        assert re.search(r"chores-java\s+chores-0, offset 3", listed), listed
        letter = {f"letter-0-{chosen.offset()}": "1"}
        one = post(page, "redrive", name=queue.dead, confirmed=1, **letter)
        assert one.url.params["done"] == "Sent 1 record back."
        assert queue.sent_back(3) == [*REJECTED_BY_PYTHON, 3]
        everything = post(page, "redrive", name=queue.dead, all=1, confirmed=1)
    assert everything.url.params["done"] == "Sent 4 records back. 1 letters were of the same records."
    again = queue.sent_back(7)
    assert sorted(again[3:]) == [1, 3, 4, 5], "the record that both groups gave up goes back once"

    came: list[str] = []
    with member(queue.bootstrap, queue.name) as consumer:
        poll_until(lambda: len(came) == 7, consumer, lambda each: came.append((each.value() or b"").decode()))
        consumer.commit_sync(30.0)
    assert came == [JOBS[offset] for offset in again], "what was sent back is work again"
