"""Forwards admin requests to the active controller, in an Envelope (KIP-590).

If this node is not the active controller, a request that changes the cluster's metadata is not decoded here. Its frame
is sent unchanged, with the client's principal and address, to the controller, which authorizes and answers it. The
response is returned unchanged, including correlation id and version. While there is no active controller, `forward`
tries again, for request.timeout.ms at most; then the request fails with REQUEST_TIMED_OUT. If the controller refuses
the Envelope itself, the request fails with UNKNOWN_SERVER_ERROR; if it does not know the request's version, the
connection is closed. Apache Kafka's brokers do the same, but try for 60 s. `forward_once`, for topics that are created
by being asked for (handlers/topics/auto_create.py), does not try again.
"""

import asyncio
import ipaddress
import logging
from typing import Any, Final

from kafkapy.errors import ApiError
from kafkapy.handlers.context import CloseConnection, RequestContext, Services
from kafkapy.protocol.api import response_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import read_response_header, write_request_header
from kafkapy.protocol.messages.default_principal_data import DefaultPrincipalData
from kafkapy.protocol.messages.envelope_request import EnvelopeRequest
from kafkapy.protocol.messages.envelope_response import EnvelopeResponse
from kafkapy.protocol.primitives import Message, Writer
from kafkapy.protocol.response_error import response_error
from kafkapy.runtime.decoded_requests import FEW_BYTES, Room

RETRY_S: Final = 0.1
FORWARDED_SHARE: Final = 0.5
"""The share of the room for waiting requests (runtime/decoded_requests.py): 64 MiB by default."""
ENVELOPE_BYTES: Final = 128
"""An upper bound of an Envelope's size without frame and principal: headers, address, lengths."""
PRINCIPAL_VERSION: Final = 0

logger = logging.getLogger("kafkapy.handlers")


async def forward(services: Services, context: RequestContext, frame: memoryview) -> Writer | None:
    """Return the controller's response to a request frame, or None if this node has become the active controller.

    A frame too large for an Envelope is not sent: the controller would close the connection that is shared by all
    clients' requests. Raises ApiError REQUEST_TIMED_OUT, UNKNOWN_SERVER_ERROR; CloseConnection.
    """
    max_bytes = services.config.network.socket_request_max_bytes - ENVELOPE_BYTES - len(context.principal.encode())
    if len(frame) > max_bytes:
        raise CloseConnection(f"a request of {len(frame)} bytes is too large to be passed on to the controller")
    room = _room(services, context, len(frame))
    try:
        response = await _send_request(services, _envelope(context, frame))
    finally:
        room.release()
    if response is None:
        return None
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise CloseConnection("the active controller does not know the version of a forwarded request")
    if response.error_code:
        raise _misconfigured(ErrorCode(response.error_code).name)
    out = Writer()
    out += response.response_data or b""
    return out


def _room(services: Services, context: RequestContext, frame_bytes: int) -> Room:
    """Return room for the copy of a frame in its Envelope: without a controller it waits for long, and the frame too.

    So this bounds what such frames take of the request memory. Raises CloseConnection without room.
    """
    decoded = services.decoded
    if frame_bytes <= FEW_BYTES:
        return decoded.no_room()
    room = decoded.acquire_parked(0, frame_bytes, FORWARDED_SHARE, (context.principal, context.client_host))
    if room is None:
        raise CloseConnection(f"a request of {frame_bytes} bytes: too many wait for the controller already")
    return room


async def forward_message(services: Services, context: RequestContext, request: Message) -> Message | None:
    """Return the controller's response to the rest of a client's request; None as in `forward`."""
    forwarded = await forward(services, context, _frame(context, request))
    return _decoded(context, bytes(forwarded)) if forwarded is not None else None


async def forward_once(services: Services, context: RequestContext, request: Message) -> Any:
    """Return the controller's response to a request made on behalf of a client, without retries.

    `context` is that of the forwarded request. Raises ApiError: NOT_CONTROLLER, or the envelope's own error.
    """
    response: Any = await services.active_controller.call(_envelope(context, _frame(context, request)))
    if response.error_code:
        raise response_error(response.error_code)
    return _decoded(context, response.response_data or b"")


def _envelope(context: RequestContext, frame: memoryview) -> EnvelopeRequest:
    kind, _, name = context.principal.partition(":")
    return EnvelopeRequest(
        request_data=bytes(frame),
        request_principal=encode_principal(kind, name, is_by_token=context.connection.is_by_token),
        client_host_address=ipaddress.ip_address(context.client_host).packed,
    )


def _frame(context: RequestContext, request: Message) -> memoryview:
    out = Writer()
    write_request_header(
        out,
        api_key=context.api_key,
        api_version=context.api_version,
        correlation_id=context.correlation_id,
        client_id=context.client_id,
    )
    out += request.encode(context.api_version)
    return memoryview(out)


def _decoded(context: RequestContext, response: bytes) -> Message:
    _, position = read_response_header(response, context.api_key, context.api_version)
    return response_type(context.api_key).decode(response[position:], context.api_version)


def encode_principal(kind: str, name: str, *, is_by_token: bool = False) -> bytes:
    """Encode a principal for Envelope: int16 version, then DefaultPrincipalData."""
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=is_by_token)
    return PRINCIPAL_VERSION.to_bytes(2, "big") + data.encode(PRINCIPAL_VERSION)


def principal_data(data: bytes) -> DefaultPrincipalData:
    """Decode the principal of an Envelope. Raises ProtocolError, ApiError."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if version != PRINCIPAL_VERSION:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    return DefaultPrincipalData.decode(data[2:], PRINCIPAL_VERSION)


async def _send_request(services: Services, envelope: EnvelopeRequest) -> EnvelopeResponse | None:
    """Send the envelope until an active controller answers; return None if this node has become the active one.

    Raises ApiError REQUEST_TIMED_OUT after request.timeout.ms, UNKNOWN_SERVER_ERROR if the controller has no Envelope.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + services.config.node.request_timeout_ms / 1000
    while not services.active_controller.is_local:
        try:
            response = await services.active_controller.call(envelope)
            assert isinstance(response, EnvelopeResponse)
            if response.error_code != ErrorCode.NOT_CONTROLLER:
                return response
        except ApiError as error:
            if error.code != ErrorCode.NOT_CONTROLLER:
                raise _misconfigured(str(error)) from error
        if loop.time() >= deadline:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "No active controller took the request in time.")
        await asyncio.sleep(RETRY_S)
    return None


def _misconfigured(reason: str) -> ApiError:
    """Return the error for a client whose request the controller did not even look at: its broker is set up wrongly."""
    logger.warning("The active controller refused a forwarded request: %s", reason)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller refused the broker that passed this request on.")


class NoController:
    """A MetadataChanges for which each change fails, so that a handler puts the error where its API has room for it."""

    def __init__(self, error: ApiError) -> None:
        self._error = error

    async def change(self, _decide: object, *, timeout_ms: int = 0) -> Any:
        raise self._error
