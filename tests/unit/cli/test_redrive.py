"""groups redrive: dead letters go back to where their records were, against a broker of our own."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli import redrive_lock
from kafkapy.cli.committed_offsets import BrokerConnections, NoResponseError
from kafkapy.cli.connection import Connection
from kafkapy.cli.dead_letters import Choice, RedriveError, letter_of, redrive, survey_letters
from kafkapy.cli.group_names import listed_groups
from kafkapy.cli.redrive_lock import only_redrive
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkapy.share.letter_headers import (
    DELIVERY_COUNT_HEADER,
    GROUP_HEADER,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TOPIC_HEADER,
)

confluent_kafka = pytest.importorskip("confluent_kafka")
WRITTEN_MS = int(time.time() * 1000) - 60_000
"""The time of a topic's first record: before its letter's, and not so old that retention deletes it."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def run(server, capsys, monkeypatch, tmp_path):
    """Run a command against the broker; return its exit status, stdout and stderr."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

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
            fields = {"headers": [("own", b"header")], "timestamp": WRITTEN_MS + number}
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
    assert "the record of 1 dead letter is gone, the first at 0:2" in done.err
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
    assert done.out.splitlines()[-1] == "Sent 1 record back. 1 dead letter was of the same records."
    assert [each[3] for each in queue.records()] == ["a", "a"]


def test_what_was_sent_back_is_trimmed_up_to_the_first_that_was_not(queue) -> None:
    queue.fill("a", "b", "c")
    queue.give_up(0)
    queue.give_up(1)
    queue.give_up(9)  # its record is nowhere
    queue.give_up(2)
    done = queue.run("groups", "redrive", queue.dead, "--yes", "--trim")
    assert f"Deleted what was sent back from 1 partition of {queue.dead}." in done.out
    assert [each[1] for each in queue.records(queue.dead)] == [2, 3]
    assert len(queue.records()) == 6


def test_records_that_are_no_dead_letters_stay(queue) -> None:
    queue.producer.produce(queue.dead, "by hand", partition=0)
    queue.producer.flush(30)
    done = queue.run("groups", "redrive", queue.dead, "--yes")
    assert (done.status, done.out) == (0, "No dead letter is to be sent back.\n")
    assert f"left in {queue.dead}, because it is no dead letter: 1 record" in done.err


def test_a_topic_that_is_not_there(run) -> None:
    done = run("groups", "redrive", "nowhere", "--yes")
    assert (done.status, "no such topic: nowhere" in done.err) == (1, True)


def test_a_partition_that_is_gone_is_reported(queue) -> None:
    queue.give_up(0, partition=7, key="k", value="v")
    done = queue.run("groups", "redrive", queue.dead, "--yes")
    assert (done.status, "1 record was not delivered" in done.err) == (1, True)


def values(queue: Queue) -> list[Any]:
    return [each[3] for each in queue.records()]


def test_a_redrive_that_failed_in_part_is_resumed_and_sends_nothing_twice(queue) -> None:
    queue.fill("a", "b")
    queue.give_up(0)
    queue.give_up(0, partition=3, key="k", value="later")
    queue.give_up(0, group="others")
    queue.give_up(1)
    failed = queue.run("groups", "redrive", queue.dead, "--yes", "--trim")
    assert (failed.status, "--resume sends the others alone" in failed.err) == (1, True)
    assert values(queue) == ["a", "b", "a", "b"]
    assert queue.run("topics", "alter", queue.name, "-p", 4).status == 0
    queue.give_up(1, group="too late for it")
    resumed = queue.run("groups", "redrive", queue.dead, "--resume", "--yes", "--trim")
    assert (resumed.status, "Sent 1 record back." in resumed.out) == (0, True), resumed.err
    assert values(queue) == ["a", "b", "a", "b", "later"]
    assert len(queue.records(queue.dead)) == 1, "only what came later is left"
    nothing = queue.run("groups", "redrive", queue.dead, "--resume", "--yes")
    assert (nothing.status, f"no redrive of {queue.dead} is unfinished" in nothing.err) == (1, True)


def test_a_letter_of_a_record_that_was_not_delivered_is_not_trimmed_nor_counted_as_sent(queue) -> None:
    queue.give_up(0, partition=3, key="k", value="v")
    queue.give_up(0, partition=3, group="others", key="k", value="v")
    assert queue.run("groups", "redrive", queue.dead, "--yes").status == 1
    assert queue.run("topics", "alter", queue.name, "-p", 4).status == 0
    resumed = queue.run("groups", "redrive", queue.dead, "--resume", "--yes", "--trim")
    assert "Sent 1 record back. 1 dead letter was of the same records." in resumed.out
    assert (values(queue), queue.records(queue.dead)) == (["v"], [])


def test_a_redrive_keeps_others_out_while_it_runs(queue, monkeypatch) -> None:
    from kafkapy.cli import redrive as command

    send, others = command._send, []

    def beside_another(*arguments: Any) -> Any:
        monkeypatch.setattr(command, "_send", send)
        others.append(queue.run("groups", "redrive", queue.dead, "--yes"))
        others.append(queue.run("groups", "redrive", queue.dead, "--dry-run"))
        return send(*arguments)

    queue.fill("a")
    queue.give_up(0)
    monkeypatch.setattr(command, "_send", beside_another)
    first = queue.run("groups", "redrive", queue.dead, "--yes")
    refused, looked = others
    assert (refused.status, f"another redrive of {queue.dead} runs" in refused.err) == (1, True), refused
    assert (looked.status, first.status, values(queue)) == (0, 0, ["a", "a"]), (looked, first)
    later = queue.run("groups", "redrive", queue.dead, "--yes")
    assert later.status == 0, later.err


@contextmanager
def locked(servers: str, topic: str, **options: Any) -> Iterator[Callable[[], None]]:
    """As a redrive while it runs."""
    with (
        BrokerConnections({"bootstrap.servers": servers}) as brokers,
        only_redrive(brokers, topic, print, **options) as check,
    ):
        yield check


def test_a_redrive_can_begin_as_soon_as_another_one_has_ended(server, monkeypatch) -> None:
    monkeypatch.setattr(redrive_lock, "RELEASE_S", 0.0)
    for _ in range(30):
        with locked(server, "dlq.one-after-another"):
            pass
    with BrokerConnections({"bootstrap.servers": server}) as brokers:
        assert f"{redrive_lock.GROUP_PREFIX}dlq.one-after-another" not in listed_groups(brokers)[0]


def test_a_redrive_that_runs_is_named(server, monkeypatch) -> None:
    monkeypatch.setattr(redrive_lock, "RELEASE_S", 0.0)
    runs = f"another redrive of dlq.named runs, process {os.getpid()} on {socket.gethostname()}, or was killed"
    with locked(server, "dlq.named"), pytest.raises(RedriveError, match=runs), locked(server, "dlq.named"):
        pass


def test_a_redrive_whose_join_was_served_but_not_answered_begins(server) -> None:
    lost: list[Any] = []

    class Losing(BrokerConnections):
        def call(self, node_id: int | None, request: Any, version: int) -> Any:
            response = super().call(node_id, request, version)
            if isinstance(request, ConsumerGroupHeartbeatRequest) and not lost:
                lost.append(response.error_code)
                raise NoResponseError("the connection ended")
            return response

    with Losing({"bootstrap.servers": server}) as brokers, only_redrive(brokers, "dlq.lost", print) as check:
        check()
    assert lost == [0]


def test_with_a_login_that_only_librdkafka_has_nobody_is_kept_out_and_this_is_said() -> None:
    notes: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = f"127.0.0.1:{listener.getsockname()[1]}"
        gssapi = {"bootstrap.servers": server, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
        with BrokerConnections(gssapi) as brokers, only_redrive(brokers, "dlq.jobs", notes.append) as check:
            check()
    (said,) = notes
    assert "another redrive of dlq.jobs at the same time would send its letters again" in said
    assert "this command takes GSSAPI from --command-config only" in said


SHORT_SESSIONS = {f"group.consumer.{each}session.timeout.ms": 3_000 for each in ("", "min.")} | {
    f"group.consumer.{each}heartbeat.interval.ms": 200 for each in ("", "min.")
}
KILLED = """
import os, signal, sys
from kafkapy.cli.committed_offsets import BrokerConnections
from kafkapy.cli.group_names import listed_groups
from kafkapy.cli.redrive_lock import only_redrive
with BrokerConnections({"bootstrap.servers": sys.argv[1]}) as brokers, only_redrive(brokers, sys.argv[2], print):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_redrive_waits_for_the_session_of_one_that_was_killed() -> None:
    with Broker(properties=SHORT_SESSIONS) as broker:
        servers, notes = broker.bootstrap_servers, []
        killed = subprocess.run([sys.executable, "-c", KILLED, servers, "dlq.jobs"], check=False)
        assert killed.returncode == -signal.SIGKILL
        with (
            BrokerConnections({"bootstrap.servers": servers}) as brokers,
            only_redrive(brokers, "dlq.jobs", notes.append, waits=True) as check,
        ):
            check()
    assert notes == ["the last redrive of dlq.jobs was killed: waiting up to 45 s for its session's end"]


