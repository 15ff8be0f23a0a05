"""Bodies of other types than Confluent's classes have: refused with 400, as by their JsonMappingExceptionMapper."""

from typing import Any, Final

import pytest

from kafkapy.registry.metadata_rules import MODES
from tests.support.registries import AVRO, ApiClient

METADATA: Final[list[tuple[Any, str]]] = [
    ("x", "{} is no object"),
    ([], "{} is no object"),
    ({"tags": -1}, "{}.tags is no object"),
    ({"tags": {"a": "x"}}, "{}.tags.a is no list"),
    ({"tags": {"a": None}}, "{}.tags.a is no list"),
    ({"properties": ["a"]}, "{}.properties is no object"),
    ({"properties": {"a": None}}, "{}.properties.a is no text"),
    ({"properties": {"a": {"b": "c"}}}, "{}.properties.a is no text"),
    ({"sensitive": {"a": 1}}, "{}.sensitive is no list"),
    ({"sensitive": [None]}, "{}.sensitive is no text"),
]
RULE_SETS: Final[list[tuple[Any, str]]] = [
    (5, "{} is no object"),
    ({"domainRules": {}}, "{}.domainRules is no list"),
    ({"migrationRules": [1]}, "{}.migrationRules is no object"),
    ({"encodingRules": [None]}, "{}.encodingRules has a rule that is null"),
    ({"enableAt": []}, "{}.enableAt is no text"),
    ({"domainRules": [{"name": []}]}, "{}.domainRules.name is no text"),
    ({"domainRules": [{"kind": "WISH"}]}, "{}.domainRules.kind is none of TRANSFORM, CONDITION"),
    ({"domainRules": [{"mode": 3}]}, f"{{}}.domainRules.mode is none of {', '.join(MODES)}"),
    ({"domainRules": [{"tags": "PII"}]}, "{}.domainRules.tags is no list"),
    ({"domainRules": [{"params": {"a": []}}]}, "{}.domainRules.params.a is no text"),
    ({"domainRules": [{"disabled": "yes"}]}, "{}.domainRules.disabled is neither true nor false"),
]  # fmt: skip
ODD: Final = [("metadata", *each) for each in METADATA] + [("ruleSet", *each) for each in RULE_SETS]
SETTINGS: Final = {
    "metadata": ("defaultMetadata", "overrideMetadata"),
    "ruleSet": ("defaultRuleSet", "overrideRuleSet"),
}


@pytest.mark.parametrize(("member", "found", "message"), ODD)
async def test_metadata_and_rules_of_other_types_are_refused_by_name(member: str, found: Any, message: str) -> None:
    api = ApiClient()
    for path in ("/subjects/s/versions", "/subjects/s", "/compatibility/subjects/s/versions"):
        response = await api.call("POST", path, {"schema": AVRO, member: found})
        assert response == (400, {"error_code": 400, "message": message.format(member)}), path
    for name in SETTINGS[member]:
        response = await api.call("PUT", "/config/s", {name: found})
        assert response == (400, {"error_code": 400, "message": message.format(name)})
    assert api.store.records == []


@pytest.mark.parametrize(("member", "number"), [("version", 1 << 31), ("id", -(1 << 31) - 1), ("id", 10**30)])
async def test_numbers_beyond_32_bits_are_refused(member: str, number: int) -> None:
    response = await ApiClient().call("POST", "/subjects/s/versions", {"schema": AVRO, member: number})
    assert response == (400, {"error_code": 400, "message": f"{member} is out of range"})


@pytest.mark.parametrize("body", [b'{"schema": "\\ud800"}', b'{"schema": "\xed\xa0\x80"}', b'{"\\udfff": 1}'])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/subjects/s/versions"), ("POST", "/subjects/s"), ("PUT", "/config")]
)
async def test_half_of_a_character_is_refused(method: str, path: str, body: bytes) -> None:
    status, response = await ApiClient().call(method, path, body)
    assert (status, response["error_code"]) == (400, 400)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        *(("JSON", each) for each in ("0", "null", "Infinity", "[]", '"a"', '{"$schema": []}', '{"$schema": null}')),
        ("JSON", '{"const": "\\ud800"}'),
        ("JSON", '{"maximum": 1e400}'),
        ("AVRO", '"\\ud800"'),
        ("AVRO", '{"type": "enum", "name": "E", "symbols": ["A"], "default": "\\ud800"}'),
        ("AVRO", '{"type": "string", "doc": "\\ud800"}'),
        ("AVRO", '{"type": "double", "default": NaN}'),
    ],
)
async def test_what_no_schema_can_be_is_refused(kind: str, schema: str) -> None:
    api = ApiClient()
    for path in ("/subjects/s/versions", "/subjects/s", "/compatibility/subjects/s/versions"):
        status, response = await api.call("POST", path, {"schema": schema, "schemaType": kind})
        assert (status, response["error_code"]) in ((422, 42201), (404, 40401)), path
    assert api.store.records == []


