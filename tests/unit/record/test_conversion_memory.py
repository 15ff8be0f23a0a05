"""What checking, rewriting and converting batches takes in memory: a few copies of the bytes, no object per record."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from kafkapy.record.append_rules import ValidationRules
from kafkapy.record.batch import Record
from kafkapy.record.batches import batch_at, batches
from kafkapy.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress, inflated_at_most
from kafkapy.record.convert import down_convert, up_convert
from kafkapy.record.errors import RecordTooLargeError
from kafkapy.record.leader_batch import bytes_to_check
from kafkapy.record.legacy import build_message_set
from kafkapy.record.validate import validate_and_assign
from tests.support.batches import build_batch

pytestmark = pytest.mark.long

COUNT = 5000
SLACK_BYTES = 400_000
"""For some hundred records at a time, and what codecs set aside."""
CODECS = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
LEGACY_CODECS = pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])


def peak_of(call: Callable[[], object]) -> int:
    """Return the most bytes that a call held at a time.

    It runs once before: what a codec imports when it is first used would count else, if no other test has used it yet.
    """
    call()
    gc.collect()
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def empty_messages(count: int, codec: int) -> bytes:
    """The smallest there are: 34 bytes each before they are compressed."""
    return build_message_set([Record(n, n, None, None, ()) for n in range(count)], magic=1, compression=codec)


def empty_records(count: int, codec: int) -> bytes:
    return build_batch([(n, None, None, ()) for n in range(count)], compression=codec)


@LEGACY_CODECS
def test_up_conversion_holds_no_object_per_record(codec: int) -> None:
    data = empty_messages(COUNT, codec)
    assert peak_of(lambda: up_convert(data)) < 3 * 34 * COUNT + SLACK_BYTES
    assert batch_at(up_convert(data)).record_count == COUNT


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_down_conversion_holds_no_object_per_record(codec: int) -> None:
    data = empty_records(4 * COUNT, codec)
    assert peak_of(lambda: down_convert(data, 1, 0)) < 2 * 34 * 4 * COUNT + 8 * SLACK_BYTES


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_down_conversion_ends_where_there_is_enough_and_goes_on_from_there(codec: int) -> None:
    count = 2 * COUNT
    data = empty_records(count, codec)
    found: list[int] = []
    while len(found) < count:
        part = down_convert(data, 1, len(found), max_bytes=100_000 if codec == NONE else 1)
        offsets = [record.offset for batch in batches(part) for record in batch.records()]
        found += [offset for offset in offsets if offset >= len(found)]
        assert len(offsets) < count
    assert found == list(range(count))


def test_down_conversion_refuses_a_batch_that_inflates_too_far() -> None:
    with pytest.raises(RecordTooLargeError):
        down_convert(empty_records(COUNT, GZIP), 1, 0, max_inflated_bytes=COUNT)


@CODECS
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip"])
def test_a_batch_is_checked_within_the_declared_length(codec: int, target: str) -> None:
    batch = build_batch([(0, None, bytes(1 << 20), ()) for _ in range(8)], compression=codec)
    rules = ValidationRules(compression_type=target, max_message_bytes=1 << 30)

    def check() -> None:
        validate_and_assign(batch, rules, next_offset=5, leader_epoch=0, now_ms=0)

    needed_bytes = bytes_to_check(memoryview(batch), rules)
    assert peak_of(check) < needed_bytes * 1.2 + (2 << 20)


@CODECS
def test_rewriting_holds_no_object_per_record(codec: int) -> None:
    """Offset deltas that do not count from 0 on have the records numbered anew."""
    records = [(0, None, bytes(8), ())] * COUNT
    batch = build_batch(records, offset_deltas=range(0, 2 * COUNT, 2), last_offset_delta=COUNT - 1, compression=codec)
    rules = ValidationRules(compression_type="uncompressed", max_message_bytes=1 << 30)
    peak = peak_of(lambda: validate_and_assign(batch, rules, next_offset=5, leader_epoch=0, now_ms=0))
    assert peak < 40 * COUNT + SLACK_BYTES


@CODECS
@pytest.mark.parametrize("size_bytes", [10, 1 << 16, 5_000_000])
def test_bounds_of_what_bytes_inflate_to_hold(codec: int, size_bytes: int) -> None:
    compressed = compress(codec, bytes(size_bytes))
    assert inflated_at_most(codec, compressed, 1 << 40) >= size_bytes
    assert inflated_at_most(codec, compressed, 1000) <= 1000
    assert decompress(codec, compressed, 2, 1 << 30) == bytes(size_bytes)


@pytest.mark.parametrize("codec", [SNAPPY, ZSTD])
def test_bounds_are_tight_when_headers_declare_the_size(codec: int) -> None:
    assert inflated_at_most(codec, compress(codec, bytes(5_000_000)), 1 << 40) <= 5_000_000 + (1 << 17)


@CODECS
@pytest.mark.parametrize(
    "damaged", [b"", b"\0", b"\x82SNAPPY\0", b"\x82SNAPPY\0" + bytes(30), b"\x28\xb5\x2f\xfd" + bytes(9)]
)
def test_bounds_of_what_cannot_be_read_raise_nothing(codec: int, damaged: bytes) -> None:
    assert 0 <= inflated_at_most(codec, damaged, 1 << 20) <= 1 << 20


def test_a_batch_that_is_compressed_anew_takes_no_64_mib() -> None:
    """The largest that is taken, of one record: its inflated form, and what is compressed."""
    batch = build_batch([(0, None, bytes(20 << 20), ())], compression=GZIP)
    rules = ValidationRules(compression_type="zstd")
    peak = peak_of(lambda: validate_and_assign(batch, rules, next_offset=5, leader_epoch=0, now_ms=0))
    assert 20 << 20 < peak < 64 << 20
    assert bytes_to_check(memoryview(batch), rules) < 64 << 20


@pytest.mark.parametrize("target", ["zstd", "uncompressed"])
def test_a_batch_that_is_compressed_anew_inflates_less_far(target: str) -> None:
    batch = build_batch([(0, None, bytes(22 << 20), ())], compression=GZIP)
    with pytest.raises(RecordTooLargeError):
        validate_and_assign(batch, ValidationRules(compression_type=target), next_offset=0, leader_epoch=0, now_ms=0)
    kept = validate_and_assign(batch, ValidationRules(), next_offset=0, leader_epoch=0, now_ms=0)
    larger = ValidationRules(compression_type=target, max_message_bytes=23 << 20)
    written = validate_and_assign(batch, larger, next_offset=0, leader_epoch=0, now_ms=0)
    assert kept.record_count == written.record_count == 1
