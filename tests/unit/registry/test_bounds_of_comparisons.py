"""Comparisons of schemas that a client may make up: they end, and the reasons that they find are bounded."""

import json
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("jsonschema")
pytest.importorskip("proto_schema_parser")

from kafkapy.registry.formats.avro import AvroSchema
from kafkapy.registry.formats.json_schema import JsonSchema
from kafkapy.registry.formats.matching import largest_matching
from kafkapy.registry.formats.parsed import MAX_REASONS, SchemaSyntaxError, TooManyTypesError
from tests.support.registries import ApiClient

STEPS = "kafkapy.registry.formats.parsed.MAX_STEPS"
LEVELS = 30
"""Each with two fields of the level below."""


def avro(level: int, leaf: str) -> Any:
    if level == LEVELS:
        return leaf
    below = f"L{level + 1}" if level + 1 < LEVELS else leaf
    fields = [{"name": "a", "type": avro(level + 1, leaf)}, {"name": "b", "type": below}]
    return {"type": "record", "name": f"L{level}", "fields": fields}


def json_schema(leaf: dict[str, Any]) -> JsonSchema:
    names = [f"L{level}" for level in range(LEVELS + 1)]
    found: dict[str, Any] = {}
    for name, below in pairwise(names):
        ref = {"$ref": f"#/$defs/{below}"}
        found[name] = {"type": "object", "properties": {"a": ref, "b": ref}}
    draft = "https://json-schema.org/draft/2020-12/schema"
    return JsonSchema(json.dumps({"$schema": draft, "$defs": {**found, names[-1]: leaf}, "$ref": "#/$defs/L0"}))


def proto(leaf: str) -> str:
    messages = [f"message L{level} {{ L{level + 1} a = 1; L{level + 1} b = 2; }}" for level in range(LEVELS)]
    return "\n".join(('syntax = "proto3";', *messages, f"message L{LEVELS} {{ {leaf} a = 1; }}"))


def test_reasons_of_avro_schemas_are_bounded() -> None:
    text, number = (AvroSchema(json.dumps(avro(0, leaf))) for leaf in ("string", "int"))
    assert len(number.backward_errors(text, lenient=False)) == MAX_REASONS
    assert AvroSchema(json.dumps(avro(0, "long"))).backward_errors(number, lenient=False) == []


def test_reasons_of_json_schemas_are_bounded() -> None:
    integer, number, text = (json_schema({"type": each}) for each in ("integer", "number", "string"))
    assert len(text.backward_errors(integer, lenient=False)) == MAX_REASONS
    assert number.backward_errors(integer, lenient=False) == []


def test_a_reason_after_very_many_harmless_differences_is_found() -> None:
    def root(last: str) -> JsonSchema:
        titled = {f"p{number:04}": {"type": "string", "title": last} for number in range(MAX_REASONS + 1)}
        return JsonSchema(json.dumps({"type": "object", "properties": {**titled, "z": {"type": last}}}))

    (reason,) = root("string").backward_errors(root("boolean"), lenient=False)
    assert "TYPE_CHANGED" in reason


async def test_protobuf_messages_that_are_compared_without_end_are_refused() -> None:
    pytest.importorskip("google.protobuf")
    api = ApiClient()
    for leaf, status in (("int32", 200), ("string", 422)):
        body = {"schemaType": "PROTOBUF", "schema": proto(leaf)}
        found = await api.call("POST", "/subjects/s/versions", body)
        assert found[0] == status, found
    assert "too many relations" in found[1]["message"]


def test_avro_unions_with_very_many_pairs_of_types_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STEPS, 1_000)

    def union(leaf: str) -> AvroSchema:
        branches = [{"type": "record", "name": f"R{n}", "fields": [{"name": "f", "type": leaf}]} for n in range(40)]
        return AvroSchema(json.dumps({"type": "record", "name": "T", "fields": [{"name": "u", "type": branches}]}))

    with pytest.raises(TooManyTypesError):
        union("int").backward_errors(union("string"), lenient=False)


def test_a_pattern_that_backtracks_for_ever_is_none_of_these() -> None:
    closed = {"type": "object", "additionalProperties": False}
    pattern = JsonSchema(json.dumps({**closed, "patternProperties": {"^(a+)+$": {"type": "string"}}}))
    named = JsonSchema(json.dumps({**closed, "properties": {"a" * 40 + "!": {"type": "string"}}}))
    assert pattern.backward_errors(named, lenient=False)


def test_a_matching_is_found_among_many() -> None:
    edges = [(left, right) for left in range(200) for right in range(200)]
    assert len(largest_matching(200, edges)) == 200


def test_enums_of_very_many_values_are_read_and_compared() -> None:
    """Each value was compared with each other one."""
    names = [f"n{number}" for number in range(60_000)]
    avro_enums = [AvroSchema(json.dumps({"type": "enum", "name": "E", "symbols": names[at:]})) for at in (0, 1)]
    assert avro_enums[0].backward_errors(avro_enums[1], lenient=False) == []
    odd: list[Any] = [1, True, 1.5, None, {"a": 1}, [2]]
    json_enums = [JsonSchema(json.dumps({"enum": [*odd, *names[at:]]})) for at in (0, 1)]
    assert json_enums[0].backward_errors(json_enums[1], lenient=False) == []
    (reason,) = json_enums[1].backward_errors(json_enums[0], lenient=False)
    assert "ENUM_ARRAY_NARROWED" in reason


