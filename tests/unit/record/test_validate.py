"""What a leader takes, patches and refuses: the rules of Kafka's LogValidator and UnifiedLog."""

from dataclasses import replace

import pytest

from kafkapy.record.batch import CREATE_TIME, LOG_APPEND_TIME, Record, RecordBatch
from kafkapy.record.batches import batches
from kafkapy.record.builder import seal
from kafkapy.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from kafkapy.record.control import EndTxnMarker, build_end_txn_marker
from kafkapy.record.errors import INVALID_RECORD, CorruptRecordError, InvalidRecordsError, RecordTooLargeError
from kafkapy.record.legacy import build_message_set
from kafkapy.record.validate import (
    AppendOrigin,
    BatchSpan,
    ValidatedRecords,
    ValidationRules,
    ValidationStats,
    check_as_is,
    place,
    validate_and_assign,
)
from tests.support.batches import build_batch

NOW_MS = 1_700_000_000_000
RULES = ValidationRules(topic_partition="trades-0")
RECORDS = [(NOW_MS + delta, b"k%d" % delta, b"v" * delta, (("h", b"1"),)) for delta in (3, 9, 5)]


def append(data: bytes | bytearray | memoryview, rules: ValidationRules = RULES) -> ValidatedRecords:
    return validate_and_assign(data, rules, next_offset=100, leader_epoch=7, now_ms=NOW_MS)


def stored(result: ValidatedRecords) -> RecordBatch:
    return RecordBatch(b"".join(result.data))


def refusal(data: bytes | bytearray | memoryview, rules: ValidationRules = RULES) -> InvalidRecordsError:
    with pytest.raises(InvalidRecordsError) as caught:
        append(data, rules)
    return caught.value


def patched(data: bytes, *fields: tuple[int, bytes]) -> bytes:
    """Return the batch with other bytes at given positions, and the CRC that goes with them."""
    batch = bytearray(data)
    for position, value in fields:
        batch[position : position + len(value)] = value
    return seal(bytes(batch[:61]), batch[61:])


def test_batch_is_kept_but_for_base_offset_and_leader_epoch() -> None:
    original = build_batch(RECORDS, producer_id=9, producer_epoch=2, base_sequence=40, is_transactional=True)
    result = append(bytearray(original))
    (batch,) = result.data
    assert bytes(batch) == (100).to_bytes(8, "big") + original[8:12] + (7).to_bytes(4, "big") + original[16:]
    assert result.batches == [BatchSpan(0, len(original), 100, 102, NOW_MS + 9, 101, 9, 2, 40, 42, True, False, 3, 7)]
    assert result[2:] == (len(original), 100, 102, NOW_MS + 9, 101, 3, -1, None)


def test_writable_buffer_is_patched_in_place_and_a_read_only_one_is_copied() -> None:
    original = build_batch(RECORDS)
    frame = bytearray(b"frame" + original)
    append(memoryview(frame)[5:])
    assert frame[5:13] == (100).to_bytes(8, "big")
    assert stored(append(original)).base_offset == 100
    assert original[:8] == bytes(8)


def test_incomplete_batch_at_the_end_is_left_out() -> None:
    original = build_batch(RECORDS)
    assert append(original + original[:70]).size_bytes == len(original)


def test_log_append_time_is_set_and_sealed_with_a_new_crc() -> None:
    rules = replace(RULES, timestamp_type=LOG_APPEND_TIME)
    result = append(build_batch(RECORDS), rules)
    batch = stored(result)
    assert batch.has_valid_crc()
    assert [record.timestamp_ms for record in batch.records()] == [NOW_MS] * 3
    assert (batch.timestamp_type, batch.max_timestamp) == (LOG_APPEND_TIME, NOW_MS)
    assert (result.log_append_time_ms, result.max_timestamp, result.offset_of_max_timestamp) == (NOW_MS, NOW_MS, 100)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_wrong_max_timestamp_in_the_header_is_corrected(codec: int) -> None:
    result = append(patched(build_batch(RECORDS, compression=codec), (35, bytes(8))))
    batch = stored(result)
    assert batch.has_valid_crc()
    assert batch.max_timestamp == result.max_timestamp == NOW_MS + 9
    assert result.offset_of_max_timestamp == 101


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_producers_codec_is_kept_where_the_topic_says_producer(codec: int) -> None:
    original = build_batch(RECORDS, compression=codec)
    assert bytes(append(original).data[0])[16:] == original[16:]


