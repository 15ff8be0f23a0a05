"""What the records of _schemas amount to, in the order of the topic: also those of other registries."""

import itertools
import json
import sys
import threading
from typing import Any, Final

import pytest

from kafkapy.record.builder import build_batch
from kafkapy.registry.cluster import Cluster
from kafkapy.registry.errors import RegistryError
from kafkapy.registry.schemas_topic import SchemasTopic
from kafkapy.registry.state import RegistryState
from tests.support.registries import AVRO, ApiClient, MemoryStore

HALF: Final = "\ud800"


def key(kind: str, **more: Any) -> dict[str, Any]:
    return {"keytype": kind, "magic": 0, **more}


def schema_key(version: int, subject: str = "s") -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def schema(version: int, schema_id: int, **more: Any) -> dict[str, Any]:
    return {"subject": "s", "version": version, "id": schema_id, "schema": f'"int{version}"', **more}


def replayed(*records: tuple[dict[str, Any], dict[str, Any] | bytes | None]) -> RegistryState:
    state = RegistryState()
    for name, value in records:
        encoded = json.dumps(value).encode() if isinstance(value, dict) else value
        state.replay(json.dumps(name).encode(), encoded)
    return state


def living(state: RegistryState) -> list[int]:
    return [each.version for each in state.versions("s")]


TWO: Final = ((schema_key(1), schema(1, 1)), (schema_key(2), schema(2, 2)))


def test_a_deleted_subject_comes_back_with_the_versions_after_it() -> None:
    deletion = (key("DELETE_SUBJECT", subject="s"), {"subject": "s", "version": 2})
    state = replayed(*TWO, deletion, (schema_key(3), schema(3, 3)))
    assert living(state) == [3]
    assert [each.version for each in state.versions("s", deleted=True)] == [1, 2, 3]
    assert living(replayed(*TWO, (deletion[0], {"subject": "s", "version": 1}))) == [2]


def test_a_tombstone_deletes_for_good_and_its_id_is_not_given_again() -> None:
    state = replayed(*TWO, (schema_key(2), None))
    assert [each.version for each in state.versions("s", deleted=True)] == [1]
    assert state.with_id(2) is None
    assert state.next_id(".") == 3


def test_a_value_that_is_not_understood_is_no_tombstone() -> None:
    assert living(replayed(*TWO, (schema_key(2), b"no json"), (schema_key(1), {"subject": "s"}))) == [1, 2]


def test_the_key_says_which_version_a_value_is() -> None:
    state = replayed((schema_key(4, "other"), schema(1, 7)))
    found = state.version("other", 4)
    assert (found and found.subject, found and found.version, living(state)) == ("other", 4, [])


def test_a_cleared_subject_loses_what_was_deleted_alone() -> None:
    state = replayed(TWO[0], (schema_key(2), schema(2, 2, deleted=True)), (key("CLEAR_SUBJECT", subject="s"), {}))
    assert [each.version for each in state.versions("s", deleted=True)] == [1]


@pytest.mark.parametrize("value", [None, b"", b"x"])
def test_settings_and_modes_end_with_a_value_that_is_none(value: bytes | None) -> None:
    state = replayed(
        (key("CONFIG", subject="s"), {"compatibilityLevel": "FULL"}),
        (key("MODE", subject="s"), {"mode": "READONLY"}),
        (key("CONFIG", subject="s"), value),
        (key("MODE", subject="s"), value),
    )
    assert (state.settings("s"), state.mode("s")) == (None, None)


@pytest.mark.parametrize(
    "odd",
    [
        {"compatibilityLevel": "SIDEWAYS"},
        {"compatibilityLevel": 5},
        {"compatibilityPolicy": "LOGICAL"},
        {"normalize": "yes"},
        {"defaultMetadata": {"properties": ["a"]}},
        {"overrideRuleSet": {"domainRules": [1]}},
    ],
)
async def test_a_setting_that_is_not_understood_is_left_out_and_registrations_go_on(odd: dict[str, Any]) -> None:
    store = MemoryStore()
    value = {"subject": None, "alias": "a", "of-a-later-release": 1, **odd}
    store.append([(json.dumps(key("CONFIG")).encode(), json.dumps(value).encode())])
    assert store.state.own_settings(None) == {"alias": "a", "of-a-later-release": 1}
    status, _ = await ApiClient(store).call("POST", "/subjects/s/versions", {"schema": AVRO})
    assert status == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (key("CONFIG"), {"alias": HALF}),
        (key("CONFIG"), {"defaultMetadata": {"properties": {HALF: "a"}}}),
        (key("MODE", subject=HALF), {"mode": "READONLY"}),
        (schema_key(1), schema(1, 1, references=[{"name": HALF, "subject": "a", "version": 1}])),
    ],
)
async def test_half_of_a_surrogate_pair_comes_into_no_response(name: dict[str, Any], value: dict[str, Any]) -> None:
    store = MemoryStore()
    store.append([(json.dumps(name).encode(), json.dumps(value).encode())])
    api = ApiClient(store)
    for path in ("/config", "/schemas", "/subjects?deleted=true"):
        assert (await api.call("GET", path))[0] == 200, path


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert replayed((schema_key(1), schema(1, 1, metadata={"properties": {"a": "\U0001f600"}}))).versions("s")


def test_records_that_a_fetch_brings_again_are_replayed_once() -> None:
    """A fetch from within a batch gets all of it: what was deleted since must not come back."""
    state = RegistryState()
    topic = SchemasTopic(Cluster("127.0.0.1:1"), state, may_write=lambda: True)
    batch = build_batch([(0, json.dumps(name).encode(), json.dumps(value).encode(), ()) for name, value in TWO])
    topic._replay(bytes(batch))
    assert living(state) == [1, 2]
    state.replay(json.dumps(schema_key(2)).encode(), None)
    topic._replay(bytes(batch))
    assert living(state) == [1]


def test_records_that_another_registry_appends_while_the_end_is_asked_for_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = SchemasTopic(Cluster("127.0.0.1:1"), RegistryState(), may_write=lambda: True)
    batch = build_batch([(0, json.dumps(name).encode(), json.dumps(value).encode(), ()) for name, value in TWO])

    def end_offset(_: Any) -> int:
        topic._replay(bytes(batch))  # the reading thread is there first
        return 1

    monkeypatch.setattr(topic, "_with_leader", end_offset)
    topic.catch_up()
    assert living(topic.state) == [1, 2]
    with pytest.raises(RegistryError, match="lost records"):
        topic.catch_up()


def test_what_is_looked_up_while_the_topic_is_read_is_there_all_the_time() -> None:
    """A thread replays: new subjects, and again and again the soft deletion of a version that others refer to."""
    state = replayed(*TWO)
    deleted = json.dumps(schema(1, 1, deleted=True)).encode()
    is_over = threading.Event()

    def read() -> None:
        for number in itertools.count():
            if is_over.is_set():
                return
            name = json.dumps(schema_key(1, f"t{number % 500}")).encode()
            state.replay(name, json.dumps(schema(1, 3)).encode() if number // 500 % 2 == 0 else None)
            state.replay(json.dumps(schema_key(1)).encode(), deleted)

    reader = threading.Thread(target=read)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader.start()
    try:
        for _ in range(3_000):
            assert "s" in state.subjects("")
            assert state.with_id(1) is not None
            assert len(state.users_of(".", 3)) <= 500
    finally:
        is_over.set()
        sys.setswitchinterval(interval_s)
        reader.join()
