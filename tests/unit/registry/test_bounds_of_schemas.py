"""What a schema refers to is looked up once, however many ways lead to it; and what is remembered is bounded."""

import json

import pytest

from kafkapy.registry.model import SchemaReference, StoredSchema
from kafkapy.registry.schemas import MAX_PARSED_CHARACTERS, Schemas
from kafkapy.registry.state import RegistryState

LEVELS = 12


class CountingState(RegistryState):
    """Counts the versions that are looked up."""

    lookups = 0

    def version(self, subject: str, number: int, *, deleted: bool = False) -> StoredSchema | None:
        self.lookups += 1
        return super().version(subject, number, deleted=deleted)


def names(level: int) -> list[str]:
    return [f"{side}{level}" for side in "ab"]


def register(state: RegistryState, subject: str, number: int, refers_to: list[str]) -> None:
    key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
    references = [{"name": each, "subject": each, "version": 1} for each in refers_to]
    value = {"subject": subject, "version": 1, "id": number, "schema": f'"{subject}"', "references": references}
    state.replay(json.dumps(key).encode(), json.dumps(value).encode())


def test_schemas_that_refer_to_two_of_the_level_below_are_each_looked_up_once() -> None:
    state = CountingState()
    for level in range(LEVELS):
        for number, subject in enumerate(names(level)):
            register(state, subject, 2 * level + number + 1, names(level - 1) if level else [])
    state.lookups = 0
    top = tuple(SchemaReference(each, each, 1) for each in names(LEVELS - 1))
    found = state.resolve("top", top)
    assert set(found) == {each for level in range(LEVELS) for each in names(level)}
    order = list(found)
    assert all(order.index(f"a{level}") < order.index(f"a{level + 1}") for level in range(LEVELS - 1))
    assert state.lookups == 2 * LEVELS, "it doubled with each level"


def test_parsed_schemas_are_remembered_up_to_a_total_of_characters() -> None:
    pytest.importorskip("fastavro")
    schemas = Schemas(RegistryState())
    text = json.dumps({"type": "record", "name": "Wide", "fields": [], "doc": "d" * (MAX_PARSED_CHARACTERS // 3)})
    first = schemas.parse("s", "AVRO", text, ())
    assert schemas.parse("s", "AVRO", text, ()) is first
    for number in range(3):
        schemas.parse("s", "AVRO", text.replace("Wide", f"Wide{number}"), ())
    assert schemas.parse("s", "AVRO", text, ()) is not first, "it made room for the others"
