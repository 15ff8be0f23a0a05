"""topics list, describe, trim, empty, copy and delete by pattern, against a broker of our own."""

import io
import json
import sys
import time
from types import SimpleNamespace

import pytest
import typer

from kafkapy import Broker, Cluster
from kafkapy.__main__ import main
from kafkapy.cli.chosen import confirm, matching
from kafkapy.cli.client_security import is_of_librdkafka_alone
from kafkapy.cli.committed_offsets import BrokerConnections
from kafkapy.cli.librdkafka_topics import LibrdkafkaTopics
from kafkapy.cli.moments import moment_ms, shown_time
from kafkapy.cli.output import shown_bytes
from kafkapy.cli.progress import Progress
from kafkapy.cli.topic_facts import TopicQueries

confluent_kafka = pytest.importorskip("confluent_kafka")
pytest.importorskip("confluent_kafka.admin")
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def server():
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def run(server, capsys, monkeypatch):
    """Run a command against the broker with lines on stdin; return its exit status, stdout and stderr."""

    def run_command(*arguments: object, stdin: bytes = b"") -> SimpleNamespace:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False))
        status = main([*map(str, arguments), "-b", server])
        output = capsys.readouterr()
        return SimpleNamespace(status=status, out=output.out, err=output.err)

    return run_command


def fill(run, topic: str, count: int, partitions: int = 1) -> None:
    """Make a topic with so many records in its partition 0, a day apart, the last one of today."""
    run("topics", "create", topic, "-p", partitions)
    now_ms = int(time.time() * 1000)
    rows = [
        {"key": f"k{each}", "value": f"v{each}", "timestamp_ms": now_ms - (count - 1 - each) * DAY_MS, "partition": 0}
        for each in range(count)
    ]
    lines = "\n".join(json.dumps({**row, "headers": {"h": "1"}}) for row in rows)
    assert run("produce", topic, "--json", stdin=lines.encode()).status == 0


def test_topics_are_listed_by_pattern_with_records_and_size(run) -> None:
    fill(run, "listed-a", 3, partitions=2)
    run("topics", "create", "listed-b", "other")
    (row, _) = json.loads(run("topics", "list", "listed-*", "--json").out)
    assert row.pop("size_bytes") > 100
    problems = {"offline_partitions": 0, "under_replicated_partitions": 0, "unknown_partitions": 0}
    assert row == {"topic": "listed-a", "partitions": 2, "replicas": 1, "records": 3, **problems}
    table = [line.split() for line in run("topics", "list", "listed-?").out.splitlines()]
    assert table[0] == ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE"]
    assert table[2] == ["listed-b", "1", "1", "0", "0", "B"]
    assert json.loads(run("topics", "list", "none-*", "--json").out) == []


def test_partitions_with_a_problem_are_counted_in_the_list(capsys) -> None:
    with Cluster(2, in_process=True) as cluster:
        cluster.create_topics("twice", partitions=2)
        cluster.create_topics("once", partitions=2, replicas=1)
        cluster.stop(2)
        assert main(["topics", "list", "-b", cluster.bootstrap_servers]) == 0
    table = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    shown = {row[0]: [cell.strip() for cell in row[1:] if cell] for row in table}
    assert shown["twice"][:3] == ["2", "2 (2 under-replicated)", "0"]
    assert shown["once"][:3] == ["2 (1 offline)", "1 (1 under-replicated)", "0 (1 unknown)"]


def test_topics_are_described_with_offsets_and_sizes(run) -> None:
    fill(run, "described", 4)
    run("topics", "trim", "described", "--before", 1, "--yes")
    ((partition,),) = (topic["partitions"] for topic in json.loads(run("topics", "describe", "descr*", "--json").out))
    assert (partition["start_offset"], partition["end_offset"]) == (1, 4)
    assert partition["size_bytes"] > 0
    assert run("topics", "describe", "descirbed").err == (
        "kafkapy: no such topic: descirbed. Did you mean described?\n"
    )


def test_the_offsets_of_a_time_are_shown(run) -> None:
    fill(run, "timed", 4, partitions=2)
    for at, offsets in (("-36h", [2, 0]), ("2100-01-01T00:00Z", [4, 0]), ("1970-01-01T00:00Z", [0, 0])):
        (found,) = json.loads(run("topics", "describe", "timed", "--at", at, "--json").out)
        assert [each["offset_at"] for each in found["partitions"]] == offsets, at
    header, *rows = run("topics", "describe", "timed", "--at", "-36h").out.splitlines()[1:]
    assert (header.split()[-1], [row.split()[-1] for row in rows[:2]]) == ("AT", ["2", "0"])
    wrong = run("topics", "describe", "timed", "--at", "soon")
    assert (wrong.status, "--at: 'soon' is not a time" in wrong.err) == (2, True)