@pytest.mark.parametrize(
    ("target", "codec"), [("uncompressed", NONE), ("gzip", GZIP), ("snappy", SNAPPY), ("lz4", LZ4), ("zstd", ZSTD)]
)
def test_batch_is_recompressed_to_the_topics_codec(target: str, codec: int) -> None:
    source = ZSTD if codec != ZSTD else NONE
    original = build_batch(
        RECORDS, compression=source, producer_id=9, producer_epoch=2, base_sequence=40, is_transactional=True
    )
    result = append(original, replace(RULES, compression_type=target))
    batch = stored(result)
    assert batch.has_valid_crc()
    assert (batch.compression, batch.base_offset, batch.partition_leader_epoch) == (codec, 100, 7)
    assert (batch.producer_id, batch.base_sequence, batch.is_transactional) == (9, 40, True)
    expected = [Record(100 + index, *record) for index, record in enumerate(RECORDS)]
    assert list(batch.records()) == expected
    assert result.size_bytes == result.batches[0].size_bytes == batch.size_bytes


def test_recompression_level_is_the_topics() -> None:
    records = [(NOW_MS, None, bytes(range(256)) * 20, ())]
    sizes = [
        append(build_batch(records), replace(RULES, compression_type="gzip", compression_level=level)).size_bytes
        for level in (1, 9)
    ]
    assert sizes[0] > sizes[1]


def test_recompressed_batch_must_still_fit() -> None:
    original = build_batch([(NOW_MS, None, bytes(5000), ())], compression=GZIP)
    rules = replace(RULES, compression_type="uncompressed", max_message_bytes=len(original))
    with pytest.raises(RecordTooLargeError):
        append(original, rules)


def test_batch_above_max_message_bytes_is_too_large() -> None:
    original = build_batch(RECORDS)
    assert append(original, replace(RULES, max_message_bytes=len(original))).size_bytes == len(original)
    with pytest.raises(RecordTooLargeError) as caught:
        append(original, replace(RULES, max_message_bytes=len(original) - 1))
    assert caught.value.code == 10


def test_wrong_checksum_is_corrupt() -> None:
    damaged = bytearray(build_batch(RECORDS))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError) as caught:
        append(damaged)
    assert caught.value.code == 2


def test_batch_that_inflates_beyond_the_bound_is_too_large() -> None:
    bomb = build_batch([(NOW_MS, None, bytes(1_000_000), ())], compression=ZSTD)
    assert len(bomb) < 200
    with pytest.raises(RecordTooLargeError):
        append(bomb, replace(RULES, max_decompressed_bytes=999_999))


GOOD = build_batch(RECORDS)
INVALID: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("less than a batch", GOOD[:-1]),
    ("two batches", GOOD + GOOD),
    ("a base offset", build_batch(RECORDS, base_offset=1)),
    ("magic 1", build_message_set([Record(0, NOW_MS, b"k", b"v")], magic=1)),
    ("no records", build_batch([])),
    ("count below the records", patched(GOOD, (57, (2).to_bytes(4, "big")), (23, (1).to_bytes(4, "big")))),
    ("count above the records", patched(GOOD, (57, (4).to_bytes(4, "big")), (23, (3).to_bytes(4, "big")))),
    ("count unlike the offsets", patched(GOOD, (57, (4).to_bytes(4, "big")))),
    ("negative count", patched(GOOD, (57, b"\xff" * 4), (23, b"\xff\xff\xff\xfe"))),
    ("negative last offset delta", patched(GOOD, (23, b"\x80\0\0\0"))),
    ("offset deltas with a gap", build_batch(RECORDS, offset_deltas=[0, 1, 3], last_offset_delta=2)),
    (
        "control batch",
        build_end_txn_marker(EndTxnMarker(True, 1), producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS),
    ),
    ("producer without sequence", build_batch(RECORDS, producer_id=1, producer_epoch=0)),
    ("producer without epoch", build_batch(RECORDS, producer_id=1, base_sequence=0)),
    ("payload that does not inflate", patched(build_batch(RECORDS, compression=GZIP), (61, b"\0\0\0"))),
    ("bytes behind the records", _longer := patched(GOOD + b"\0", (8, (len(GOOD) - 11).to_bytes(4, "big")))),
]


