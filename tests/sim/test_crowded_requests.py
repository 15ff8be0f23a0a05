"""Requests with more elements than their bound close their own connection, at once, and none other."""

import logging
import struct
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from kafkapy.handlers.table import MANY
from kafkapy.protocol.headers import MAX_HEADER_TAGS
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.primitives import Writer, write_uvarint
from tests.simulator.broker_world import Machine
from tests.simulator.loop import SimLoop

FRAME_BYTES = 4_000_000
MAX_CALLS = 2_000
"""Python functions called for a frame that is refused, from its first byte to the close; an element would be one."""

# API key, version, correlation id, no client id; then the tagged fields of flexible versions.
API_VERSIONS, METADATA_1 = "0012 0003 00000001 ffff", "0003 0001 00000001 ffff"
OFFSET_FETCH_8, DESCRIBE_GROUPS_5 = "0009 0008 00000001 ffff 00", "000f 0005 00000001 ffff 00"


def header_tags() -> bytes:
    out = Writer()
    count = 950_000
    write_uvarint(out, count)
    for tag in range(count):
        write_uvarint(out, tag)
        out.append(0)
    return bytes.fromhex(API_VERSIONS) + bytes(out)


def empty_names() -> bytes:
    """An int32 count, and strings of an int16 length of 0."""
    return bytes.fromhex(METADATA_1) + struct.pack(">i", FRAME_BYTES // 2) + bytes(FRAME_BYTES)


def empty_groups() -> bytes:
    """A count as an uvarint; each group an empty compact string, an empty array, no tagged fields."""
    count = FRAME_BYTES // 3
    return bytes.fromhex(OFFSET_FETCH_8) + uvarint(count + 1) + b"\1\1\0" * count + b"\0\0"


def empty_ids() -> bytes:
    return bytes.fromhex(DESCRIBE_GROUPS_5) + uvarint(FRAME_BYTES + 1) + b"\1" * FRAME_BYTES + b"\0\0"


def uvarint(value: int) -> bytes:
    out = Writer()
    write_uvarint(out, value)
    return bytes(out)


CROWDED = [(header_tags, MAX_HEADER_TAGS), (empty_names, MANY), (empty_groups, MANY), (empty_ids, MANY)]


class CallCount:
    """Counts the Python functions of kafkapy.protocol and kafkapy.handlers that are called while it is set."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> "CallCount":
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith(("kafkapy.protocol.", "kafkapy.handlers.")):
            self.calls += 1


@pytest.mark.parametrize(("crowded", "bound"), CROWDED, ids=lambda value: getattr(value, "__name__", ""))
async def test_crowded_request_closes_its_own_connection(
    loop: SimLoop, crowded: Callable[[], bytes], bound: int, caplog: pytest.LogCaptureFixture
) -> None:
    frame = crowded()

    machine = Machine(loop)
    await machine.boot()
    canary, client = machine.connect(), machine.connect()
    for each in (canary, client):
        assert (await each.call(ApiVersionsRequest("canary", client_software_version="1"), 4)).error_code == 0
    with caplog.at_level(logging.WARNING), CallCount() as count:
        await client.link.send_frame(frame)
        with pytest.raises(EOFError):
            await client.link.receive_frame()
    assert count.calls < MAX_CALLS
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("Closing connection ")
    assert line.endswith(f"more array entries or tagged fields, where {bound} more are allowed")
    assert (await canary.call(ApiVersionsRequest("canary", client_software_version="1"), 4)).error_code == 0
    await machine.stop()
