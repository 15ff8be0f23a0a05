"""What others write to _schemas is ignored if it is not understood, as by Confluent's registry: the reader goes on."""

import json
from typing import Any

import pytest

from kafkapy.registry.state import RegistryState

SCHEMA = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
HALF = "\ud800"
"""Of a character: JSON can write it, UTF-8 cannot."""


def schema(**more: Any) -> dict[str, Any]:
    return {"subject": "s", "version": 1, "id": 1, "schema": '"int"', **more}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ({"keytype": "CONFIG", "subject": ["s"]}, {"compatibilityLevel": "FULL"}),
        ({"keytype": "MODE", "subject": {"s": 1}}, {"mode": "IMPORT"}),
        ({"keytype": "MODE", "subject": "s"}, {"mode": ["IMPORT"]}),
        ({"keytype": "CLEAR_SUBJECT", "subject": 5}, {}),
        ({"keytype": "CONTEXT", "context": HALF}, {}),
        ({**SCHEMA, "subject": HALF}, schema()),
        (SCHEMA, schema(schema=HALF)),
        (SCHEMA, schema(schemaType=["AVRO"])),
        (SCHEMA, schema(references=5)),
        (SCHEMA, schema(references=[{}])),
        (SCHEMA, schema(references=[{"name": "a", "subject": "a", "version": 1 << 40}])),
        (SCHEMA, schema(metadata="x")),
        (SCHEMA, schema(metadata={"tags": ["x"]})),
        (SCHEMA, schema(ruleSet={"domainRules": [1]})),
    ],
)
def test_what_is_not_understood_is_ignored(key: dict[str, Any], value: dict[str, Any]) -> None:
    state = RegistryState()
    state.replay(json.dumps(key).encode(), json.dumps(value).encode())
    assert (state.subjects(), state.contexts, state.mode("s"), state.settings("s")) == ([], ["."], None, None)
    state.replay(json.dumps(SCHEMA).encode(), json.dumps(schema()).encode())
    assert state.subjects() == ["s"]