@pytest.mark.parametrize("data", [data for _, data in INVALID], ids=[name for name, _ in INVALID])
def test_client_may_not_append(data: bytes) -> None:
    assert refusal(data).code == 87


def test_unknown_codec_is_unsupported() -> None:
    assert refusal(patched(GOOD, (21, b"\0\5"))).code == 76


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_wrong_offset_deltas_are_repaired_only_where_the_batch_is_recompressed(codec: int) -> None:
    data = build_batch(RECORDS, offset_deltas=[0, 0, 2], compression=codec)
    assert refusal(data).code == 87
    batch = stored(append(data, replace(RULES, compression_type="uncompressed")))
    assert batch.has_valid_crc()
    assert list(batch.records()) == [Record(100 + index, *record) for index, record in enumerate(RECORDS)]


def test_compacted_topic_wants_keys() -> None:
    records = [(NOW_MS, b"k", b"", ()), (NOW_MS, None, b"", ()), (NOW_MS, b"", b"", ()), (NOW_MS, None, b"", ())]
    error = refusal(build_batch(records), replace(RULES, is_compacted=True))
    assert error.code == 87
    assert [index for index, _ in error.record_errors] == [1, 3]
    assert append(build_batch(records)).record_count == 4


def test_timestamps_outside_the_topics_window_are_named() -> None:
    rules = replace(RULES, timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    times = [NOW_MS - 1000, NOW_MS - 1001, NOW_MS, NOW_MS + 501, NOW_MS + 500]
    error = refusal(build_batch([(time, None, b"", ()) for time in times]), rules)
    assert error.code == 32
    assert [index for index, _ in error.record_errors] == [1, 3]


def test_records_without_a_timestamp_are_always_in_the_window() -> None:
    rules = replace(RULES, timestamp_before_max_ms=1000)
    result = append(build_batch([(-1, None, b"", ()), (NOW_MS, None, b"", ())]), rules)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW_MS, 101)
    assert append(build_batch([(-1, None, b"", ())]), rules).max_timestamp == -1


def test_window_does_not_count_where_the_broker_sets_the_time() -> None:
    rules = replace(RULES, timestamp_before_max_ms=1000, timestamp_type=LOG_APPEND_TIME)
    assert append(build_batch([(1, None, b"", ())]), rules).max_timestamp == NOW_MS


def test_producer_may_not_claim_log_append_time_on_such_a_topic() -> None:
    claimed = build_batch(RECORDS, timestamp_type=LOG_APPEND_TIME, max_timestamp=NOW_MS)
    error = refusal(claimed, replace(RULES, timestamp_type=LOG_APPEND_TIME))
    assert (error.code, len(error.record_errors)) == (32, 3)
    assert stored(append(claimed)).timestamp_type == CREATE_TIME


def test_timestamp_beyond_int64_is_refused() -> None:
    huge = patched(build_batch(RECORDS), (27, ((1 << 63) - 2).to_bytes(8, "big")))
    assert refusal(huge, replace(RULES, timestamp_after_max_ms=(1 << 63) - 1)).code == 32


def test_coordinator_appends_markers_and_several_batches() -> None:
    rules = replace(RULES, origin=AppendOrigin.COORDINATOR, compression_type="gzip")
    marker = build_end_txn_marker(EndTxnMarker(True, 3), producer_id=5, producer_epoch=1, timestamp_ms=NOW_MS)
    result = append(GOOD + marker, rules)
    first, second = batches(b"".join(result.data))
    assert (first.compression, first.base_offset, first.last_offset) == (GZIP, 100, 102)
    assert (second.compression, second.base_offset, second.is_control) == (NONE, 103, True)
    assert [span.position for span in result.batches] == [0, first.size_bytes]
    assert (result.first_offset, result.last_offset, result.record_count) == (100, 103, 4)


