"""The index of aborted transactions: found by bisecting, on disk but for a few numbers, whatever clients abort."""

import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.errors import CorruptIndexError
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.segment.open_files import OpenFiles
from kafkapy.storage.segment.txn_index import (
    BLOCK_ENTRIES,
    ENTRY,
    AbortedTransaction,
    TransactionIndex,
    decode_entries,
)
from tests.simulator.disk import SimDisk

PATH = "/i.txnindex"
MANY = 40 * BLOCK_ENTRIES


def open_index(disk: SimDisk, *, base_offset: int = 0) -> TransactionIndex:
    return TransactionIndex(OpenFiles(disk), PATH, base_offset, exists=disk.exists(PATH))


def short_aborts(count: int) -> list[AbortedTransaction]:
    """Transactions of one record, one after the other: data at 2n, marker at 2n + 1."""
    return [AbortedTransaction(7, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(count)]


def behind_a_hanging_one(count: int) -> list[AbortedTransaction]:
    """As above, while one of another producer is open at 0: it is aborted last."""
    aborts = [AbortedTransaction(7, 2 * n + 1, 2 * n + 2, 0) for n in range(count)]
    return [*aborts, AbortedTransaction(8, 0, 2 * count + 1, 2 * count + 2)]


def filled(disk: SimDisk, entries: list[AbortedTransaction]) -> TransactionIndex:
    data = b"".join(ENTRY.pack(0, *entry) for entry in entries)
    disk.open(PATH, create=True).pwrite((data,), 0)
    return open_index(disk)


def by_walking(entries: list[AbortedTransaction], start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
    """Walk all entries, as Apache Kafka does."""
    found = []
    for entry in entries:
        if entry.last_offset >= start and entry.first_offset < end:
            found.append(entry)
        if entry.last_stable_offset >= end:
            return found, True
    return found, False


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Aborts as a log has them: overlapping ones of several producers, last stable offsets as they then were."""
    opened: dict[int, int] = {}
    entries = []
    random = Random(draw(st.integers(0, 1 << 30)))
    for offset in range(draw(st.integers(1, 8 * BLOCK_ENTRIES))):
        producer_id = random.randrange(1, 5)
        if producer_id in opened and random.random() < 0.5:
            first_offset = opened.pop(producer_id)
            entries.append(AbortedTransaction(producer_id, first_offset, offset, min([offset + 1, *opened.values()])))
        else:
            opened.setdefault(producer_id, offset)
    return entries


@pytest.mark.parametrize("make", [short_aborts, behind_a_hanging_one])
@pytest.mark.parametrize("count", [1, BLOCK_ENTRIES - 1, BLOCK_ENTRIES, BLOCK_ENTRIES + 1, 5 * BLOCK_ENTRIES // 2])
def test_lookups_find_what_a_walk_finds(make: type, count: int) -> None:
    entries = make(count)
    disk = SimDisk()
    index = open_index(disk)
    for entry in entries:
        index.append(entry)
    random = Random(count)
    ranges = [sorted(random.sample(range(2 * count + 3), 2)) for _ in range(100)]
    for each in (index, open_index(disk)):
        for start, end in ranges:
            assert each.overlapping(start, end) == by_walking(entries, start, end)


@given(histories(), st.data())
def test_lookups_and_cuts_of_any_history(entries: list[AbortedTransaction], data: st.DataObject) -> None:
    disk = SimDisk()
    index = filled(disk, entries) if entries else open_index(disk)
    size = entries[-1].last_offset + 2 if entries else 2
    for _ in range(3):
        start, end = sorted((data.draw(st.integers(0, size)), data.draw(st.integers(0, size))))
        assert index.overlapping(start, end + 1) == by_walking(entries, start, end + 1)
        cut = data.draw(st.integers(end, size))
        index.truncate_to(cut)
        entries = [entry for entry in entries if entry.last_offset < cut]
        stored = disk.read_file(PATH) if disk.exists(PATH) else b""
        assert decode_entries(stored, PATH) == entries


def test_memory_does_not_grow_with_the_aborts() -> None:
    index = filled(SimDisk(), short_aborts(MANY))
    index.check()
    assert index.overlapping(MANY, MANY + 2)[0] == [AbortedTransaction(7, MANY, MANY + 1, MANY + 2)]
    blocks = index._blocks
    assert blocks is not None
    held = sum(sys.getsizeof(each) for each in (blocks.first_offsets, blocks.last_offsets, blocks.stable_offsets))
    assert held < MANY, "less than a byte an entry"


@pytest.mark.parametrize("make", [short_aborts, behind_a_hanging_one])
def test_a_lookup_reads_a_few_blocks_whatever_was_aborted(make: type) -> None:
    disk = SimDisk()
    index = filled(disk, make(MANY))
    index.check()
    reads: list[str] = []
    disk.hook = lambda operation, path: reads.append(operation)
    for start in (0, MANY, 2 * MANY - 4):
        reads.clear()
        found, _ = index.overlapping(start, start + 4)
        assert 0 < len(found) <= 4
        assert len(reads) <= 3
    reads.clear()
    assert index.overlapping(4 * MANY, 5 * MANY) == ([], False)
    assert reads == []


def test_a_cold_page_is_requested() -> None:
    disk = SimDisk()
    index = filled(disk, short_aborts(3))
    index.check()
    disk.sync_all()
    disk.chill()
    with pytest.raises(NeedsWarming) as cold:
        index.overlapping(0, 2)
    cold.value.warm()
    assert index.overlapping(0, 2) == (short_aborts(1), True)


@pytest.mark.parametrize(
    ("entries", "end_offset"),
    [
        ([AbortedTransaction(7, 60, 61, 62), AbortedTransaction(7, 62, 61, 63)], None),
        ([AbortedTransaction(7, 40, 49, 50)], None),
        ([AbortedTransaction(7, 60, 61, 62)], 61),
    ],
)
def test_entries_that_cannot_be_are_refused(entries: list[AbortedTransaction], end_offset: int | None) -> None:
    disk = SimDisk()
    filled(disk, entries)
    with pytest.raises(CorruptIndexError):
        open_index(disk, base_offset=50).check(end_offset)
