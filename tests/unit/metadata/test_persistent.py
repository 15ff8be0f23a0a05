"""PersistentMap: each version is a map of its own, and making one of many is cheap."""

from random import Random

import pytest

from kafkapy.metadata.persistent import PersistentMap


def test_a_version_is_left_as_it_was_by_the_next() -> None:
    first = PersistentMap({"a": 1, "b": 2})

    second = first.updated({"b": 3, "c": 4, "a": None})

    assert dict(first) == {"a": 1, "b": 2}
    assert dict(second) == {"b": 3, "c": 4}
    assert (len(first), len(second)) == (2, 2)


def test_no_change_is_the_same_map() -> None:
    entries = PersistentMap({"a": 1})

    assert entries.updated({}) is entries


def test_removed_and_missing_keys_are_absent_in_every_way() -> None:
    entries = PersistentMap({"a": 1}).updated({"a": None, "never": None})

    assert entries.get("a") is None
    assert entries.get("a", 7) == 7
    assert "a" not in entries
    assert list(entries) == []
    with pytest.raises(KeyError):
        entries["a"]


def test_long_histories_equal_a_plain_dict() -> None:
    random = Random(7)
    entries: PersistentMap[int, int] = PersistentMap()
    model: dict[int, int] = {}
    for step in range(5000):
        key = random.randrange(400)
        value = None if random.random() < 0.4 else step
        entries = entries.updated({key: value})
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value
        assert len(entries) == len(model)
    assert dict(entries.items()) == model
    assert entries == model


def test_ten_thousand_versions_copy_few_entries_each() -> None:
    entries: PersistentMap[int, int] = PersistentMap()
    copied = 0
    for key in range(10_000):
        overlay_before = len(entries._overlay)
        entries = entries.updated({key: key})
        copied += overlay_before if entries._overlay else len(entries)
    assert copied / 10_000 < 300  # quadratic would be 5,000
