"""Changing the voters, one at a time (KIP-853): AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter.

A change is a Voters record. It holds from when it is appended, so that the next majority is counted with it; another
may start only once it is committed: two sets in force at a time always share a member of any two majorities.
"""

from kafkapy.raft.effects import Reply
from kafkapy.raft.messages import (
    DUPLICATE_VOTER,
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNSUPPORTED_VERSION,
    VOTER_NOT_FOUND,
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    Voters,
)
from kafkapy.raft.replication import Replication
from kafkapy.raft.roles import FOREVER_MS, Follower, Leader, PendingVoterChange
from kafkapy.raft.voters import VoterSet


class Membership(Replication):
    """The part of the core that changes who votes."""

    def _on_add_voter_request(self, reply_to: object, request: AddVoterRequest, now_ms: int) -> None:
        error, message = self._voter_change_error(now_ms)
        role, voters = self.role, self.voters.current
        if error == NONE and request.voter.node_id in voters.ids:
            error, message = DUPLICATE_VOTER, f"voter {request.voter.key} is already one of {voters}"
        if error == NONE and not self._supports_kraft_version(
            request.voter.min_kraft_version, request.voter.max_kraft_version
        ):
            error, message = (
                INVALID_REQUEST,
                f"{request.voter.key} does not support kraft.version {self.voters.kraft_version}",
            )
        if error == NONE:
            assert isinstance(role, Leader)
            if not role.progress.is_caught_up(request.voter.key, now_ms):
                error, message = REQUEST_TIMED_OUT, f"{request.voter.key} is not caught up"
        if error != NONE:
            self._emit(Reply(reply_to, self._voter_change_response(error, message)))
            return
        waits = reply_to if request.acknowledges_when_committed else None
        self._append_voters(voters.with_voter(request.voter), waits, request.timeout_ms, now_ms)
        if waits is None:
            self._emit(Reply(reply_to, self._voter_change_response(NONE)))

    def _on_remove_voter_request(self, reply_to: object, request: RemoveVoterRequest, now_ms: int) -> None:
        error, message = self._voter_change_error(now_ms)
        voters = self.voters.current
        if error == NONE and (not voters.contains(request.voter) or len(voters) == 1):
            error, message = VOTER_NOT_FOUND, f"cannot remove {request.voter} from {voters}"
        if error != NONE:
            self._emit(Reply(reply_to, self._voter_change_response(error, message)))
            return
        self._append_voters(voters.without_voter(request.voter), reply_to, request.timeout_ms, now_ms)

    def _on_update_voter_request(self, reply_to: object, request: UpdateVoterRequest, now_ms: int) -> None:
        """A voter tells its endpoints and versions; answered once committed."""
        error, message = self._voter_change_error(now_ms)
        voters = self.voters.current
        if request.leader_epoch < self.leader_epoch:
            error, message = FENCED_LEADER_EPOCH, None
        elif error == NONE and not voters.contains(request.voter.key):
            error, message = VOTER_NOT_FOUND, f"{request.voter.key} is not one of {voters}"
        if error != NONE or not voters.needs_update(request.voter):
            self._emit(Reply(reply_to, self._voter_change_response(error, message)))
            return
        self._append_voters(voters.with_voter(request.voter), reply_to, self.config.request_timeout_ms, now_ms)

    def _voter_change_error(self, now_ms: int) -> tuple[int, str | None]:
        """Say what forbids any change just now."""
        role = self.role
        if not isinstance(role, Leader):
            return NOT_LEADER_OR_FOLLOWER, None
        if role.pending_voter_change is not None or role.is_resigning:
            return REQUEST_TIMED_OUT, "another voter change is under way"
        if role.progress.high_watermark < 0:
            return REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet"
        if self.voters.kraft_version == 0:
            return UNSUPPORTED_VERSION, "kraft.version 0 has static voters"
        if self.voters.current_offset >= role.progress.high_watermark:
            return REQUEST_TIMED_OUT, "the latest voter change is not committed yet"
        return NONE, None

    def _supports_kraft_version(self, lowest: int, highest: int) -> bool:
        return lowest <= self.voters.kraft_version <= highest

    def _append_voters(self, voters: VoterSet, reply_to: object | None, timeout_ms: int, now_ms: int) -> None:
        """Put the new set in force. Whoever is new in it gets a whole check-quorum time-out to fetch."""
        assert voters.overlaps_majority_of(self.voters.current), "one voter at a time"
        role = self.role
        assert isinstance(role, Leader)
        offset = self._append_as_leader((Voters(voters),))
        role.pending_voter_change = PendingVoterChange(reply_to, offset, now_ms + timeout_ms)
        role.check_quorum_deadline_ms = now_ms + self._check_quorum_timeout_ms()
        self._maybe_advance_high_watermark(role)

    def _on_committed(self, role: Leader) -> None:
        change = role.pending_voter_change
        if change is not None and role.progress.high_watermark > change.offset:
            role.pending_voter_change = None
            if change.reply_to is not None:
                self._emit(Reply(change.reply_to, self._voter_change_response(NONE)))
        if not self.is_voter and role.progress.high_watermark > self.voters.current_offset:
            role.is_resigning = True

    def _expire_voter_change(self, role: Leader, now_ms: int) -> None:
        """Stop the requester's wait; the record stays, and no other change starts before it is committed."""
        change = role.pending_voter_change
        if change is not None and now_ms >= change.deadline_ms:
            change.deadline_ms = FOREVER_MS
            if change.reply_to is not None:
                self._emit(Reply(change.reply_to, self._voter_change_response(REQUEST_TIMED_OUT)))
                change.reply_to = None

    def _maybe_send_update_voter(self, role: Follower, now_ms: int) -> bool:
        """Tell the leader when the voter set knows us by other endpoints or versions than we have."""
        if now_ms < role.update_voter_deadline_ms:
            return False
        role.update_voter_deadline_ms = now_ms + self.config.fetch_timeout_ms
        if self.voters.kraft_version == 0 or not self.voters.current.needs_update(self.config.local):
            return False
        request = UpdateVoterRequest(voter=self.config.local, leader_epoch=role.leader_epoch)
        return self._maybe_send(role.leader_id, request, now_ms)
