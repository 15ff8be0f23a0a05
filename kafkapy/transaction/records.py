"""The coordinator's records in `__transaction_state`, as key and value of a log record, and back.

    key:    int16 record type 0, then TransactionLogKey
    value:  int16 version of TransactionLogValue, then its body; a null value is a tombstone: the id has expired

    0000 0001 78                                          key: transactional id "x"
    0001 0000000000000007 0003 0000ea60 01 ...            value, version 1: producer id 7, epoch 3, 60 s, Ongoing, ...

Value version 0 is written at transaction.version 0, else version 1, which adds the previous and next producer id and
the client's transaction version as tagged fields (KIP-890). Partitions are null in state Empty, and otherwise in the
order of Java's hash collections (hash_order.py). `decode_record` returns None for unknown types and versions, and
callers skip those records.

Deviation: at transaction.version 0 a client of version 2 is served; the log does not keep its version. Apache Kafka
fails on such a record, and the transactional id answers CONCURRENT_TRANSACTIONS from then on.
"""

import struct
from collections.abc import Iterable
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.protocol.messages.transaction_log_key import TransactionLogKey
from kafkapy.protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from kafkapy.protocol.primitives import Writer
from kafkapy.record.builder import NewRecord
from kafkapy.transaction.hash_order import as_loaded, by_topic
from kafkapy.transaction.metadata import TransactionMetadata
from kafkapy.transaction.states import TransactionState
from kafkapy.types import TopicPartition

TRANSACTION_LOG: Final = TransactionLogKey.API_KEY
KEY_VERSION: Final = 0
FLEXIBLE_VALUE_SINCE_FEATURE: Final = 1
"""The first transaction.version at which values are written in version 1."""

_INT16: Final = struct.Struct(">h")


@dataclass(slots=True)
class TransactionRecord:
    """One record: a transactional id and its metadata, or None for a tombstone.

    `metadata.last_producer_epoch` is not in the encoded record. So a decision's records are replayed as they are, not
    decoded from the log.
    """

    transactional_id: str
    metadata: TransactionMetadata | None
    value_version: int = 1


def value_version(transaction_version: int) -> int:
    """Return the version in which TransactionLogValue is written at a level of the feature transaction.version."""
    return 1 if transaction_version >= FLEXIBLE_VALUE_SINCE_FEATURE else 0


def encode_record(record: TransactionRecord, timestamp_ms: int) -> NewRecord:
    """Return the record as build_batch takes it. Raises EncodeError for a value that its schema cannot hold."""
    key = Writer()
    key += _INT16.pack(TRANSACTION_LOG)
    TransactionLogKey(record.transactional_id).write(key, KEY_VERSION)
    if record.metadata is None:
        return timestamp_ms, bytes(key), None, ()
    value = Writer()
    value += _INT16.pack(record.value_version)
    _log_value(record.metadata, record.value_version).write(value, record.value_version)
    return timestamp_ms, bytes(key), bytes(value), ()


def _log_value(metadata: TransactionMetadata, version: int) -> TransactionLogValue:
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=_log_partitions(metadata),
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if version >= 1:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.client_transaction_version = metadata.client_transaction_version
    return value


def _log_partitions(metadata: TransactionMetadata) -> list[PartitionsSchema] | None:
    if metadata.state is TransactionState.EMPTY:
        assert not metadata.partitions
        return None
    return [PartitionsSchema(topic, partition_ids) for topic, partition_ids in by_topic(metadata.partitions)]


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
