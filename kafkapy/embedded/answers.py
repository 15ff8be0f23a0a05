"""Answers of a router that are read here instead of being sent."""

from typing import Any

from kafkapy.protocol.api import response_type
from kafkapy.protocol.connection import discard
from kafkapy.protocol.headers import read_response_header
from kafkapy.protocol.primitives import Writer


def decoded(answer: Writer, api_key: int, version: int) -> Any:
    """Return the message of an answer; as `joined`. Raises ProtocolError."""
    data = joined(answer)
    _, position = read_response_header(data, api_key, version)
    return response_type(api_key).decode(data[position:], version)


def joined(answer: Writer) -> bytes:
    """Return the frame of an answer, and release its file regions. Reads files (may block)."""
    try:
        return answer.joined()
    finally:
        discard(answer)
