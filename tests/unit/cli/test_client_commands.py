"""topics, configs, produce and consume against a broker of our own, through confluent-kafka as users run them."""

import io
import json
import re
import sys
import zlib
from types import SimpleNamespace

import pytest
from kafka.partitioner.default import murmur2

from kafkapy import Broker
from kafkapy.__main__ import main

pytest.importorskip("confluent_kafka")


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


def test_topics_are_created_described_altered_and_deleted(run) -> None:
    assert run("topics", "create", "t1", "t2", "-p", 2, "-c", "retention.ms=1000").out == (
        "Created topic t1.\nCreated topic t2.\n"
    )
    partition = {"leader": 1, "replicas": [1], "isr": [1], "start_offset": 0, "end_offset": 0, "size_bytes": 0}
    assert json.loads(run("topics", "describe", "t1", "--json").out) == [
        {
            "topic": "t1",
            "configs": {"retention.ms": "1000"},
            "partitions": [{"partition": each, **partition} for each in (0, 1)],
        }
    ]
    assert run("topics", "alter", "t1", "-p", 3).out == "Topic t1 has 3 partitions.\n"
    listed = {"topic": "t1", "partitions": 3, "replicas": 1, "records": 0, "size_bytes": 0}
    assert listed | {"offline_partitions": 0, "under_replicated_partitions": 0, "unknown_partitions": 0} in json.loads(
        run("topics", "list", "--json").out
    )
    assert run("topics", "delete", "t1", "t2").status == 0
    assert json.loads(run("topics", "list", "--json").out) == []


def test_tables_are_for_people(run) -> None:
    run("topics", "create", "table", "-c", "flush.ms=7")
    assert "table" in run("topics", "list").out
    described = run("topics", "describe", "table").out.splitlines()
    assert described[0].strip() == "table  flush.ms=7"
    assert described[1].split() == ["PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END", "RECORDS", "SIZE"]
    assert described[2].split() == ["0", "1", "[1]", "[1]", "0", "0", "0", "0", "B"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topics", "create", "bad", "-c", "retention.ms=abc"], "Not a number of type LONG"),
        (["topics", "create", "bad name"], "Topic name is invalid"),
        (["topics", "describe", "missing"], "no such topic: missing"),
        (["topics", "delete", "missing"], "no such topic: missing."),
        (["topics", "alter", "missing", "-p", "2"], "no such topic: missing."),
        (["configs", "describe", "--topic", "missing"], "UNKNOWN_TOPIC_OR_PART"),
        (["configs", "alter", "--broker", "1", "--set", "num.partitions=2"], "Cannot update these configs dynamically"),
        (["consume", "missing", "-e", "-X", "allow.auto.create.topics=false"], "no such topic: missing."),
    ],
)
def test_failures_are_one_line_and_status_1(run, arguments, message) -> None:
    done = run(*arguments)
    assert done.status == 1
    assert message in done.err
    assert done.err.count("\n") == 1


def test_existing_and_missing_topics_may_be_no_error(run) -> None:
    run("topics", "create", "same")
    assert run("topics", "create", "same").status == 1
    assert run("topics", "create", "same", "--if-not-exists").status == 0
    assert run("topics", "delete", "none", "--if-exists").status == 0


def test_configs_are_altered_and_described(run) -> None:
    run("topics", "create", "c")
    altered = run("configs", "alter", "--topic", "c", "-s", "retention.ms=5", "--append", "cleanup.policy=compact")
    assert altered.out == "Altered retention.ms, cleanup.policy.\n"
    rows = {row["name"]: row for row in json.loads(run("configs", "describe", "--topic", "c", "--json").out)}
    assert (rows["retention.ms"]["value"], rows["retention.ms"]["source"]) == ("5", "topic")
    assert rows["cleanup.policy"]["value"] == "delete,compact"
    run("configs", "alter", "--topic", "c", "-d", "retention.ms", "--subtract", "cleanup.policy=delete")
    explained = run("configs", "describe", "--topic", "c", "--explain", "--json").out
    assert all(row["documentation"] for row in json.loads(explained))
    assert (
        "The size at which a segment is closed" in run("configs", "describe", "--topic", "c", "--all", "--explain").out
    )
    text = run("configs", "describe", "--topic", "c", "--all").out
    assert ["retention.ms", "604800000", "default"] in [line.split() for line in text.splitlines()]
    assert ["cleanup.policy", "compact", "topic"] in [line.split() for line in text.splitlines()]