def test_raft_leader_has_given_offsets_and_epoch_already() -> None:
    rules = replace(RULES, origin=AppendOrigin.RAFT_LEADER)
    batch = build_batch(RECORDS, base_offset=100, leader_epoch=7)
    result = append(batch + build_batch(RECORDS, base_offset=103, leader_epoch=7), rules)
    assert (result.first_offset, result.last_offset, len(result.batches)) == (100, 105, 2)
    assert bytes(result.data[0])[: len(batch)] == batch
    assert refusal(build_batch(RECORDS, base_offset=100, leader_epoch=6), rules).code == 87
    assert refusal(build_batch(RECORDS, base_offset=90, leader_epoch=7), rules).code == 87


def test_fetched_batches_keep_their_epochs_up_to_the_followers() -> None:
    rules = replace(RULES, origin=AppendOrigin.REPLICATION, max_message_bytes=1)
    data = b"".join(
        build_batch(RECORDS, base_offset=base, leader_epoch=epoch) for base, epoch in ((100, 3), (110, 7), (113, 8))
    )
    result = check_as_is(data, rules, next_offset=100, leader_epoch=7)
    assert [(span.base_offset, span.leader_epoch) for span in result.batches] == [(100, 3), (110, 7)]
    assert result.size_bytes == 2 * len(build_batch(RECORDS))
    assert check_as_is(data[:-1], rules, next_offset=100, leader_epoch=9).last_offset == 112


def test_a_fetched_batch_that_begins_before_the_end_of_the_log_is_refused() -> None:
    rules = replace(RULES, origin=AppendOrigin.REPLICATION)
    data = build_batch(RECORDS, base_offset=100)
    with pytest.raises(InvalidRecordsError, match="offset 100 where 101 is next"):
        check_as_is(data, rules, next_offset=101, leader_epoch=0)


def test_old_messages_are_replicated() -> None:
    data = build_message_set([Record(100, NOW_MS, None, b"a"), Record(101, NOW_MS + 1, b"", b"b")], magic=1)
    result = check_as_is(data, replace(RULES, origin=AppendOrigin.REPLICATION), next_offset=100, leader_epoch=0)
    assert (result.first_offset, result.last_offset, result.max_timestamp) == (100, 101, NOW_MS + 1)


@pytest.mark.parametrize(
    ("source", "target", "stats"),
    [
        (NONE, "producer", None),
        (NONE, "uncompressed", None),
        (GZIP, "producer", (1, 0, 0)),
        (GZIP, "gzip", (1, 0, 0)),
        (GZIP, "uncompressed", (2, 3, 7)),
        (NONE, "lz4", (2, 3, 7)),
        (ZSTD, "snappy", (2, 3, 7)),
    ],
)
def test_memory_and_records_of_a_conversion_are_counted(source, target, stats) -> None:
    """As Kafka's RecordValidationStats: inflated records with a header, and once more if they are written anew."""
    clock = iter((5, 12))
    rules = replace(RULES, compression_type=target, now_ns=lambda: next(clock))
    result = append(build_batch(RECORDS, compression=source), rules)
    size_bytes = len(build_batch(RECORDS))
    expected = None if stats is None else ValidationStats(stats[0] * size_bytes, *stats[1:])
    assert result.stats == expected


def test_a_batch_placed_later_keeps_its_counts() -> None:
    rules = replace(RULES, compression_type="uncompressed")
    checked = validate_and_assign(
        build_batch(RECORDS, compression=GZIP), rules, next_offset=0, leader_epoch=0, now_ms=NOW_MS
    )
    assert checked.stats is not None
    assert place(checked, next_offset=40, leader_epoch=2).stats == checked.stats


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_record_of_a_compressed_batch_above_the_topics_limit_is_refused(codec: int) -> None:
    """max.decompressed.message.bytes; the size is that of the record's body, as its length field has it."""
    data = build_batch([(NOW_MS, b"k", b"v" * 50, ()), (NOW_MS, b"k", b"v" * 200, ())], compression=codec)
    body_bytes = 200 + len(b"k") + 7
    assert append(data, replace(RULES, max_record_bytes=body_bytes)).record_count == 2

    refused = refusal(data, replace(RULES, max_record_bytes=body_bytes - 1))

    message = f"Invalid record size: {body_bytes} exceeds the configured maximum record size of {body_bytes - 1}."
    assert (refused.code, refused.message) == (INVALID_RECORD, message)


def test_the_limit_of_decompressed_records_is_none_for_an_uncompressed_batch() -> None:
    assert append(build_batch(RECORDS), replace(RULES, max_record_bytes=1)).record_count == 3