async def test_numbers_and_booleans_are_read_as_texts_as_by_jackson() -> None:
    api = ApiClient()
    metadata = {"properties": {"major": 2, "is_final": True}, "tags": {"a": [1.5, "PII"]}}
    rules = {"domainRules": [{"name": "r", "doc": 7, "type": "CEL", "params": {"most": 10}, "disabled": False}]}
    await api.call("POST", "/subjects/s/versions", {"schema": AVRO, "metadata": metadata, "ruleSet": rules})
    _, found = await api.call("GET", "/subjects/s/versions/1")
    assert found["metadata"] == {"properties": {"major": "2", "is_final": "true"}, "tags": {"a": ["1.5", "PII"]}}
    assert found["ruleSet"] == {
        "domainRules": [{"name": "r", "doc": "7", "type": "CEL", "params": {"most": "10"}, "disabled": False}]
    }


def rule(name: object = "r", **more: object) -> dict[str, object]:
    return {"name": name, "type": "CEL", **more}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"domainRules": [{"type": "CEL"}]}, "Missing rule name"),
        ({"domainRules": [rule("")]}, "Empty rule name"),
        ({"domainRules": [rule("r" * 65)]}, "Rule name too long"),
        ({"domainRules": [rule("1r")]}, "Illegal initial character in rule name: 1r"),
        ({"domainRules": [rule("a b")]}, "Illegal character in rule name: a b"),
        ({"domainRules": [{"name": "r"}]}, "Missing rule type"),
        ({"domainRules": [rule(), rule()]}, "Found rule with duplicate name 'r'"),
        ({"migrationRules": [rule(mode="UPDOWN")], "domainRules": [rule()]}, "Found rule with duplicate name 'r'"),
        ({"migrationRules": [rule()]}, "Migration rules can only be UPGRADE, DOWNGRADE, UPDOWN"),
        ({"domainRules": [rule(mode="UPGRADE")]}, "Domain rules can only be WRITE, READ, WRITEREAD"),
        (
            {"domainRules": [rule(mode="WRITE", onFailure="NONE,ERROR")]},
            "Multiple actions only valid with WRITEREAD and UPDOWN",
        ),
    ],
)
async def test_rules_that_cannot_be_are_refused_as_by_confluents_validation(rules: Any, message: str) -> None:
    api = ApiClient()
    expected = (422, {"error_code": 42210, "message": message})
    assert await api.call("POST", "/subjects/s/versions", {"schema": AVRO, "ruleSet": rules}) == expected
    for name in SETTINGS["ruleSet"]:
        assert await api.call("PUT", "/config", {name: rules}) == expected
    assert (await api.call("POST", "/subjects/s/versions", {"schema": AVRO}))[0] == 200
    assert (await api.call("POST", "/subjects/s", {"schema": AVRO, "ruleSet": rules}))[0] == 404, "no such version"


async def test_rules_of_every_kind_are_registered() -> None:
    rules = {
        "migrationRules": [rule("up-1", mode="UPGRADE"), rule("_2", mode="UPDOWN", onSuccess="NONE,ERROR")],
        "domainRules": [rule("a"), rule("b", mode="WRITE", onFailure="DLQ")],
        "encodingRules": [rule("c", mode="READ")],
    }
    status, _ = await ApiClient().call("POST", "/subjects/s/versions", {"schema": AVRO, "ruleSet": rules})
    assert status == 200


@pytest.mark.parametrize("number", ["9" * 5_000, "-" + "9" * 5_000, str(1 << 31), "--1", "-", "\u0661"])
async def test_a_number_that_is_no_int32_is_not_found_or_not_valid(number: str) -> None:
    api = ApiClient()
    assert (await api.call("GET", f"/schemas/ids/{number}"))[0] == 404
    assert (await api.call("GET", f"/subjects?limit={number}"))[0] == 404
    assert (await api.call("GET", f"/subjects/s/versions/{number}"))[1]["error_code"] == 42202


async def test_leading_zeros_are_left_out() -> None:
    api = ApiClient()
    await api.call("POST", "/subjects/s/versions", {"schema": AVRO})
    assert (await api.call("GET", f"/schemas/ids/{'0' * 20}1"))[0] == 200


async def test_a_context_has_subjects_and_no_versions_to_delete() -> None:
    api = ApiClient()
    for subject in ("s", ":.ctx:s"):
        await api.call("POST", f"/subjects/{subject}/versions", {"schema": AVRO})
    count = len(api.store.records)
    for context in (":.ctx:", ":.:"):
        for query in ("", "?permanent=true"):
            status, found = await api.call("DELETE", f"/subjects/{context}{query}")
            assert (status, found) == (200, []), (context, query)
    assert len(api.store.records) == count
