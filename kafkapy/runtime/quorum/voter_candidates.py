"""Adds voters: requests a prospective voter's supported versions before the Raft core decides (KIP-853).

One voter change at a time: while a request to its node is open, other changes are refused with a retriable error.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkapy.raft.core import RaftCore
from kafkapy.raft.messages import (
    REQUEST_TIMED_OUT,
    AddVoterRequest,
    RemoveVoterRequest,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
)

if TYPE_CHECKING:
    from kafkapy.runtime.quorum.exchange import KraftVersions, RaftTransport

Respond = Callable[[Response], None]
VoterChange = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


class VoterCandidates:
    """Receives voter changes; passes them to the core, AddVoter after the node's versions are known."""

    def __init__(
        self,
        core: Callable[[], RaftCore],
        transport: "RaftTransport | None",
        *,
        now_ms: Callable[[], int],
        step: Callable[[VoterChange, Respond], None],
    ) -> None:
        self._core = core
        self._transport = transport
        self._now_ms = now_ms
        self._step = step

    def receive(self, request: VoterChange, respond: Respond) -> None:
        """Handle a request, at once or after the node to add has reported its versions."""
        if isinstance(request, AddVoterRequest):
            self._add(request, respond)
        else:
            self._step(request, respond)

    def _add(self, request: AddVoterRequest, respond: Respond) -> None:
        refusal = self._core().begin_adding(request, self._now_ms())
        if refusal is not None:
            respond(refusal)
            return
        assert self._transport is not None, "a quorum without a transport has no peers"
        self._transport.query_kraft_versions(request.voter, lambda versions: self._go_on(request, respond, versions))

    def _go_on(self, request: AddVoterRequest, respond: Respond, versions: "KraftVersions") -> None:
        if isinstance(versions, str):
            self._core().end_adding(request)
            message = f"Aborted add voter operation for since API_VERSIONS returned an error {versions}"
            respond(self._refusal(message))
            return
        lowest, highest = versions
        voter = replace(request.voter, min_kraft_version=lowest, max_kraft_version=highest)
        self._step(replace(request, voter=voter), respond)

    def _refusal(self, message: str) -> Response:
        core = self._core()
        return VoterChangeResponse(
            error=REQUEST_TIMED_OUT, message=message, leader_epoch=core.leader_epoch, leader_id=core.leader_id
        )
