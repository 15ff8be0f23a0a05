"""Lengths written in more bytes than they need. `80 00` is 0: of a compact string, that it is null."""

import struct

import pytest

from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.metadata_response import MetadataResponse
from kafkapy.protocol.primitives import Message
from tests.support.wire import WireClient

CORRELATION_ID, NO_TAGS = 7, b"\0"


def request(kind: type[Message], version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", kind.API_KEY, version, CORRELATION_ID, -1)
    return header + NO_TAGS + body


@pytest.mark.parametrize("length", [b"\x80\x00", b"\x80\x80\x80\x80\x00"])
@pytest.mark.parametrize("group", [b"", b"group"])
def test_a_string_that_may_not_be_null_closes_the_connection(client: WireClient, length: bytes, group: bytes) -> None:
    one_key = b"\0" + b"\x02" + length + group
    client.send_frame(request(FindCoordinatorRequest, 4, one_key + NO_TAGS))
    assert client.is_closed()


def test_an_empty_string_may_be_overlong(client: WireClient) -> None:
    one_key = b"\0" + b"\x02" + b"\x81\x00"
    client.send_frame(request(FindCoordinatorRequest, 4, one_key + NO_TAGS))
    (coordinator,) = FindCoordinatorResponse.decode(client.receive_frame()[5:], 4).coordinators
    assert coordinator.key == ""


@pytest.mark.parametrize("length", [b"\x00", b"\x80\x00", b"\x80\x80\x80\x80\x00"])
def test_a_name_that_may_be_null_is(client: WireClient, length: bytes) -> None:
    nobody = bytes(15) + b"\x77"
    body = b"\x02" + nobody + length + NO_TAGS + b"\0\0" + NO_TAGS
    client.send_frame(request(MetadataRequest, 12, body))
    (topic,) = MetadataResponse.decode(client.receive_frame()[5:], 12).topics
    assert (topic.name, topic.topic_id) == (None, nobody)
