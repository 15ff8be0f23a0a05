"""`consume --json | produce --json` restores every record; --key-format and --value-format decode."""

import io
import json
import struct
import sys
from types import SimpleNamespace

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main

kafka = pytest.importorskip("confluent_kafka")

RECORDS = [
    (b"k", b"text", [("h", b"1")], 1_000),
    (None, None, [], 2_000),
    (b"", b"", [("h", b""), ("h", None), ("h", b"\xff\x00")], 3_000),
    (b"\xff\xfe", b"\x00\x80\n\r\n", [], 4_000),
    ("\u2028\U0001f600".encode(), b'{"a": 1}', [("é", b"x")], 5_000),
]


@pytest.fixture(scope="module")
def server():
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def run(server, capsysbinary, monkeypatch):
    def run_command(*arguments: object, stdin: bytes = b"") -> SimpleNamespace:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False))
        status = main([*map(str, arguments), "-b", server])
        output = capsysbinary.readouterr()
        return SimpleNamespace(status=status, out=output.out, err=output.err.decode())

    return run_command


def read_all(server: str, topic: str) -> list[tuple[object, ...]]:
    consumer = kafka.Consumer({"bootstrap.servers": server, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([kafka.TopicPartition(topic, each, kafka.OFFSET_BEGINNING) for each in (0, 1)])
        found = []
        while len(found) < len(RECORDS):
            message = consumer.poll(30)
            assert message is not None, f"only {len(found)} records"
            assert message.error() is None
            place = message.partition(), message.offset(), message.timestamp()[1]
            found.append((*place, message.key(), message.value(), message.headers() or []))
        return sorted(found, key=lambda each: each[:2])
    finally:
        consumer.close()


def test_consumed_json_produces_the_same_records(run, server) -> None:
    run("topics", "create", "source", "copy-1", "copy-2", "-p", 2)
    producer = kafka.Producer({"bootstrap.servers": server})
    for number, (key, value, headers, timestamp_ms) in enumerate(RECORDS):
        producer.produce("source", value, key, number % 2, timestamp=timestamp_ms, headers=headers)
    assert producer.flush(30) == 0
    for copy, arguments in (("copy-1", []), ("copy-2", ["--value-format", "auto", "--key-format", "hex"])):
        lines = run("consume", "source", "-B", "-e", "--json", *arguments).out
        assert run("produce", copy, "--json", stdin=lines).out == f"Produced 5 records to {copy}.\n".encode()
        assert read_all(server, copy) == read_all(server, "source")


def test_values_are_decoded_by_the_format_requested(run, server) -> None:
    run("topics", "create", "numbers", "-p", 1)
    producer = kafka.Producer({"bootstrap.servers": server})
    producer.produce("numbers", struct.pack(">q", -5), b"\x00\x01")
    producer.produce("numbers", b"odd", None)
    assert producer.flush(30) == 0
    options = ("--key-format", "short", "--value-format", "long")
    done = run("consume", "numbers", "-B", "-e", "-K", "=", *options)
    assert done.out == b"1=-5\nnull=odd\n"
    assert done.err == "kafkapy: a long has 8 bytes, not 3\n"
    rows = [json.loads(line) for line in run("consume", "numbers", "-B", "-e", "--json", *options).out.splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [(1, -5), (None, "odd")]
    assert rows[1]["value_error"] == "a long has 8 bytes, not 3"


def test_an_unknown_format_is_a_usage_error(run) -> None:
    assert run("consume", "any", "--value-format", "xml").status == 2
    done = run("consume", "any", "--value-format", "avro")
    assert (done.status, "needs a schema registry" in done.err) == (2, True)
