"""`broker.topics[...].produce`: rows as records, read by stock clients, in the partitions that those choose, too."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from kafkapy.embedded.observed.seeding import murmur2
from kafkapy.testing import Broker, ObservationError
from tests.support.topic_contents import messages

ROWS = [{"id": 1, "price": 9.5, "note": None}, {"id": 2, "price": 7.25, "note": "ü"}]
VALUES = [b'{"id": 1, "price": 9.5, "note": null}', b'{"id": 2, "price": 7.25, "note": "\\u00fc"}']


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    broker.create_topics(name, partitions=1)
    return name


def contents(broker: Broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(message.key(), message.value()) for message in messages(broker.client_config(), topic)]


def test_dicts(broker: Broker, topic: str) -> None:
    assert broker.topics[topic].produce(ROWS, key="id") == 2
    assert broker.topics[topic].produce(iter(ROWS[:1]), key=lambda row: {"of": row["id"]}) == 1
    assert contents(broker, topic) == [(b"1", VALUES[0]), (b"2", VALUES[1]), (b'{"of": 1}', VALUES[0])]
    assert broker.topics[topic].records()[1].value == ROWS[1]


def frames() -> Iterator[Any]:
    import pandas
    import pyarrow

    yield pandas.DataFrame(ROWS)
    yield pyarrow.Table.from_pylist(ROWS)


@pytest.mark.parametrize("number", [0, 1], ids=["pandas", "arrow"])
def test_a_data_frame(broker: Broker, topic: str, number: int) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    assert broker.topics[topic].produce(list(frames())[number], key="note") == 2
    assert contents(broker, topic) == [(None, VALUES[0]), ("ü".encode(), VALUES[1])]


def test_what_pandas_lacks_is_null_and_times_are_iso(broker: Broker, topic: str) -> None:
    pandas = pytest.importorskip("pandas")
    moment = pandas.Timestamp("2026-01-02T03:04:05.678Z")
    frame = pandas.DataFrame({"n": [1, None], "at": [moment, None], "k": pandas.array([7, None], dtype="Int64")})
    frame["t"] = moment
    assert broker.topics[topic].produce(frame, timestamp="t") == 2
    first, second = (record.value for record in broker.topics[topic].records())
    assert (first["n"], first["at"], first["k"]) == (1.0, "2026-01-02T03:04:05.678000+00:00", 7)
    assert (second["n"], second["at"], second["k"]) == (None, None, None)
    assert broker.topics[topic].records()[0].timestamp_ms == 1767323045678


def test_files(broker: Broker, topic: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in ROWS))
    (tmp_path / "rows.csv").write_text('id,note\n1,"a, b"\n2,\n', encoding="utf-8-sig")
    assert broker.topics[topic].produce(tmp_path / "rows.jsonl", key="id") == 2
    assert broker.topics[topic].produce(str(tmp_path / "rows.csv"), key="id") == 2
    of_csv = [(b"1", b'{"id": "1", "note": "a, b"}'), (b"2", b'{"id": "2", "note": ""}')]
    assert contents(broker, topic) == [(b"1", VALUES[0]), (b"2", VALUES[1]), *of_csv]


def test_a_parquet_file(broker: Broker, topic: str, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    assert broker.topics[topic].produce(tmp_path / "rows.parquet", key="id") == 2
    assert contents(broker, topic) == [(b"1", VALUES[0]), (b"2", VALUES[1])]


def test_times(broker: Broker, topic: str) -> None:
    moments = [1_000, "2000", "1970-01-01T00:00:03", datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC)]
    broker.topics[topic].produce([{"t": moment} for moment in moments], timestamp="t")
    assert [record.timestamp_ms for record in broker.topics[topic].records()] == [1_000, 2_000, 3_000, 4_000]


def test_what_consume_exports_is_restored_as_it_was(broker: Broker, topic: str, tmp_path: Path) -> None:
    source = messages_of_all_kinds(broker, f"{topic}-source")
    command = [
        "consume",
        f"{topic}-source",
        "--from-beginning",
        "--until-end",
        "--json",
        "-b",
        broker.bootstrap_servers,
    ]
    done = subprocess.run([sys.executable, "-m", "kafkapy", *command], capture_output=True, check=True)
    (tmp_path / "exported.jsonl").write_bytes(done.stdout)
    assert broker.topics[topic].produce(tmp_path / "exported.jsonl", is_exported=True) == len(source)
    assert [facts(each) for each in messages(broker.client_config(), topic)] == [facts(each) for each in source]


def messages_of_all_kinds(broker: Broker, topic: str) -> list[Message]:
    from confluent_kafka import Producer

    broker.create_topics(topic, partitions=1)
    producer = Producer(broker.client_config())
    producer.produce(topic, b"\x00\xff", b"key", timestamp=1_000, headers=[("a", b"1"), ("a", None)])
    producer.produce(topic, None, b"\xfe", timestamp=2_000)
    producer.produce(topic, b"", None, timestamp=3_000)
    assert producer.flush(60) == 0
    return messages(broker.client_config(), topic)


def facts(message: Message) -> tuple[object, ...]:
    return message.key(), message.value(), message.headers(), message.timestamp()


def test_a_key_has_the_partition_of_other_clients() -> None:
    draw = random.Random(7)
    for size in range(40):
        key = draw.randbytes(size)
        assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF, key


def test_partitions(broker: Broker) -> None:
    broker.create_topics("partitioned", partitions=4)
    broker.topics["partitioned"].produce([{"id": number} for number in range(40)], key="id")
    for record in broker.topics["partitioned"].records():
        assert record.partition == (murmur2_of_kafka_python(record.key_bytes) & 0x7FFFFFFF) % 4
    before = broker.topics["partitioned"].end_offsets()
    broker.topics["partitioned"].produce([{"id": number} for number in range(8)])
    assert broker.topics["partitioned"].end_offsets() == {number: count + 2 for number, count in before.items()}
    broker.topics["partitioned"].produce([{"id": 1}], partition=3)
    assert broker.topics["partitioned"].end_offsets()[3] == before[3] + 3


def test_many_rows_are_several_batches(broker: Broker, topic: str) -> None:
    assert broker.topics[topic].produce({"id": number, "pad": "x" * 500} for number in range(2_000)) == 2_000
    assert [record.value["id"] for record in broker.topics[topic].records()] == list(range(2_000))


def test_a_topic_is_created_if_the_broker_creates_topics(new_kafka_broker: Any) -> None:
    broker = new_kafka_broker(properties={"num.partitions": 3})
    assert broker.topics["orders"].produce(ROWS) == 2
    assert len(broker.topics["orders"].end_offsets()) == 3
    broker = new_kafka_broker(properties={"auto.create.topics.enable": False})
    with pytest.raises(ObservationError, match=r"no topic 'orders'.*: create it first, or allow auto\.create"):
        broker.topics["orders"].produce(ROWS)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.txt", "", r"a\.txt ends with '\.txt': give dicts, a data frame"),
        ("a.jsonl", '{"id": 1}\n{', r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", "[1]\n", r"a\.jsonl, line 1: not a JSON object"),
        ("a.csv", "a,b\n1\n", r"a\.csv, line 2: not the 2 columns of line 1"),
        ("a.csv", "a,b\n1,2,3\n", r"a\.csv, line 2: not the 2 columns of line 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(broker: Broker, tmp_path: Path, name: str, text: str, error: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ObservationError, match=error):
        broker.topics["bad"].produce(tmp_path / name)


def test_rows_that_are_none_are_named(broker: Broker, topic: str) -> None:
    target = broker.topics[topic]
    with pytest.raises(ObservationError, match="row 2 is int, no dict"):
        target.produce([{"id": 1}, 2])
    with pytest.raises(ObservationError, match="dict has no rows"):
        target.produce({"id": 1})
    with pytest.raises(ObservationError, match="row 1: no column is called 'ID', only id"):
        target.produce([{"id": 1}], key="ID")
    with pytest.raises(ObservationError, match=r"row 1: a timestamp is a number .*, not '1\.5'"):
        target.produce([{"id": 1.5}], timestamp="id")
    with pytest.raises(ObservationError, match=r"row 1: topic .* has no partition 9: it has 1"):
        target.produce([{"id": 1}], partition=9)
    with pytest.raises(ObservationError, match="row 1: no field is called 'id'"):
        target.produce([{"id": 1}], is_exported=True)
