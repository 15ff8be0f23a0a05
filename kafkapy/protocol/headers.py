"""Request and response headers, with which every frame starts. Hand-written for speed, not generated.

Request header v1: int16 api key, int16 api version, int32 correlation id, nullable string client id; v2 adds tagged
fields (the client id keeps its int16 length). Response header v0: int32 correlation id; v1 adds tagged fields. The API
and its version determine the header version. KIP-482, KIP-511.
"""

from struct import Struct
from struct import error as StructError

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import API_VERSIONS, APIS
from kafkapy.protocol.primitives import Data, ElementBudget, Writer, tag_section

_unpack_fixed = Struct(">hhih").unpack_from
_pack_correlation_id = Struct(">i").pack
_pack_correlation_id_and_no_tags = Struct(">iB").pack
_FIXED_BYTES = 10

MAX_HEADER_TAGS = 1_000
"""Maximum tagged fields of a header. Apache Kafka 4.4.0 defines none; later versions may add a few."""

FLEXIBLE_FROM = {key: api.flexible_from for key, api in APIS.items()}


@dataclass(slots=True)
class RequestHeader:
    """The header of a request. `client_id` is None if the client sends none."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: Data) -> tuple[RequestHeader, int]:
    """Return the header at the start of a frame (without its size prefix) and the position of the body.

    Tagged fields are skipped, as none is defined. An unsupported version is returned unchanged: the router handles it.
    Raises ProtocolError, also for an unknown api key.
    """
    try:
        api_key, api_version, correlation_id, size = _unpack_fixed(frame)
        flexible_from = FLEXIBLE_FROM[api_key]
        position = _FIXED_BYTES
        client_id = None
        if size >= 0:
            position += size
            client_id = str(frame[_FIXED_BYTES:position], "utf-8")
        elif size != -1:
            raise ProtocolError(f"request header with a client id of {size} bytes")
        if api_version >= flexible_from:
            tag_count = frame[position]
            position += 1
            if tag_count:
                _, position = tag_section(frame, position, tag_count, ElementBudget(MAX_HEADER_TAGS))
    except KeyError:
        raise ProtocolError(f"request with the api key {api_key}, which no api has") from None
    except (StructError, IndexError) as error:
        raise ProtocolError(f"request header is cut short in a frame of {len(frame)} bytes") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"client id is not UTF-8: {error}") from error
    if position > len(frame):  # a slice beyond the frame is short and raises nothing
        raise ProtocolError(f"request header is cut short in a frame of {len(frame)} bytes")
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def write_request_header(
    out: Writer, *, api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> None:
    """Append the header of an outgoing request."""
    raw = b"" if client_id is None else client_id.encode()
    out += Struct(">hhih").pack(api_key, api_version, correlation_id, -1 if client_id is None else len(raw))
    out += raw
    if api_version >= FLEXIBLE_FROM[api_key]:
        out.append(0)


def write_response_header(out: Writer, api_key: int, api_version: int, correlation_id: int) -> None:
    """Append the header of a response: v1 if the version is flexible, otherwise and for ApiVersions v0."""
    if api_version >= FLEXIBLE_FROM[api_key] and api_key != API_VERSIONS:
        out += _pack_correlation_id_and_no_tags(correlation_id, 0)
    else:
        out += _pack_correlation_id(correlation_id)


def read_response_header(frame: Data, api_key: int, api_version: int) -> tuple[int, int]:
    """Return the correlation id of a received response and the position of its body. Raises ProtocolError."""
    if len(frame) < 4:
        raise ProtocolError(f"response header is cut short in a frame of {len(frame)} bytes")
    position = 4
    if api_version >= FLEXIBLE_FROM[api_key] and api_key != API_VERSIONS:
        if len(frame) < 5:
            raise ProtocolError("response header is cut short in a frame of 4 bytes")
        _, position = tag_section(frame, 5, frame[4], ElementBudget(MAX_HEADER_TAGS)) if frame[4] else (None, 5)
    return int.from_bytes(frame[:4], "big", signed=True), position
