"""Keys and values are decoded by the format that is asked for; what does not fit it is shown, with the reason."""

import json
import struct
import uuid
from pathlib import Path

import pytest

from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.formats import FORMATS, Decoded, Decoders
from kafkapy.decoders.registry import SchemaRegistry

UUID = uuid.UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")

CASES = [
    ("text", b"caf\xc3\xa9", "café"),
    ("text", b"\xff", "\\xff"),
    ("json", b'{"a": [1, null]}', {"a": [1, None]}),
    ("hex", b"\x00\xff", "00ff"),
    ("base64", b"\x00\xff", "AP8="),
    ("short", struct.pack(">h", -2), -2),
    ("integer", struct.pack(">i", -(2**31)), -(2**31)),
    ("long", struct.pack(">q", 2**63 - 1), 2**63 - 1),
    ("float", struct.pack(">f", 0.5), 0.5),
    ("double", struct.pack(">d", float("nan")), "nan"),
    ("boolean", b"\x01", True),
    ("uuid", str(UUID).encode(), str(UUID)),
    ("uuid", UUID.bytes, str(UUID)),
]


@pytest.mark.parametrize(("name", "data", "expected"), CASES)
def test_a_value_is_decoded_by_its_format(name, data, expected) -> None:
    assert Decoders("text", name).value("t", None, data) == Decoded(expected, name)


@pytest.mark.parametrize(("name", "data"), [("long", b"1"), ("json", b"{"), ("uuid", b"no"), ("boolean", b"\x02")])
def test_what_does_not_fit_is_shown_as_text_with_the_reason(name, data) -> None:
    value, used, error = Decoders(name, "text").key("t", data)
    assert (value, used) == (data.decode(), "text")
    assert error


def test_null_is_null_in_every_format() -> None:
    for name in set(FORMATS) - {"avro", "json-schema", "protobuf"}:
        assert Decoders(name, name).value("t", None, None).value is None
        assert Decoders(name, name).key("t", None).value is None


def test_json_nested_too_deep_is_refused_not_a_crash() -> None:
    assert "deeper" in (Decoders("text", "json").value("t", None, b"[" * 500 + b"]" * 500).error or "")
    assert Decoders("text", "json").value("t", None, b"[" * 100_000).error


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"hello", Decoded("hello", "text")),
        (b'{"a":1}', Decoded({"a": 1}, "json")),
        (b"{a", Decoded("{a", "text")),
        (b"\x00\x01", Decoded("0001", "hex")),
        (b"\xff", Decoded("ff", "hex")),
        (b"17", Decoded("17", "text")),
    ],
)
def test_auto_decides_by_the_data(data, expected) -> None:
    assert Decoders("auto", "auto").value("t", None, data) == expected


def test_messagepack_is_decoded() -> None:
    msgpack = pytest.importorskip("msgpack")
    data = msgpack.packb({"a": [1, b"\xff", None], 2: "x"})
    assert Decoders("text", "messagepack").value("t", None, data).value == {"a": [1, "/w==", None], "2": "x"}
    assert Decoders("text", "messagepack").value("t", None, b"\xc1").error


@pytest.fixture
def registry(tmp_path: Path) -> SchemaRegistry:
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "bytes"}]}
    (tmp_path / "7.avsc").write_text(json.dumps(record))
    (tmp_path / "8.json").write_text("{}")
    return SchemaRegistry(str(tmp_path))


def test_avro_and_json_schema_are_found_by_their_five_bytes(registry) -> None:
    pytest.importorskip("fastavro")
    decoders = Decoders("text", "avro", registry)
    assert decoders.value("t", None, bytes.fromhex("00 00000007 06 04 ff00")).value == {"a": 3, "b": "/wA="}
    assert Decoders("text", "auto", registry).value("t", None, b"\0\0\0\0\x08[1]") == Decoded([1], "schema")
    assert "of the kind JSON" in (decoders.value("t", None, b"\0\0\0\0\x08[1]").error or "")
    assert "not of schema 7" in (decoders.value("t", None, b"\0\0\0\0\x07").error or "")
    assert "schema 9 has no file" in (decoders.value("t", None, b"\0\0\0\0\x09x").error or "")
    assert "five bytes" in (decoders.value("t", None, b"abc").error or "")


def test_protobuf_is_decoded_by_a_descriptor_set(tmp_path) -> None:
    descriptors = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import timestamp_pb2

    file = descriptors.FileDescriptorProto(
        name="f.proto", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    outer = file.message_type.add(name="Outer")
    inner = outer.nested_type.add(name="Inner")
    inner.field.add(name="some_text", number=1, type=9, label=1)
    inner.field.add(name="at", number=2, type=11, type_name=".google.protobuf.Timestamp", label=1)
    (tmp_path / "3.desc").write_bytes(descriptors.FileDescriptorSet(file=[file]).SerializeToString())
    decoders = Decoders("text", "protobuf", SchemaRegistry(str(tmp_path)))
    at = timestamp_pb2.Timestamp(seconds=1).SerializeToString()
    data = bytes.fromhex("00 00000003 04 00 00") + b"\x0a\x02hi\x12" + bytes([len(at)]) + at
    assert decoders.value("t", None, data).value == {"some_text": "hi", "at": "1970-01-01T00:00:01Z"}
    assert "not of schema 3" in (decoders.value("t", None, bytes.fromhex("00 00000003 02 04")).error or "")


def test_a_failure_of_the_registry_is_remembered_for_a_while(tmp_path) -> None:
    now_s = [0.0]
    registry = SchemaRegistry(str(tmp_path), clock_s=lambda: now_s[0])
    with pytest.raises(DecodeError, match="no file"):
        registry.schema(1)
    (tmp_path / "1.json").write_text("{}")
    with pytest.raises(DecodeError, match="no file"):
        registry.schema(1)
    now_s[0] = 31.0
    assert registry.schema(1).kind == "JSON"


def test_formats_that_need_schemas_and_unknown_ones_are_refused() -> None:
    with pytest.raises(DecodeError, match="needs a schema registry"):
        Decoders("text", "avro")
    with pytest.raises(DecodeError, match="no format is called xml"):
        Decoders("xml", "text")
    with pytest.raises(DecodeError, match="neither an http URL nor a directory"):
        SchemaRegistry("file:///etc/passwd")


def test_internal_topics_are_decoded_by_their_records() -> None:
    key, value = (
        bytes.fromhex("0001 0001 67 0001 74 00000002"),
        bytes.fromhex("0003 000000000000002a ffffffff 0000 00000000000003e8"),
    )
    decoders = Decoders("internal", "auto")
    assert decoders.key("__consumer_offsets", key).value == {
        "type": "1",
        "data": {"group": "g", "topic": "t", "partition": 2},
    }
    assert decoders.value("__consumer_offsets", key, value).value["data"]["offset"] == 42
    assert decoders.value("__consumer_offsets", key, None).value is None
    assert decoders.key("other", key).error == "other is no internal topic"
    assert decoders.key("__consumer_offsets", b"\x00").error
