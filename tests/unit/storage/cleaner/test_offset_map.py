"""The last offset of each key in bounded memory."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.storage.cleaner.offset_map import ENTRY_BYTES, CachedOffsets, OffsetIndexer, OffsetMap


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 1 << 40)), max_size=200))
def test_holds_what_a_dict_holds(puts: list[tuple[bytes, int]]) -> None:
    offsets, wanted = OffsetMap(ENTRY_BYTES * 300, load_factor=0.9), {}
    for key, offset in puts:
        offsets.put(key, offset)
        wanted[key] = offset
    assert {key: offsets.get(key) for key in wanted} == wanted
    assert offsets.entry_count == len(wanted)
    assert offsets.get(b"none such") == -1


def test_the_first_offset_is_not_taken_for_an_empty_entry() -> None:
    offsets = OffsetMap(1000, load_factor=0.9)
    offsets.put(b"", 0)
    offsets.put(b"", 0)
    assert (offsets.get(b""), offsets.entry_count) == (0, 1)


@pytest.mark.parametrize(
    ("buffer_bytes", "needed", "max_entries"), [(2400, None, 90), (2400, 10, 19), (2400, 1000, 90), (1, None, 1)]
)
def test_the_buffer_bounds_the_keys(buffer_bytes: int, needed: int | None, max_entries: int) -> None:
    assert OffsetMap(buffer_bytes, load_factor=0.9, needed_entries=needed).max_entries == max_entries


def test_it_shows_how_much_of_the_whole_buffer_is_in_use() -> None:
    offsets = OffsetMap(2400, load_factor=0.9, needed_entries=10)
    offsets.put_all({b"a": 1, b"b": 2})
    assert offsets.utilization == 0.02


def test_an_indexer_stops_where_the_map_is_full() -> None:
    offsets = OffsetMap(ENTRY_BYTES * 10, load_factor=0.5)
    indexer = OffsetIndexer(offsets)
    assert not indexer.add([b"a", b"b", b"a"], [0, 1, 2])
    assert not indexer.add([b"a", b"b"], [3, 4])
    assert indexer.add([b"c", b"d", b"e", b"f"], [5, 6, 7, 8])
    assert offsets.latest_offset == 7
    assert [offsets.get(key) for key in (b"a", b"b", b"c", b"d", b"e", b"f")] == [3, 4, 5, 6, 7, -1]


@given(
    st.lists(st.lists(st.binary(max_size=3), max_size=20), max_size=20),
    st.sampled_from([0, 1000, 3000, 10_000, 1 << 20]),
)
def test_keys_that_are_kept_whole_have_the_offsets_of_a_table(batches: list[list[bytes]], more_bytes: int) -> None:
    """Some fit the dict, others only at first, others never."""
    needed = sum(map(len, batches))
    offsets = OffsetMap(ENTRY_BYTES * (2 * needed + 2) + more_bytes, load_factor=0.9, needed_entries=needed)
    indexer, wanted, offset = OffsetIndexer(offsets), {}, 7
    for keys in batches:
        numbers = range(offset, offset := offset + len(keys))
        assert not indexer.add(keys, numbers)
        wanted.update(zip(keys, numbers, strict=True))
    indexer.flush()
    assert {key: offsets.get(key) for key in wanted} == wanted
    assert offsets.get(b"none such") == -1
    assert offsets.entry_count == len(wanted)
    assert sorted(each for some in offsets.offsets() for each in some) == sorted(wanted.values())
    assert list(CachedOffsets(offsets).of([*wanted, b"none such"])) == [*wanted.values(), -1]


@pytest.mark.parametrize("key_bytes", [8, 100, 1000])
def test_whole_keys_and_the_table_that_follows_them_fit_the_buffer(key_bytes: int) -> None:
    buffer_bytes, needed = 8 << 20, 60_000
    tracemalloc.start()
    try:
        offsets = OffsetMap(buffer_bytes, load_factor=0.9, needed_entries=needed)
        indexer = OffsetIndexer(offsets)
        for first in range(0, needed, 50):
            indexer.add([b"%0*d" % (key_bytes, key) for key in range(first, first + 50)], range(first, first + 50))
            if offsets.by_key is None:
                break
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert offsets.by_key is None, "60,000 keys do not fit"
    assert offsets.entry_count >= 5000 if key_bytes < 1000 else offsets.entry_count >= 4000
    assert peak_bytes < 1.02 * buffer_bytes


def test_cached_offsets_are_the_maps() -> None:
    offsets = OffsetMap(1000, load_factor=0.9)
    offsets.put(b"a", 7)
    cached = CachedOffsets(offsets)
    assert [cached[b"a"], cached[b"b"], cached[b"a"]] == [7, -1, 7]
    cached.trim()
    assert len(cached) == 2
