"""Encoding a metadata record as the value of a Raft log record, and decoding it.

    value:  frame version (unsigned varint, always 1), api key (unsigned varint), version (unsigned varint), body

    01 0c 00  11 metadata.version 001e 00      FeatureLevelRecord, version 0: metadata.version at level 30

The api key names the record's schema (protocol_specs of type "metadata"). Source: KIP-631.
"""

from importlib import import_module
from typing import Any, Final

from kafkapy.errors import ProtocolError
from kafkapy.protocol.api_table import MESSAGE_MODULES, METADATA_RECORDS
from kafkapy.protocol.primitives import Writer, read_uvarint

FRAME_VERSION: Final = 1

_types: dict[int, Any] = {}


def record_type(api_key: int) -> Any:
    """Return the generated class of a metadata record. Raises ProtocolError for an unknown api key."""
    found = _types.get(api_key)
    if found is None:
        name = METADATA_RECORDS.get(api_key)
        if name is None:
            raise ProtocolError(f"unknown metadata record type {api_key}")
        found = _types[api_key] = getattr(import_module(f"kafkapy.protocol.messages.{MESSAGE_MODULES[name]}"), name)
    return found


def import_record_types() -> None:
    """Import the classes of all metadata records. Raises OSError or ImportError, for example without a descriptor."""
    for api_key in METADATA_RECORDS:
        record_type(api_key)


def encode_record(record: Any, version: int) -> bytes:
    """Return the framed bytes of a metadata record at a version."""
    out = Writer()
    api_key = type(record).API_KEY
    assert api_key <= 0x7F, "a varint of one byte"
    assert version <= 0x7F, "a varint of one byte"
    out += bytes((FRAME_VERSION, api_key, version))
    record.write(out, version)
    return bytes(out)


def decode_record(value: bytes | memoryview) -> Any:
    """Return the metadata record in a log record's value. Raises ProtocolError if it cannot be decoded."""
    try:
        frame_version, api_key, version, position = value[0], value[1], value[2], 3
        if (frame_version | api_key | version) > 0x7F:  # a varint is longer than a byte
            frame_version, position = read_uvarint(value, 0)
            api_key, position = read_uvarint(value, position)
            version, position = read_uvarint(value, position)
    except IndexError:
        raise ProtocolError("a metadata record ends inside its frame") from None
    if frame_version != FRAME_VERSION:
        raise ProtocolError(f"metadata record frame version {frame_version}, expected {FRAME_VERSION}")
    message_type = record_type(api_key)
    if not message_type.MIN_VERSION <= version <= message_type.MAX_VERSION:
        raise ProtocolError(f"{message_type.NAME} version {version}, known are up to {message_type.MAX_VERSION}")
    return message_type.decode(value[position:], version)
