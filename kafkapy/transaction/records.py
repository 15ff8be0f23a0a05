"""The coordinator's records in `__transaction_state`, as key and value of a log record, and back.

    key:    int16 record type 0, then TransactionLogKey
    value:  int16 version of TransactionLogValue, then its body; a null value is a tombstone: the id has expired

    0000 0001 78                                          key: transactional id "x"
    0001 0000000000000007 0003 0000ea60 01 ...            value, version 1: producer id 7, epoch 3, 60 s, Ongoing, ...

Value version 0 is written at transaction.version 0, else version 1, which adds the previous and next producer id and
the client's transaction version as tagged fields (KIP-890). Partitions are null in state Empty, and otherwise in the
order of Java's hash collections (hash_order.py). `decode_record` returns None for unknown types and versions, and
callers skip those records.

Deviation: Apache Kafka fails on the record of a client of version 2 at transaction.version 0. Here the client is
served, and the log does not keep its version, because the transactional id would answer CONCURRENT_TRANSACTIONS from
then on.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from kafkapy.errors import ProtocolError
from kafkapy.protocol.messages.transaction_log_key import TransactionLogKey
from kafkapy.protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from kafkapy.protocol.primitives import EncodeError
from kafkapy.record.batch import NO_PRODUCER_ID
from kafkapy.record.builder import NewRecord
from kafkapy.transaction.hash_order import as_loaded, by_topic
from kafkapy.transaction.metadata import TransactionMetadata
from kafkapy.transaction.states import TransactionState
from kafkapy.types import TopicPartition

TRANSACTION_LOG: Final = TransactionLogKey.API_KEY
KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1
"""The version of values from transaction.version 1 on; at level 0 they are written in version 0."""

_INT16: Final = struct.Struct(">h")
_KEY_START: Final = struct.Struct(">hh")
"""Record type, length of the transactional id."""
_VALUE_START: Final = struct.Struct(">hqhib")
"""Version, producer id, producer epoch, time-out, status; the partitions follow."""
_TIMES: Final = struct.Struct(">qq")
_PRODUCER_ID_TAG: Final = struct.Struct(">bbq")
_VERSION_TAG: Final = struct.Struct(">bbh")
"""Tag, size, value."""
MAX_REMEMBERED_PARTITIONS: Final = 16
"""Partitions of a transaction whose encoded list is cached: 1,024 lists take some MiB, however long the names are."""


class TransactionRecord:
    """One record: a transactional id and its metadata, or None for a tombstone.

    `metadata.last_producer_epoch` is not in the encoded record. So a decision's records are replayed as they are, not
    decoded from the log.
    """

    __slots__ = ("metadata", "transactional_id", "value_version")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata | None, value_version: int = 1) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.value_version = value_version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionRecord) and (
            self.transactional_id == other.transactional_id
            and self.metadata == other.metadata
            and self.value_version == other.value_version
        )

    def __repr__(self) -> str:
        return f"TransactionRecord({self.transactional_id!r}, {self.metadata!r}, {self.value_version})"


def encode_record(record: TransactionRecord, timestamp_ms: int) -> NewRecord:
    """Return the record as build_batch takes it. Raises EncodeError for a value that its schema cannot hold."""
    try:
        key = _key_of(record.transactional_id)
        value = None if record.metadata is None else _value_of(record.metadata, record.value_version)
    except (struct.error, UnicodeEncodeError) as error:
        raise EncodeError(f"a record of __transaction_state cannot be written: {error}") from error
    return timestamp_ms, key, value, ()


@lru_cache(1024)  # three records are written for each transaction
def _key_of(transactional_id: str) -> bytes:
    encoded = transactional_id.encode()
    return _KEY_START.pack(TRANSACTION_LOG, len(encoded)) + encoded


def _value_of(metadata: TransactionMetadata, version: int) -> bytes:
    """Return TransactionLogValue, without the generated class: three are written for each transaction."""
    state, partitions = metadata.state, metadata.partitions
    assert state is not TransactionState.EMPTY or not partitions
    start = _VALUE_START.pack(version, metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, state.value)
    middle = _partitions_of(partitions if state is not TransactionState.EMPTY else None, version)
    times = _TIMES.pack(metadata.last_update_ms, metadata.start_ms)
    return start + middle + times + (_tags_of(metadata) if version >= 1 else b"")


def _tags_of(metadata: TransactionMetadata) -> bytes:
    """Return the tagged fields of version 1; those with their default value are left out, as always."""
    count, tags = 0, b""
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        count, tags = 1, _PRODUCER_ID_TAG.pack(0, 8, metadata.previous_producer_id)
    if metadata.next_producer_id != NO_PRODUCER_ID:
        count, tags = count + 1, tags + _PRODUCER_ID_TAG.pack(1, 8, metadata.next_producer_id)
    if metadata.client_transaction_version:
        count, tags = count + 1, tags + _VERSION_TAG.pack(2, 2, metadata.client_transaction_version)
    return bytes((count,)) + tags


def _partitions_of(partitions: tuple[TopicPartition, ...] | None, version: int) -> bytes:
    if partitions is not None and len(partitions) <= MAX_REMEMBERED_PARTITIONS:
        return _remembered_partitions_of(partitions, version)
    return _encode_partitions(partitions, version)


def _encode_partitions(partitions: tuple[TopicPartition, ...] | None, version: int) -> bytes:
    """Return the field transaction_partitions as the generated class writes it; None is null."""
    topics = None
    if partitions is not None:
        topics = [PartitionsSchema(topic, partition_ids=partition_ids) for topic, partition_ids in by_topic(partitions)]
    encoded = TransactionLogValue(transaction_partitions=topics).encode(version)
    no_tags = 1 if version >= 1 else 0
    return encoded[_VALUE_START.size - _INT16.size : -_TIMES.size - no_tags]


_remembered_partitions_of = lru_cache(1024)(_encode_partitions)
"""A transaction's records name the same partitions, and most producers write to the same ones again and again."""


def decode_record(key: bytes | memoryview | None, value: bytes | memoryview | None) -> TransactionRecord | None:
    """Return the record, or None if its type or version is unknown. Raises ProtocolError for a damaged record."""
    if key is None or len(key) < _INT16.size:
        raise ProtocolError("a record of __transaction_state without a key")
    (record_type,) = _INT16.unpack_from(key)
    if record_type != TRANSACTION_LOG:
        return None
    transactional_id = TransactionLogKey.decode(key[_INT16.size :], KEY_VERSION).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    if len(value) < _INT16.size:
        raise ProtocolError("the value of a TransactionLogKey ends inside its version")
    (version,) = _INT16.unpack_from(value)
    if not TransactionLogValue.MIN_VERSION <= version <= TransactionLogValue.MAX_VERSION:
        return None
    decoded = TransactionLogValue.decode(value[_INT16.size :], version)
    return TransactionRecord(transactional_id, _metadata(decoded), version)


def _metadata(value: TransactionLogValue) -> TransactionMetadata:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError as error:
        raise ProtocolError(f"unknown transaction status {value.transaction_status}") from error
    partitions = value.transaction_partitions if state is not TransactionState.EMPTY else None
    return TransactionMetadata(
        value.producer_id,
        producer_epoch=value.producer_epoch,
        state=state,
        timeout_ms=value.transaction_timeout_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        partitions=_loaded_partitions(partitions) if partitions else (),
        start_ms=value.transaction_start_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )


def _loaded_partitions(partitions: Iterable[PartitionsSchema]) -> tuple[TopicPartition, ...]:
    return as_loaded(TopicPartition(each.topic, partition) for each in partitions for partition in each.partition_ids)