def test_reasons_that_very_many_pairs_of_types_share_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair kept them all: 160,000 pairs with 2,000 reasons, of schemas of 100 KB, took all memory there was."""
    monkeypatch.setattr(STEPS, 50_000)

    def avro_union(leaf: str) -> AvroSchema:
        shared = {"type": "record", "name": "X", "fields": [{"name": f"f{n}", "type": leaf} for n in range(100)]}
        union = [{"type": "record", "name": f"R{n}", "fields": [{"name": "f", "type": "X"}]} for n in range(30)]
        fields = [{"name": "x", "type": shared}, {"name": "u", "type": union}]
        return AvroSchema(json.dumps({"type": "record", "name": "T", "fields": fields}))

    def json_union(leaf: str) -> JsonSchema:
        shared = {"type": "object", "properties": {f"p{n}": {"type": leaf} for n in range(100)}}
        parts = [{"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}, f"b{n}": True}} for n in range(30)]
        return JsonSchema(json.dumps({"$defs": {"x": shared}, "anyOf": parts}))

    with pytest.raises(TooManyTypesError):
        avro_union("int").backward_errors(avro_union("string"), lenient=False)
    with pytest.raises(TooManyTypesError):
        json_union("integer").backward_errors(json_union("string"), lenient=False)


def test_protobuf_fields_that_are_compared_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many messages as may be compared, of thousands of fields: each differed, which was kept."""
    pytest.importorskip("google.protobuf")
    from kafkapy.registry.formats.protobuf import ProtobufSchema

    monkeypatch.setattr(STEPS, 50_000)

    def schema(prefix: str) -> ProtobufSchema:
        leaf = " ".join(f"int32 {prefix}{n} = {n};" for n in range(1, 101))
        messages = [f"message L{level} {{ L{level + 1} a = 1; L{level + 1} b = 2; }}" for level in range(10)]
        return ProtobufSchema("\n".join(('syntax = "proto3";', *messages, f"message L10 {{ {leaf} }}")))

    with pytest.raises(TooManyTypesError):
        schema("f").backward_errors(schema("g"), lenient=False)


def test_parts_and_required_names_by_the_thousand_are_not_compared_each_with_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"n{number}" for number in range(10_000)]
    objects = [
        JsonSchema(json.dumps({"type": "object", "properties": dict.fromkeys(names, True), "required": required}))
        for required in (names, names[1:])
    ]
    assert objects[1].backward_errors(objects[0], lenient=False) == []
    (reason,) = objects[0].backward_errors(objects[1], lenient=False)
    assert "#/required/n0" in reason
    lists = [JsonSchema(json.dumps({"enum": [[name] for name in names[at:]]})) for at in (0, 1)]
    assert lists[0].backward_errors(lists[1], lenient=False) == []
    parts = JsonSchema(json.dumps({"anyOf": [{"const": name} for name in (*names, *names)]}))
    one = JsonSchema(json.dumps({"anyOf": [{"const": 1}, {"const": 1.0}, {"const": True}]}))
    assert "COMBINED_TYPE_SUBSCHEMAS_CHANGED" in str(one.backward_errors(parts, lenient=False))
    monkeypatch.setattr(STEPS, 10_000)
    with pytest.raises(TooManyTypesError):
        parts.backward_errors(parts, lenient=False)


def test_very_many_patterns_are_not_matched_with_very_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STEPS, 100_000)
    closed = {"type": "object", "additionalProperties": False}
    many = JsonSchema(json.dumps({**closed, "patternProperties": {f"^x{n}$": {"type": "null"} for n in range(200)}}))
    named = JsonSchema(json.dumps({**closed, "properties": {f"n{n}": {"type": "null"} for n in range(200)}}))
    with pytest.raises(TooManyTypesError):
        many.backward_errors(named, lenient=False)


def test_a_long_chain_of_references_is_followed_once() -> None:
    chain = {f"a{n}": {"$ref": f"#/definitions/a{n + 1}"} for n in range(2_000)}
    schemas = [
        JsonSchema(json.dumps({"definitions": {**chain, "a2000": {"type": leaf}}, "$ref": "#/definitions/a0"}))
        for leaf in ("string", "null")
    ]
    (reason,) = schemas[0].backward_errors(schemas[1], lenient=False)
    assert "TYPE_CHANGED" in reason
    with pytest.raises(SchemaSyntaxError, match="refers to itself"):
        JsonSchema(json.dumps({"definitions": {**chain, "a2000": {"$ref": "#/definitions/a7"}}}))


def test_values_of_several_types_that_would_each_be_compared_with_each_are_refused() -> None:
    """jsonschema looks for equal ones, and cannot sort them: 60,000 took half an hour."""
    draft = {"$schema": "http://json-schema.org/draft-04/schema#"}
    mixed = [None, *(f"n{number}" for number in range(3_000))]
    for content in ({**draft, "enum": mixed}, {"type": mixed}, {**draft, "items": {"required": mixed}}):
        with pytest.raises(SchemaSyntaxError, match="several types"):
            JsonSchema(json.dumps(content))
    JsonSchema(json.dumps({"enum": mixed}))  # draft 7 lets values be there twice
    JsonSchema(json.dumps({**draft, "enum": mixed[1:]}))
    JsonSchema(json.dumps({**draft, "enum": [*range(3_000), 0.5]}))
