"""Changing the voters, one at a time (KIP-853): AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter.

A change is a Voters record. It takes effect when it is appended: the majority that commits it is counted with the new
set. Another change may start only after it is committed, so any majority of the old set and any majority of the new
set share a voter.
"""

from typing import Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.raft.commitment import Commitment
from kafkapy.raft.config import FOREVER_MS
from kafkapy.raft.effects import Reply
from kafkapy.raft.local_node import LocalNode
from kafkapy.raft.messages import (
    DUPLICATE_VOTER,
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_LEADER_EPOCH,
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
from kafkapy.raft.roles import Follower, Leader, PendingVoterChange
from kafkapy.raft.voters import Voter, VoterSet

UNKNOWN_SERVER_ERROR: Final = ErrorCode.UNKNOWN_SERVER_ERROR.value
INVALID_UPDATE_VERSION: Final = ErrorCode.INVALID_UPDATE_VERSION.value
PENDING_CHANGE: Final = "Request timed out waiting for leader to handle previous voter change request"


class Membership:
    """The part of the core that changes the voter set, and asks the leader to."""

    def __init__(self, node: LocalNode, commitment: Commitment) -> None:
        self._config = node.config
        self._replica = node.replica
        self._current = node.current
        self._commitment = commitment
        self._connections = node.connections
        self._out = node.out

    def add_voter_refusal(self, request: AddVoterRequest, now_ms: int) -> VoterChangeResponse | None:
        """Return the error response to an AddRaftVoter, or None to go on and ask the new voter for its versions."""
        error, message = self._voter_change_error("adding", now_ms)
        voters = self._replica.voters.current
        if error == NONE and request.voter.node_id in voters.ids:
            error = DUPLICATE_VOTER
            message = f"The voter id for {request.voter.key} is already part of the set of voters {_text(voters)}."
        return None if error == NONE else self._current.voter_change_response(error, message)

    def on_add_voter_request(self, reply_to: object, request: AddVoterRequest, now_ms: int) -> None:
        refusal = self.add_voter_refusal(request, now_ms) or self._candidate_refusal(request.voter, now_ms)
        if refusal is not None:
            self._out.emit(Reply(reply_to, refusal))
            return
        waits = reply_to if request.acknowledges_when_committed else None
        self._append_voters(self._replica.voters.current.with_voter(request.voter), waits, request.timeout_ms, now_ms)
        if waits is None:
            self._out.emit(Reply(reply_to, self._current.voter_change_response(NONE)))

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

    def on_remove_voter_request(self, reply_to: object, request: RemoveVoterRequest, now_ms: int) -> None:
        error, message = self._voter_change_error("removing", now_ms)
        voters = self._replica.voters.current
        if error == NONE and (not voters.contains(request.voter) or len(voters) == 1):
            error = VOTER_NOT_FOUND
            message = f"Cannot remove voter {request.voter} from the set of voters {_text(voters)}"
        if error != NONE:
            self._out.emit(Reply(reply_to, self._current.voter_change_response(error, message)))
            return
        self._append_voters(voters.without_voter(request.voter), reply_to, request.timeout_ms, now_ms)

    def on_update_voter_request(self, reply_to: object, request: UpdateVoterRequest, now_ms: int) -> None:
        """Update a voter's endpoints and versions (with kraft.version 0 not in the log) and answer at once.

        The voter fetches nothing until it is answered, and its copy may be needed to commit the record.
        """
        error, message = self._voter_change_error("updating", now_ms)
        voters = self._replica.voters.current
        is_static = error == UNSUPPORTED_VERSION
        is_known = request.voter.node_id in voters.ids if is_static else voters.contains(request.voter.key)
        kraft_version = self._replica.voters.kraft_version
        if request.leader_epoch != self._current.leader_epoch:
            is_late = request.leader_epoch < self._current.leader_epoch
            error, message = FENCED_LEADER_EPOCH if is_late else UNKNOWN_LEADER_EPOCH, None
        elif error not in (NONE, UNSUPPORTED_VERSION):
            pass
        elif not 0 <= request.voter.min_kraft_version <= kraft_version <= request.voter.max_kraft_version:
            error, message = INVALID_REQUEST, f"{request.voter.key} does not support kraft.version {kraft_version}"
        elif not is_known:
            error, message = VOTER_NOT_FOUND, f"{request.voter.key} is not one of {voters}"
        elif is_static:
            assert isinstance(self._current.role, Leader)
            self._current.role.described_voters[request.voter.node_id] = request.voter
            error, message = NONE, None
        if error == NONE and not is_static and voters.needs_update(request.voter):
            self._append_voters(voters.with_voter(request.voter), None, self._config.request_timeout_ms, now_ms)
        self._out.emit(Reply(reply_to, self._current.voter_change_response(error, message)))

    def kraft_upgrade_refusal(self) -> tuple[int, str] | None:
        """Return (error code, reason) if kraft.version cannot be raised to 1 now, else None. On the leader only."""
        known = self._described_voters()
        missing = [node_id for node_id in self._replica.voters.current.ids if node_id not in known]
        if missing:
            return (
                UNKNOWN_SERVER_ERROR,
                f"Directory id must be known for all of the voters: unknown for {missing}",
            )
        if not all(voter.min_kraft_version <= 1 <= voter.max_kraft_version for voter in known.values()):
            return (
                INVALID_UPDATE_VERSION,
                "Invalid upgrade of kraft.version to 1 because not all of the voters support it",
            )
        return None

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

    def note_voter_update(self, request: Request, response: Response) -> None:
        """Note that the leader knows this voter, or that it takes no updates, as an older one with kraft.version 0."""
        role = self._current.role
        if not isinstance(request, UpdateVoterRequest) or not isinstance(role, Follower):
            return
        if response.error in (NONE, UNSUPPORTED_VERSION):
            role.is_known_to_leader = role.is_known_to_leader or request.leader_epoch == role.leader_epoch

    def _voter_change_error(self, change: str, now_ms: int) -> tuple[int, str | None]:
        """Return (error code, message) if no voter change may start now. `change`: adding, removing or updating."""
        role = self._current.role
        if not isinstance(role, Leader):
            return NOT_LEADER_OR_FOLLOWER, None
        if role.pending_voter_change is not None or role.is_resigning:
            return REQUEST_TIMED_OUT, PENDING_CHANGE
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

    def _append_voters(self, voters: VoterSet, reply_to: object | None, timeout_ms: int, now_ms: int) -> None:
        """Append the new voter set, which takes effect at once. Restart the check-quorum timeout for a new voter."""
        assert voters.overlaps_majority_of(self._replica.voters.current), "one voter at a time"
        role = self._current.role
        assert isinstance(role, Leader)
        offset = self._replica.append_controls(role, (Voters(voters),))
        role.pending_voter_change = PendingVoterChange(reply_to, offset, now_ms + timeout_ms)
        role.check_quorum_deadline_ms = now_ms + self._config.check_quorum_timeout_ms
        self._commitment.maybe_advance(role)

    def expire_voter_change(self, role: Leader, now_ms: int) -> None:
        """Answer a timed-out requester. The record stays; no other change starts before it is committed."""
        change = role.pending_voter_change
        if change is not None and now_ms >= change.deadline_ms:
            change.deadline_ms = FOREVER_MS
            if change.reply_to is not None:
                self._out.emit(Reply(change.reply_to, self._current.voter_change_response(REQUEST_TIMED_OUT)))
                change.reply_to = None

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
        timeout_ms = self._config.request_timeout_ms
        if former is not None:
            return self._send_voter_change(role, RemoveVoterRequest(voter=former.key, timeout_ms=timeout_ms), now_ms)
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


def _text(voters: VoterSet) -> str:
    return f"[{', '.join(str(voter.key) for voter in voters)}]"
