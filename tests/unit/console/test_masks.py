"""Masked values: neither shown nor downloaded nor found, in whatever format they are asked for."""

import json

import confluent_kafka as kafka
import pytest
from starlette.testclient import TestClient

from kafkapy import Broker
from kafkapy.cli.console_options import new_parser
from kafkapy.console.app import new_app
from kafkapy.console.main import settings_of
from kafkapy.console.masks import HIDDEN, MASKED, MaskedDecoders, Masks
from kafkapy.console.search import MAX_DECODED_BYTES, Query, matcher, row_of
from kafkapy.console.settings import Settings
from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.formats import FORMATS, Decoders
from kafkapy.decoders.json_path import JsonPath

SECRET = "4111111111111111"
ORDER = {"order": 1, "card": {"number": SECRET, "holder": "a"}, "others": [{"number": SECRET}]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.a", {"a": "x", "b": [{"a": 2}]}),
        ("$..a", {"a": "x", "b": [{"a": "x"}]}),
        ("$.b[0].a", {"a": 1, "b": [{"a": "x"}]}),
        ("$.b[-1]", {"a": 1, "b": ["x"]}),
        ("$.b[*].*", {"a": 1, "b": [{"a": "x"}]}),
        ("$.c", {"a": 1, "b": [{"a": 2}]}),
    ],
)
def test_what_a_path_selects_is_replaced(path, expected) -> None:
    value = {"a": 1, "b": [{"a": 2}]}
    assert JsonPath(path).replaced(value, "x") == expected
    assert value == {"a": 1, "b": [{"a": 2}]}, "the value itself stays"


def test_masks_are_of_topics() -> None:
    masks = Masks(["$.all", "payments-*:$..iban"])
    assert [len(masks.paths_of(topic)) for topic in ("orders", "payments-eu")] == [1, 2]


@pytest.fixture(scope="module")
def page():
    with Broker() as broker:
        broker.create_topics("paid", partitions=1)
        producer = kafka.Producer(broker.client_config())
        for value in (json.dumps(ORDER), f"plain {SECRET}", json.dumps(SECRET), None):
            producer.produce("paid", value, "k", 0)
            producer.flush(30)
        settings = Settings(servers=broker.bootstrap_servers, masks=("paid:$..number",))
        with TestClient(new_app(settings), base_url="http://127.0.0.1:8080") as client:
            yield client


@pytest.mark.parametrize("value_format", [each for each in FORMATS if each not in ("avro", "json-schema", "protobuf")])
def test_no_format_shows_what_is_masked(page, value_format) -> None:
    fields = {"name": "paid", "from": "beginning", "value_format": value_format}
    shown = page.get("/stream", params=fields).text
    assert shown.count("<tr") == 4
    assert SECRET not in shown
    assert SECRET.encode().hex() not in shown
    for offset in range(4):
        alone = page.get("/topic/record", params={"name": "paid", "partition": 0, "offset": offset, **fields}).text
        assert SECRET not in alone


def test_the_rest_of_a_record_is_shown(page) -> None:
    shown = page.get("/stream?name=paid&from=beginning").text
    assert MASKED in shown
    assert "holder" in shown
    assert shown.count(HIDDEN) >= 2


@pytest.mark.parametrize("field", ["text", "regex", "json_path"])
def test_no_search_finds_what_is_masked(page, field) -> None:
    wanted = f"$.card.number == '{SECRET}'" if field == "json_path" else SECRET
    ended = page.get("/stream", params={"name": "paid", "from": "beginning", field: wanted}).text
    assert "0 found, 4 records" in ended
    assert "1 found" in page.get("/stream", params={"name": "paid", "from": "beginning", "text": "holder"}).text


def test_what_is_too_large_to_be_decoded_is_hidden() -> None:
    class Message:
        def value(self) -> bytes:
            return SECRET.encode() + b"x" * MAX_DECODED_BYTES

        def key(self) -> bytes:
            return b"k"

        def topic(self) -> str:
            return "paid"

        def partition(self) -> int:
            return 0

        offset = partition

        def timestamp(self) -> tuple[int, int]:
            return 1, 1000

        def headers(self) -> list[tuple[str, bytes | None]]:
            return []

    masked = MaskedDecoders(Decoders("auto", "auto"), [JsonPath("$.a")])
    row = row_of(Message(), masked, 1000)
    assert (row.value.text, row.line) == (HIDDEN, "")
    assert not matcher(Query("paid", text=SECRET), masked)(Message())


def test_a_mask_that_is_no_path_is_refused() -> None:
    with pytest.raises(DecodeError, match="--mask: 'card' is no JSON path"):
        settings_of(new_parser().parse_args(["--mask", "card"]))
