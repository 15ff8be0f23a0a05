"""Records on the page: as JSON lines, marked, as hex; produced again; loaded from a file."""

import base64
import html
import json
import re

import confluent_kafka as kafka
import pytest
from kafka.partitioner.default import murmur2
from starlette.testclient import TestClient

from kafkapy import Broker
from kafkapy.console.app import new_app
from kafkapy.console.loading import MAX_LINES
from kafkapy.console.render import hexdump
from kafkapy.console.search import MAX_LINE_CHARACTERS
from kafkapy.console.settings import Settings
from kafkapy.decoders.row import record_of
from tests.support.console_pages import OWN, csrf_of


@pytest.fixture(scope="module")
def broker():
    with Broker(properties={"log.retention.ms": "-1"}) as running:  # some of its records are of 1970
        yield running


@pytest.fixture(scope="module")
def page(broker):
    with TestClient(new_app(Settings(servers=broker.bootstrap_servers, allow_changes=True)), base_url=OWN) as client:
        client.get("/charts")
        yield client


def rows_of(page, topic: str, **fields: object) -> str:
    return page.get("/stream", params={"name": topic, "from": "beginning", **fields}).text


def lines_of(text: str) -> list[dict]:
    return [json.loads(html.unescape(each)) for each in re.findall(r'data-line="([^"]*)"', text)]


def load(page, topic: str, lines: list[str], **headers: str):
    sent = {"origin": OWN, "x-csrf-token": csrf_of(page), **headers}
    return page.post("/load", params={"name": topic}, content="\n".join(lines), headers=sent)


def test_a_row_has_the_line_from_which_produce_restores_it(broker, page) -> None:
    broker.create_topics("lines", partitions=1)
    producer = kafka.Producer(broker.client_config())
    sent = [
        ("k", b'{"a": 1}', [("h", b"1"), ("h", None)]),
        (None, b"\x00\xff", []),
        ("k", None, []),
        ("\ud7ff", "<b>&\"'\u2028".encode(), []),
    ]
    for key, value, headers in sent:
        producer.produce("lines", value, key, 0, headers=headers, timestamp=5000)
    producer.produce("lines", b"x" * (MAX_LINE_CHARACTERS + 1), "large", 0)
    assert producer.flush(30) == 0
    text = rows_of(page, "lines")
    lines = lines_of(text)
    assert (len(lines), text.count("<tr")) == (len(sent), len(sent) + 1), "the large one has no line"
    for line, (key, value, headers) in zip(lines, sent, strict=True):
        found = record_of(line)
        assert (found["key"], found["value"]) == (None if key is None else key.encode(), value)
        assert found.get("headers", []) == headers
        assert (found["partition"], found["timestamp"]) == (0, 5000)
    assert "00000000  00 ff" in text, "binary is shown as hex with positions"


def test_aborted_and_open_records_are_marked(broker, page) -> None:
    broker.create_topics("marked", partitions=1)
    plain = kafka.Producer(broker.client_config())
    producer = kafka.Producer({**broker.client_config(), "transactional.id": "marks", "linger.ms": 0})
    producer.init_transactions(30)

    def write(value: str, end: str) -> None:
        producer.begin_transaction()
        producer.produce("marked", value, partition=0)
        producer.flush(30)
        if end:
            getattr(producer, end)(30)

    write("a", "commit_transaction")
    write("b", "abort_transaction")
    write("c", "commit_transaction")
    write("d", "abort_transaction")
    write("e", "")
    plain.produce("marked", "f", partition=0)
    assert plain.flush(30) == 0
    text = rows_of(page, "marked", isolation="read_uncommitted")
    found = re.findall(
        r'stamp">[^<]*</span>\s*(?:<span class="badge \w+"[^>]*>(\w+)</span>)?</td>.*?<summary>(\w)', text, re.DOTALL
    )
    assert found == [("", "a"), ("aborted", "b"), ("", "c"), ("aborted", "d"), ("open", "e"), ("open", "f")]
    assert [each["value"] for each in lines_of(rows_of(page, "marked"))] == ["a", "c"]
    producer.abort_transaction(30)


