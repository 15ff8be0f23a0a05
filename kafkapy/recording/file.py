"""A recording: JSON lines. The first says what the file is, each other one is a frame that a client sent or got.

    {"kafkapy_recording": 1, "upstream": "host:9092", "started_ms": 0}
    {"at_ms": 12, "connection": 1, "node": 0, "kind": "request", "frame": BASE64, "left_out": ["authBytes"]}

`node`: the broker, 0 for the one that the client began with. A frame is without its four bytes of size. What was left
out of it is empty there.
"""

import base64
import binascii
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError, ProtocolError
from kafkapy.protocol.api import api_of, request_type, response_type
from kafkapy.protocol.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    write_request_header,
    write_response_header,
)
from kafkapy.protocol.json_lines import from_json, to_json
from kafkapy.protocol.primitives import Writer

FORMAT: Final = "kafkapy_recording"
VERSION: Final = 1
REQUEST: Final = "request"
RESPONSE: Final = "response"
BOOTSTRAP: Final = 0


class RecordingError(KafkapyError):
    """A file that is no recording, or one of a later version."""


@dataclass(frozen=True, slots=True)
class Event:
    """A frame, without its size, and when and on which connection it was seen. `left_out`: names of fields."""

    at_ms: int
    connection: int
    node: int
    kind: str
    frame: bytes
    left_out: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        return {
            "at_ms": self.at_ms,
            "connection": self.connection,
            "node": self.node,
            "kind": self.kind,
            "frame": base64.b64encode(self.frame).decode(),
            **({"left_out": list(self.left_out)} if self.left_out else {}),
        }


class RecordingWriter:
    """Writes each frame at once: what a client did before it crashed is there."""

    def __init__(self, file: IO[str], upstream: str, started_ms: int) -> None:
        self._file = file
        self._write({FORMAT: VERSION, "upstream": upstream, "started_ms": started_ms})

    def add(self, event: Event) -> None:
        self._write(event.json())

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()


def read(path: Path) -> Iterator[Event]:
    """Yield the frames of a recording; a last line that was not written whole is left out.

    Raises RecordingError, OSError.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = iter(file)
        head = _line(next(lines, ""))
        if head is None or type(head.get(FORMAT)) is not int:
            raise RecordingError(f"{path} is no recording of `kafkapy record`")
        if head[FORMAT] > VERSION:
            raise RecordingError(f"{path} has version {head[FORMAT]}; this release reads {VERSION}")
        for number, text in enumerate(lines, 2):
            if not text.endswith("\n"):
                return
            event = _event(_line(text))
            if event is None:
                raise RecordingError(f"{path}: line {number} is no frame")
            yield event


def _line(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _event(line: dict[str, Any] | None) -> Event | None:
    if line is None or line.get("kind") not in (REQUEST, RESPONSE):
        return None
    try:
        frame = base64.b64decode(line["frame"], validate=True)
        at_ms, connection, node = (int(line[name]) for name in ("at_ms", "connection", "node"))
        left_out = tuple(map(str, line.get("left_out") or ()))
    except (KeyError, TypeError, ValueError, binascii.Error):
        return None
    return Event(at_ms, connection, node, line["kind"], frame, left_out)


def read_request(frame: bytes) -> tuple[RequestHeader, dict[str, Any]] | None:
    """Return the header and the fields of a request; None for one that is not understood."""
    try:
        header, position = read_request_header(frame)
        request = request_type(header.api_key).decode(frame[position:], header.api_version)
        return header, to_json(request, header.api_version)
    except (ProtocolError, KeyError, ValueError, RecursionError):
        return None


def header_of(frame: bytes) -> RequestHeader | None:
    try:
        return read_request_header(frame)[0]
    except ProtocolError:
        return None


def write_request(header: RequestHeader, fields: dict[str, Any]) -> bytes:
    """Return the frame of a recorded request. Raises ProtocolError."""
    out = Writer()
    write_request_header(
        out,
        api_key=header.api_key,
        api_version=header.api_version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
    )
    from_json(api_of(header.api_key).request_name, header.api_version, fields).write(out, header.api_version)
    return bytes(out)


def read_response(header: RequestHeader, frame: bytes) -> dict[str, Any] | None:
    """Return the fields of the response to a request; None for one that is not understood."""
    try:
        _, position = read_response_header(frame, header.api_key, header.api_version)
        response = response_type(header.api_key).decode(frame[position:], header.api_version)
        return to_json(response, header.api_version)
    except (ProtocolError, KeyError, ValueError, RecursionError):
        return None


def write_response(header: RequestHeader, fields: dict[str, Any]) -> bytes:
    """Return the frame of a recorded response. Raises ProtocolError."""
    out = Writer()
    write_response_header(out, header.api_key, header.api_version, header.correlation_id)
    from_json(api_of(header.api_key).response_name, header.api_version, fields).write(out, header.api_version)
    return bytes(out)
