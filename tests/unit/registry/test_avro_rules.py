"""Avro: what is compatible, by the rules of Avro's schema resolution, and how schemas are stored."""

import json
from typing import Any

import pytest

pytest.importorskip("fastavro")

from kafkapy.registry.formats.avro import AvroSchema
from kafkapy.registry.formats.parsed import SchemaSyntaxError


def record(*fields: dict[str, Any], name: str = "Trade", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def kinds(reader: Any, writer: Any) -> list[str]:
    """Return the types of the differences and where they are."""
    found = AvroSchema(json.dumps(reader)).backward_errors(AvroSchema(json.dumps(writer)), lenient=False)
    return [f"{each.split(chr(39))[1]} {_path(each)}" for each in found]


def _path(text: str) -> str:
    after = text.partition("path '")[2]
    return after.partition("'")[0]


ENUM = {"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}
CASES = [
    ("a field with a default is added", record(field("a"), field("b", default=1)), record(field("a")), []),
    (
        "a field without a default is added",
        record(field("a"), field("b")),
        record(field("a")),
        ["READER_FIELD_MISSING_DEFAULT_VALUE /fields/1"],
    ),
    ("a default of null is one", record(field("a", ["null", "int"], default=None)), record(), []),
    ("a field is removed", record(), record(field("a")), []),
    ("a field is renamed, with an alias", record(field("b", aliases=["a"])), record(field("a")), []),
    ("int is read as long", "long", "int", []),
    ("int is read as double", "double", "int", []),
    ("long is not read as int", "int", "long", ["TYPE_MISMATCH /"]),
    ("float is read as double", "double", "float", []),
    ("double is not read as float", "float", "double", ["TYPE_MISMATCH /"]),
    ("string and bytes are read as each other", "string", "bytes", []),
    ("bytes and string are read as each other", "bytes", "string", []),
    ("a type becomes one of a union", ["null", "int"], "int", []),
    ("a union becomes one type", "int", ["null", "int"], ["TYPE_MISMATCH /"]),
    ("a union of one type becomes this type", "int", ["int"], []),
    ("a union has more", ["null", "int", "string"], ["null", "int"], []),
    ("a union has less", ["null"], ["null", "int"], ["MISSING_UNION_BRANCH /1"]),
    ("a union's int is read as long", ["null", "long"], ["null", "int"], []),
    ("a symbol is added", {**ENUM, "symbols": ["BUY", "SELL", "NONE"]}, ENUM, []),
    ("a symbol is removed", {**ENUM, "symbols": ["BUY"]}, ENUM, ["MISSING_ENUM_SYMBOLS /symbols"]),
    ("a symbol is removed, with a default", {**ENUM, "symbols": ["BUY"], "default": "BUY"}, ENUM, []),
    ("a record has another name", record(name="Order"), record(), ["NAME_MISMATCH /name"]),
    ("a record has another namespace", record(namespace="x"), record(namespace="y"), []),
    (
        "a fixed has another size",
        {"type": "fixed", "name": "F", "size": 8},
        {"type": "fixed", "name": "F", "size": 16},
        ["FIXED_SIZE_MISMATCH /size"],
    ),
    (
        "what an array has changes",
        {"type": "array", "items": "int"},
        {"type": "array", "items": "string"},
        ["TYPE_MISMATCH /items"],
    ),
    ("what a map has is widened", {"type": "map", "values": "long"}, {"type": "map", "values": "int"}, []),
    (
        "within a record within a record",
        record(field("a", record(field("b", "int"), name="In"))),
        record(field("a", record(field("b", "string"), name="In"))),
        ["TYPE_MISMATCH /fields/0/type/fields/0/type"],
    ),
    (
        "a record within itself",
        record(field("next", ["null", "Trade"]), field("a", "string")),
        record(field("next", ["null", "Trade"]), field("a", "int")),
        ["TYPE_MISMATCH /fields/1/type"],
    ),
]


@pytest.mark.parametrize(
    ("reader", "writer", "expected"), [each[1:] for each in CASES], ids=[each[0] for each in CASES]
)
def test_a_reader_finds_what_it_cannot_read(reader, writer, expected):
    found = kinds(reader, writer)
    assert sorted(found) == sorted(expected)


def test_a_difference_reads_as_confluents():
    found = AvroSchema('"int"').backward_errors(AvroSchema('"string"'), lenient=False)
    assert found == [
        "{errorType:'TYPE_MISMATCH', description:'The type (path '/') of a field in the %s schema does not match with "
        "the %s schema', additionalInfo:'reader type: INT not compatible with writer type: STRING'}"
    ]


STORED = [
    ('{"type": "string"}', '"string"'),
    ("string", '"string"'),
    ('{"type":"string","avro.java.string":"String"}', '{"type":"string","avro.java.string":"String"}'),
    (
        '{"fields": [{"type": "int", "name": "a", "default": 1, "doc": "d"}], "doc": "x", "name": "n.T",'
        '"type":"record"}',
        '{"type":"record","name":"T","namespace":"n","doc":"x","fields":[{"name":"a","type":"int","doc":"d",'
        '"default":1}]}',
    ),
    (
        '{"type":"record","name":"T","namespace":"n","fields":[{"name":"a","type":{"type":"enum","name":"n.E",'
        '"symbols":["A"]}},{"name":"b","type":"n.E"},{"name":"c","type":["null",{"type":"fixed","name":"m.F","size":2}]}]}',
        '{"type":"record","name":"T","namespace":"n","fields":[{"name":"a","type":{"type":"enum","name":"E",'
        '"symbols":["A"]}},{"name":"b","type":"E"},{"name":"c","type":["null",{"type":"fixed","name":"F","namespace":"m",'
        '"size":2}]}]}',
    ),
    (
        '{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}',
        '{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}',
    ),
]


@pytest.mark.parametrize(("given", "stored"), STORED)
def test_a_schema_is_stored_as_javas_parser_prints_it(given, stored):
    schema = AvroSchema(given)
    assert schema.canonical == stored
    assert AvroSchema(schema.canonical).canonical == stored


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"type":"record","name":"T","fields":[{"name":"a","type":"X"}]}', 'Undefined schema: "X"'),
        (
            '{"type":"record","name":"T","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "Duplicate field a",
        ),
        ('{"type":"record","name":"T"}', "Record has no fields"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "Duplicate enum symbol: A"),
        ('["int",["null"]]', "Nested union"),
        ('["int","int"]', "Duplicate in union:int"),
        ('{"type":"record","name":"1T","fields":[]}', "Illegal character in: 1T"),
        ('{"type":"array"}', "Array has no items type"),
        ('{"type":"fixed","name":"F","size":-1}', "Invalid or no size: -1"),
        ("[" * 5000, "it is nested too deeply"),
        ("{", "Expecting property name"),
        ("17", "Schema not yet supported: 17"),
    ],
)
def test_what_is_no_schema_is_refused_with_a_reason(text, reason):
    with pytest.raises(SchemaSyntaxError, match=reason.replace("[", r"\[")):
        AvroSchema(text)


def test_a_default_of_another_type_is_refused_as_new_only():
    schema = AvroSchema(json.dumps(record(field("a", "int", default="x"))))
    with pytest.raises(SchemaSyntaxError):
        schema.validate_as_new()


def test_references_name_types():
    inner = json.dumps(record(field("n"), name="Inner"))
    outer = AvroSchema(json.dumps(record(field("in", "Inner"), name="Outer")), (), {"Inner": inner})
    assert outer.canonical == '{"type":"record","name":"Outer","fields":[{"name":"in","type":"Inner"}]}'
    assert json.loads(outer.formatted("resolved"))["fields"][0]["type"]["name"] == "Inner"
