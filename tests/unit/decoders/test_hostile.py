"""Hostile keys, values and schemas: refused in bounded time and memory, whatever they claim."""

import io
import json
from pathlib import Path

import pytest

from kafkapy.decoders.bounds import MAX_DEPTH
from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.plain import decode_messagepack
from kafkapy.decoders.registry import SchemaRegistry
from kafkapy.decoders.schemas import SchemaDecoder

LINKED = {"type": "record", "name": "Linked", "fields": [{"name": "next", "type": ["null", "Linked"]}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "of.a.test",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "count", "type": "int"},
        {"name": "total", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "share", "type": "float"},
        {"name": "exact", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": DECIMAL},
        {"name": "text", "type": ["null", "string"]},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "again", "type": "Colour"},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 3}},
        {"name": "list", "type": {"type": "array", "items": "of.a.test.Digest"}},
        {"name": "names", "type": {"type": "map", "values": ["int", {"type": "array", "items": "string"}]}},
        {"name": "next", "type": ["null", "Everything"]},
    ],
}


def decoder(directory: Path, schema: object) -> SchemaDecoder:
    (directory / "1.avsc").write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return SchemaDecoder(SchemaRegistry(str(directory)))


def encoded(data: bytes) -> bytes:
    return b"\x00\x00\x00\x00\x01" + data


def everything(inner: object) -> dict[str, object]:
    import decimal

    return {
        "flag": True,
        "count": -5,
        "total": 1_700_000_000_000,
        "share": 0.5,
        "exact": 0.25,
        "raw": b"\x00\xff",
        "price": decimal.Decimal("12.34"),
        "text": "é",
        "colour": "BLUE",
        "again": "RED",
        "digest": b"abc",
        "list": [b"def", b"ghi"],
        "names": {"a": 1, "b": ["x", "y"]},
        "next": inner,
    }


def test_what_is_within_the_bounds_is_decoded(tmp_path) -> None:
    fastavro = pytest.importorskip("fastavro")
    parsed = fastavro.parse_schema(EVERYTHING)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, everything(everything(None)))
    found = decoder(tmp_path, EVERYTHING).decode(encoded(out.getvalue()))
    assert found["next"]["names"] == {"a": 1, "b": ["x", "y"]}
    assert (found["price"], found["next"]["again"], found["next"]["next"]) == ("12.34", "RED", None)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        pytest.param(LINKED, b"\x02" * 300_000, id="recursion that ended fastavro's C stack"),
        pytest.param({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\x07\x00", id="2^36 nulls"),
        pytest.param({"type": "array", "items": "null"}, b"\xff\xff\xff\xff\xff\x07\x00\x00", id="a negative count"),
        pytest.param(DECIMAL, b"\x80\x80\x08" + b"\x7f" * 65536, id="a decimal of 64 KiB"),
        pytest.param("bytes", b"\x01", id="bytes of a negative length"),
        pytest.param("bytes", b"\xfe\xff\xff\xff\x0f", id="bytes that are not there"),
        pytest.param(["null", "int"], b"\x03\x00", id="a branch of a negative number"),
        pytest.param("long", b"\xff" * 20, id="a varint without an end"),
        pytest.param("[" * 500 + '"int"' + "]" * 500, b"\x00" * 600, id="a deep schema"),
        pytest.param({"type": "fixed", "name": "F", "size": 1 << 40}, b"", id="a huge fixed"),
        pytest.param(
            [
                {"type": "record", "name": "array", "fields": []},
                {"type": "array", "items": "null"},
            ],
            b"\x02\xfe\xff\xff\xff\xff\x07\x00",
            id="a record called array",
        ),
    ],
)
def test_avro_that_claims_too_much_is_refused(tmp_path, schema, data) -> None:
    pytest.importorskip("fastavro")
    with pytest.raises(DecodeError):
        decoder(tmp_path, schema).decode(encoded(data))


def test_records_that_double_at_each_level_are_refused(tmp_path) -> None:
    """A billion empty records in no byte at all."""
    pytest.importorskip("fastavro")
    schema: object = {"type": "record", "name": "R0", "fields": []}
    for level in range(1, 31):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level - 1}"}]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(DecodeError, match="more values than bytes"):
        decoder(tmp_path, schema).decode(encoded(b""))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [True, False, -1, -33, 127, 128, 1 << 15, 1 << 31, 1 << 63, -(1 << 62), 1.5],
        {"a": {"b": [[], {}, "x" * 40, "y" * 300, "z" * 70_000]}, "c": [0] * 20, "d": [1] * 70_000},
        {str(number): number for number in range(70_000)},
    ],
)
def test_messagepack_is_decoded_as_before(value) -> None:
    msgpack = pytest.importorskip("msgpack")
    assert decode_messagepack(msgpack.packb(value)) == value


def test_extensions_and_bytes_of_messagepack_are_decoded() -> None:
    msgpack = pytest.importorskip("msgpack")
    sizes = (1, 2, 3, 4, 8, 16, 17, 300, 70_000)
    data = msgpack.packb([msgpack.ExtType(5, b"x" * size) for size in sizes] + [b"y" * size for size in sizes])
    found = decode_messagepack(data)
    assert [len(each[1]) for each in found[:9]] == [len(each) for each in found[9:]]
    assert all(len(each[1]) >= size for each, size in zip(found, sizes, strict=False))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x81\x90\xc0", id="a list as a key"),
        pytest.param(b"\x81\x80\xc0", id="a map as a key"),
        pytest.param(b"\xdd\x00\x00\xff\xff" * 1000 + b"\xc0" * 70_000, id="lists of 65,535 that are not there"),
        pytest.param(b"\x91" * (MAX_DEPTH + 1) + b"\xc0", id="too deep"),
        pytest.param(b"\xdb\xff\xff\xff\xff", id="text of 4 GiB"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="a map of 2^32"),
        pytest.param(b"\xc1", id="a byte that is never used"),
        pytest.param(b"\xc0\xc0", id="two values"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_messagepack_that_claims_too_much_is_refused(data) -> None:
    pytest.importorskip("msgpack")
    with pytest.raises(DecodeError):
        decode_messagepack(data)