def test_records_before_a_time_are_trimmed_after_a_question(run) -> None:
    fill(run, "trimmed", 4, partitions=2)
    asked = run("topics", "trim", "trimmed", "--before", "-36h")
    assert (asked.status, asked.out) == (1, "trimmed-0  2 records before offset 2\n")
    assert asked.err == "kafkapy: nothing was changed: --yes answers the question that is asked on a terminal\n"
    done = run("topics", "trim", "trimmed", "--before", "-36h", "--yes")
    assert done.out.endswith("Deleted 2 records of trimmed-0.\n")
    assert run("topics", "trim", "trimmed", "--before", "-36h", "--yes").out == "No record is to be deleted.\n"
    assert run("consume", "trimmed", "-B", "-e").out == "v2\nv3\n"
    assert run("topics", "trim", "trimmed", "--before", 99, "-p", 0, "-y").out.endswith(
        "Deleted 2 records of trimmed-0.\n"
    )


def test_topics_are_emptied(run) -> None:
    fill(run, "emptied-a", 2)
    fill(run, "emptied-b", 1)
    done = run("topics", "empty", "emptied-*", "--yes")
    assert done.out == (
        "emptied-a-0  2 records before offset 2\nemptied-b-0  1 record before offset 1\n"
        "Deleted 2 records of emptied-a-0.\nDeleted 1 record of emptied-b-0.\n"
    )
    assert run("consume", "emptied-a", "-B", "-e").out == ""


def test_a_compacted_topic_refuses_to_be_emptied(run) -> None:
    run("topics", "create", "compacted", "-p", 1, "-c", "cleanup.policy=compact")
    run("produce", "compacted", "-k", "a", stdin=b"1\n")
    done = run("topics", "empty", "compacted", "--yes")
    assert (done.status, "compacted-0: " in done.err, "(POLICY_VIOLATION)" in done.err) == (1, True, True)


def test_a_topic_is_copied_with_its_configs_and_times(run) -> None:
    fill(run, "original", 3, partitions=2)
    run("configs", "alter", "--topic", "original", "--set", "retention.ms=-1")
    assert run("topics", "copy", "original", "the-copy").out == "Copied 3 records of original to the-copy.\n"
    before, after = (run("consume", topic, "-B", "-e", "--json").out for topic in ("original", "the-copy"))
    assert after.replace("the-copy", "original") == before
    (described,) = json.loads(run("topics", "describe", "the-copy", "--json").out)
    assert (described["configs"], len(described["partitions"])) == ({"retention.ms": "-1"}, 2)
    assert "--append adds to them" in run("topics", "copy", "original", "the-copy").err
    assert run("topics", "copy", "original", "the-copy", "--append").status == 0
    assert len(run("consume", "the-copy", "-B", "-e").out.splitlines()) == 6


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["copy", "missing", "x"], 1, "no such topic: missing"),
        (["copy", "wide", "wide"], 1, "wide would be copied to itself"),
        (["copy", "wide", "narrow"], 1, "narrow has 1 partition, wide 3"),
        (["copy", "[wn]*", "x"], 1, "[wn]* matches 2 topics"),
        (["trim", "wide", "--before", "soon"], 2, "'soon' is none of: an offset, latest, a time"),
        (["trim", "wide", "--before", "latest", "-p", "7"], 1, "wide has no partition 7"),
        (["empty", "nothing-*"], 1, "no topic matches nothing-*"),
        (["delete", "nothing-*"], 1, "no topic matches nothing-*"),
    ],
)
def test_what_cannot_be_changed_is_named(run, arguments, status, message) -> None:
    run("topics", "create", "wide", "-p", 3, "--if-not-exists")
    run("topics", "create", "narrow", "-p", 1, "--if-not-exists")
    done = run("topics", *arguments)
    assert (done.status, message in done.err) == (status, True), done.err


def test_topics_of_a_pattern_are_deleted_after_a_question(run) -> None:
    run("topics", "create", "gone-a", "gone-b", "kept")
    asked = run("topics", "delete", "gone-*")
    assert (asked.status, asked.out) == (1, "gone-a  1 partition\ngone-b  1 partition\n")
    assert run("topics", "delete", "gone-*", "--yes").out.endswith("Deleted topic gone-a.\nDeleted topic gone-b.\n")
    assert json.loads(run("topics", "list", "*e*", "--json").out) != []
    assert json.loads(run("topics", "list", "gone-*", "--json").out) == []


