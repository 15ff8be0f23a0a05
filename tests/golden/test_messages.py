"""The codec against 2,232 messages that Apache Kafka 4.4.0's own Java classes wrote: all 278 schemas at every version.

legacy_messages.jsonl.gz holds 176 more of the versions that Kafka 4 removed, by the classes of kafka-clients 3.9.1.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import message_type
from kafkapy.protocol.api_table import MESSAGE_MODULES
from kafkapy.protocol.json_lines import from_json, to_json
from kafkapy.protocol.primitives import Message

GOLDEN = [Path(__file__).parent / name for name in ("messages.jsonl.gz", "legacy_messages.jsonl.gz")]


class Row(NamedTuple):
    message: str
    version: int
    json: dict[str, Any]
    data: bytes

    @property
    def kind(self) -> type[Message]:
        return message_type(self.message)


@cache
def rows() -> list[Row]:
    parsed = [json.loads(line) for path in GOLDEN for line in gzip.decompress(path.read_bytes()).splitlines()]
    return [Row(row["message"], row["version"], row["json"], bytes.fromhex(row["hex"])) for row in parsed]


@cache
def rows_by_message() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows():
        found.setdefault(row.message, []).append(row)
    return found


def is_covered(actual: Any, golden: Any) -> bool:
    """Whether `actual` is `golden` but for tagged fields that golden spells out although they are at their default.

    Which of the missing ones are at their default is checked by comparing the messages that both stand for.
    """
    if isinstance(actual, dict) and isinstance(golden, dict):
        return actual.keys() <= golden.keys() and all(is_covered(actual[key], golden[key]) for key in actual)
    if isinstance(actual, list) and isinstance(golden, list):
        return len(actual) == len(golden) and all(map(is_covered, actual, golden))
    return bool(actual == golden)


def test_golden_file_has_every_message_at_every_version():
    in_file = {(row.message, row.version) for row in rows()}
    kinds = [message_type(name) for name in MESSAGE_MODULES]
    every = {(kind.NAME, v) for kind in kinds for v in range(kind.MIN_VERSION, kind.MAX_VERSION + 1)}
    assert in_file == every


@pytest.mark.parametrize("message", sorted(MESSAGE_MODULES))
def test_golden_message_decodes_to_its_json(message):
    for row in rows_by_message()[message]:
        decoded = row.kind.decode(row.data, row.version)
        assert is_covered(to_json(decoded, row.version), row.json)
        assert decoded == from_json(row.message, row.version, row.json)


@pytest.mark.parametrize("message", sorted(MESSAGE_MODULES))
def test_golden_json_encodes_to_kafkas_bytes(message):
    for row in rows_by_message()[message]:
        assert from_json(row.message, row.version, row.json).encode(row.version).hex() == row.data.hex()
        assert row.kind.decode(memoryview(bytearray(row.data)), row.version).encode(row.version) == row.data


@pytest.mark.parametrize("message", sorted(MESSAGE_MODULES))
def test_message_cut_short_or_followed_by_a_byte_is_refused(message):
    for row in rows_by_message()[message][::3]:
        for end in {*range(min(len(row.data), 80)), *range(len(row.data) - 8, len(row.data))} - {len(row.data)}:
            if end >= 0:
                with pytest.raises(ProtocolError):
                    row.kind.decode(row.data[:end], row.version)
        with pytest.raises(ProtocolError, match="ends at byte"):
            row.kind.decode(row.data + b"\0", row.version)


@pytest.mark.parametrize("message", sorted(MESSAGE_MODULES))
def test_unknown_tagged_fields_survive_where_versions_are_flexible(message):
    for row in rows_by_message()[message]:
        decoded = row.kind.decode(row.data, row.version)
        decoded.unknown_tagged_fields = {9000: b"from a later version", 300: b""}
        if row.version >= row.kind.FLEXIBLE_FROM:
            again = row.kind.decode(decoded.encode(row.version), row.version)
            assert again == decoded
            assert from_json(message, row.version, to_json(again, row.version)) == decoded
        else:
            with pytest.raises(ProtocolError, match="unknown_tagged_fields is set"):
                decoded.encode(row.version)


@pytest.mark.parametrize("message", sorted(MESSAGE_MODULES))
def test_versions_outside_the_schema_are_refused(message):
    kind = message_type(message)
    for version in (kind.MIN_VERSION - 1, kind.MAX_VERSION + 1, 32767):
        with pytest.raises(ProtocolError, match=f"has no version {version}"):
            kind.decode(b"", version)
        with pytest.raises(ProtocolError, match=f"has no version {version}"):
            kind().encode(version)


NASTY = ("7fffffff", "80000000", "fffffffe", "ffffffff0f", "ffffffff7f", "ffffffffffff01", "ff", "00", "c328", "7fff")


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Row, bytes]:
    """A golden message some of whose bytes were changed, dropped or put in."""
    row = rows()[draw(st.integers(0, len(rows()) - 1))]
    data = bytearray(row.data)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.sampled_from((0, 1, 2, 4, 8)))
        data[start:end] = draw(st.sampled_from(NASTY).map(bytes.fromhex) | st.binary(max_size=5))
    return row, bytes(data)


@settings(max_examples=2000)
@given(damaged())
def test_damaged_message_decodes_or_raises_protocol_error(case):
    row, data = case
    try:
        decoded = row.kind.decode(memoryview(data), row.version)
    except ProtocolError:
        return
    # What was understood can be said again, and means the same.
    encoded = decoded.encode(row.version)
    assert row.kind.decode(encoded, row.version).encode(row.version) == encoded
    json.dumps(to_json(decoded, row.version))


@settings(max_examples=500)
@given(st.sampled_from(sorted(MESSAGE_MODULES)), st.integers(0, 18), st.binary(max_size=200))
def test_noise_decodes_or_raises_protocol_error(message, version, data):
    try:
        message_type(message).decode(data, version)
    except ProtocolError:
        return
