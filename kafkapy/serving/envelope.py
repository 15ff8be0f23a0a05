"""Envelope 0, for the controller listener: a client's request forwarded by a broker (KIP-590).

The broker needs CLUSTER_ACTION; the embedded request is then handled and authorized as the client's. APIs that may not
be forwarded get INVALID_REQUEST, an unreadable principal gets PRINCIPAL_DESERIALIZATION_FAILURE, an unreadable embedded
request gets UNSUPPORTED_VERSION. If the embedded request fails with NOT_CONTROLLER, that becomes the envelope's own
error, so that the broker looks for the new active controller.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, TypeVar

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.handlers.context import ControllerServices, MetadataChanges, RequestContext
from kafkapy.handlers.forwarding import principal_data
from kafkapy.handlers.table import CONTROLLER_APIS, Forwarding
from kafkapy.machine import Decided
from kafkapy.metadata.controller import Controller
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import read_request_header
from kafkapy.protocol.messages.envelope_request import EnvelopeRequest
from kafkapy.protocol.messages.envelope_response import EnvelopeResponse
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.runtime.controller.controller import REQUEST_TIMEOUT_MS
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.serving.router import Router
from kafkapy.types import host_text

R = TypeVar("R")


async def handle(services: ControllerServices, context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    if not services.authorizer.authorize(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        info = _client(context, request)
    except ApiError as error:
        return EnvelopeResponse(error_code=int(error.code))
    frame = memoryview(request.request_data)
    try:
        header, _ = read_request_header(frame)
    except ProtocolError:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    served = CONTROLLER_APIS.get(header.api_key)
    if served is None or served.forwarding is Forwarding.NONE:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not served.served_min <= header.api_version <= served.max_version:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not services.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    # The active controller may lose its role while the request waits. The response inside then has NOT_CONTROLLER as an
    # error of some resource, which a client could not use: `changes` sees it, and the whole request is sent elsewhere.
    inside = copy(services)
    inside.metadata_changes = changes = _Changes(services.metadata_changes)
    try:
        response = await Router(inside).route(info, frame)
    except ProtocolError:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if changes.is_elsewhere:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    assert response is not None
    return EnvelopeResponse(response_data=bytes(response))


class _Changes:
    """MetadataChanges that notes whether a change failed because this controller is not the active one."""

    def __init__(self, changes: MetadataChanges) -> None:
        self._changes = changes
        self.is_elsewhere = False

    async def change(
        self, decide: Callable[[Controller, int], Decided[Any, R]], *, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> R:
        try:
            return await self._changes.change(decide, timeout_ms=timeout_ms)
        except ApiError as error:
            self.is_elsewhere |= error.code == ErrorCode.NOT_CONTROLLER
            raise


def _client(context: RequestContext, request: EnvelopeRequest) -> ConnectionInfo:
    """Return the connection info of the original client. Raises ApiError."""
    try:
        principal = principal_data(request.request_principal or b"")
    except ProtocolError as error:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from error
    if len(request.client_host_address) not in (4, 16):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    return ConnectionInfo(
        connection_id=context.connection_id,
        listener_name=context.listener_name,
        security_protocol=context.security_protocol,
        peer_host=host_text(request.client_host_address),
        peer_port=0,
        principal=f"{principal.type}:{principal.name}",
        is_by_token=principal.token_authenticated,
        is_forwarded=True,
    )
