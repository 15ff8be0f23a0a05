import errno
from random import Random

import pytest

from kafkapy.errors import CorruptIndexError
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.segment.offset_index import OffsetIndex, OffsetPosition
from kafkapy.storage.segment.open_files import OpenFiles
from kafkapy.storage.segment.sparse_index import BUFFERED_ENTRIES
from kafkapy.storage.segment.time_index import TimeIndex, TimestampOffset
from kafkapy.storage.segment.txn_index import AbortedTransaction, TransactionIndex
from tests.simulator.disk import SimDisk

MAX_BYTES = 100_000


def offset_index(disk: SimDisk, base_offset: int = 50) -> OffsetIndex:
    index = OffsetIndex(OpenFiles(disk), "/i.index", base_offset)
    index.reset(MAX_BYTES)
    return index


def time_index(disk: SimDisk, base_offset: int = 50) -> TimeIndex:
    index = TimeIndex(OpenFiles(disk), "/i.timeindex", base_offset)
    index.reset(MAX_BYTES)
    return index


def test_an_offset_entry_is_relative_offset_and_position() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    index.append(53, 4096)
    index.trim()
    assert disk.read_file("/i.index").hex(" ", 4) == "00000003 00001000"


def test_a_time_entry_is_timestamp_and_relative_offset() -> None:
    disk = SimDisk()
    index = time_index(disk)
    index.maybe_append(1_700_000_000_000, 53)
    index.trim()
    assert disk.read_file("/i.timeindex").hex(" ", 4) == "0000018b cfe56800 00000003"


def test_an_aborted_transaction_takes_34_bytes() -> None:
    disk = SimDisk()
    index = TransactionIndex(OpenFiles(disk), "/i.txnindex", 0, exists=False)
    assert not index.exists
    index.append(AbortedTransaction(producer_id=8, first_offset=2, last_offset=5, last_stable_offset=6))
    version, numbers = "0000", "0000000000000008 0000000000000002 0000000000000005 0000000000000006"
    assert disk.read_file("/i.txnindex") == bytes.fromhex(version + numbers)


def test_indexes_grow_with_their_entries_and_take_whole_ones_only() -> None:
    disk = SimDisk()
    offsets, times = offset_index(disk), time_index(disk)
    assert (offsets.handle.file.size(), times.handle.file.size()) == (0, 0)
    assert (offsets.max_entries, times.max_entries) == (12_500, 8_333)
    offsets.append(51, 10)
    times.maybe_append(1000, 51)
    offsets.trim()
    times.trim()
    assert (offsets.handle.file.size(), times.handle.file.size()) == (8, 12)


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1024, 1025, 5000])
def test_lookup_finds_the_last_entry_at_or_before(count: int) -> None:
    index = offset_index(SimDisk())
    entries = [OffsetPosition(50 + 3 * i + 2, 100 * (i + 1)) for i in range(count)]
    for entry in entries:
        index.append(*entry)
    random = Random(count)
    for offset in [50, 51, 52, 53, 50 + 3 * count, *(random.randrange(50, 60 + 3 * count) for _ in range(300))]:
        wanted = max((entry for entry in entries if entry.offset <= offset), default=OffsetPosition(50, 0))
        assert index.lookup(offset) == wanted
    for position in [0, 99, 100, *(random.randrange(100 * count + 200) for _ in range(300))]:
        wanted_position = max((entry.position for entry in entries if entry.position <= position), default=0)
        assert index.lookup_position(position) == wanted_position


@pytest.mark.parametrize("count", [0, 1, 341, 342, 2000])
def test_time_lookup_finds_the_last_entry_at_or_before(count: int) -> None:
    index = time_index(SimDisk())
    entries = [TimestampOffset(1000 + 5 * i, 50 + i) for i in range(count)]
    for entry in entries:
        index.maybe_append(entry.timestamp_ms, entry.offset)
    for timestamp_ms in range(990, 1010 + 5 * count, 3):
        wanted = max(
            (entry for entry in entries if entry.timestamp_ms <= timestamp_ms), default=TimestampOffset(-1, 50)
        )
        assert index.lookup(timestamp_ms) == wanted


def test_a_time_entry_needs_a_larger_timestamp() -> None:
    index = time_index(SimDisk())
    assert index.maybe_append(1000, 51)
    assert not index.maybe_append(1000, 53)
    assert not index.maybe_append(999, 54)
    assert index.last_entry == TimestampOffset(1000, 51)


def test_a_cold_page_raises_needs_warming() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    index.append(51, 10)
    index.trim()
    disk.chill()
    with pytest.raises(NeedsWarming) as caught:
        index.lookup(60)
    caught.value.warm()
    assert index.lookup(60) == OffsetPosition(51, 10)


