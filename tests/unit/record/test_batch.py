"""Views over batches and message sets, and the scan over headers, on what is whole, cut and damaged."""

from collections.abc import Callable

import pytest

from kafkapy.record.batch import Record, RecordBatch, increment_sequence
from kafkapy.record.batches import batch_at, batches, has_valid_crc, scan_headers
from kafkapy.record.compression import GZIP, compress
from kafkapy.record.control import ControlType, control_type_of, end_txn_marker_of, read_raft_control
from kafkapy.record.errors import CorruptRecordError, InvalidRecordsError, RecordTooLargeError
from kafkapy.record.legacy import LegacyBatch, build_message_set
from tests.support.batches import build_batch, build_batch_of

RECORDS = [Record(7, 1000, b"k", b"v", (("h", b"1"), ("n", None))), Record(9, 990, None, None)]
BATCH = build_batch_of(RECORDS)
MESSAGES = build_message_set(RECORDS, magic=1)


def test_batch_as_bytes() -> None:
    data = build_batch([(1000, b"k", b"v", ())], base_offset=5, leader_epoch=3)
    assert data.hex(" ", 1).upper().split()[61:] == ["10", "00", "00", "00", "02", "6B", "02", "76", "00"]
    assert data[:16].hex() == "0000000000000005" + "0000003a" + "00000003"


def test_compacted_batch_keeps_its_gaps() -> None:
    batch = RecordBatch(build_batch_of(RECORDS, base_offset=4, last_offset_delta=9))
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (4, 13, 14)
    assert list(batch.records()) == RECORDS


def test_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    batch = RecordBatch(build_batch_of(RECORDS, delete_horizon_ms=5000))
    assert (batch.delete_horizon_ms, batch.base_timestamp) == (5000, 5000)
    assert list(batch.records()) == RECORDS
    assert RecordBatch(BATCH).delete_horizon_ms is None


def test_header_keys_that_are_not_utf_8_survive() -> None:
    data = bytearray(build_batch([(1, None, b"", (("ab", None),))]))
    position = data.index(b"ab")
    data[position] = 0xFF
    (record,) = RecordBatch(bytes(data)).records()
    assert build_batch_of([record])[61:] == data[61:]


