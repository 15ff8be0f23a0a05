"""Responses of a router that are read here instead of being sent."""

from typing import Any

from kafkapy.protocol.api import response_type
from kafkapy.protocol.headers import read_response_header
from kafkapy.protocol.kept_responses import discard
from kafkapy.protocol.primitives import Writer


def decoded(response: Writer, api_key: int, version: int) -> Any:
    """Return the message of a response; as `joined`. Raises ProtocolError."""
    data = joined(response)
    _, position = read_response_header(data, api_key, version)
    return response_type(api_key).decode(data[position:], version)


def joined(response: Writer) -> bytes:
    """Return the frame of a response, and release its file regions. Reads files (may block)."""
    try:
        return response.joined()
    finally:
        discard(response)
