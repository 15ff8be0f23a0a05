"""Coordinator records: bytes as Apache Kafka 4.3.1 wrote them, round trips of every type, damaged and later ones."""

import contextlib
import tarfile
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.errors import ProtocolError
from kafkapy.group.records import CoordinatorRecord, decode_record, encode_record
from kafkapy.protocol.api_table import GROUP_COORDINATOR_KEYS, GROUP_COORDINATOR_VALUES, MESSAGE_MODULES
from kafkapy.protocol.messages.group_metadata_key import GroupMetadataKey
from kafkapy.protocol.messages.group_metadata_value import GroupMetadataValue
from kafkapy.protocol.messages.offset_commit_key import OffsetCommitKey
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.record.batches import batches

GOLDEN = Path(__file__).parents[2] / "golden"
NOW_MS = 1_700_000_000_000


def message(names, record_type):
    name = names[record_type]
    return getattr(import_module(f"kafkapy.protocol.messages.{MESSAGE_MODULES[name]}"), name)


def test_an_offset_commit_is_written_as_kafka_documents_it():
    value = OffsetCommitValue(42, leader_epoch=3, metadata="here", commit_timestamp=1_700_000_000_000)
    _, key, encoded, headers = encode_record(
        CoordinatorRecord(OffsetCommitKey("g", topic="t", partition=2), value), NOW_MS
    )
    assert key.hex(" ", -4) == "00010001 67000174 00000002"
    assert encoded.hex() == "0004" + "000000000000002a" + "00000003" + "0568657265" + "0000018bcfe56800" + "00"
    assert headers == ()


def test_an_offset_that_expires_at_a_given_time_is_written_in_the_version_that_has_the_field():
    value = OffsetCommitValue(42, leader_epoch=-1, metadata="", commit_timestamp=1, expire_timestamp=99)
    _, key, encoded, _ = encode_record(CoordinatorRecord(OffsetCommitKey("g", topic="t", partition=2), value), NOW_MS)
    assert encoded[:2].hex() == "0001"
    assert decode_record(key, encoded).value.expire_timestamp == 99


def test_group_metadata_is_written_in_version_3_as_kafka_does():
    record = CoordinatorRecord(GroupMetadataKey("g"), GroupMetadataValue(protocol_type="consumer", generation=7))
    _, key, encoded, _ = encode_record(record, NOW_MS)
    assert (key.hex(), encoded[:2].hex()) == ("0002000167", "0003")


@pytest.mark.parametrize("record_type", GROUP_COORDINATOR_KEYS)
def test_every_type_of_record_is_read_back(record_type):
    record = CoordinatorRecord(
        message(GROUP_COORDINATOR_KEYS, record_type)(), message(GROUP_COORDINATOR_VALUES, record_type)()
    )
    _, key, value, _ = encode_record(record, NOW_MS)
    assert key[:2] == record_type.to_bytes(2, "big")
    assert decode_record(key, value) == record
    assert decode_record(key, None) == CoordinatorRecord(record.key, None)


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_what_kafka_wrote_is_read_and_written_again_to_the_byte(name):
    count = 0
    with tarfile.open(GOLDEN / f"kafka_data_dir_{name}.tar.gz") as archive:
        for member in archive.getmembers():
            if "__consumer_offsets" not in member.name or not member.name.endswith(".log"):
                continue
            for batch in batches(archive.extractfile(member).read()):
                for record in batch.records():
                    decoded = decode_record(record.key, record.value)
                    assert encode_record(decoded, NOW_MS) == (NOW_MS, record.key, record.value, ())
                    count += 1
    assert count == 13


def test_types_and_versions_of_later_brokers_are_passed_over():
    assert decode_record(b"\x7f\xff\0\0", b"\0\0") is None
    assert decode_record(bytes.fromhex("000100016700017400000002"), b"\0\x09") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\0", b""),
        (b"\0\x01\0\x05ab", b""),
        (b"\0\x02\0\x01g", b"\0"),
        (b"\0\x02\0\x01g", b"\0\x03x"),
    ],
)
def test_damaged_records_are_refused(key, value):
    with pytest.raises(ProtocolError):
        decode_record(key, value)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_a_record_or_refused(key, value):
    with contextlib.suppress(ProtocolError):
        decode_record(key, value)