@pytest.mark.parametrize("command", ["describe", "alter --set log.retention.ms=1000"])
def test_a_broker_that_is_not_there_is_named_at_once(run, command: str) -> None:
    verb, *options = command.split()
    refused = run("configs", verb, "--broker", 99, *options)
    assert (refused.status, refused.err) == (1, "kafkapy: no such broker: 99; there are: 1\n")


def test_broker_configs_have_their_sources(run) -> None:
    run("configs", "alter", "--broker", "1", "-s", "num.io.threads=9")
    rows = {row["name"]: row["source"] for row in json.loads(run("configs", "describe", "--broker", "1", "--json").out)}
    assert (rows["num.io.threads"], rows["min.insync.replicas"], rows["node.id"]) == ("broker", "cluster", "static")


def test_usage_errors_are_explained_with_status_2(run) -> None:
    for arguments in (
        ["configs", "describe"],
        ["configs", "describe", "--topic", "a", "--broker", "1"],
        ["configs", "alter", "--topic", "a"],
        ["topics", "create", "x", "-c", "no-equals-sign"],
        ["topics", "nonsense"],
    ):
        done = run(*arguments)
        assert done.status == 2
        assert done.err


def test_lines_are_produced_and_consumed(run) -> None:
    run("topics", "create", "lines", "-p", 1)
    assert run("produce", "lines", stdin=b"one\ntwo\n\xffthree\n").out == "Produced 3 records to lines.\n"
    assert run("consume", "lines", "-B", "-n", 2).out == "one\ntwo\n"
    assert run("consume", "lines", "-e", "-o", "-1", "--json").out == (
        run("consume", "lines", "-o", "2", "-e", "--json").out
    )


def test_keys_headers_and_places_survive(run) -> None:
    run("topics", "create", "keyed", "-p", 3)
    run("produce", "keyed", "-K", ":", "-H", "h=1", "-p", 2, "--compression", "zstd", stdin=b"k:v:w\n")
    (row,) = map(json.loads, run("consume", "keyed", "-B", "-e", "--json").out.splitlines())
    del row["timestamp_ms"]
    assert row == {"topic": "keyed", "partition": 2, "offset": 0, "key": "k", "value": "v:w", "headers": {"h": "1"}}
    assert run("consume", "keyed", "-p", 2, "-B", "-e", "-K", "=").out == "k=v:w\n"


def test_a_key_gets_the_partition_that_java_clients_choose(run) -> None:
    """Else a key that a Java producer writes to as well is in two partitions."""
    run("topics", "create", "by-key", "-p", 4)
    keys = [f"key-{number}" for number in range(20)]
    run("produce", "by-key", "-K", ":", stdin="".join(f"{key}:v\n" for key in keys).encode())
    run("produce", "by-key", "-K", ":", "-X", "partitioner=consistent", stdin=b"by crc32:v\n")
    shown = run("consume", "by-key", "-B", "-e", "--format", "%k=%p").out.splitlines()
    chosen = {key: str((murmur2(key.encode()) & 0x7FFFFFFF) % 4) for key in keys}
    assert dict(line.split("=") for line in shown) == {**chosen, "by crc32": str(zlib.crc32(b"by crc32") % 4)}


@pytest.mark.parametrize(
    "command", [("produce", "once"), ("topics", "copy", "source", "once")], ids=lambda each: each[0]
)
def test_a_lost_response_repeats_no_record(command, capsys, monkeypatch) -> None:
    with Broker() as broker:
        broker.create_topics("source", "once", partitions=1)
        broker.topics["source"].produce([{"id": number} for number in range(3)])
        broker.faults.drop("Produce", when="after", topic="once", nth=1)
        lines = SimpleNamespace(buffer=io.BytesIO(b'{"id":0}\n{"id":1}\n{"id":2}\n'), isatty=lambda: False)
        monkeypatch.setattr(sys, "stdin", lines)
        assert main([*command, "-b", broker.bootstrap_servers]) == 0, capsys.readouterr().err
        assert [record.value["id"] for record in broker.topics["once"].records()] == [0, 1, 2]


