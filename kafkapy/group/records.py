"""The coordinator's records in `__consumer_offsets`, as key and value of a log record, and back.

    key:    int16 record type, then the key message's body (always its version 0)
    value:  int16 version of the value message, then its body; a null value is a tombstone: the key's state is gone

    0001 0001 67 0001 74 00000002        OffsetCommitKey: group "g", topic "t", partition 2
    0004 000000000000002a ffffffff ...   OffsetCommitValue, version 4: offset 42, no leader epoch, ...

The record type selects the schemas of key and value (protocol_specs/group_coordinator). All types and versions that
Apache Kafka 4.4.0 reads are read. For those of later releases `decode_record` returns None: the caller skips the record
and logs that once. Source: KIP-848 and Kafka's CoordinatorRecordType.
"""

import struct
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.protocol.api_table import GROUP_COORDINATOR_KEYS, GROUP_COORDINATOR_VALUES, MESSAGE_MODULES
from kafkapy.protocol.primitives import Message, Writer
from kafkapy.record.batch import NO_TIMESTAMP
from kafkapy.record.builder import NewRecord

KEY_VERSION: Final = 0
WRITTEN_VERSIONS: Final[Mapping[str, int]] = {
    "OffsetCommitValue": 4,
    "GroupMetadataValue": 3,
}
"""The version in which each value is written; 0 for values not listed."""
EXPIRING_OFFSET_VERSION: Final = 1
"""The only OffsetCommitValue version with an expire timestamp: written if the commit has one."""

_INT16: Final = struct.Struct(">h")


@dataclass(slots=True)
class CoordinatorRecord:
    """One record: a generated ...Key message and its ...Value, or None for a tombstone."""

    key: Message
    value: Message | None


def encode_record(record: CoordinatorRecord, timestamp_ms: int) -> NewRecord:
    """Return the record as build_batch takes it. Raises EncodeError for a value that its schema cannot hold."""
    key = Writer()
    key += _INT16.pack(record.key.API_KEY)
    record.key.write(key, KEY_VERSION)
    if record.value is None:
        return timestamp_ms, bytes(key), None, ()
    version = written_version(record.value)
    value = Writer()
    value += _INT16.pack(version)
    record.value.write(value, version)
    return timestamp_ms, bytes(key), bytes(value), ()


def written_version(value: Message) -> int:
    """Return the version in which a value is written."""
    if value.NAME == "OffsetCommitValue" and value.expire_timestamp != NO_TIMESTAMP:  # type: ignore[attr-defined]
        return EXPIRING_OFFSET_VERSION
    return WRITTEN_VERSIONS.get(value.NAME, 0)


def decode_record(key: bytes | memoryview | None, value: bytes | memoryview | None) -> CoordinatorRecord | None:
    """Return the record, or None if its type or version is unknown. Raises ProtocolError for a damaged record."""
    if key is None or len(key) < _INT16.size:
        raise ProtocolError("a coordinator record without a key")
    (record_type,) = _INT16.unpack_from(key)
    key_type = _message_type(GROUP_COORDINATOR_KEYS, record_type)
    if key_type is None:
        return None
    decoded_key = key_type.decode(key[_INT16.size :], KEY_VERSION)
    if value is None:
        return CoordinatorRecord(decoded_key, None)
    if len(value) < _INT16.size:
        raise ProtocolError(f"the value of a {decoded_key.NAME} ends inside its version")
    (version,) = _INT16.unpack_from(value)
    value_type = _message_type(GROUP_COORDINATOR_VALUES, record_type)
    if value_type is None or version not in value_type.READERS:
        return None
    return CoordinatorRecord(decoded_key, value_type.decode(value[_INT16.size :], version))


_types: dict[str, type[Message]] = {}


def _message_type(names: Mapping[int, str], record_type: int) -> type[Message] | None:
    name = names.get(record_type)
    if name is None:
        return None
    found = _types.get(name)
    if found is None:
        module: Any = import_module(f"kafkapy.protocol.messages.{MESSAGE_MODULES[name]}")
        found = _types[name] = getattr(module, name)
    return found