def test_internal_topics_match_only_a_pattern_that_says_so() -> None:
    names = ["orders", "__consumer_offsets", "orders-2"]
    assert matching("*", names) == ["orders", "orders-2"]
    assert matching("__*", names) == ["__consumer_offsets"]


@pytest.mark.parametrize(("answer", "is_done"), [("y\n", True), ("YES\n", True), ("n\n", False), ("", False)])
def test_a_question_is_answered_on_a_terminal(answer: str, is_done: bool, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: answer))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    if is_done:
        confirm(["a"], "Delete it?", is_confirmed=False)
    else:
        with pytest.raises(typer.Exit):
            confirm(["a"], "Delete it?", is_confirmed=False)
    assert capsys.readouterr().err.startswith("Delete it? [y/N] ")


def test_a_name_hides_no_line_above_a_question(capsys) -> None:
    confirm(["jobs\x1b[1A\x1b[2K\njobs  Share, Empty"], "Delete 2 groups?", is_confirmed=True)
    assert capsys.readouterr().out == "jobs\\x1b[1A\\x1b[2K\\njobs  Share, Empty\n"


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch, capsys) -> None:
    times = iter((0, 1, 11, 12))
    with Progress("records copied", 2_000, lambda: next(times)) as progress:
        progress.show(500)
        progress.show(1_000)
        progress.show(1_500)
    assert capsys.readouterr().err == "kafkapy: 1,000 of 2,000 records copied\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    times = iter((0, 3))
    with Progress("records copied", 2_000, lambda: next(times)) as progress:
        progress.show(500)
    assert capsys.readouterr().err == (f"\r\x1b[K[#######{'.' * 23}]  25%  500 of 2,000 records copied, 3 s\r\x1b[K")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-1h", 10 * DAY_MS - 3_600_000),
        ("-2d12h", 10 * DAY_MS - 60 * 3_600_000),
        ("-PT30M", 10 * DAY_MS - 1_800_000),
        ("-90d", 0),
        ("now", 10 * DAY_MS),
        ("1970-01-02T00:00:00Z", DAY_MS),
    ],
)
def test_times_are_understood(text: str, expected: int) -> None:
    assert moment_ms(text, 10 * DAY_MS) == expected


@pytest.mark.parametrize("text", ["", "1h", "-", "-1", "-1x", "yesterday", "-P", "99999-01-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        moment_ms(text, 0)


def test_a_time_is_shown_as_it_is_typed() -> None:
    assert shown_time(1_234) == "1970-01-01T00:00:01.234Z"
    assert moment_ms(shown_time(1_234), 0) == 1_234
    assert shown_time(1 << 60) == str(1 << 60)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(None, "-"), (999, "999 B"), (1_000, "0.977 KiB"), (5 << 30, "5 GiB"), (1 << 60, "1.02e+03 PiB")],
)
def test_sizes_are_short(count, expected) -> None:
    assert shown_bytes(count) == expected


def test_librdkafka_tells_all_but_sizes_where_it_alone_can_log_in(run, server) -> None:
    fill(run, "by-librdkafka", 3, partitions=2)
    run("configs", "alter", "--topic", "by-librdkafka", "--set", "flush.ms=7")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": server})
    told = LibrdkafkaTopics(admin)
    with BrokerConnections({"bootstrap.servers": server}) as brokers:
        ours = TopicQueries(brokers)
        found = [queries.topics()["by-librdkafka"] for queries in (told, ours)]
        for queries, topic in zip((told, ours), found, strict=True):
            queries.add_offsets([topic])
            queries.add_configs([topic])
            queries.add_sizes([topic])
        assert (found[0].size_bytes, found[1].size_bytes is None) == (None, False)
        for each in found[1].partitions:
            each.size_bytes = None
        assert found[0] == found[1]
        now_ms = int(time.time() * 1000)
        half_a_day_ago = now_ms - DAY_MS // 2
        assert told.offsets(found[:1], half_a_day_ago) == ours.offsets(found[:1], half_a_day_ago)
    assert dict(told.delete_records(found[:1], {("by-librdkafka", 0): 2})) == {("by-librdkafka", 0): None}


@pytest.mark.parametrize(("mechanism", "expected"), [("GSSAPI", True), ("OAUTHBEARER", True), ("PLAIN", False)])
def test_logins_of_librdkafka_alone_are_known(mechanism: str, expected: bool) -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    assert is_of_librdkafka_alone(properties) is expected
    assert not is_of_librdkafka_alone({})
