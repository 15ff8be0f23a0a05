"""Records of `__share_group_state`, byte by byte, and damaged ones."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.errors import ProtocolError
from kafkapy.protocol.primitives import EncodeError
from kafkapy.share.persister import SharePartitionKey, StateBatch
from kafkapy.share.state_records import (
    ShareRecord,
    ShareSnapshot,
    ShareTombstone,
    ShareUpdate,
    decode_record,
    encode_record,
)
from kafkapy.types import ONE_UUID

KEY = SharePartitionKey("g", ONE_UUID, 2)
KEY_REST = "0001 67 00000000000000000000000000000001 00000002"  # group "g", topic id, partition
SNAPSHOT = ShareSnapshot(
    KEY,
    snapshot_epoch=1,
    state_epoch=2,
    leader_epoch=3,
    start_offset=10,
    delivery_complete_count=4,
    create_timestamp_ms=100,
    write_timestamp_ms=101,
    state_batches=[StateBatch(10, 14, 0, 1), StateBatch(15, 15, 2, 3)],
)
SNAPSHOT_VALUE = (
    "0000 00000001 00000002 00000003 000000000000000a"  # version, three epochs, start offset
    "0000000000000064 0000000000000065"  # timestamps
    "03 000000000000000a 000000000000000e 00 0001 00 000000000000000f 000000000000000f 02 0003 00"
    "01 00 04 00000004"  # tag 0, four bytes: the delivery complete count
)
UPDATE = ShareUpdate(KEY, snapshot_epoch=1, leader_epoch=3, start_offset=-1, delivery_complete_count=-1)
UPDATE_VALUE = "0000 00000001 00000003 ffffffffffffffff 01 00"  # a count that is not known is left out

CASES: list[tuple[ShareRecord, str, str | None]] = [
    (SNAPSHOT, "0000" + KEY_REST, SNAPSHOT_VALUE),
    (UPDATE, "0001" + KEY_REST, UPDATE_VALUE),
    (ShareTombstone(KEY), "0000" + KEY_REST, None),
]


@pytest.mark.parametrize(("record", "key", "value"), CASES, ids=["snapshot", "update", "tombstone"])
def test_a_record_has_kafkas_bytes_and_is_read_back(record: ShareRecord, key: str, value: str | None) -> None:
    data = None if value is None else bytes.fromhex(value)
    assert encode_record(record, 5) == (5, bytes.fromhex(key), data, ())
    decoded = decode_record(bytes.fromhex(key), data)
    assert decoded is not None
    assert encode_record(decoded, 5) == (5, bytes.fromhex(key), data, ())
    assert type(decoded) is type(record)


def test_what_cannot_be_encoded_is_an_encode_error() -> None:
    with pytest.raises(EncodeError):
        encode_record(ShareTombstone(SharePartitionKey("g" * 40_000, ONE_UUID, 0)), 0)
    with pytest.raises(EncodeError):
        encode_record(ShareTombstone(SharePartitionKey("\ud800", ONE_UUID, 0)), 0)
    with pytest.raises(EncodeError):
        encode_record(ShareUpdate(KEY, 1 << 31, 0, 0, 0), 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [("0002" + KEY_REST, UPDATE_VALUE), ("0000" + KEY_REST, "0001"), ("0001" + KEY_REST, None)],
    ids=["type", "version", "an update's tombstone"],
)
def test_records_of_unknown_types_and_versions_are_skipped(key: str, value: str | None) -> None:
    assert decode_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value)) is None


@pytest.mark.parametrize("cut", range(30))
def test_a_key_that_is_cut_is_a_protocol_error(cut: int) -> None:
    key = bytes.fromhex("0000" + KEY_REST)
    with pytest.raises(ProtocolError):
        decode_record(key[: min(cut, len(key) - 1)], None)


@given(st.binary(max_size=60), st.sampled_from([SNAPSHOT_VALUE, UPDATE_VALUE]), st.integers(0, 80))
def test_damaged_values_are_read_or_refused(junk: bytes, value: str, position: int) -> None:
    good = bytes.fromhex(value)
    damaged = good[:position] + junk + good[position + len(junk) :]
    for record_type in ("0000", "0001"):
        with suppress(ProtocolError):
            decode_record(bytes.fromhex(record_type + KEY_REST), damaged)
