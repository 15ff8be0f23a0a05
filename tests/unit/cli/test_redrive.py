"""groups redrive: dead letters go back to where their records were, against a broker of our own."""

import io
import json
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.dead_letters import Choice, letter_of, redrive, survey_letters
from kafkapy.share.letter_headers import (
    DELIVERY_COUNT_HEADER,
    GROUP_HEADER,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TOPIC_HEADER,
)

confluent_kafka = pytest.importorskip("confluent_kafka")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def run(server, capsys, monkeypatch):
    """Run a command against the broker; return its exit status, stdout and stderr."""

    def run_command(*arguments: object) -> SimpleNamespace:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(), isatty=lambda: False))
        status = main([*map(str, arguments), "-b", server])
        output = capsys.readouterr()
        return SimpleNamespace(status=status, out=output.out, err=output.err)

    return run_command


class Queue:
    """A topic `NAME` of two partitions, and its dead-letter topic `dlq.NAME`."""

    def __init__(self, run: Any, server: str, name: str) -> None:
        self.run, self.name, self.dead = run, name, f"dlq.{name}"
        self.producer = confluent_kafka.Producer({"bootstrap.servers": server})
        for topic in (self.name, self.dead):
            assert run("topics", "create", topic, "-p", 2).status == 0

    def fill(self, *values: str, partition: int = 0) -> None:
        for number, value in enumerate(values):
            fields = {"headers": [("own", b"header")], "timestamp": 1_700_000_000_000 + number}
            self.producer.produce(self.name, value, f"key {number}", partition=partition, **fields)
        assert self.producer.flush(30) == 0

    def give_up(self, offset: int, *, partition: int = 0, group: str = "workers", **copied: Any) -> None:
        """Write the dead letter of a record, as the broker does."""
        headers = [
            (TOPIC_HEADER, self.name.encode()),
            (PARTITION_HEADER, b"%d" % partition),
            (OFFSET_HEADER, b"%d" % offset),
            (GROUP_HEADER, group.encode()),
            (DELIVERY_COUNT_HEADER, b"5"),
            (MESSAGE_HEADER, b"Offset delivery count exceeded the threshold."),
        ]
        self.producer.produce(self.dead, partition=partition % 2, headers=headers, **copied)
        assert self.producer.flush(30) == 0

    def records(self, topic: str | None = None) -> list[tuple[int, int, str | None, str | None, Any, int]]:
        lines = self.run("consume", topic or self.name, "-B", "-e", "--json").out.splitlines()
        found = [json.loads(line) for line in lines]
        return sorted(
            (each["partition"], each["offset"], each["key"], each["value"], each["headers"], each["timestamp_ms"])
            for each in found
        )


@pytest.fixture
def queue(run, server, request) -> Queue:
    return Queue(run, server, request.node.name.removeprefix("test_")[:60])


def test_records_go_back_as_they_were_to_their_partitions(queue) -> None:
    queue.fill("a", "b", "c")
    queue.fill("d", partition=1)
    queue.give_up(1)  # headers alone: the record is looked up
    queue.give_up(0, partition=1, key="key 0", value="d")
    done = queue.run("groups", "redrive", queue.dead, "--yes")
    assert (done.status, done.out.splitlines()[-1]) == (0, "Sent 2 records back.")
    first, second = (records_of(queue, partition) for partition in (0, 1))
    assert first[3][2:] == first[1][2:], "key, value, headers and time"
    assert second[1][2:] == second[0][2:]
    assert (len(first), len(second)) == (4, 2)


def records_of(queue: Queue, partition: int) -> list[Any]:
    return [each for each in queue.records() if each[0] == partition]


def test_a_dry_run_says_where_to_and_sends_nothing(queue) -> None:
    queue.fill("a", "b")
    queue.give_up(0)
    queue.give_up(1, group="others")
    shown = queue.run("groups", "redrive", queue.dead, "--dry-run")
    assert shown.status == 0
    assert [line.split() for line in shown.out.splitlines()[2:]] == [
        ["others", queue.name, "0", "1"],
        ["workers", queue.name, "0", "1"],
    ]
    assert len(queue.records()) == 2
    refused = queue.run("groups", "redrive", queue.dead)
    assert (refused.status, "--yes answers the question" in refused.err) == (1, True)
    assert len(queue.records()) == 2


def test_chosen_letters_alone_go_back(queue) -> None:
    queue.fill("a", "b", "c")
    for offset, group in ((0, "workers"), (1, "others"), (2, "workers")):
        queue.give_up(offset, group=group)
    assert queue.run("groups", "redrive", queue.dead, "--group", "others", "--yes").status == 0
    assert queue.run("groups", "redrive", queue.dead, "--letter", "0:2", "--yes").status == 0
    assert queue.run("groups", "redrive", queue.dead, "--source", "elsewhere", "--yes").out.endswith("sent back.\n")
    assert [each[3] for each in queue.records()] == ["a", "b", "c", "b", "c"]
    bad = queue.run("groups", "redrive", queue.dead, "--letter", "0-2", "--yes")
    assert (bad.status, "PARTITION:OFFSET" in bad.err) == (2, True)