def test_entries_are_written_together() -> None:
    disk = SimDisk()
    index = offset_index(disk, base_offset=0)
    for count in range(1, BUFFERED_ENTRIES + 2):
        index.append(count, 10 * count)
        written = disk.read_file("/i.index").rstrip(b"\0")
        assert len(written) == (8 * BUFFERED_ENTRIES if count >= BUFFERED_ENTRIES else 0)
        assert index.lookup(count) == OffsetPosition(count, 10 * count)
    assert len(index.read_all()) == 8 * (BUFFERED_ENTRIES + 1)
    index.trim()
    assert disk.read_file("/i.index") == index.read_all()


def test_an_entry_that_finds_no_room_is_not_added_and_those_before_it_stay() -> None:
    disk = SimDisk()
    index = offset_index(disk, base_offset=0)
    for offset in range(1, BUFFERED_ENTRIES):
        index.append(offset, 10 * offset)
    before = index.read_all()
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        index.append(99, 990)
    assert (index.read_all(), index.last_offset) == (before, BUFFERED_ENTRIES - 1)
    index.append(100, 1000)
    index.trim()
    assert disk.read_file("/i.index") == before + bytes.fromhex("00000064 000003e8")


@pytest.mark.parametrize("count", [1, 31, 32, 33, 63])
@pytest.mark.parametrize("kept", [0, 1, 30, 31, 32, 33])
def test_truncation_keeps_the_entries_before_it_wherever_they_are(count: int, kept: int) -> None:
    disk = SimDisk()
    index = offset_index(disk, base_offset=0)
    for offset in range(1, count + 1):
        index.append(offset, 10 * offset)
    before = index.read_all()
    index.truncate_to(kept + 1)
    index.append(99, 990)
    index.trim()
    assert disk.read_file("/i.index") == before[: 8 * kept] + bytes.fromhex("00000063 000003de")


@pytest.mark.parametrize(("offset", "kept"), [(49, 0), (52, 0), (53, 1), (55, 1), (56, 2), (99, 3)])
def test_truncation_drops_entries_at_and_above_the_offset(offset: int, kept: int) -> None:
    disk = SimDisk()
    offsets, times = offset_index(disk), time_index(disk)
    for i in range(3):
        offsets.append(52 + 3 * i, 100 * i + 100)
        times.maybe_append(1000 + i, 52 + 3 * i)
    offsets.truncate_to(offset)
    times.truncate_to(offset)
    assert (offsets.entry_count, times.entry_count) == (kept, kept)
    offsets.trim()
    times.trim()
    assert (offsets.handle.file.size(), times.handle.file.size()) == (8 * kept, 12 * kept)


def test_a_part_of_an_entry_that_found_no_room_is_trimmed_off() -> None:
    disk = SimDisk()
    index = offset_index(disk, base_offset=0)
    for offset in range(1, BUFFERED_ENTRIES):
        index.append(offset, 10 * offset)
    disk.capacity_bytes = 8 * BUFFERED_ENTRIES - 4
    with pytest.raises(OSError, match="No space"):
        index.append(99, 990)
    assert index.handle.file.size() == 8 * BUFFERED_ENTRIES - 4
    index.trim()
    assert disk.read_file("/i.index") == index.read_all()


def test_the_last_slot_of_a_time_index_is_kept_for_the_roll() -> None:
    index = TimeIndex(OpenFiles(SimDisk()), "/i.timeindex", 0)
    index.reset(24)
    index.maybe_append(1, 1)
    assert index.is_full
    assert index.maybe_append(2, 2, use_last_slot=True)


def damaged_offset_index(data: bytes) -> OffsetIndex:
    disk = SimDisk()
    file = disk.open("/i.index", create=True)
    file.pwrite((data,), 0)
    return OffsetIndex(OpenFiles(disk), "/i.index", 50)


@pytest.mark.parametrize(
    "data",
    [
        "00000003000010",  # no whole entry
        "ffffffff00001000",  # below the base offset
        "0000000300100000",  # behind the end of the log
        "0000000000000000",  # preallocated zeros of an unclean stop
    ],
)
def test_a_damaged_offset_index_is_recognized(data: str) -> None:
    with pytest.raises(CorruptIndexError):
        damaged_offset_index(bytes.fromhex(data)).check(log_size=5000)


def test_aborted_transactions_are_found_by_overlap() -> None:
    index = TransactionIndex(OpenFiles(SimDisk()), "/i.txnindex", 0, exists=False)
    first = AbortedTransaction(8, 2, 5, 3)
    second = AbortedTransaction(9, 3, 9, 10)
    index.append(first)
    index.append(second)
    assert index.overlapping(0, 2) == ([], True)
    assert index.overlapping(0, 3) == ([first], True)
    assert index.overlapping(6, 10) == ([second], True)
    assert index.overlapping(0, 11) == ([first, second], False)
    index.truncate_to(9)
    assert index.overlapping(0, 11) == ([first], False)


def test_a_transaction_index_of_another_version_is_refused() -> None:
    disk = SimDisk()
    disk.open("/i.txnindex", create=True).pwrite((b"\0\1" + bytes(32),), 0)
    with pytest.raises(CorruptIndexError):
        TransactionIndex(OpenFiles(disk), "/i.txnindex", 0, exists=True).check()
