"""Control records: transaction markers in any log, and the control records of the Raft log.

The key is int16 version 0 and int16 type; readers skip unknown types. The value depends on the type: for COMMIT and
ABORT it is int16 version 0 and int32 coordinator epoch (EndTxnMarker); for the Raft types it is the message in
_RAFT_MESSAGES at version 0, which carries its own version as a field.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from kafkapy.errors import ProtocolError
from kafkapy.named_tuple import NamedTuple
from kafkapy.record.batch import CONTROL_FLAG, NO_LEADER_EPOCH, NO_SEQUENCE, TRANSACTIONAL_FLAG, Record
from kafkapy.record.builder import BatchFields, build_batch, build_batch_of_one, encode_record
from kafkapy.record.errors import InvalidRecordsError

if TYPE_CHECKING:
    from kafkapy.protocol.messages.kraft_version_record import KRaftVersionRecord
    from kafkapy.protocol.messages.leader_change_message import LeaderChangeMessage
    from kafkapy.protocol.messages.snapshot_footer_record import SnapshotFooterRecord
    from kafkapy.protocol.messages.snapshot_header_record import SnapshotHeaderRecord
    from kafkapy.protocol.messages.voters_record import VotersRecord

    RaftControl: TypeAlias = (
        LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
    )

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_RAFT_VERSION = 0


class ControlType(IntEnum):
    """The type in a control record's key."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

    def key(self) -> bytes:
        assert self is not ControlType.UNKNOWN
        return _KEY.pack(0, self)


_RAFT_MESSAGES = {
    ControlType.LEADER_CHANGE: ("leader_change_message", "LeaderChangeMessage"),
    ControlType.SNAPSHOT_HEADER: ("snapshot_header_record", "SnapshotHeaderRecord"),
    ControlType.SNAPSHOT_FOOTER: ("snapshot_footer_record", "SnapshotFooterRecord"),
    ControlType.KRAFT_VERSION: ("kraft_version_record", "KRaftVersionRecord"),
    ControlType.KRAFT_VOTERS: ("voters_record", "VotersRecord"),
}
_TYPE_BY_NAME = {name: control_type for control_type, (_, name) in _RAFT_MESSAGES.items()}


class EndTxnMarker(NamedTuple):
    """The control record that ends a transaction in a partition."""

    is_commit: bool
    coordinator_epoch: int


def control_type_of(key: bytes | None) -> ControlType:
    """Return the control type in a record's key. Raises InvalidRecordsError if the key is malformed."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordsError("a control record whose key is not a version and a type")
    version, type_number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordsError(f"a control record with version {version} in its key")
    try:
        return ControlType(type_number)
    except ValueError:
        return ControlType.UNKNOWN


def end_txn_marker_of(record: Record) -> EndTxnMarker:
    """Parse a COMMIT or ABORT record. Raises InvalidRecordsError for any other record."""
    control_type = control_type_of(record.key)
    if control_type not in (ControlType.COMMIT, ControlType.ABORT):
        raise InvalidRecordsError(f"{control_type.name} where a transaction marker must be")
    if record.value is None or len(record.value) < _MARKER.size:
        raise InvalidRecordsError("a transaction marker without a version and a coordinator epoch")
    version, coordinator_epoch = _MARKER.unpack_from(record.value)
    if version < 0:
        raise InvalidRecordsError(f"a transaction marker of version {version}")
    return EndTxnMarker(control_type is ControlType.COMMIT, coordinator_epoch)


def build_end_txn_marker(
    marker: EndTxnMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int, base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:  # fmt: skip
    """Return a batch with the marker that ends a producer's transaction."""
    return build_batch_of_one(
        _marker_record(marker),
        timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
        producer=(producer_id, producer_epoch, NO_SEQUENCE),
    )


@lru_cache(64)
def _marker_record(marker: EndTxnMarker) -> bytes:
    control_type = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    return encode_record(control_type.key(), _MARKER.pack(0, marker.coordinator_epoch))


def build_raft_control(
    messages: "Sequence[RaftControl]", *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """Return one control batch of the Raft log or of a snapshot, with one record per message."""
    return build_batch(
        [(timestamp_ms, _TYPE_BY_NAME[message.NAME].key(), message.encode(_RAFT_VERSION), ()) for message in messages],
        BatchFields(base_offset=base_offset, leader_epoch=leader_epoch, is_control=True),
    )


def read_raft_control(record: Record) -> "RaftControl | None":
    """Return the message of a Raft control record; None for an unknown type, which callers skip.

    Raises InvalidRecordsError if the record cannot be parsed, or is a transaction marker.
    """
    control_type = control_type_of(record.key)
    if control_type is ControlType.UNKNOWN:
        return None
    if control_type not in _RAFT_MESSAGES:
        raise InvalidRecordsError(f"{control_type.name} where a Raft control record must be")
    module, name = _RAFT_MESSAGES[control_type]
    message_class = getattr(import_module(f"kafkapy.protocol.messages.{module}"), name)
    try:
        message: RaftControl = message_class.read(record.value or b"", 0, _RAFT_VERSION)[0]
    except ProtocolError as error:
        raise InvalidRecordsError(f"a {control_type.name} record cannot be read: {error}") from error
    return message