@pytest.mark.parametrize(
    "options", [["--acks", "1"], ["-X", "acks=0"], ["-X", "retries=0"], ["-X", "max.in.flight=9"], ["--acks", "-1"]]
)
def test_a_producer_may_be_set_to_repeat_records(options, run) -> None:
    done = run("produce", "loose", *options, stdin=b"one\n")
    assert (done.status, done.err) == (0, "")


def test_json_lines_make_records(run) -> None:
    run("topics", "create", "json", "-p", 1)
    rows = [{"key": "k", "value": {"a": 1}, "headers": {"h": "x"}, "timestamp_ms": 1234567890123}, {"value": None}]
    run("produce", "json", "--json", stdin="\n".join(map(json.dumps, rows)).encode())
    first, second = map(json.loads, run("consume", "json", "-B", "-e", "--json").out.splitlines())
    assert (first["key"], first["value"], first["timestamp_ms"]) == ("k", '{"a": 1}', 1234567890123)
    assert (second["key"], second["value"]) == (None, None)


def test_files_are_produced(run, tmp_path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("3\n")
    run("topics", "create", "files", "-p", 1)
    assert run("produce", "files", tmp_path / "a", tmp_path / "b").status == 0
    assert run("consume", "files", "-B", "-e").out == "1\n2\n3\n"
    assert "No such file" in run("produce", "files", tmp_path / "missing").err


@pytest.mark.parametrize(
    ("options", "line", "message"),
    [
        (["-K", ":"], b"novalue", "line 1: there is no ':' between key and value"),
        (["--json"], b"[1]", "line 1: it is not a JSON object"),
        (["--json"], b"{", "line 1: "),
        (["--json"], b'{"valu": 1}', "line 1: no field is called 'valu'"),
    ],
)
def test_bad_lines_are_named(run, options, line, message) -> None:
    done = run("produce", "bad-lines", *options, stdin=line)
    assert done.status == 1
    assert message in done.err


def test_records_before_a_bad_line_are_counted(run) -> None:
    done = run("produce", "counted", "--json", stdin=b'{"value": "a"}\n{"valeu": "b"}\n')
    assert "Produced 1 record to counted, partition 0, offset 0." in done.err


def test_a_missing_file_is_refused_before_anything_is_sent(run, tmp_path) -> None:
    (tmp_path / "a").write_text("1\n")
    run("topics", "create", "unsent", "-p", 1)
    assert run("produce", "unsent", tmp_path / "a", tmp_path / "missing").status == 1
    assert run("consume", "unsent", "-B", "-e").out == ""


def test_a_dash_is_standard_input(run) -> None:
    assert run("produce", "dashed", "-", stdin=b"one\ntwo\n").out == "Produced 2 records to dashed.\n"


def test_an_option_of_one_value_is_given_once(run) -> None:
    done = run("produce", "twice", "--key", "a", "-k", "b", stdin=b"one\n")
    assert (done.status, "it is given more than once: --key/-k takes one value" in done.err) == (2, True)


def test_silence_ends_consuming(run) -> None:
    run("topics", "create", "silent", "-p", 1)
    assert run("consume", "silent", "--timeout-ms", 300).out == ""


def test_no_broker_is_one_line(capsys) -> None:
    assert main(["topics", "list", "-b", "127.0.0.1:1", "-X", "socket.timeout.ms=500"]) == 1
    assert capsys.readouterr().err == "kafkapy: no broker answers at 127.0.0.1:1: Connection refused\n"


@pytest.mark.parametrize(
    "command", ["topics create a", "produce a", "consume a", "groups redrive a", "configs describe --topic a"]
)
def test_missing_confluent_kafka_says_what_to_install(command: str, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert main([*command.split(), "-b", "127.0.0.1:1"]) == 1
    output = capsys.readouterr().err
    assert "pip install 'confluent-kafka" in output
    assert "install kafkapy" not in output


def test_topics_are_listed_without_confluent_kafka(run, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert run("topics", "list", "--json").status == 0
    assert run("topics", "describe", "--json").status == 0


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_overview_names_every_command(capsys, arguments) -> None:
    main(arguments)
    output = capsys.readouterr()
    for name in ("start", "storage", "topics", "configs", "produce", "consume", "dump-log", "protocol"):
        assert f" {name} " in output.out + output.err


def test_version(capsys) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"kafkapy [\d.]+ (interpreted|compiled \(\d+ modules\))\n", capsys.readouterr().out)
