"""Changing the voters, one at a time (KIP-853): AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter.

A change is a Voters record. It takes effect when it is appended: the majority that commits it is counted with the new
set. Another change may start only after it is committed, so any majority of the old set and any majority of the new
set share a voter.
"""

from typing import Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.raft.commitment import Commitment
from kafkapy.raft.effects import SendResponse
from kafkapy.raft.local_node import LocalNode
from kafkapy.raft.messages import (
    DUPLICATE_VOTER,
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_VERSION,
    VOTER_NOT_FOUND,
    AddVoterRequest,
    KRaftVersion,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
    Voters,
)
from kafkapy.raft.roles import FOREVER_OFFSET, Follower, Leader, PendingVoterChange
from kafkapy.raft.voters import Voter, VoterSet

INVALID_UPDATE_VERSION: Final = ErrorCode.INVALID_UPDATE_VERSION.value


class Membership:
    """The part of the core that changes the voter set, and asks the leader to."""

    def __init__(self, node: LocalNode, commitment: Commitment) -> None:
        self._config = node.config
        self._replica = node.replica
        self._current = node.current
        self._commitment = commitment
        self._connections = node.connections
        self._out = node.out

    def begin_adding(self, request: AddVoterRequest, now_ms: int) -> VoterChangeResponse | None:
        """Return the error response to an AddRaftVoter, or None; then it is pending until its voter has answered."""
        refusal = self._add_voter_refusal(request, now_ms)
        if refusal is None:
            assert isinstance(self._current.role, Leader)
            self._current.role.pending_voter_change = PendingVoterChange(
                None, FOREVER_OFFSET, now_ms + self._config.request_timeout_ms, candidate=request.voter.key
            )
        return refusal

    def end_adding(self, request: AddVoterRequest) -> None:
        """Undo begin_adding(), unless another change has begun."""
        role = self._current.role
        if not isinstance(role, Leader) or role.pending_voter_change is None:
            return
        if role.pending_voter_change.candidate == request.voter.key:
            role.pending_voter_change = None

    def _add_voter_refusal(self, request: AddVoterRequest, now_ms: int) -> VoterChangeResponse | None:
        error, message = self._voter_change_error("adding", request.problem, now_ms)
        voters = self._replica.voters.current
        if error == NONE and request.voter.node_id in voters.ids:
            error = DUPLICATE_VOTER
            message = f"The voter id for {request.voter.key} is already part of the set of voters {_text(voters)}."
        return None if error == NONE else self._current.voter_change_response(error, message)

    def on_add_voter_request(self, respond_to: object, request: AddVoterRequest, now_ms: int) -> None:
        self.end_adding(request)
        refusal = self._add_voter_refusal(request, now_ms) or self._candidate_refusal(request.voter, now_ms)
        if refusal is not None:
            self._out.emit(SendResponse(respond_to, refusal))
            return
        role = self._current.role
        assert isinstance(role, Leader)
        if len(role.progress.voters) == 1:
            # Deviation: Apache Kafka's time-out runs from the last fetch of any replica. Here it runs from the request,
            # because it might else have passed before the new voter can fetch.
            role.check_quorum_deadline_ms = now_ms + self._config.check_quorum_timeout_ms
        waits = respond_to if request.acknowledges_when_committed else None
        self._append_change(self._replica.voters.current.with_voter(request.voter), waits, now_ms)
        if waits is None:
            self._out.emit(SendResponse(respond_to, self._current.voter_change_response(NONE)))

    def _candidate_refusal(self, voter: Voter, now_ms: int) -> VoterChangeResponse | None:
        """Return the error response if the new voter's versions do not fit or it lags behind, else None."""
        role = self._current.role
        assert isinstance(role, Leader)
        key, lowest, highest = voter.key, voter.min_kraft_version, voter.max_kraft_version
        if not lowest <= self._replica.voters.kraft_version <= highest:
            message = (
                f"Aborted add voter operation for {key} since the kraft.version range (min: {lowest}, max: {highest} "
                f"doesn't support the finalized version {self._replica.voters.kraft_version}"
            )
            return self._current.voter_change_response(INVALID_REQUEST, message)
        if not role.progress.is_caught_up(key, now_ms):
            message = f"Aborted add voter operation for {key} since it is lagging behind"
            return self._current.voter_change_response(REQUEST_TIMED_OUT, message)
        return None

    def on_remove_voter_request(self, respond_to: object, request: RemoveVoterRequest, now_ms: int) -> None:
        error, message = self._voter_change_error("removing", request.problem, now_ms)
        voters = self._replica.voters.current
        if error == NONE and (not voters.contains(request.voter) or len(voters) == 1):
            error = VOTER_NOT_FOUND
            message = f"Cannot remove voter {request.voter} from the set of voters {_text(voters)}"
        if error != NONE:
            self._out.emit(SendResponse(respond_to, self._current.voter_change_response(error, message)))
            return
        self._append_change(voters.without_voter(request.voter), respond_to, now_ms)

    def on_update_voter_request(self, respond_to: object, request: UpdateVoterRequest, now_ms: int) -> None:
        """Update a voter's endpoints and versions (with kraft.version 0 not in the log) and answer at once.

        The voter fetches nothing until it is answered, and its copy may be needed to commit the record.
        """
        error = self._update_voter_error(request, now_ms)
        if error == NONE:
            role = self._current.role
            assert isinstance(role, Leader)
            self._update_voter(role, request.voter)
            if role.progress.record_contact(request.voter.key):
                role.check_quorum_deadline_ms = now_ms + self._config.check_quorum_timeout_ms
        self._out.emit(SendResponse(respond_to, self._current.voter_change_response(error)))

    def _update_voter_error(self, request: UpdateVoterRequest, now_ms: int) -> int:
        """Return the error code of an UpdateRaftVoter, in Apache Kafka's order of checks.

        Deviation: Apache Kafka's leader stops its process if others update it. Here that is refused, because anybody
        may send it.
        """
        if request.leader_epoch != self._current.leader_epoch:
            is_late = request.leader_epoch < self._current.leader_epoch
            return FENCED_LEADER_EPOCH if is_late else UNKNOWN_LEADER_EPOCH
        voter = request.voter
        lowest, highest = voter.min_kraft_version, voter.max_kraft_version
        problem = request.problem if 0 <= lowest <= highest else "its kraft.version range cannot be"
        error, _ = self._voter_change_error("updating", problem, now_ms)
        if error not in (NONE, UNSUPPORTED_VERSION):
            return error
        voters, kraft_version = self._replica.voters.current, self._replica.voters.kraft_version
        if not lowest <= kraft_version <= highest:
            return INVALID_REQUEST
        if not (voter.node_id in voters.ids if kraft_version == 0 else voters.contains(voter.key)):
            return VOTER_NOT_FOUND
        return UNKNOWN_SERVER_ERROR if voter.node_id == self._replica.local.node_id else NONE

    def _update_voter(self, role: Leader, voter: Voter) -> None:
        voters = self._replica.voters.current
        if self._replica.voters.kraft_version == 0:
            role.described_voters[voter.node_id] = voter
        elif voters.needs_update(voter):
            self._append_voters(role, voters.with_voter(voter))
            self._commitment.maybe_advance(role)

    def kraft_upgrade_refusal(self) -> tuple[int, str] | None:
        """Return (error code, reason) if kraft.version cannot be raised to 1 now, else None. On the leader only."""
        known = [self._described_voters().get(node_id) for node_id in self._replica.voters.current.ids]
        if all(voter is not None and voter.min_kraft_version <= 1 <= voter.max_kraft_version for voter in known):
            return None
        reason = "Invalid upgrade of kraft.version to KRAFT_VERSION_1 because not all of the voters support it"
        return INVALID_UPDATE_VERSION, reason

    def upgrade_kraft_version(self) -> None:
        """Raise kraft.version to 1 and write the voters, as they described themselves, to the log (KIP-853)."""
        role = self._current.role
        assert isinstance(role, Leader), "only a leader raises kraft.version"
        assert self._replica.voters.kraft_version == 0, "kraft.version rises from 0"
        assert self.kraft_upgrade_refusal() is None, "the caller has checked kraft_upgrade_refusal"
        known = self._described_voters()
        voters = VoterSet(known[node_id] for node_id in self._replica.voters.current.ids)
        self._replica.append_controls(role, (KRaftVersion(1), Voters(voters)))
        self._commitment.maybe_advance(role)

    def _described_voters(self) -> dict[int, Voter]:
        assert isinstance(self._current.role, Leader), "voters describe themselves to the leader"
        return {**self._current.role.described_voters, self._replica.local.node_id: self._config.local}

    def on_voter_change_response(self, node_id: int, request: Request, response: Response, now_ms: int) -> None:
        """Handle the leader's response to this node's own request. A success is like one of a fetch."""
        role = self._current.role
        if not isinstance(request, UpdateVoterRequest):
            self._on_join_response(node_id, response, now_ms)
            return
        self._current.adopt_from_response(response, now_ms)
        is_answered = role is self._current.role and response.leader_epoch == role.leader_epoch
        if not is_answered or not isinstance(role, Follower):
            return
        if response.error in (NONE, UNSUPPORTED_VERSION):
            role.is_known_to_leader = role.is_known_to_leader or request.leader_epoch == role.leader_epoch
            role.has_fetched = True
            role.fetch_deadline_ms = now_ms + self._config.fetch_timeout_ms
        elif response.error not in (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER):
            self._connections.back_off(node_id, now_ms)

    def _on_join_response(self, node_id: int, response: Response, now_ms: int) -> None:
        """After an AddRaftVoter or RemoveRaftVoter, wait before the next one; the record has to be fetched first."""
        role = self._current.role
        if response.error in (NONE, REQUEST_TIMED_OUT, DUPLICATE_VOTER, VOTER_NOT_FOUND):
            if isinstance(role, Follower):
                role.update_voter_deadline_ms = now_ms + self._config.fetch_timeout_ms
        else:
            self._connections.back_off(node_id, now_ms)

    def _voter_change_error(self, change: str, problem: str | None, now_ms: int) -> tuple[int, str | None]:
        """Return (error code, message) if no voter change may start now. `change`: adding, removing or updating.

        `problem`: what is wrong with the request itself.
        """
        role = self._current.role
        if not isinstance(role, Leader):
            return NOT_LEADER_OR_FOLLOWER, None
        if problem is not None:
            return INVALID_REQUEST, problem
        if _is_pending(role.pending_voter_change, now_ms) or role.is_resigning:
            return (
                REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to handle previous voter change request",
            )
        # The log may end with a voter change by an earlier leader that no majority has yet. A second change beside it
        # could make two disjoint majorities. A high watermark in this epoch means that the earlier one is committed.
        if role.progress.high_watermark < 0:
            return (
                REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to establish HWM and fence previous voter changes",
            )
        if self._replica.voters.kraft_version == 0:
            return UNSUPPORTED_VERSION, f"Cluster doesn't support {change} voter because the kraft.version feature is 0"
        if self._replica.voters.current_offset >= role.progress.high_watermark:
            return (
                REQUEST_TIMED_OUT,
                "Request timed out waiting for voters to commit the latest voter change at "
                f"Optional[{self._replica.voters.current_offset}] with HWM {role.progress.high_watermark}",
            )
        return NONE, None

    def _append_change(self, voters: VoterSet, respond_to: object | None, now_ms: int) -> None:
        """Append the new voter set of a change that is answered when it is committed, or in time."""
        role = self._current.role
        assert isinstance(role, Leader)
        offset = self._append_voters(role, voters)
        role.pending_voter_change = PendingVoterChange(respond_to, offset, now_ms + self._config.request_timeout_ms)
        self._commitment.maybe_advance(role)

    def _append_voters(self, role: Leader, voters: VoterSet) -> int:
        """Append the new voter set, which takes effect at once; return the offset of its record."""
        assert voters.overlaps_majority_of(self._replica.voters.current), "one voter at a time"
        return self._replica.append_controls(role, (Voters(voters),))

    def expire_voter_change(self, role: Leader, now_ms: int) -> None:
        """Answer a timed-out requester. The record stays; no other change starts before it is committed."""
        change = role.pending_voter_change
        if change is not None and now_ms >= change.deadline_ms:
            role.pending_voter_change = None
            if change.respond_to is not None:
                self._out.emit(SendResponse(change.respond_to, self._current.voter_change_response(REQUEST_TIMED_OUT)))

    def maybe_send_update_voter(self, role: Follower, now_ms: int) -> bool:
        """Send UpdateRaftVoter if the voter set has other endpoints or versions for this node than it has.

        With kraft.version 0 send it to every new leader: it is the only way to learn this node's directory id, which
        an upgrade to kraft.version 1 needs.
        """
        if now_ms < role.update_voter_deadline_ms:
            return False
        is_static = self._replica.voters.kraft_version == 0
        if role.is_known_to_leader if is_static else not self._replica.voters.current.needs_update(self._config.local):
            role.update_voter_deadline_ms = now_ms + self._config.fetch_timeout_ms
            return False
        return self._send_voter_change(
            role, UpdateVoterRequest(voter=self._config.local, leader_epoch=role.leader_epoch), now_ms
        )

    def maybe_join(self, role: Follower, now_ms: int) -> bool:
        """Ask to become a voter (controller.quorum.auto.join.enable), after removing this node's former directory."""
        if not self._config.joins_by_itself or now_ms < role.update_voter_deadline_ms:
            return False
        if self._replica.voters.kraft_version == 0:
            role.update_voter_deadline_ms = now_ms + self._config.fetch_timeout_ms
            return False
        former = self._replica.voters.current.get(self._replica.local.node_id)
        if former is not None:
            return self._send_voter_change(role, RemoveVoterRequest(voter=former.key), now_ms)
        timeout_ms = self._config.request_timeout_ms
        added = AddVoterRequest(voter=self._config.local, timeout_ms=timeout_ms, acknowledges_when_committed=False)
        return self._send_voter_change(role, added, now_ms)

    def _send_voter_change(
        self, role: Follower, request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest, now_ms: int
    ) -> bool:
        """Send unless a request to the leader is in flight; the next attempt comes a fetch timeout later."""
        if not self._connections.maybe_send(role.leader_id, request, role.leader_endpoints, now_ms):
            return False
        role.update_voter_deadline_ms = now_ms + self._config.fetch_timeout_ms
        return True


def _is_pending(change: PendingVoterChange | None, now_ms: int) -> bool:
    """Whether a change is under way. Nobody steps the time of one that still waits for its voter's versions."""
    return change is not None and (change.candidate is None or now_ms < change.deadline_ms)


def _text(voters: VoterSet) -> str:
    return f"[{', '.join(str(voter.key) for voter in voters)}]"
