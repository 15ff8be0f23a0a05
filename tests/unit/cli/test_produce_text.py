"""produce: schemas, tombstones and times from text, missing topics; against a broker of our own."""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.line_records import reader_of

pytest.importorskip("confluent_kafka")
NOON_MS = 1_768_478_400_000
"""2026-01-15T12:00:00Z."""


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


def rows(run, topic: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in run("consume", topic, "-B", "-e", "--json").out.splitlines()]


def test_what_consume_prints_by_a_pattern_is_read_by_it(run) -> None:
    run("topics", "create", "printed", "read-back", "-p", 2)
    row = {"key": "a b", "value": "v: w", "headers": {"h": "1", "i": "2"}, "timestamp_ms": NOON_MS, "partition": 1}
    run("produce", "printed", "--json", stdin=json.dumps(row).encode())
    for pattern in ("%T|%p|%o|%k|%h|%v", "%d %p %h\\t%k\\t%v"):
        lines = run("consume", "printed", "-B", "-e", "--format", pattern).out
        assert run("produce", "read-back", "--format", pattern, stdin=lines.encode()).status == 0
    assert [{**each, "topic": "", "offset": 0} for each in rows(run, "read-back")] == [
        {**row, "topic": "", "offset": 0} for _ in range(2)
    ]


def test_tombstones_and_times_come_from_text(run) -> None:
    run("topics", "create", "tombs", "-p", 1)
    options = ["-K", ":", "--null", "null", "--timestamp", "2026-01-15T12:00:00Z"]
    assert run("produce", "tombs", *options, stdin=b"a:1\na:null\nnull:2\n").status == 0
    assert run("produce", "tombs", "--format", "%k", stdin=b"b\n").status == 0
    found = rows(run, "tombs")
    assert [(each["key"], each["value"]) for each in found] == [("a", "1"), ("a", None), (None, "2"), ("b", None)]
    assert found[0]["timestamp_ms"] == NOON_MS


def test_values_are_encoded_by_a_schema(run, tmp_path) -> None:
    pytest.importorskip("fastavro")
    fields = [{"name": "id", "type": "int"}]
    (tmp_path / "7.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    run("topics", "create", "encoded", "-p", 1)
    options = ["--schema-registry", tmp_path, "--value-schema", 7]
    assert run("produce", "encoded", "-K", ":", *options, "--null", "", stdin=b'k:{"id": 5}\nk:\n').status == 0
    shown = run("consume", "encoded", "-B", "-e", "--value-format", "avro", "--schema-registry", tmp_path)
    assert shown.out == '{"id": 5}\nnull\n'
    done = run("produce", "encoded", *options, stdin=b'{"id": 6}\n{"id": "x"}\n')
    assert (done.status, done.err) == (
        1,
        "kafkapy: line 2: not of schema 7: .id is no int. Produced 1 record to encoded, partition 0, offset 2.\n",
    )
    assert "line 1: it is not JSON" in run("produce", "encoded", *options, stdin=b"{\n").err


def test_a_missing_topic_is_refused_on_a_terminal(run, monkeypatch) -> None:
    run("topics", "create", "trades")
    refused = run("produce", "tradse", "--no-create", stdin=b"1\n")
    assert (refused.status, refused.err) == (
        1,
        "kafkapy: no such topic: tradse. Did you mean trades? --create lets the broker create it\n",
    )
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run("produce", "tradse", stdin=b"1\n").status == 1
    assert run("produce", "trades", stdin=b"1\n").status == 0
    assert run("produce", "made", "--create", stdin=b"1\n").status == 0


def test_elsewhere_the_broker_creates_it(run) -> None:
    assert (
        run("produce", "made-by-script", stdin=b"1\n").out
        == "Produced 1 record to made-by-script, partition 0, offset 0.\n"
    )


def test_where_a_record_went_is_not_known_without_acknowledgements(run) -> None:
    done = run("produce", "unacknowledged", "--acks", 0, stdin=b"1\n")
    assert (done.status, done.out) == (0, "Produced 1 record to unacknowledged.\n"), done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "%v", "-K", ":"], "--format and --key-separator both say how a line reads"),
        (["--format", "%v", "--json"], "--json says how a line reads"),
        (["--format", "%x"], "--format: %x is none of %k, %v"),
        (["--format", "%k%v"], "--format: nothing separates %v from what is before it"),
        (["--format", "%v %v"], "--format: %v is there twice"),
        (["--timestamp", "soon"], "'soon' is not a time"),
        (["--value-schema", "7"], "--schema-registry says where the schema is"),
        (["--value-schema", "7", "--schema-registry", "."], "schema 7 has no file in ."),
        (["--json", "--null", ""], "no --null"),
    ],
)
def test_options_that_cannot_be_used_are_named(run, options, message) -> None:
    done = run("produce", "trades", *options, stdin=b"")
    assert (done.status, message in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("pattern", "line", "message"),
    [
        ("%T %v", b"now 1", "it does not read %T %v"),
        ("%d %v", b"soon 1", "'soon' is not a time"),
        ("%h %v", b"a 1", "the header 'a' must read name=value"),
    ],
)
def test_lines_that_do_not_fit_a_pattern_are_refused(pattern: str, line: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reader_of(pattern, None)(line)
