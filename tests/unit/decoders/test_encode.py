"""JSON values as a schema registry's serializers write them: decoded to the same again, errors name the place."""

import json
from pathlib import Path

import pytest

from kafkapy.decoders.encode import SchemaEncoder
from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.formats import Decoders
from kafkapy.decoders.registry import SchemaRegistry

USER = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "photo", "type": ["null", "bytes"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "A"},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}, "default": 0},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        {
            "name": "cost",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            "default": "\u0000",
        },
        {"name": "friend", "type": ["null", "User"], "default": None},
        {"name": "score", "type": {"type": "map", "values": "double"}, "default": {}},
    ],
}
WHOLE = {
    "id": 7,
    "name": "Ann",
    "photo": "AP8=",
    "kind": "B",
    "tags": ["x"],
    "born": "2001-02-03",
    "seen": "2026-01-15T12:00:00+00:00",
    "cost": "12.50",
    "friend": {
        "id": 8,
        "name": None,
        "photo": None,
        "kind": "A",
        "tags": [],
        "born": "1970-01-01",
        "seen": "1970-01-01T00:00:00+00:00",
        "cost": "0.00",
        "friend": None,
        "score": {},
    },
    "score": {"a": 1.5},
}


@pytest.fixture
def registry(tmp_path: Path) -> SchemaRegistry:
    (tmp_path / "1.avsc").write_text(json.dumps(USER))
    (tmp_path / "2.json").write_text("{}")
    (tmp_path / "4.avsc").write_text('{"type": "no such type"}')
    return SchemaRegistry(str(tmp_path))


def test_avro_is_decoded_to_what_was_encoded(registry) -> None:
    pytest.importorskip("fastavro")
    data = SchemaEncoder(registry, 1).encode(WHOLE)
    assert data[:5] == bytes.fromhex("00 00000001")
    assert Decoders("text", "avro", registry).value("t", None, data).value == WHOLE


def test_avro_as_the_specification_shows_it(registry) -> None:
    """id 1, null, null, A, no tags, day 0, ms 0, a decimal of one byte, no friend, no scores."""
    pytest.importorskip("fastavro")
    assert SchemaEncoder(registry, 1).encode({"id": 1})[5:].hex(" ") == "02 00 00 00 00 00 00 02 00 00 00"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "User needs the field id"),
        ({"id": "7"}, ".id is no long"),
        ({"id": True}, ".id is no long"),
        ({"id": 1, "nam": "x"}, "User has no field 'nam': id, name"),
        ({"id": 1, "name": 5}, ".name is no string"),
        ({"id": 1, "photo": "%"}, ".photo is not base64"),
        ({"id": 1, "kind": "C"}, ".kind is none of A, B"),
        ({"id": 1, "tags": "x"}, ".tags is not a list"),
        ({"id": 1, "tags": ["x", 1]}, r".tags\[1\] is no string"),
        ({"id": 1, "born": "soon"}, ".born: 'soon' is no date"),
        ({"id": 1, "cost": "much"}, ".cost: 'much' is no decimal"),
        ({"id": 1, "friend": {"id": "x"}}, ".friend.id is no long"),
        ({"id": 1 << 70}, "not of schema 1: "),
        ([], "it is not an object"),
    ],
)
def test_what_does_not_fit_is_named(registry, value: object, message: str) -> None:
    pytest.importorskip("fastavro")
    with pytest.raises(DecodeError, match=message):
        SchemaEncoder(registry, 1).encode(value)


def test_a_value_that_nests_too_deep_is_refused(registry) -> None:
    pytest.importorskip("fastavro")
    value: dict[str, object] = {"id": 1}
    for _ in range(5_000):
        value = {"id": 1, "friend": value}
    with pytest.raises(DecodeError, match="nested too deep"):
        SchemaEncoder(registry, 1).encode(value)


def test_json_has_five_bytes_before_it(registry) -> None:
    pytest.importorskip("jsonschema")
    assert SchemaEncoder(registry, 2).encode({"a": "é"}) == b"\0\0\0\0\x02" + '{"a": "é"}'.encode()


USER_AS_JSON = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["id"],
}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"tags": []}, "not of schema 5: it: 'id' is a required property"),
        ({"id": "7"}, r"not of schema 5: \.id: '7' is not of type 'integer'"),
        ({"id": 7, "tags": ["x", 1]}, r"\.tags\[1\]: 1 is not of type 'string'"),
        ([], "is not of type 'object'"),
    ],
)
def test_a_value_that_a_json_schema_refuses_is_not_encoded(tmp_path: Path, value: object, message: str) -> None:
    pytest.importorskip("jsonschema")
    (tmp_path / "5.json").write_text(json.dumps(USER_AS_JSON))
    encoder = SchemaEncoder(SchemaRegistry(str(tmp_path)), 5)
    assert encoder.encode({"id": 7, "tags": ["x"]})[:5] == bytes.fromhex("00 00000005")
    with pytest.raises(DecodeError, match=message):
        encoder.encode(value)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "no such type"}, "not a schema"),
        ({"$ref": "http://127.0.0.1:1/elsewhere.json"}, "not a schema: .*elsewhere"),
        ({"pattern": "("}, "not a schema"),
    ],
)
def test_a_json_schema_that_is_none_is_refused_and_nothing_is_fetched(tmp_path: Path, schema, message: str) -> None:
    pytest.importorskip("jsonschema")
    (tmp_path / "5.json").write_text(json.dumps(schema))
    with pytest.raises(DecodeError, match=message):
        SchemaEncoder(SchemaRegistry(str(tmp_path)), 5).encode("text")


def test_a_schema_that_is_none_is_refused(registry) -> None:
    pytest.importorskip("fastavro")
    with pytest.raises(DecodeError, match="not a schema"):
        SchemaEncoder(registry, 4)
    with pytest.raises(DecodeError, match="schema 3 has no file"):
        SchemaEncoder(registry, 3)
    with pytest.raises(DecodeError, match="has schemas by number, not orders-value"):
        registry.latest("orders-value")


def test_protobuf_is_decoded_to_what_was_encoded(tmp_path: Path) -> None:
    descriptors = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = descriptors.FileDescriptorProto(name="a.proto", syntax="proto3")
    file.message_type.add(name="A").field.add(name="it", number=1, label=1, type=5)
    (tmp_path / "5.desc").write_bytes(descriptors.FileDescriptorSet(file=[file]).SerializeToString())
    registry = SchemaRegistry(str(tmp_path))
    data = SchemaEncoder(registry, 5).encode({"it": 7})
    assert data == bytes.fromhex("00 00000005 00 08 07")
    assert Decoders("text", "protobuf", registry).value("t", None, data).value == {"it": 7}
    with pytest.raises(DecodeError, match="not of schema 5"):
        SchemaEncoder(registry, 5).encode({"that": 7})
