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

Reply = Callable[[Response], None]
VoterChange = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


class VoterCandidates:
    """Receives voter changes; passes them to the core, AddVoter after the node's versions are known."""

    def __init__(
        self,
        core: Callable[[], RaftCore],
        transport: "RaftTransport | None",
        *,
        now_ms: Callable[[], int],
        step: Callable[[VoterChange, Reply], None],
    ) -> None:
        self._core = core
        self._transport = transport
        self._now_ms = now_ms
        self._step = step

    def receive(self, request: VoterChange, reply: Reply) -> None:
        """Handle a request, at once or after the node to add has reported its versions."""
        if isinstance(request, AddVoterRequest):
            self._add(request, reply)
        else:
            self._step(request, reply)

    def _add(self, request: AddVoterRequest, reply: Reply) -> None:
        refusal = self._core().begin_adding(request, self._now_ms())
        if refusal is not None:
            reply(refusal)
            return
        assert self._transport is not None, "a quorum without a transport has no peers"
        self._transport.query_kraft_versions(request.voter, lambda versions: self._go_on(request, reply, versions))

    def _go_on(self, request: AddVoterRequest, reply: Reply, versions: "KraftVersions") -> None:
        if isinstance(versions, str):
            self._core().end_adding(request)
            message = f"Aborted add voter operation for since API_VERSIONS returned an error {versions}"
            reply(self._refusal(message))
            return
        lowest, highest = versions
        voter = replace(request.voter, min_kraft_version=lowest, max_kraft_version=highest)
        self._step(replace(request, voter=voter), reply)

    def _refusal(self, message: str) -> Response:
        core = self._core()
        return VoterChangeResponse(
            error=REQUEST_TIMED_OUT, message=message, leader_epoch=core.leader_epoch, leader_id=core.leader_id
        )