def repeat(check: Callable[[], None]) -> None:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        check()


def test_a_redrive_whose_coordinator_is_silent_ends_before_another_one_may_begin(server, monkeypatch) -> None:
    monkeypatch.setattr(redrive_lock, "SILENT_S", 0.2)

    class Ending(BrokerConnections):
        def call(self, node_id: int | None, request: Any, version: int) -> Any:
            if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch > 0:
                raise NoResponseError("no broker answers")
            return super().call(node_id, request, version)

    with (
        Ending({"bootstrap.servers": server}) as brokers,
        only_redrive(brokers, "dlq.silent", print) as check,
        pytest.raises(RedriveError, match=r"may have begun: the coordinator of group .* has not answered for"),
    ):
        repeat(check)


def test_a_redrive_stops_after_its_session_has_ended_although_it_could_join_again() -> None:
    """As after a suspension, in which another redrive may have sent all letters."""
    from tests.support.eventually import eventually

    with Broker(properties={f"group.consumer.{each}heartbeat.interval.ms": 200 for each in ("", "min.")}) as broker:
        broker.create_topics("dlq.jobs")

        def has_ended() -> bool:
            try:
                check()
            except RedriveError as error:
                return "another redrive of dlq.jobs may have begun" in str(error)
            return False

        with locked(broker.bootstrap_servers, "dlq.jobs") as check:
            assert not has_ended()
            member = MemberIdentity(member_id="", group_instance_id="redrive")
            with Connection.to_any(broker.bootstrap_servers) as connection:
                removed = connection.call(LeaveGroupRequest("kafkapy-redrive.dlq.jobs", members=[member]), 5)
            assert (removed.error_code, removed.members[0].error_code) == (0, 0)
            eventually(has_ended)
            assert has_ended(), "also later"


