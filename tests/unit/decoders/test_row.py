"""A record as a JSON object is restored exactly, whatever its bytes and whatever it was decoded by."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.decoders.formats import FORMATS, Decoders
from kafkapy.decoders.row import ConsumedRecord, record_of, row_of

DATA = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode) | st.just(b'{"a": 1}')
HEADERS = st.lists(st.tuples(st.text(max_size=3), DATA), max_size=4)
NAMES = sorted(set(FORMATS) - {"avro", "json-schema", "protobuf"})


def row(key, value, headers=(), *, name="text", timestamp_ms=5):
    decoders = Decoders(name, name)
    record = ConsumedRecord("t", 3, 9, timestamp_ms, key, value, headers)
    return row_of(record, decoders.key("t", key), decoders.value("t", key, value))


@given(key=DATA, value=DATA, headers=HEADERS, name=st.sampled_from(NAMES), timestamp_ms=st.integers(0, 2**62))
def test_every_record_is_restored(key, value, headers, name, timestamp_ms) -> None:
    printed = json.dumps(row(key, value, headers, name=name, timestamp_ms=timestamp_ms), ensure_ascii=False)
    restored = record_of(json.loads(printed.encode("utf-8", "backslashreplace")))
    assert restored.pop("headers", []) == headers
    assert restored == {"key": key, "value": value, "partition": 3, "timestamp": timestamp_ms}


def test_text_needs_no_more_than_its_text() -> None:
    assert row(b"k", b"v", [("h", b"1"), ("n", None)]) == {
        "topic": "t",
        "partition": 3,
        "offset": 9,
        "timestamp_ms": 5,
        "key": "k",
        "value": "v",
        "headers": {"h": "1", "n": None},
    }


def test_bytes_and_repeated_headers_are_added_as_base64() -> None:
    shown = row(b"\xff", None, [("h", b"1"), ("h", b"2")])
    assert (shown["key"], shown["key_base64"], shown["value"]) == ("\\xff", "/w==", None)
    assert shown["headers_base64"] == [["h", "MQ=="], ["h", "Mg=="]]


@pytest.mark.parametrize(
    "bad",
    [
        [],
        {"value_base64": "?"},
        {"value_base64": 1},
        {"headers": [1]},
        {"headers_base64": {"a": "b"}},
        {"partition": "x"},
        {"partition": [1]},
        {"timestamp_ms": True},
        {"value": "\ud800"},
    ],
)
def test_what_is_no_record_is_refused(bad) -> None:
    with pytest.raises(ValueError):
        record_of(bad)