def test_the_newest_record_of_each_key_is_a_table(broker, page) -> None:
    broker.create_topics("prices", partitions=2)
    producer = kafka.Producer(broker.client_config())
    for number, (key, value) in enumerate([("b", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("c", None)]):
        producer.produce("prices", value, key, timestamp=1000 + number)
    assert producer.flush(30) == 0
    found = [(each["key"], each["value"]) for each in lines_of(rows_of(page, "prices", latest="1"))]
    assert found == [("a", "2"), ("b", "3"), ("c", None)]
    text = rows_of(page, "prices", latest="1", limit=2)
    assert "Only the first 2 keys are kept." in text


def test_an_empty_topic_says_what_to_do(broker, page) -> None:
    broker.create_topics("unused", partitions=1)
    assert "Nothing to look through" in rows_of(page, "unused")
    shown = page.get("/topic/messages?name=unused").text
    assert f"kafkapy produce unused -b {broker.bootstrap_servers}" in shown


def test_at_most_two_lines_of_fields_stand_before_the_records(page, broker) -> None:
    broker.create_topics("fields", partitions=1)
    shown = page.get("/topic/messages?name=fields").text
    before, _, more = shown.partition('<details class="more-fields">')
    assert more, "closed unless one of its fields is used"
    assert before.count('<div class="row">') == 1
    used = page.get("/topic/messages?name=fields&json_path=$.a").text
    assert '<details class="more-fields" open>' in used


def test_bytes_are_produced_from_base64(broker, page) -> None:
    broker.create_topics("bytes", partitions=1)
    fields = {"csrf": csrf_of(page), "name": "bytes", "encoding": "base64", "confirmed": 1}
    fields["value"], fields["key"] = base64.b64encode(b"\x00\x01").decode(), base64.b64encode(b"k").decode()
    assert page.post("/change/produce", data=fields, headers={"origin": OWN}).status_code == 200
    (line,) = lines_of(rows_of(page, "bytes"))
    assert (record_of(line)["key"], record_of(line)["value"]) == (b"k", b"\x00\x01")
    wrong = page.post("/change/produce", data={**fields, "value": "?"}, headers={"origin": OWN})
    assert (wrong.status_code, "not base64" in wrong.text) == (400, True)


def test_a_key_gets_the_partition_that_java_clients_choose(broker, page) -> None:
    broker.create_topics("by-key", partitions=4)
    keys = [f"key-{number}" for number in range(8)]
    assert load(page, "by-key", [json.dumps({"key": key, "value": "v"}) for key in keys]).json()["sent"] == len(keys)
    found = {record.key: record.partition for record in broker.topics["by-key"].wait_for(len(keys))}
    assert found == {key: (murmur2(key.encode()) & 0x7FFFFFFF) % 4 for key in keys}


def test_a_file_is_loaded_part_by_part(broker, page, caplog) -> None:
    broker.create_topics("loaded", partitions=2)
    lines = [json.dumps({"key": f"k{number}", "value": {"n": number}, "partition": number % 2}) for number in range(50)]
    with caplog.at_level("INFO", logger="kafkapy.console.changes"):
        assert load(page, "loaded", lines).json() == {"sent": 50, "error": None}
    assert "Load 50 records into loaded." in caplog.text
    assert len(lines_of(rows_of(page, "loaded"))) == 50
    stopped = load(page, "loaded", [lines[0], "nonsense", lines[1]])
    assert (stopped.status_code, stopped.json()["sent"]) == (400, 1)
    assert stopped.json()["error"].startswith("Line 2 of this part:")
    assert "no field is called" in load(page, "loaded", ['{"valu": 1}']).json()["error"]
    assert "At most" in load(page, "loaded", ["{}"] * (MAX_LINES + 1)).json()["error"]
    assert "There is no topic" in load(page, "missing", lines).json()["error"]


def test_a_file_is_loaded_only_by_who_may(broker, page) -> None:
    assert load(page, "loaded", ["{}"], **{"x-csrf-token": "wrong"}).status_code == 403
    assert load(page, "loaded", ["{}"], origin="http://attacker.example").status_code == 403
    with TestClient(new_app(Settings(servers=broker.bootstrap_servers)), base_url=OWN) as reading:
        reading.get("/charts")
        assert load(reading, "loaded", ["{}"]).status_code == 403


def test_bytes_are_shown_with_their_positions() -> None:
    assert hexdump("48690a" + "ff" * 14) == (
        "00000000  48 69 0a ff ff ff ff ff ff ff ff ff ff ff ff ff  Hi..............\n"
        "00000010  ff                                               ."
    )
    assert hexdump("") == ""
    assert hexdump("4") == "", "half a byte, where the text was cut"