def test_sequences_wrap() -> None:
    assert increment_sequence(2**31 - 1, 1) == 0
    batch = RecordBatch(build_batch_of(RECORDS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert batch.last_sequence == 0
    assert RecordBatch(BATCH).last_sequence == -1


def test_offset_of_max_timestamp() -> None:
    assert RecordBatch(BATCH).offset_of_max_timestamp() == 7
    log_append = build_batch_of(RECORDS, timestamp_type=1, max_timestamp=5000)
    assert RecordBatch(log_append).offset_of_max_timestamp() == 7


@pytest.mark.parametrize("reader", [batches, scan_headers])
def test_incomplete_batch_ends_the_reading(reader: Callable[[bytes], object]) -> None:
    whole = BATCH + MESSAGES + BATCH
    for cut in range(len(BATCH)):
        assert len(list(reader(whole[: len(whole) - cut]))) == (4 if cut == 0 else 3)  # type: ignore[call-overload]
    for size in range(61):
        assert list(reader(BATCH[:size])) == []  # type: ignore[call-overload]


@pytest.mark.parametrize("reader", [batches, scan_headers])
@pytest.mark.parametrize(
    "garbage", [bytes(100), BATCH[:16] + b"\x03" + BATCH[17:], BATCH[:8] + b"\xff\xff\xff\xff" + BATCH[12:]]
)
def test_garbage_between_batches_is_corrupt(reader: Callable[[bytes], object], garbage: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        list(reader(BATCH + garbage))  # type: ignore[call-overload]


def test_scan_starts_at_the_given_position_and_returns_where_batches_are() -> None:
    data = BATCH + MESSAGES + BATCH
    headers = list(scan_headers(data, len(BATCH)))
    assert [header.position for header in headers] == [len(BATCH), len(BATCH) + 36, len(BATCH) + len(MESSAGES)]
    assert [header.magic for header in headers] == [1, 1, 2]


def test_shallow_offsets_of_a_wrapper_are_its_last() -> None:
    wrapper = build_message_set(RECORDS, magic=1, compression=1)
    (header,) = scan_headers(wrapper)
    (batch,) = batches(wrapper)
    assert (header.base_offset, header.last_offset, header.record_count) == (9, 9, -1)
    assert (batch.base_offset, batch.last_offset) == (7, 9)


def test_crc_of_every_magic() -> None:
    for data in (BATCH, MESSAGES[:36], build_message_set(RECORDS[:1], magic=0)):
        damaged = data[:-1] + bytes((data[-1] ^ 1,))
        assert has_valid_crc(b"xx" + data, 2, len(data))
        assert not has_valid_crc(damaged, 0, len(data))
        assert not has_valid_crc(data[:20], 0, 20)
        assert not has_valid_crc(data, 0, len(data) - 1)


def test_records_of_a_batch_are_bounded() -> None:
    batch = RecordBatch(build_batch([(1, None, bytes(10_000), ())], compression=1))
    with pytest.raises(RecordTooLargeError):
        list(batch.records(max_bytes=9_999))
    assert len(list(batch.records(max_bytes=11_000))) == 1


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (57, b"\xff\xff\xff\xff"),  # a count of -1
        (57, b"\0\0\0\3"),  # a count too high
        (57, b"\0\0\0\1"),  # a count too low
        (61, b"\x7f"),  # a length of -64
        (61, b"\x7e"),  # a length too high
        (61, b"\x02"),  # a length too low
    ],
)
def test_malformed_records_are_invalid(position: int, value: bytes) -> None:
    data = bytearray(BATCH)
    data[position : position + len(value)] = value
    with pytest.raises(InvalidRecordsError):
        list(RecordBatch(bytes(data)).records())


def test_batch_at_chooses_by_magic() -> None:
    assert type(batch_at(BATCH)) is RecordBatch
    assert type(batch_at(MESSAGES)) is LegacyBatch
    for damaged in (b"", BATCH[:16], BATCH[:40], BATCH[:16] + b"\x7f" + BATCH[17:]):
        with pytest.raises(CorruptRecordError):
            batch_at(damaged)


class TestOldMessages:
    def test_wrapper_of_magic_1_has_relative_offsets_within(self) -> None:
        (batch,) = batches(build_message_set(RECORDS, magic=1, compression=2))
        inner = batch.records_payload()
        assert inner[:8] == bytes(8)
        assert [record.offset for record in batch.records()] == [7, 9]

    def test_wrapper_of_magic_0_has_absolute_offsets_within(self) -> None:
        (batch,) = batches(build_message_set(RECORDS, magic=0, compression=2))
        assert batch.records_payload()[:8] == (7).to_bytes(8, "big")
        assert [(record.offset, record.timestamp_ms) for record in batch.records()] == [(7, -1), (9, -1)]

    def test_log_append_time_of_the_wrapper_counts_for_all(self) -> None:
        (batch,) = batches(build_message_set(RECORDS, magic=1, compression=1, timestamp_type=1, append_time_ms=5))
        assert [record.timestamp_ms for record in batch.records()] == [5, 5]

    def test_wrapper_at_offset_0_counts_from_0(self) -> None:
        """Some versions of librdkafka sent it so."""
        data = build_message_set([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")], magic=1, compression=1)
        (batch,) = batches(bytes(8) + data[8:])
        assert [record.offset for record in batch.records()] == [0, 1]

    def test_wrapper_below_its_messages_is_invalid(self) -> None:
        data = build_message_set(RECORDS, magic=1, compression=1)
        with pytest.raises(InvalidRecordsError):
            list(LegacyBatch((1).to_bytes(8, "big") + data[8:]).records())

    def test_wrapper_within_a_wrapper_is_invalid(self) -> None:
        inner = build_message_set(RECORDS, magic=1, compression=1)
        outer = bytearray(build_message_set([Record(9, 1, None, compress(GZIP, inner))], magic=1))
        outer[17] = GZIP
        with pytest.raises(InvalidRecordsError):
            list(LegacyBatch(bytes(outer)).records())

    @pytest.mark.parametrize("value", [None, compress(GZIP, b"")])
    def test_wrapper_of_nothing_is_invalid(self, value: bytes | None) -> None:
        data = bytearray(build_message_set([Record(9, 1, None, value)], magic=1))
        data[17] = GZIP
        with pytest.raises(InvalidRecordsError):
            list(LegacyBatch(bytes(data)).records())

    def test_message_longer_than_its_fields_claim(self) -> None:
        data = bytearray(MESSAGES[:36])
        data[26:30] = b"\x7f\xff\xff\xff"
        with pytest.raises(InvalidRecordsError):
            list(LegacyBatch(bytes(data)).records())

    def test_fields_that_the_format_lacks(self) -> None:
        batch = batch_at(MESSAGES)
        assert (batch.producer_id, batch.base_sequence, batch.partition_leader_epoch) == (-1, -1, -1)
        assert (batch.is_control, batch.is_transactional, batch.delete_horizon_ms) == (False, False, None)


class TestControlRecords:
    @pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
    def test_key_without_a_type_is_invalid(self, key: bytes | None) -> None:
        with pytest.raises(InvalidRecordsError):
            control_type_of(key)

    def test_types_to_come_are_unknown_and_skipped(self) -> None:
        record = Record(0, 0, b"\0\0\0\x63", b"")
        assert control_type_of(record.key) is ControlType.UNKNOWN
        assert control_type_of(b"\0\1\0\1more") is ControlType.COMMIT
        assert read_raft_control(record) is None

    @pytest.mark.parametrize(
        "record",
        [
            Record(0, 0, ControlType.LEADER_CHANGE.key(), b"\0\0"),
            Record(0, 0, ControlType.KRAFT_VOTERS.key(), None),
            Record(0, 0, ControlType.COMMIT.key(), b"\0\0\0\0\0\7"),
        ],
    )
    def test_raft_message_that_cannot_be_read_is_invalid(self, record: Record) -> None:
        with pytest.raises(InvalidRecordsError):
            read_raft_control(record)

    @pytest.mark.parametrize(
        ("control_type", "value"),
        [
            (ControlType.COMMIT, None),
            (ControlType.COMMIT, b"\0\0\0\0\0"),
            (ControlType.ABORT, b"\xff\xff\0\0\0\0"),
            (ControlType.LEADER_CHANGE, b"\0\0\0\0\0\0"),
        ],
    )
    def test_marker_that_cannot_be_read_is_invalid(self, control_type: ControlType, value: bytes | None) -> None:
        with pytest.raises(InvalidRecordsError):
            end_txn_marker_of(Record(0, 0, control_type.key(), value))
