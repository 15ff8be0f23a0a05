"""The share coordinator's records in `__share_group_state`, as key and value of a log record, and back.

    key:    int16 record type (0 ShareSnapshot, 1 ShareUpdate), group id, topic id, partition
    value:  int16 version 0, then ShareSnapshotValue or ShareUpdateValue; a null value of a snapshot is a tombstone

    0000 0001 67 0000...0001 00000002        key: the snapshot of group "g", topic id ...1, partition 2
    0000 00000000 00000001 00000003 ...      value: version, snapshot epoch 0, state epoch 1, leader epoch 3, ...

A snapshot holds all of a share partition's state. An update holds what has changed since, and names the snapshot's
epoch. So everything before the oldest of the last snapshots can be deleted from the log.

`decode_record` returns None for unknown types and versions, and callers skip those records. Source: KIP-932.
"""

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.protocol.messages.share_snapshot_key import ShareSnapshotKey
from kafkapy.protocol.messages.share_snapshot_value import ShareSnapshotValue
from kafkapy.protocol.messages.share_snapshot_value import StateBatch as SnapshotBatch
from kafkapy.protocol.messages.share_update_value import ShareUpdateValue
from kafkapy.protocol.messages.share_update_value import StateBatch as UpdateBatch
from kafkapy.protocol.primitives import EncodeError, Writer
from kafkapy.record.builder import NewRecord
from kafkapy.share.persister import SharePartitionKey, StateBatch

SHARE_SNAPSHOT: Final = ShareSnapshotKey.API_KEY
SHARE_UPDATE: Final = ShareUpdateValue.API_KEY
KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0

_INT16: Final = struct.Struct(">h")
_KEY_START: Final = struct.Struct(">hh")
"""Record type, length of the group id."""
_KEY_END: Final = struct.Struct(">16si")
"""Topic id, partition."""


@dataclass(slots=True)
class ShareSnapshot:
    """All of a share partition's state.

    create_timestamp_ms: when the state was last written; write_timestamp_ms: when this snapshot was. They differ if
    the snapshot only repeats a state that had not changed for a while.
    """

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    state_batches: Sequence[StateBatch] = ()


@dataclass(slots=True)
class ShareUpdate:
    """The changes of a share partition's state; `state_batches` are merged into it."""

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: Sequence[StateBatch] = ()


@dataclass(slots=True)
class ShareTombstone:
    """The share partition's state is deleted."""

    key: SharePartitionKey


ShareRecord: TypeAlias = ShareSnapshot | ShareUpdate | ShareTombstone


def encode_record(record: ShareRecord, timestamp_ms: int) -> NewRecord:
    """Return the record as build_batch takes it. Raises EncodeError for a value that its schema cannot hold."""
    if isinstance(record, ShareUpdate):
        return timestamp_ms, _key_of(SHARE_UPDATE, record.key), _update_value(record), ()
    value = _snapshot_value(record) if isinstance(record, ShareSnapshot) else None
    return timestamp_ms, _key_of(SHARE_SNAPSHOT, record.key), value, ()


def _key_of(record_type: int, key: SharePartitionKey) -> bytes:
    group_id, topic_id, partition = key
    try:
        encoded = group_id.encode()
        return _KEY_START.pack(record_type, len(encoded)) + encoded + _KEY_END.pack(topic_id, partition)
    except (struct.error, UnicodeEncodeError) as error:
        raise EncodeError(f"a record of __share_group_state cannot be written: {error}") from error


def _snapshot_value(record: ShareSnapshot) -> bytes:
    value = ShareSnapshotValue(
        record.snapshot_epoch,
        state_epoch=record.state_epoch,
        leader_epoch=record.leader_epoch,
        start_offset=record.start_offset,
        delivery_complete_count=record.delivery_complete_count,
        create_timestamp=record.create_timestamp_ms,
        write_timestamp=record.write_timestamp_ms,
        state_batches=[
            SnapshotBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in record.state_batches
        ],
    )
    return _with_version(value)


def _update_value(record: ShareUpdate) -> bytes:
    value = ShareUpdateValue(
        record.snapshot_epoch,
        leader_epoch=record.leader_epoch,
        start_offset=record.start_offset,
        delivery_complete_count=record.delivery_complete_count,
        state_batches=[
            UpdateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in record.state_batches
        ],
    )
    return _with_version(value)


def _with_version(value: ShareSnapshotValue | ShareUpdateValue) -> bytes:
    written = Writer()
    written += _INT16.pack(VALUE_VERSION)
    value.write(written, VALUE_VERSION)
    return bytes(written)


def decode_record(key: bytes | memoryview | None, value: bytes | memoryview | None) -> ShareRecord | None:
    """Return the record, or None if its type or version is unknown. Raises ProtocolError for a damaged record."""
    if key is None or len(key) < _INT16.size:
        raise ProtocolError("a record of __share_group_state without a key")
    (record_type,) = _INT16.unpack_from(key)
    if record_type not in (SHARE_SNAPSHOT, SHARE_UPDATE):
        return None
    decoded = ShareSnapshotKey.decode(key[_INT16.size :], KEY_VERSION)  # both types have the same key
    share_partition = SharePartitionKey(decoded.group_id, decoded.topic_id, decoded.partition)
    if value is None:
        return ShareTombstone(share_partition) if record_type == SHARE_SNAPSHOT else None
    if len(value) < _INT16.size:
        raise ProtocolError("the value of a record of __share_group_state ends inside its version")
    (version,) = _INT16.unpack_from(value)
    if version != VALUE_VERSION:
        return None
    if record_type == SHARE_SNAPSHOT:
        return _snapshot(share_partition, ShareSnapshotValue.decode(value[_INT16.size :], version))
    return _update(share_partition, ShareUpdateValue.decode(value[_INT16.size :], version))


def _snapshot(key: SharePartitionKey, value: ShareSnapshotValue) -> ShareSnapshot:
    return ShareSnapshot(
        key,
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.create_timestamp,
        value.write_timestamp,
        _batches(value.state_batches),
    )


def _update(key: SharePartitionKey, value: ShareUpdateValue) -> ShareUpdate:
    return ShareUpdate(
        key,
        value.snapshot_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        _batches(value.state_batches),
    )


def _batches(batches: Sequence[SnapshotBatch] | Sequence[UpdateBatch]) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    ]