def test_without_the_right_to_its_group_a_redrive_says_that_nobody_is_kept_out(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    rights = ["allow root all topic:*", "allow alice all topic:*"]
    with Broker(users={"root": "of root", "alice": "of alice"}, acls=rights) as broker:
        broker.create_topics("jobs", "dlq.jobs")
        producer = confluent_kafka.Producer(broker.client_config("root"))
        fields = {TOPIC_HEADER: "jobs", PARTITION_HEADER: "0", OFFSET_HEADER: "7", GROUP_HEADER: "workers"}
        producer.produce("dlq.jobs", "its copy", headers=fields)
        assert producer.flush(30) == 0
        login = [f"-X{key}={value}" for key, value in broker.client_config("alice").items()]
        status = main(["groups", "redrive", "dlq.jobs", "--yes", *login])
        output = capsys.readouterr()
        assert (status, "Sent 1 record back." in output.out) == (0, True), output.err
        assert "would send its letters again: group kafkapy-redrive.dlq.jobs: " in output.err


def test_what_cannot_be_resumed_is_said(queue) -> None:
    queue.give_up(0, partition=3, key="k", value="v")
    assert queue.run("groups", "redrive", queue.dead, "--yes", "--source", queue.name).status == 1
    chosen = queue.run("groups", "redrive", queue.dead, "--resume", "--group", "workers")
    assert (chosen.status, "--resume chooses what the redrive chose" in chosen.err) == (2, True)
    assert "was not finished: --resume" in queue.run("groups", "redrive", queue.dead, "--dry-run").err
    assert queue.run("topics", "delete", queue.dead).status == 0
    assert queue.run("topics", "create", queue.dead, "-p", 2).status == 0
    queue.give_up(0, partition=3, key="k", value="another")  # at the offset that the other topic had a letter at
    again = queue.run("groups", "redrive", queue.dead, "--resume", "--yes")
    assert (again.status, "was made again since" in again.err) == (1, True)


def test_a_damaged_file_of_a_redrive_is_named(queue, tmp_path) -> None:
    queue.give_up(0, partition=3, key="k", value="v")
    assert queue.run("groups", "redrive", queue.dead, "--yes").status == 1
    (file,) = (tmp_path / "kafkapy" / "redrive").iterdir()
    file.write_text('{"delivered": 1}')
    damaged = queue.run("groups", "redrive", queue.dead, "--resume", "--yes")
    assert (damaged.status, f"{file} is damaged" in damaged.err) == (1, True)


def test_a_record_that_cannot_be_sent_stops_no_other(queue, server) -> None:
    large = confluent_kafka.Producer({"bootstrap.servers": server, "message.max.bytes": 2_000_000})
    large.produce(queue.name, bytes(1_020_000), partition=0)  # more than librdkafka sends by default
    assert large.flush(30) == 0
    queue.fill("b")
    queue.give_up(0)
    queue.give_up(1)
    done = queue.run("groups", "redrive", queue.dead, "--yes")
    assert (done.status, "Sent 1 record back." in done.out) == (1, True)
    assert "1 record was not delivered" in done.err
    assert len(queue.records()) == 3


def test_letters_whose_deletion_failed_are_deleted_by_a_resume_that_sends_nothing(queue, monkeypatch) -> None:
    queue.fill("a")
    queue.give_up(0)
    with monkeypatch.context() as patch:
        patch.setattr("kafkapy.cli.redrive._trim", lambda *_: (_ for _ in ()).throw(typer.Exit(1)))
        first = queue.run("groups", "redrive", queue.dead, "--yes", "--trim")
    assert (first.status, first.err, first.out.splitlines()[-1]) == (1, "", "Sent 1 record back.")
    resumed = queue.run("groups", "redrive", queue.dead, "--resume", "--yes", "--trim")
    assert (resumed.status, resumed.err) == (0, "")
    assert "No dead letter is left to be sent back." in resumed.out
    assert (values(queue), queue.records(queue.dead)) == (["a", "a"], [])


def test_a_topic_with_a_long_name_is_redriven(run, server) -> None:
    queue = Queue(run, server, "q" * 240)
    queue.give_up(0, partition=3, key="k", value="v")
    assert run("groups", "redrive", queue.dead, "--yes").status == 1
    assert "1 record was not delivered" in run("groups", "redrive", queue.dead, "--resume", "--yes").err


def test_a_redrive_that_is_killed_has_kept_what_it_delivered(queue, monkeypatch, tmp_path) -> None:
    queue.fill("a")
    queue.give_up(0)
    monkeypatch.setattr("kafkapy.cli.redrive.SAVE_S", -1.0)
    monkeypatch.setattr("kafkapy.cli.redrive_state.StateFile.forget", lambda *_: None)
    assert queue.run("groups", "redrive", queue.dead, "--yes").status == 0
    (file,) = (tmp_path / "kafkapy" / "redrive").iterdir()
    assert file.stat().st_mode & 0o077 == 0, "it names topics and groups"


def test_a_record_goes_back_once_although_the_letter_that_did_is_read_last(queue, server) -> None:
    queue.fill("a")
    queue.give_up(0)
    queue.give_up(0, group="others")
    settings = {"bootstrap.servers": server, "group.id": "x", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer, lookup = confluent_kafka.Consumer(settings), confluent_kafka.Consumer(settings)
    survey = survey_letters(consumer, queue.dead, ends={0: 2}, delivered={(0, 1)})
    redriven = redrive(consumer, lookup, queue.producer, survey)
    consumer.close()
    lookup.close()
    assert (redriven.count, redriven.repeated_count, redriven.done) == (0, 1, {(0, 0), (0, 1)})
    assert values(queue) == ["a"]


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
