"""Every record set that Kafka's own classes wrote is read to what they found in it, and rebuilt to the same bytes."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kafkapy.record.batch import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, Record, RecordBatch
from kafkapy.record.batches import batches, has_valid_crc, scan_headers
from kafkapy.record.compression import NAMES
from kafkapy.record.control import (
    ControlType,
    EndTxnMarker,
    build_end_txn_marker,
    build_raft_control,
    control_type_of,
    end_txn_marker_of,
    read_raft_control,
)
from kafkapy.record.legacy import build_message_set
from tests.support.batches import build_batch_of

TIMESTAMP_TYPES = {"NoTimestampType": NO_TIMESTAMP_TYPE, "CreateTime": CREATE_TIME, "LogAppendTime": LOG_APPEND_TIME}


def _rows() -> list[dict[str, Any]]:
    with gzip.open(Path(__file__).parent / "record_batches.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


ROWS = _rows()
BY_LABEL = {row["label"]: row for row in ROWS}
MAGIC_2 = [row for row in ROWS if row["batches"][0]["magic"] == 2]
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["label"])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _record(row: dict[str, Any]) -> Record:
    headers = tuple((name, _bytes(value)) for name, value in row["headers"])
    return Record(row["offset"], row["timestamp"], _bytes(row["key"]), _bytes(row["value"]), headers)


def test_all_fifty_two_sets_are_here() -> None:
    assert len(ROWS) == 52


@every_row
def test_records_are_those_that_kafka_found(row: dict[str, Any]) -> None:
    data = memoryview(bytes.fromhex(row["hex"]))
    for batch, expected in zip(batches(data), row["batches"], strict=True):
        assert list(batch.records()) == [_record(record) for record in expected["records"]]


@every_row
def test_batch_fields_are_those_that_kafka_found(row: dict[str, Any]) -> None:
    data = memoryview(bytes.fromhex(row["hex"]))
    for batch, expected in zip(batches(data), row["batches"], strict=True):
        assert batch.has_valid_crc()
        assert batch.magic == expected["magic"]
        assert (batch.base_offset, batch.last_offset) == (expected["base_offset"], expected["last_offset"])
        assert NAMES[batch.compression] == expected["compression"]
        assert batch.timestamp_type == TIMESTAMP_TYPES[expected["timestamp_type"]]
        assert (batch.max_timestamp, batch.size_bytes) == (expected["max_timestamp"], expected["size_in_bytes"])


@pytest.mark.parametrize("row", MAGIC_2, ids=lambda row: row["label"])
def test_magic_2_fields_are_those_that_kafka_found(row: dict[str, Any]) -> None:
    batch = RecordBatch(bytes.fromhex(row["hex"]))
    (expected,) = row["batches"]
    assert batch.producer_id == expected["producer_id"]
    assert batch.producer_epoch == expected["producer_epoch"]
    assert batch.base_sequence == expected["base_sequence"]
    assert (batch.is_transactional, batch.is_control) == (expected["transactional"], expected["control"])
    assert (batch.partition_leader_epoch, batch.crc) == (expected["partition_leader_epoch"], expected["crc"])
    assert batch.record_count == len(expected["records"])


@every_row
def test_header_scan_agrees_with_the_views(row: dict[str, Any]) -> None:
    data = bytes.fromhex(row["hex"])
    for header, batch in zip(scan_headers(data), batches(data), strict=True):
        assert (header.position, header.size_bytes) == (batch.position, batch.size_bytes)
        assert (header.magic, header.crc, header.last_offset) == (batch.magic, batch.crc, batch.last_offset)
        assert (header.max_timestamp, header.producer_id) == (batch.max_timestamp, batch.producer_id)
        assert has_valid_crc(data, header.position, header.size_bytes)


@pytest.mark.parametrize("row", MAGIC_2, ids=lambda row: row["label"])
def test_magic_2_batch_is_rebuilt_to_the_same_records_and_header(row: dict[str, Any]) -> None:
    original = bytes.fromhex(row["hex"])
    batch = RecordBatch(original)
    rebuilt = _rebuild(batch, list(map(_record, row["batches"][0]["records"])))
    if batch.compression == 0:
        assert rebuilt == original
    assert RecordBatch(rebuilt).records_payload() == batch.records_payload()
    assert rebuilt[21:61] == original[21:61]


def _rebuild(batch: RecordBatch, records: list[Record]) -> bytes:
    if batch.timestamp_type == LOG_APPEND_TIME:  # what the records themselves hold, which LogAppendTime hides
        raw = bytearray(batch.raw())
        raw[22] &= ~0x08
        records = list(RecordBatch(bytes(raw)).records())
    return build_batch_of(
        records,
        compression=batch.compression,
        timestamp_type=batch.timestamp_type,
        max_timestamp=batch.max_timestamp,
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
    )


@pytest.mark.parametrize("row", [row for row in ROWS if row["batches"][0]["magic"] < 2], ids=lambda row: row["label"])
def test_message_set_is_rebuilt_to_what_kafka_wrote(row: dict[str, Any]) -> None:
    original = bytes.fromhex(row["hex"])
    first = row["batches"][0]
    codec = NAMES.index(first["compression"])
    timestamp_type = TIMESTAMP_TYPES[first["timestamp_type"]]
    records = [_record(record) for batch in row["batches"] for record in batch["records"]]
    rebuilt = build_message_set(
        records,
        magic=first["magic"],
        compression=codec,
        timestamp_type=timestamp_type,
        append_time_ms=first["max_timestamp"],
    )
    if codec == 0:
        assert rebuilt == original
    for ours, theirs in zip(batches(rebuilt), batches(original), strict=True):
        assert list(ours.records()) == list(theirs.records())
        assert (ours.max_timestamp, ours.base_offset, ours.has_valid_crc()) == (
            theirs.max_timestamp,
            theirs.base_offset,
            True,
        )


def test_lz4_of_magic_0_has_the_checksum_that_kafka_wrote() -> None:
    """The wrong header checksum of KAFKA-3160: the seventh byte of the frame."""
    row = BY_LABEL["magic0-lz4-CreateTime-5"]
    records = [_record(record) for record in row["batches"][0]["records"]]
    ours = build_message_set(records, magic=0, compression=3)
    theirs = bytes.fromhex(row["hex"])
    assert ours[26:33] == theirs[26:33]
    assert ours[32] != build_message_set(records, magic=1, compression=3)[40]


@pytest.mark.parametrize(
    ("label", "marker"),
    [("marker-commit", EndTxnMarker(True, 7)), ("marker-abort", EndTxnMarker(False, 8))],
)
def test_transaction_markers(label: str, marker: EndTxnMarker) -> None:
    data = bytes.fromhex(BY_LABEL[label]["hex"])
    batch = RecordBatch(data)
    (record,) = batch.records()
    assert end_txn_marker_of(record) == marker
    rebuilt = build_end_txn_marker(
        marker,
        producer_id=5,
        producer_epoch=1,
        timestamp_ms=batch.max_timestamp,
        base_offset=batch.base_offset,
        leader_epoch=3,
    )
    assert rebuilt == data


@pytest.mark.parametrize(
    ("label", "control_type"),
    [
        ("leader-change", ControlType.LEADER_CHANGE),
        ("snapshot-header", ControlType.SNAPSHOT_HEADER),
        ("snapshot-footer", ControlType.SNAPSHOT_FOOTER),
        ("kraft-version", ControlType.KRAFT_VERSION),
        ("voters", ControlType.KRAFT_VOTERS),
    ],
)
def test_raft_control_records(label: str, control_type: ControlType) -> None:
    data = bytes.fromhex(BY_LABEL[label]["hex"])
    batch = RecordBatch(data)
    (record,) = batch.records()
    message = read_raft_control(record)
    assert control_type_of(record.key) is control_type
    assert message is not None
    rebuilt = build_raft_control(
        [message], base_offset=batch.base_offset, leader_epoch=4, timestamp_ms=batch.max_timestamp
    )
    assert rebuilt == data


def test_raft_control_records_hold_what_kafka_wrote() -> None:
    def message(label: str) -> Any:
        return read_raft_control(next(RecordBatch(bytes.fromhex(BY_LABEL[label]["hex"])).records()))

    leader_change = message("leader-change")
    assert leader_change.leader_id == 1
    assert [voter.voter_id for voter in leader_change.voters] == [1, 2]
    assert message("snapshot-header").last_contained_log_timestamp == 1700000000000
    assert message("kraft-version").kraft_version == 1
    (voter,) = message("voters").voters
    assert (voter.voter_id, voter.endpoints[0].host, voter.endpoints[0].port) == (1, "localhost", 9093)
