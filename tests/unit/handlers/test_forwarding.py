"""Passing requests on to the active controller, when there is none, and when this node becomes it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.handlers.context import CloseConnection
from kafkapy.handlers.forwarding import ENVELOPE_BYTES, encode_principal, forward, principal_data
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.envelope_request import EnvelopeRequest
from kafkapy.protocol.messages.envelope_response import EnvelopeResponse
from kafkapy.runtime.decoded_requests import FEW_BYTES, DecodedRequests
from tests.simulator.loop import SimLoop, run

CONTEXT: Any = SimpleNamespace(
    principal="User:alice", client_host="10.0.0.7", connection=SimpleNamespace(is_by_token=True)
)


MAX_BYTES = 3 * FEW_BYTES


class Elsewhere:
    """An active controller on another node: `responses` in turn, the last for good."""

    def __init__(self, *responses: EnvelopeResponse | ApiError) -> None:
        self._responses = list(responses)
        self.requested: list[EnvelopeRequest] = []
        self.local_after = 1 << 30

    @property
    def is_local(self) -> bool:
        return len(self.requested) >= self.local_after

    async def call(self, envelope: EnvelopeRequest) -> EnvelopeResponse:
        self.requested.append(envelope)
        response = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
        if isinstance(response, ApiError):
            raise response
        return response


def services_with(elsewhere: Elsewhere, timeout_ms: int = 30_000, *, parked_bytes: int = 1 << 20) -> Any:
    config = SimpleNamespace(
        node=SimpleNamespace(request_timeout_ms=timeout_ms),
        network=SimpleNamespace(socket_request_max_bytes=MAX_BYTES),
    )
    decoded = DecodedRequests(parked_bytes=parked_bytes)
    return SimpleNamespace(active_controller=elsewhere, config=config, decoded=decoded)


def forwarded(elsewhere: Elsewhere, timeout_ms: int = 30_000, frame: bytes = b"frame") -> bytes | None:
    """Return the response to a frame."""
    services = services_with(elsewhere, timeout_ms)

    async def main(loop: SimLoop) -> bytes | None:
        response = await forward(services, CONTEXT, memoryview(frame))
        return None if response is None else bytes(response)

    return run(main)


def test_a_request_goes_as_it_came_with_the_clients_principal_and_address() -> None:
    elsewhere = Elsewhere(EnvelopeResponse(response_data=b"answer"))
    assert forwarded(elsewhere) == b"answer"
    (envelope,) = elsewhere.requested
    assert (envelope.request_data, envelope.client_host_address) == (b"frame", bytes([10, 0, 0, 7]))
    principal = principal_data(envelope.request_principal or b"")
    assert (principal.type, principal.name, principal.token_authenticated) == ("User", "alice", True)


async def test_large_requests_that_wait_for_a_controller_are_bounded_together(loop: SimLoop) -> None:
    services = services_with(Elsewhere(ApiError(ErrorCode.NOT_CONTROLLER)), parked_bytes=8 * FEW_BYTES)
    frame = memoryview(bytes(2 * FEW_BYTES))

    first = loop.create_task(forward(services, CONTEXT, frame))
    await asyncio.sleep(1)
    assert services.decoded.bytes_in_use == 2 * FEW_BYTES
    with pytest.raises(CloseConnection, match="too many wait"):
        await forward(services, CONTEXT, memoryview(bytes(2 * FEW_BYTES + 1)))
    with pytest.raises(ApiError, match="in time"):
        await first
    assert services.decoded.bytes_in_use == 0


def test_it_is_retried_while_no_controller_is_active() -> None:
    gone = ApiError(ErrorCode.NOT_CONTROLLER)
    refused = EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    elsewhere = Elsewhere(gone, refused, EnvelopeResponse(response_data=b"answer"))
    assert forwarded(elsewhere) == b"answer"
    assert len(elsewhere.requested) == 3


def test_a_node_that_becomes_the_active_controller_meanwhile_serves_it_itself() -> None:
    elsewhere = Elsewhere(ApiError(ErrorCode.NOT_CONTROLLER))
    elsewhere.local_after = 2
    assert forwarded(elsewhere) is None


def test_without_a_controller_the_request_fails_after_request_timeout_ms() -> None:
    elsewhere = Elsewhere(ApiError(ErrorCode.NOT_CONTROLLER))
    with pytest.raises(ApiError) as raised:
        forwarded(elsewhere, timeout_ms=500)
    assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert 5 <= len(elsewhere.requested) <= 6, "every 100 ms"


@pytest.mark.parametrize(
    "response",
    [
        EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST),
        ApiError(ErrorCode.UNSUPPORTED_VERSION, "no Envelope"),
    ],
)
def test_a_controller_that_does_not_take_the_envelope_is_an_unknown_error_to_the_client(
    response: EnvelopeResponse | ApiError,
) -> None:
    with pytest.raises(ApiError) as raised:
        forwarded(Elsewhere(response))
    assert raised.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_version_that_the_controller_does_not_know_closes_the_clients_connection() -> None:
    with pytest.raises(CloseConnection):
        forwarded(Elsewhere(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)))


def test_a_frame_that_does_not_fit_into_an_envelope_does_not_cost_the_connection_to_the_controller() -> None:
    elsewhere = Elsewhere(EnvelopeResponse(response_data=b"answer"))
    with pytest.raises(CloseConnection, match="too large to be passed on"):
        forwarded(elsewhere, frame=bytes(MAX_BYTES))
    assert elsewhere.requested == []
    longest = MAX_BYTES - ENVELOPE_BYTES - len("User:alice")
    assert forwarded(elsewhere, frame=bytes(longest)) == b"answer"
    (envelope,) = elsewhere.requested
    header_bytes = 10 + len("2147483647") + 1
    assert header_bytes + len(envelope.encode(0)) <= MAX_BYTES


@pytest.mark.parametrize("data", [b"", b"\0\1", b"\0", b"\0\0\5ab"])
def test_a_principal_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises((ApiError, ProtocolError)):
        principal_data(data)


def test_a_principal_comes_back_as_it_was() -> None:
    principal = principal_data(encode_principal("User", "CN=a,O=b:c"))
    assert (principal.type, principal.name) == ("User", "CN=a,O=b:c")