def test_the_copy_goes_back_if_the_record_is_gone_or_another_one(queue) -> None:
    queue.fill("new 0", "new 1")
    queue.give_up(1, key="key 1", value="old 1")  # the topic was made again: its record 1 is another one
    queue.give_up(7, key="key 7", value="old 7")
    queue.give_up(8)
    done = queue.run("groups", "redrive", queue.dead, "--yes")
    assert done.status == 1
    assert "1 dead letters have no record any more, the first at 0:2" in done.err
    assert [(each[2], each[3]) for each in queue.records()[2:]] == [("key 1", "old 1"), ("key 7", "old 7")]


def test_a_record_that_is_newer_than_its_letter_is_not_its_record(queue) -> None:
    queue.give_up(0)
    later_ms = int(time.time() * 1000) + 600_000
    queue.producer.produce(queue.name, "of a topic made again", partition=0, timestamp=later_ms)
    assert queue.producer.flush(30) == 0
    assert queue.run("groups", "redrive", queue.dead, "--yes").status == 1
    assert len(queue.records()) == 1


def test_a_record_that_several_groups_gave_up_goes_back_once(queue) -> None:
    queue.fill("a")
    queue.give_up(0)
    queue.give_up(0, group="others")
    done = queue.run("groups", "redrive", queue.dead, "--yes")
    assert done.out.splitlines()[-1] == "Sent 1 record back. 1 dead letters were of the same records."
    assert [each[3] for each in queue.records()] == ["a", "a"]


def test_what_was_sent_back_is_trimmed_up_to_the_first_that_was_not(queue) -> None:
    queue.fill("a", "b", "c")
    queue.give_up(0)
    queue.give_up(1)
    queue.give_up(9)  # its record is nowhere
    queue.give_up(2)
    done = queue.run("groups", "redrive", queue.dead, "--yes", "--trim")
    assert f"Deleted what was sent back from 1 partitions of {queue.dead}." in done.out
    assert [each[1] for each in queue.records(queue.dead)] == [2, 3]
    assert len(queue.records()) == 6


def test_records_that_are_no_dead_letters_stay(queue) -> None:
    queue.producer.produce(queue.dead, "by hand", partition=0)
    queue.producer.flush(30)
    done = queue.run("groups", "redrive", queue.dead, "--yes")
    assert (done.status, done.out) == (0, "No dead letter is to be sent back.\n")
    assert f"1 records of {queue.dead} are no dead letters" in done.err


def test_a_topic_that_is_not_there(run) -> None:
    done = run("groups", "redrive", "nowhere", "--yes")
    assert (done.status, "no such topic: nowhere" in done.err) == (1, True)


def test_a_partition_that_is_gone_is_reported(queue) -> None:
    queue.give_up(0, partition=7, key="k", value="v")
    done = queue.run("groups", "redrive", queue.dead, "--yes")
    assert (done.status, "1 records were not delivered" in done.err) == (1, True)


def test_the_core_for_the_console_sends_many_with_progress(queue, server) -> None:
    queue.fill(*(f"v{number}" for number in range(1_200)))
    for offset in range(0, 1_200, 2):
        headers = [
            (TOPIC_HEADER, queue.name.encode()), (PARTITION_HEADER, b"0"), (OFFSET_HEADER, b"%d" % offset),
            (GROUP_HEADER, b"g"),
        ]  # fmt: skip
        queue.producer.produce(queue.dead, partition=0, headers=headers)
    queue.producer.flush(30)
    settings = {"bootstrap.servers": server, "group.id": "x", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer, lookup = confluent_kafka.Consumer(settings), confluent_kafka.Consumer(settings)
    survey = survey_letters(consumer, queue.dead, Choice("g"))
    assert survey.counts == {("g", queue.name, 0): 600}
    seen: list[int] = []
    redriven = redrive(consumer, lookup, queue.producer, survey, seen.append)
    consumer.close()
    lookup.close()
    assert (redriven.count, redriven.failures, redriven.gone, seen) == (600, [], [], [500, 600])
    back = [each[3] for each in queue.records()[1_200:]]
    assert back == [f"v{number}" for number in range(0, 1_200, 2)]


def test_a_record_without_the_headers_is_no_letter() -> None:
    message = SimpleNamespace(
        headers=lambda: [(TOPIC_HEADER, b"t"), (PARTITION_HEADER, b"x"), (OFFSET_HEADER, b"1"), (GROUP_HEADER, b"g")],
        partition=lambda: 0, offset=lambda: 0, timestamp=lambda: (1, 5), key=lambda: None, value=lambda: None,
    )  # fmt: skip
    assert letter_of(message) is None
    message.headers = lambda: None
    assert letter_of(message) is None
