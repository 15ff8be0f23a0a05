"""Records of `__transaction_state`, byte by byte, and damaged ones."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.errors import ProtocolError
from kafkapy.protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from kafkapy.protocol.primitives import EncodeError
from kafkapy.transaction.hash_order import by_topic
from kafkapy.transaction.metadata import TransactionMetadata
from kafkapy.transaction.records import TransactionRecord, decode_record, encode_record
from kafkapy.transaction.states import TransactionState
from kafkapy.types import TopicPartition
from tests.support.transaction_world import changed

KEY = bytes.fromhex("0000 0001 78")  # type 0; "x"
ONGOING_V0 = bytes.fromhex(
    "0000 0000000000000007 0003 0000ea60 01"  # version, producer id, epoch, 60 s, Ongoing
    "00000001 0002 6f31 00000002 00000001 00000000"  # topic "o1", partitions 1 and 0: the order of Java's HashSet
    "0000000000000065 0000000000000064"  # last update, start
)
ONGOING_V1 = bytes.fromhex(
    "0001 0000000000000007 0003 0000ea60 01"
    "02 03 6f31 03 00000001 00000000 00"
    "0000000000000065 0000000000000064"
    "02 00 08 0000000000000007 02 02 0002"  # tags: 0 previous producer id 7, 2 client's transaction version 2
)
EMPTY_V1 = bytes.fromhex(
    "0001 0000000000000007 0000 0000ea60 00 00 0000000000000065 ffffffffffffffff 01 00 08 0000000000000007"
)


def ongoing(**fields: object) -> TransactionMetadata:
    return TransactionMetadata(
        7,
        producer_epoch=3,
        state=TransactionState.ONGOING,
        timeout_ms=60_000,
        last_update_ms=101,
        partitions=(TopicPartition("o1", 1), TopicPartition("o1", 0)),
        start_ms=100,
        **fields,  # type: ignore[arg-type]
    )


def empty() -> TransactionMetadata:
    return TransactionMetadata(
        7,
        producer_epoch=0,
        state=TransactionState.EMPTY,
        timeout_ms=60_000,
        last_update_ms=101,
        previous_producer_id=7,
    )


CASES = [
    (TransactionRecord("x", ongoing(), 0), ONGOING_V0),
    (TransactionRecord("x", ongoing(previous_producer_id=7, client_transaction_version=2), 1), ONGOING_V1),
    (TransactionRecord("x", empty(), 1), EMPTY_V1),
    (TransactionRecord("x", None), None),
]


@pytest.mark.parametrize(("record", "value"), CASES, ids=["ongoing 0", "ongoing 1", "empty", "tombstone"])
def test_a_record_has_kafkas_bytes_and_is_read_back(record: TransactionRecord, value: bytes | None) -> None:
    assert encode_record(record, 5) == (5, KEY, value, ())
    assert decode_record(KEY, value) == record


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
METADATA = st.builds(
    TransactionMetadata,
    producer_id=INT64,
    producer_epoch=st.integers(0, 32767),
    state=st.sampled_from([state for state in TransactionState if state is not TransactionState.EMPTY]),
    timeout_ms=st.integers(-(1 << 31), (1 << 31) - 1),
    last_update_ms=INT64,
    previous_producer_id=st.just(-1) | INT64,
    next_producer_id=st.just(-1) | INT64,
    partitions=st.lists(
        st.builds(TopicPartition, st.text("ab\xe4", max_size=200), st.integers(0, 1000)), max_size=40
    ).map(tuple),
    start_ms=INT64,
    client_transaction_version=st.sampled_from([0, 2]),
)


@given(METADATA, st.sampled_from([0, 1]))
def test_a_value_is_what_the_generated_class_writes(metadata: TransactionMetadata, version: int) -> None:
    topics = [
        PartitionsSchema(topic, partition_ids=partition_ids) for topic, partition_ids in by_topic(metadata.partitions)
    ]
    written = TransactionLogValue(
        metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=topics,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if version:
        written.previous_producer_id = metadata.previous_producer_id
        written.next_producer_id = metadata.next_producer_id
        written.client_transaction_version = metadata.client_transaction_version
    _, _, value, _ = encode_record(TransactionRecord("x", metadata, version), 5)
    assert value == version.to_bytes(2, "big") + written.encode(version)


@pytest.mark.parametrize(
    "record",
    [
        TransactionRecord("x" * 32768, None),
        TransactionRecord("\udc80", None),
        TransactionRecord("x", changed(ongoing(), timeout_ms=1 << 31)),
        TransactionRecord("x", changed(ongoing(), partitions=(TopicPartition("t", 1 << 31),))),
    ],
    ids=["id too long", "no text", "time-out", "partition"],
)
def test_what_the_schema_cannot_hold_is_not_written(record: TransactionRecord) -> None:
    with pytest.raises(EncodeError):
        encode_record(record, 5)


def test_version_0_has_no_room_for_what_version_1_added() -> None:
    record = TransactionRecord("x", ongoing(previous_producer_id=7, client_transaction_version=2), 0)
    assert encode_record(record, 5) == (5, KEY, ONGOING_V0, ())


def test_the_last_epoch_is_not_logged() -> None:
    _, key, value, _ = encode_record(TransactionRecord("x", ongoing(last_producer_epoch=2)), 5)
    read = decode_record(key, value)
    assert read is not None
    assert read.metadata is not None
    assert read.metadata.last_producer_epoch == -1


@pytest.mark.parametrize(
    ("key", "value"),
    [(bytes.fromhex("0001 0001 78"), ONGOING_V0), (KEY, bytes.fromhex("0002") + ONGOING_V1[2:]), (KEY, b"\xff\xff")],
)
def test_unknown_types_and_versions_are_passed_over(key: bytes, value: bytes) -> None:
    assert decode_record(key, value) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, ONGOING_V0),
        (b"\0", ONGOING_V0),
        (KEY[:-1], ONGOING_V0),
        (KEY, b"\0"),
        (KEY, ONGOING_V0[:-1]),
        (KEY, ONGOING_V0[:16] + b"\x09" + ONGOING_V0[17:]),  # a status that no state has
    ],
)
def test_damaged_records_are_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_record(key, value)


@given(st.binary(max_size=80))
def test_a_damaged_value_is_read_or_refused(value: bytes) -> None:
    with suppress(ProtocolError):
        decode_record(KEY, b"\0\1" + value)
