"""The record walk finds the same whichever of its four ways it goes, and refuses what is malformed."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.record import walk as walk_module
from kafkapy.record.alike import all_alike
from kafkapy.record.builder import NewRecord
from kafkapy.record.errors import InvalidRecordsError
from kafkapy.record.varint import encode_varint
from kafkapy.record.walk import WalkedRecords, _walk_fast, _walk_with_care, walk_records, walk_records_in
from tests.support.batches import build_batch
from tests.support.interpreter import needs_interpreter


def payload_of(records: list[NewRecord]) -> bytes:
    return build_batch(records)[61:]


def fast(payload: bytes, count: int) -> WalkedRecords | None:
    return _walk_fast(payload, 0, len(payload), count)


def careful(payload: bytes, count: int) -> WalkedRecords:
    return _walk_with_care(payload, 0, len(payload), count)


def expected(records: list[NewRecord]) -> WalkedRecords:
    deltas = [record[0] - records[0][0] for record in records]
    null_keys = sum(record[1] is None for record in records)
    return WalkedRecords(max(deltas), deltas.index(max(deltas)), min(0, *deltas), null_keys, True)


SHAPES: dict[str, list[NewRecord]] = {
    "one": [(5, None, b"v", ())],
    "64 of one size": [(1000 + i // 3, None, bytes(100), ()) for i in range(64)],
    "65 of one size": [(1000 + i // 3, b"key", bytes(100), ()) for i in range(65)],
    "500 of one size": [(1000 + i // 9, b"key%04d" % i, bytes(30), ()) for i in range(500)],
    "500 with times of two bytes": [(1000 + 3 * i, None, bytes(30), ()) for i in range(500)],
    "500 with one odd size": [(1000, None, bytes(30 + (i == 300)), ()) for i in range(500)],
    "9000 of one size": [(1000 + i % 60, b"k", b"v", ()) for i in range(9000)],
    "17000 of one size": [(1000, b"k", b"v", ()) for i in range(17_000)],
    "2000 over 200 ms": [(1000 + i // 10, None, b"v", ()) for i in range(2000)],
    "9000, longer from an odd index on": [(1000, b"k", bytes(9 + (i > 8300)), ()) for i in range(9000)],
    "1500 with growing keys and times": [(1000 + i // 11, b"%d" % (i + 70), b"v", ()) for i in range(1500)],
    "2000 over 200 ms, the latest amid them": [
        (1000 + 300 * (i == 1500) + i // 10, None, b"v", ()) for i in range(2000)
    ],
    "500 with times of two bytes, one of them before the base": [
        (1000 + (i > 0) * (100 + i // 10) - 250 * (i == 300), None, b"v", ()) for i in range(500)
    ],
    "9000 of many sizes": [(1000 + i % 60, b"k", bytes(i % 70), ()) for i in range(9000)],
    "out of order": [(1000 + (i * 37) % 101 - 50, None, bytes(9), ()) for i in range(200)],
    "before the base": [(1000 - i, None, b"", ()) for i in range(100)],
    "times of years": [(i * 10**10, None, b"", ()) for i in range(100)],
    "null values": [(1, b"k", None, ()) for _ in range(100)],
    "headers": [(1, b"k", b"v", (("a", b"1"), ("b" * 70, None), ("c", bytes(100)))) for _ in range(100)],
    "some with headers": [(1, None, bytes(50), (("a", b"1"),) * (i % 3)) for i in range(100)],
    "8 KiB and more": [(1, b"k" * 9000, bytes(9000 + i), ()) for i in range(20)],
    "large of one size": [(1 + i, b"k" * 9000, bytes(20000), ()) for i in range(40)],
    "keys of two bytes": [(1, bytes(100), bytes(i % 5), ()) for i in range(100)],
}


@pytest.mark.parametrize("records", SHAPES.values(), ids=SHAPES.keys())
def test_walk_finds_times_keys_and_offsets(records: list[NewRecord]) -> None:
    assert walk_records(payload_of(records), len(records)) == expected(records)
    assert careful(payload_of(records), len(records)) == expected(records)


@pytest.mark.parametrize("name", sorted(set(SHAPES) - {"8 KiB and more"}))
def test_usual_shapes_take_the_fast_way(name: str) -> None:
    records = SHAPES[name]
    assert fast(payload_of(records), len(records)) == expected(records)


def test_the_fast_way_goes_beyond_a_million_records() -> None:
    """Their offset deltas take four bytes."""
    count = (1 << 20) + 70
    deltas = (encode_varint(index) for index in range(count))
    payload = b"".join(encode_varint(len(delta) + 5) + b"\0\0" + delta + b"\1\1\0" for delta in deltas)
    assert fast(payload, count) == WalkedRecords(0, 0, 0, count, True)
    damaged = payload[:-4] + bytes((payload[-4] ^ 1,)) + payload[-3:]
    assert fast(damaged, count) is None


@needs_interpreter("it replaces a function of the walk, which compiled code calls directly")
@pytest.mark.parametrize(
    ("name", "failed", "missed"),
    [
        ("500 of one size", 0, 0),
        ("9000 of one size", 0, 0),
        ("2000 over 200 ms", 0, 0),
        ("9000, longer from an odd index on", 0, 0),
        ("1500 with growing keys and times", 0, 0),
        ("9000 of many sizes", 2, 9000),
    ],
)
def test_records_of_one_size_are_checked_by_columns(
    monkeypatch: pytest.MonkeyPatch, name: str, failed: int, missed: int
) -> None:
    """Where a key or a timestamp takes another byte, a run ends; after two failures in vain no run is tried."""
    runs: list[int] = []
    same_shape = walk_module.same_shape

    def tried(data: bytes, start: int, count: int, first_index: int) -> tuple[int, int, int, int, int] | None:
        found = same_shape(data, start, count, first_index)
        runs.append(0 if found is None else found[0])
        return found

    monkeypatch.setattr(walk_module, "same_shape", tried)
    records = SHAPES[name]
    assert walk_records(payload_of(records), len(records)) == expected(records)
    assert runs.count(0) <= failed
    assert len(records) - sum(runs) <= missed


ALIKE: list[list[NewRecord]] = [
    [(1000 + i, None, b"%0100d" % i, ()) for i in range(10)],
    [(1000 + i % 3, b"key%d" % i, b"value", ()) for i in range(6)],
    [(1063 - i, b"", None, ()) if i else (1000, b"", None, ()) for i in range(64)],
    [(1000, b"k" * 63, bytes(8000), ()) for i in range(7)],
]


@pytest.mark.parametrize("records", ALIKE)
def test_short_batches_of_one_layout_are_checked_by_columns(records: list[NewRecord]) -> None:
    payload, found = payload_of(records), expected(records)
    latest = (found.max_timestamp_delta, found.index_of_max_timestamp, found.null_key_count)
    assert all_alike(payload, 0, len(payload), len(records)) == latest
    beside = b"\7" * 9 + payload + b"\7"
    assert all_alike(beside, 9, 9 + len(payload), len(records)) == latest


@pytest.mark.parametrize("records", ALIKE[:2])
def test_whatever_is_damaged_in_a_short_batch_is_found(records: list[NewRecord]) -> None:
    """Each byte is changed in several ways: what the columns then say is what reading record by record says."""
    payload, count = payload_of(records), len(records)
    for position in range(len(payload)):
        for change in (1, 2, 4, 0x40, 0x80, 0xFF):
            damaged = payload[:position] + bytes((payload[position] ^ change,)) + payload[position + 1 :]
            assert outcome_of(walk_records, damaged, count) == outcome_of(careful, damaged, count)
    for other in (count - 1, count + 1, 2 * count):
        assert outcome_of(walk_records, payload, other) == outcome_of(careful, payload, other)


def test_what_is_damaged_beyond_8192_records_is_found() -> None:
    """Their offset deltas take three bytes, of which the walk compares the third one by itself."""
    records: list[NewRecord] = [(1000, None, b"v", ()) for _ in range(8200)]
    payload, record_bytes = payload_of(records), 10
    for position in range(len(payload) - record_bytes, len(payload)):
        for change in (1, 0x80):
            damaged = payload[:position] + bytes((payload[position] ^ change,)) + payload[position + 1 :]
            assert outcome_of(walk_records, damaged, 8200) == outcome_of(careful, damaged, 8200)


def outcome_of(walk: Callable[[bytes, int], WalkedRecords], payload: bytes, count: int) -> WalkedRecords | None:
    """Return what a walk finds, None if it refuses the records."""
    try:
        return walk(payload, count)
    except InvalidRecordsError:
        return None


@pytest.mark.parametrize(("first", "second"), [(128, 128), (128, 256), (0, 128), (8191, 64)])
def test_timestamp_deltas_of_two_bytes_follow_each_other(first: int, second: int) -> None:
    """Deltas whose first byte looks like a whole delta seen before."""
    deltas = [0, first >> 1, second >> 1, first >> 1, first >> 1, second, second, first]
    records: list[NewRecord] = [(1000 + delta, None, bytes(i), ()) for i, delta in enumerate(deltas)]
    assert fast(payload_of(records), len(records)) == expected(records)


@pytest.mark.parametrize("name", ["64 of one size", "500 of one size", "some with headers"])
def test_errors_are_those_of_the_records_alone(name: str) -> None:
    """What is wrong with damaged records is told in the same words and positions amid other bytes."""
    records = SHAPES[name]
    payload, count = payload_of(records), len(records)
    dice = random.Random(8)
    for _ in range(300):
        damaged = bytearray(payload)
        damaged[dice.randrange(len(payload))] = dice.choice((0, 1, 2, 127, 128, 129, 255, dice.randrange(256)))
        data = b"before" + bytes(damaged) + bytes((dice.choice((0, 1, 128, 255)),)) * 50
        alone = words_of(lambda damaged=bytes(damaged): careful(damaged, count))
        amid = words_of(lambda data=data: walk_records_in(data, 6, 6 + len(payload), count))
        assert amid == alone


def words_of(walk: Callable[[], WalkedRecords]) -> WalkedRecords | str:
    try:
        return walk()
    except InvalidRecordsError as error:
        return error.message


@pytest.mark.parametrize("name", ["64 of one size", "65 of one size", "500 of one size", "some with headers"])
def test_every_damaged_byte_is_found_or_harmless(name: str) -> None:
    """The fast ways accept nothing that the careful one refuses, and find the same in what they accept."""
    records = SHAPES[name]
    payload = payload_of(records)
    dice = random.Random(7)
    for _ in range(700):
        damaged = bytearray(payload)
        damaged[dice.randrange(len(payload))] = dice.choice((0, 1, 2, 127, 128, 129, 255, dice.randrange(256)))
        if dice.random() < 0.3:
            damaged[dice.randrange(len(payload))] ^= 1 << dice.randrange(8)
        assert outcome(walk_records, bytes(damaged), len(records)) == outcome(careful, bytes(damaged), len(records))


def outcome(walk: "object", payload: bytes, count: int) -> object:
    try:
        return walk(payload, count)  # type: ignore[operator]
    except InvalidRecordsError:
        return "invalid"


@pytest.mark.parametrize("cut", [1, 2, 50, 5000])
def test_cut_records_are_refused(cut: int) -> None:
    payload = payload_of(SHAPES["500 of one size"])
    with pytest.raises(InvalidRecordsError):
        walk_records(payload[:-cut], 500)


@pytest.mark.parametrize("name", sorted(set(SHAPES) - {"17000 of one size"}))
def test_records_amid_other_bytes_are_walked_as_if_alone(name: str) -> None:
    """What follows goes on as the records do, so that a walk beyond the end would find more of them."""
    records = SHAPES[name]
    payload, count = payload_of(records), len(records)
    data = b"before" + payload + payload[-200:]
    start, end = len(b"before"), len(b"before") + len(payload)
    assert walk_records_in(data, start, end, count) == expected(records)
    for wrong_end in (end - 1, end + 1, start, len(data)):
        with pytest.raises(InvalidRecordsError):
            walk_records_in(data, start, wrong_end, count)
    with pytest.raises(InvalidRecordsError):
        walk_records_in(data, start, end, count + 1)


class CountedBytes(bytes):
    """Counts how often it is read."""

    read_count = 0

    def __getitem__(self, key: Any) -> Any:
        self.read_count += 1
        return super().__getitem__(key)


@needs_interpreter("reads of bytes are counted")
@pytest.mark.parametrize("claims", ["headers", "records"])
def test_what_lies_behind_the_records_is_not_walked(claims: str) -> None:
    """A client that claims more than it sends would otherwise have other bytes walked for each small batch."""
    if claims == "headers":
        body = b"\0\0\0\1\1" + encode_varint(20_000)
        payload, behind, count = encode_varint(len(body)) + body, bytes(60_000), 2
    else:
        records = SHAPES["9000 of many sizes"]
        payload, count = payload_of(records[:3]), len(records)
        behind = payload_of(records)[len(payload) :]
    data = CountedBytes(payload + behind)
    with pytest.raises(InvalidRecordsError):
        walk_records_in(data, 0, len(payload), count)
    assert data.read_count < 100


def test_padded_varints_are_read_as_kafka_reads_them() -> None:
    body = b"\0" + b"\x82\x80\x00" + b"\x80\x00" + b"\x81\x00" + b"\x82\x00" + b"v" + b"\x80\x00"
    assert walk_records(encode_varint(len(body)) + body, 1) == WalkedRecords(1, 0, 0, 1, True)


def test_offset_deltas_that_do_not_count_are_reported() -> None:
    data = build_batch([(1, None, b"", ())] * 3, offset_deltas=[0, 2, 3])
    assert walk_records(data[61:], 3).has_sequential_offsets is False


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        b"\0\0\0\1\1",  # no header count
        b"\0\0\0\1\1\1",  # -1 headers
        b"\0\0\0\1\1\x02",  # a header, but no more bytes
        b"\0\0\0\1\1\x02\1\1",  # a header without a key
        b"\0\0\0\1\1\0\0",  # a byte too many
        b"\0\0\0\xff\xff\xff\xff\xff\xff",  # a key length that does not end
        b"\0\0\0\xfe\xff\xff\xff\x0f\1\0",  # a key of 2 GiB
        b"\0" + b"\xff" * 11,  # a timestamp that does not end
    ],
)
def test_malformed_record_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRecordsError):
        walk_records(encode_varint(len(body)) + body, 1)
