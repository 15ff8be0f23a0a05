"""A connection to the active controller over the network, used by runtime/broker/active_controller.py."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kafkapy.errors import ApiError
from kafkapy.protocol.client_connection import newest_version
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.primitives import Message
from kafkapy.raft.voters import Endpoint
from kafkapy.runtime.peer import NoResponseError, Peer

LEADER_CHECK_S: Final = 0.1
"""How often the leader is checked while a request to it is pending."""


class ControllerChannel:
    """A connection that follows the active controller to another node."""

    def __init__(
        self,
        *,
        leader: Callable[[int], tuple[int, tuple[Endpoint, ...]]],
        listener_name: str,
        new_peer: Callable[[str, int], Peer],
        timeout_ms: int,
    ) -> None:
        """`leader`: returns the node id of the quorum's leader, -1 if unknown, and its endpoints.

        It is called with the number of nodes that have turned out not to be the active controller: a node that cannot
        learn who leads names another one each time.
        timeout_ms: how long the controller may take to answer; then the connection is closed.
        """
        self._leader = leader
        self._listener_name = listener_name
        self._new_peer = new_peer
        self._timeout_ms = timeout_ms
        self._peer: Peer | None = None
        self._refused_count = 0

    async def call(self, request: Message) -> Any:
        """Return the response. Raises ApiError: NOT_CONTROLLER if there is no controller, UNSUPPORTED_VERSION."""
        refused_count = self._refused_count
        leader_id, endpoints = self._leader(refused_count)
        address = next(((each.host, each.port) for each in endpoints if each.name == self._listener_name), None)
        if leader_id < 0 or address is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "No controller appears to be active.")
        api_key = request.API_KEY
        assert api_key is not None
        peer = self._peer_at(address)
        versions = (0, newest_version(api_key))
        answered = peer.send_request(api_key, lambda _version: request, versions=versions, timeout_ms=self._timeout_ms)
        while not answered.done():
            await asyncio.wait({answered}, timeout=LEADER_CHECK_S)
            if not answered.done() and self._leader(refused_count)[0] != leader_id:
                peer.close()  # do not wait for the time-out of a former leader that hangs
        try:
            response: Any = answered.result()
        except NoResponseError as error:
            self._record_refusal(refused_count)
            raise _failure(leader_id, error.is_unsupported) from error
        if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER:
            self._record_refusal(refused_count)
        return response

    def _record_refusal(self, refused_count: int) -> None:
        """Count a refusal, once for all requests that were sent to the same node."""
        if self._refused_count == refused_count:
            self._refused_count += 1

    @property
    def api_versions(self) -> dict[int, tuple[int, int]] | None:
        """The versions of the controller that this is connected to; None while it is not connected."""
        return None if self._peer is None else self._peer.api_versions

    def close(self) -> None:
        """Close the connection; pending requests fail with NOT_CONTROLLER."""
        self._drop_peer()

    def _drop_peer(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    def _peer_at(self, address: tuple[str, int]) -> Peer:
        if self._peer is not None and (self._peer.is_closed or (self._peer.host, self._peer.port) != address):
            self._drop_peer()
        if self._peer is None:
            self._peer = self._new_peer(*address)
        return self._peer


def _failure(leader_id: int, is_unsupported: bool) -> ApiError:
    if is_unsupported:
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, f"The active controller, node {leader_id}, is too old for this.")
    return ApiError(ErrorCode.NOT_CONTROLLER, f"The active controller, node {leader_id}, did not answer.")
