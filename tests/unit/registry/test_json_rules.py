"""JSON Schema: the published rules, a case each: what changed, the difference, and whether it is harmless."""

import json
from typing import Any

import pytest

pytest.importorskip("jsonschema")

from kafkapy.registry.formats.json_differences import COMPATIBLE
from kafkapy.registry.formats.json_rules import differences
from kafkapy.registry.formats.json_schema import JsonSchema
from kafkapy.registry.formats.parsed import SchemaSyntaxError

INT: dict[str, Any] = {"type": "integer"}
TEXT: dict[str, Any] = {"type": "string"}
CLOSED: dict[str, Any] = {"additionalProperties": False}


def of(properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties or {}, **more}


def text(**more: Any) -> dict[str, Any]:
    return {**TEXT, **more}


def found(before: Any, after: Any, *, lenient: bool = False) -> list[str]:
    original, update = JsonSchema(json.dumps(before)), JsonSchema(json.dumps(after))
    listed = differences(original._loader.root(), update._loader.root(), lenient=lenient)
    return sorted(f"{each.kind} {each.pointer}" for each in listed)


CASES: list[tuple[Any, Any, list[str]]] = [
    ({"multipleOf": 1e308}, {"multipleOf": 2}, ["MULTIPLE_OF_REDUCED #/multipleOf"]),
    ({"multipleOf": 3}, {"multipleOf": 10**40}, ["MULTIPLE_OF_CHANGED #/multipleOf"]),
    (TEXT, TEXT, []),
    (TEXT, {}, []),
    (TEXT, INT, ["TYPE_CHANGED #/"]),
    (INT, {"type": "number"}, ["TYPE_EXTENDED #/"]),
    ({"type": "number"}, INT, ["TYPE_NARROWED #/"]),
    (False, TEXT, []),
    (text(title="a"), text(title="b"), ["TITLE_CHANGED #/"]),
    (TEXT, text(maxLength=3), ["MAX_LENGTH_ADDED #/maxLength"]),
    (text(maxLength=3), text(maxLength=4), ["MAX_LENGTH_INCREASED #/maxLength"]),
    (text(maxLength=3), text(maxLength=2), ["MAX_LENGTH_DECREASED #/maxLength"]),
    (text(minLength=3), TEXT, ["MIN_LENGTH_REMOVED #/minLength"]),
    (text(pattern="a"), text(pattern="b"), ["PATTERN_CHANGED #/pattern"]),
    ({**INT, "minimum": 1}, {**INT, "minimum": 2}, ["MINIMUM_INCREASED #/minimum"]),
    (
        {**INT, "exclusiveMaximum": 9},
        {**INT, "exclusiveMaximum": 8},
        ["EXCLUSIVE_MAXIMUM_DECREASED #/exclusiveMaximum"],
    ),
    ({**INT, "multipleOf": 10}, {**INT, "multipleOf": 5}, ["MULTIPLE_OF_REDUCED #/multipleOf"]),
    ({**INT, "multipleOf": 0.5}, {**INT, "multipleOf": 10}, ["MULTIPLE_OF_EXPANDED #/multipleOf"]),
    ({**INT, "multipleOf": 4}, {**INT, "multipleOf": 6}, ["MULTIPLE_OF_CHANGED #/multipleOf"]),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_EXTENDED #/enum"]),
    ({"enum": ["a", "b"]}, {"enum": ["b"]}, ["ENUM_ARRAY_NARROWED #/enum"]),
    ({"enum": [1]}, {"enum": [True]}, ["ENUM_ARRAY_CHANGED #/enum"]),
    ({"const": 1}, {"const": 2}, ["ENUM_ARRAY_CHANGED #/const"]),
    (of(), of({"a": INT}), ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"]),
    (of(), of({"a": {}}), ["PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"]),
    (of(), of({"a": INT}, required=["a"]), ["REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"]),
    (of(**CLOSED), of({"a": INT}, **CLOSED), ["OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"]),
    (
        of(**CLOSED),
        of({"a": INT}, required=["a"], **CLOSED),
        ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"],
    ),
    (
        of(**CLOSED),
        of({"a": {**INT, "default": 1}}, required=["a"], **CLOSED),
        ["REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"],
    ),
    (of({"a": INT}), of(), ["PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/a"]),
    (of({"a": INT}, **CLOSED), of(**CLOSED), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a"]),
    (
        of({"a": INT}, additionalProperties=INT),
        of(additionalProperties=INT),
        ["PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a"],
    ),
    (
        of(additionalProperties=INT),
        of({"a": TEXT}, additionalProperties=INT),
        [
            "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
            "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
            "TYPE_CHANGED #/properties/a",
        ],
    ),
    (of({"a": INT}), of({"a": INT}, required=["a"]), ["REQUIRED_ATTRIBUTE_ADDED #/required/a"]),
    (of({"a": INT}, required=["a"]), of({"a": INT}), ["REQUIRED_ATTRIBUTE_REMOVED #/required/a"]),
    (of(), of(**CLOSED), ["ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"]),
    (of(**CLOSED), of(), ["ADDITIONAL_PROPERTIES_ADDED #/additionalProperties"]),
    (of(), of(additionalProperties=INT), ["ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"]),
    (of(), of(maxProperties=3), ["MAX_PROPERTIES_ADDED #/maxProperties"]),
    (of(dependencies={"a": ["b"]}), of(dependencies={"a": ["b", "c"]}), ["DEPENDENCY_ARRAY_EXTENDED #/dependencies/a"]),
    (of({"a": of({"b": INT})}), of({"a": of({"b": TEXT})}), ["TYPE_CHANGED #/properties/a/properties/b"]),
    ({"type": "array", "items": INT}, {"type": "array", "items": TEXT}, ["TYPE_CHANGED #/items"]),
    ({"type": "array"}, {"type": "array", "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED #/uniqueItems"]),
    (
        {"type": "array", "items": [INT]},
        {"type": "array", "items": [INT, TEXT]},
        ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"],
    ),
    (
        {"type": "array", "items": [INT], "additionalItems": False},
        {"type": "array", "items": [INT, TEXT], "additionalItems": False},
        ["ITEM_ADDED_TO_CLOSED_CONTENT_MODEL #/items/1"],
    ),
    (TEXT, {"oneOf": [INT, TEXT]}, ["SUM_TYPE_EXTENDED #/"]),
    ({"oneOf": [INT, TEXT]}, {"oneOf": [INT, TEXT, {"type": "null"}]}, ["SUM_TYPE_EXTENDED #/"]),
    ({"oneOf": [INT, TEXT]}, {"oneOf": [INT]}, ["SUM_TYPE_NARROWED #/"]),
    ({"oneOf": [INT, TEXT]}, {"anyOf": [INT, TEXT]}, ["COMBINED_TYPE_EXTENDED #/"]),
    ({"anyOf": [INT, TEXT]}, {"oneOf": [INT, TEXT]}, ["COMBINED_TYPE_CHANGED #/"]),
    ({"oneOf": [INT, TEXT]}, {"oneOf": [TEXT, INT]}, []),
    ({"allOf": [INT, {"minimum": 1}]}, {"allOf": [INT]}, ["PRODUCT_TYPE_NARROWED #/"]),
    ({"type": ["string", "null"]}, {"type": ["string", "null", "integer"]}, ["SUM_TYPE_EXTENDED #/"]),
    ({"not": INT}, {"not": {"type": "number"}}, ["NOT_TYPE_EXTENDED #/not"]),
    ({"not": {"type": "number"}}, {"not": INT}, ["NOT_TYPE_NARROWED #/not"]),
]


@pytest.mark.parametrize(("before", "after", "expected"), CASES, ids=[str(each[2]) for each in CASES])
def test_a_change_has_its_difference(before, after, expected):
    assert found(before, after) == expected
    update, original = JsonSchema(json.dumps(after)), JsonSchema(json.dumps(before))
    harmful = [each for each in expected if each.split()[0] not in COMPATIBLE]
    assert len(update.backward_errors(original, lenient=False)) == len(harmful)


def test_lenient_accepts_what_closes_an_open_model():
    before, after = JsonSchema(json.dumps(of())), JsonSchema(json.dumps(of({"a": INT}, **CLOSED)))
    assert after.backward_errors(before, lenient=False)
    assert after.backward_errors(before, lenient=True) == []


def test_a_difference_reads_as_confluents():
    (found_one,) = JsonSchema(json.dumps(INT)).backward_errors(JsonSchema(json.dumps(TEXT)), lenient=False)
    assert found_one == (
        '{errorType:"TYPE_CHANGED", description:"A type at path \'#/\' is different between the %s schema and the %s '
        "schema'}"
    )


@pytest.mark.parametrize(
    "odd", [{"dependentRequired": "int"}, {"dependentSchemas": 1}, {"dependentRequired": {"a": [[]]}}]
)
def test_keywords_of_later_drafts_may_have_any_value_in_earlier_ones(odd):
    assert found(of(), of(**odd)) in ([], ["DEPENDENCY_ARRAY_ADDED #/dependencies/a"])


def test_a_recursive_schema_is_compared_once():
    tree = of({"left": {"$ref": "#"}, "value": INT})
    assert found(tree, of({"left": {"$ref": "#"}, "value": INT})) == []
    assert "TYPE_CHANGED #/properties/value" in found(tree, of({"left": {"$ref": "#"}, "value": TEXT}))


def test_definitions_that_refer_to_each_other_do_not_explode():
    names = [f"n{number}" for number in range(12)]
    parts = {name: of({"next": {"oneOf": [{"$ref": f"#/definitions/{each}"} for each in names]}}) for name in names}
    schema = {"definitions": parts, "$ref": "#/definitions/n0"}
    assert found(schema, json.loads(json.dumps(schema))) == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"type": "strin"}, "'strin' is not valid"),
        ({"properties": []}, "is not of type 'object'"),
        ({"$ref": "#/definitions/none"}, "Unresolved"),
        ({"$ref": "http://127.0.0.1:1/other.json"}, "nothing is fetched|Unresolved"),
        ({"$ref": "#"}, "refers to itself"),
    ],
)
def test_what_is_no_schema_is_refused_with_a_reason(given, reason):
    with pytest.raises(SchemaSyntaxError, match=reason):
        JsonSchema(json.dumps(given))


def test_a_reference_is_found_by_its_name():
    inner = json.dumps(of({"n": INT}))
    outer = JsonSchema(json.dumps(of({"in": {"$ref": "inner.json"}})), (), {"inner.json": inner})
    changed = JsonSchema(
        json.dumps(of({"in": {"$ref": "inner.json"}})), (), {"inner.json": json.dumps(of({"n": TEXT}))}
    )
    assert changed.backward_errors(outer, lenient=False)
    assert outer.backward_errors(outer, lenient=False) == []


def test_the_text_keeps_its_order_and_normalized_is_sorted():
    schema = JsonSchema('{ "type": "string",  "maxLength": 3, "description": "é" }')
    assert schema.canonical == '{"type":"string","maxLength":3,"description":"é"}'
    assert schema.normalized().canonical == '{"description":"é","maxLength":3,"type":"string"}'
