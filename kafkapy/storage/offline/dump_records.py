"""Decode a log's records to the text that kafka-dump-log.sh prints: plain text, metadata and coordinator records.

A decoder takes a record and returns its key and payload as text, None for a part that is not printed. A record that
cannot be parsed becomes an error text, as in Kafka's tool, and the dump continues.
"""

import base64
import json
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from kafkapy.errors import ProtocolError
from kafkapy.metadata.record_serde import decode_record
from kafkapy.protocol.json_lines import to_json
from kafkapy.protocol.primitives import Message
from kafkapy.record.batch import Record
from kafkapy.record.control import ControlType, control_type_of, end_txn_marker_of, read_raft_control
from kafkapy.record.errors import InvalidRecordsError

Decode: TypeAlias = Callable[[Record], tuple[str | None, str | None]]

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")

_GROUP_RECORDS = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
_TRANSACTION_RECORDS = {0: "TransactionLog"}
_SHARE_RECORDS = {0: "ShareSnapshot", 1: "ShareUpdate"}

_RAFT_TITLES = {
    ControlType.LEADER_CHANGE: "LeaderChange:",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}


def decode_text(record: Record) -> tuple[str | None, str | None]:
    """Decode key and value as UTF-8, with replacement characters for invalid bytes."""
    return (
        None if record.key is None else _text(record.key),
        None if record.value is None else _text(record.value),
    )


def _text(data: bytes) -> str:
    """Decode as Java does: one replacement character for an encoded surrogate, complete or not; Python uses more."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


def decode_metadata(record: Record) -> tuple[str | None, str | None]:
    """Decode a record of `__cluster_metadata` or of its snapshots."""
    try:
        value = record.value or b""
        message = decode_record(value)
        version = value[2]  # after frame version and api key, one byte each
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", message.NAME).upper()
        return None, _json({"type": name, "version": version, "data": to_json(message, version)})
    except ProtocolError as error:
        return None, f"Error at {record.offset}, skipping. {error}"


def decode_group(record: Record) -> tuple[str | None, str | None]:
    """Decode a record of `__consumer_offsets`."""
    return _decode_coordinator(record, _GROUP_RECORDS)


def decode_transaction(record: Record) -> tuple[str | None, str | None]:
    """Decode a record of `__transaction_state`."""
    return _decode_coordinator(record, _TRANSACTION_RECORDS)


def decode_share(record: Record) -> tuple[str | None, str | None]:
    """Decode a record of `__share_group_state`."""
    return _decode_coordinator(record, _SHARE_RECORDS)


def control_text(record: Record) -> str:
    """Return a control record as text. Raises InvalidRecordsError if it cannot be parsed."""
    control_type = control_type_of(record.key)
    if control_type in (ControlType.COMMIT, ControlType.ABORT):
        marker = end_txn_marker_of(record)
        return f"endTxnMarker: {control_type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    message = read_raft_control(record)
    if message is None:
        type_number = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
        return f"controlType: {control_type.name}({type_number})"
    try:
        return f"{_RAFT_TITLES[control_type]} {_json(to_json(message, message.version))}"
    except ProtocolError as error:
        raise InvalidRecordsError(f"a {control_type.name} record: {error}") from error


def _decode_coordinator(record: Record, names: dict[int, str]) -> tuple[str | None, str | None]:
    if record.key is None:
        return f"Error at offset {record.offset}, skipping. The record has no key.", None
    try:
        type_number = int.from_bytes(record.key[:2], "big", signed=True)
        name = names.get(type_number)
        if name is None or len(record.key) < 2:
            return f"Unknown record type {type_number} at offset {record.offset}, skipping.", None
        key = _message_class(f"{name}Key").read(record.key, 2, 0)[0]
        key_text = _json({"type": str(type_number), "data": to_json(key, 0)})
        if record.value is None:
            return key_text, "<DELETE>"
        version = int.from_bytes(record.value[:2], "big", signed=True)
        value = _message_class(f"{name}Value").read(record.value, 2, version)[0]
        data = to_json(value, version)
        if name == "GroupMetadata" and data.get("protocolType") == "consumer":
            _open_members(data["members"])
        return key_text, _json({"version": str(version), "data": data})
    except (ProtocolError, ModuleNotFoundError) as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _open_members(members: list[dict[str, Any]]) -> None:
    """Replace the bytes of a classic consumer's subscription and assignment by their JSON, if they can be parsed."""
    for member in members:
        for field, name in (
            ("subscription", "ConsumerProtocolSubscription"),
            ("assignment", "ConsumerProtocolAssignment"),
        ):
            data = base64.b64decode(member[field] or "")
            version = int.from_bytes(data[:2], "big", signed=True)
            try:
                member[field] = to_json(_message_class(name).read(data, 2, version)[0], version)
            except ProtocolError:
                continue


def _message_class(name: str) -> type[Message]:
    module = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
    message_class: type[Message] = getattr(import_module(f"kafkapy.protocol.messages.{module}"), name)
    return message_class


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
