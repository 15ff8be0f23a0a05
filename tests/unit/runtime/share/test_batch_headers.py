"""Headers in a region: all of them, in parts, up to an offset, with markers, of older messages, cut off, cold."""

import pytest

from kafkapy.record.batch import HEADER_BYTES, Record
from kafkapy.record.control import EndTxnMarker, build_end_txn_marker
from kafkapy.record.legacy import build_message_set
from kafkapy.runtime.share.batch_headers import WINDOW_BYTES, HeaderScan
from kafkapy.seams import FileRegion
from kafkapy.share.fetched import FetchedBatch
from kafkapy.storage.errors import NeedsWarming
from tests.support.batches import build_batch

ALL = 1 << 40


class BytesFile:
    """A file of these bytes; the pages from `cold_from` on are not in the page cache."""

    path = "x"

    def __init__(self, data: bytes, cold_from: int | None = None) -> None:
        self.data = data
        self.cold_from = cold_from

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        if self.cold_from is not None and position + length > self.cold_from:
            return None
        return self.data[position : position + length]


def batch(base_offset: int, count: int, size: int = 10, **fields: object) -> bytes:
    return bytes(build_batch([(0, None, b"x" * size, ())] * count, base_offset=base_offset, **fields))


def marker(base_offset: int, *, is_commit: bool) -> bytes:
    control = EndTxnMarker(is_commit=is_commit, coordinator_epoch=3)
    return build_end_txn_marker(control, producer_id=7, producer_epoch=0, timestamp_ms=0, base_offset=base_offset)


def scanned(data: bytes, end_offset: int = ALL, *, length: int | None = None, at: int = 0) -> list[FetchedBatch]:
    region = FileRegion(BytesFile(bytes(at) + data), at, len(data) if length is None else length)  # type: ignore[arg-type]
    scan = HeaderScan(region, end_offset)
    while not scan.run(2):
        pass
    return [each.batch for each in scan.batches]


def test_batches_and_markers() -> None:
    transaction = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    data = batch(0, 3) + batch(3, 2, **transaction) + marker(5, is_commit=False) + marker(6, is_commit=True)
    plain, of_transaction, aborted, committed = scanned(data, at=100)
    assert plain == FetchedBatch(0, 2)
    assert of_transaction == FetchedBatch(3, 4, 7, is_transactional=True)
    assert (aborted.base_offset, aborted.is_abort_marker) == (5, True)
    assert (committed.base_offset, committed.is_abort_marker) == (6, False)


def test_a_marker_that_the_cleaner_has_emptied_is_none() -> None:
    """Its records would be the bytes of the batch that follows, which say "abort" at every 256th offset."""
    emptied = bytearray(marker(5, is_commit=False)[:HEADER_BYTES])
    emptied[8:12] = (HEADER_BYTES - 12).to_bytes(4)
    emptied[-4:] = bytes(4)  # the number of records
    first, second = scanned(bytes(emptied) + batch(256, 1))
    assert (first.base_offset, first.is_abort_marker) == (5, False)
    assert second == FetchedBatch(256, 256)


def test_positions() -> None:
    first, second = batch(0, 3), batch(3, 1)
    scan = HeaderScan(FileRegion(BytesFile(first + second), 0, len(first + second)), ALL)  # type: ignore[arg-type]
    assert scan.run(100)
    assert [(each.position, each.size_bytes) for each in scan.batches] == [
        (0, len(first)),
        (len(first), len(second)),
    ]


def test_batches_larger_than_a_window() -> None:
    data = b"".join(batch(offset, 1, WINDOW_BYTES * 2) for offset in range(5))
    assert scanned(data) == [FetchedBatch(offset, offset) for offset in range(5)]


def test_up_to_the_batch_with_an_offset() -> None:
    data = b"".join(batch(offset, 2) for offset in range(0, 20, 2))
    assert scanned(data, 5) == [FetchedBatch(0, 1), FetchedBatch(2, 3), FetchedBatch(4, 5)]


@pytest.mark.parametrize("missing", [1, 40, 60, 75])
def test_a_batch_that_is_cut_off_is_left_out(missing: int) -> None:
    data = batch(0, 2) + batch(2, 1)
    assert scanned(data, length=len(data) - missing) == [FetchedBatch(0, 1)]


def test_older_messages() -> None:
    records = [Record(0, 1, None, b"a"), Record(1, 1, None, b"b")]
    data = bytes(build_message_set(records, magic=1))
    assert scanned(data) == [FetchedBatch(0, 0), FetchedBatch(1, 1)]


def test_goes_on_after_warming() -> None:
    data = b"".join(batch(offset, 1, 1000) for offset in range(40))
    file = BytesFile(data, cold_from=WINDOW_BYTES)
    scan = HeaderScan(FileRegion(file, 0, len(data)), ALL)  # type: ignore[arg-type]
    with pytest.raises(NeedsWarming):
        scan.run(1000)
    assert 0 < len(scan.batches) < 40
    file.cold_from = None
    assert scan.run(1000)
    assert [each.batch.base_offset for each in scan.batches] == list(range(40))
