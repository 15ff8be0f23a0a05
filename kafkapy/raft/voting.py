"""Vote, BeginQuorumEpoch, EndQuorumEpoch: handling of the requests and responses of an election."""

from kafkapy.raft.effects import SendResponse
from kafkapy.raft.election import successor_backoff_ms
from kafkapy.raft.local_node import LocalNode
from kafkapy.raft.messages import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    INVALID_VOTER_KEY,
    NONE,
    UNSUPPORTED_VERSION,
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    VoteRequest,
    VoteResponse,
)
from kafkapy.raft.roles import Candidate, Follower, Leader, Prospective, Resigned
from kafkapy.types import ZERO_UUID, OffsetAndEpoch, ReplicaKey


class Voting:
    """The part of the core that handles elections: votes requested and granted, an epoch's begin and end."""

    def __init__(self, node: LocalNode) -> None:
        self._config = node.config
        self._replica = node.replica
        self._current = node.current
        self._connections = node.connections
        self._out = node.out

    # ---- requests

    def on_vote_request(self, respond_to: object, request: VoteRequest, now_ms: int) -> None:
        """Answer a vote or pre-vote request. A higher epoch in it is adopted, whether the vote is granted or not."""
        error = self._vote_request_error(request)
        is_granted = False
        if error == NONE:
            if request.leader_epoch > self._current.leader_epoch:
                self._current.become_unattached(request.leader_epoch, -1, now_ms)
            if not self._is_meant_for_us(request.voter):
                error = INVALID_VOTER_KEY
            else:
                is_granted = self._grant_vote(request, now_ms)
        response = VoteResponse(
            error=error,
            leader_epoch=self._current.leader_epoch,
            leader_id=self._current.leader_id,
            leader_endpoints=self._current.role.leader_endpoints,
            is_granted=is_granted,
        )
        self._out.emit(SendResponse(respond_to, response))

    def _vote_request_error(self, request: VoteRequest) -> int:
        last_epoch = request.end.leader_epoch
        is_epoch_illegal = (
            last_epoch > request.leader_epoch if request.is_pre_vote else last_epoch >= request.leader_epoch
        )
        if request.end.offset < 0 or last_epoch < 0 or is_epoch_illegal:
            return INVALID_REQUEST
        if request.leader_epoch < self._current.leader_epoch:
            return FENCED_LEADER_EPOCH
        return INVALID_REQUEST if request.candidate.node_id < 0 else NONE

    def _grant_vote(self, request: VoteRequest, now_ms: int) -> bool:
        """Decide on a vote, and record a real one (persisted before the response is sent).

        Deviation: Apache Kafka's observer refuses pre-votes. Here one whose fetch timeout has passed grants them,
        because a new voter is an observer until it has fetched its own voter set, and the leader may die before that.
        """
        end = (request.end.leader_epoch, request.end.offset)
        is_up_to_date = end >= (self._replica.log.last_epoch, self._replica.log.end_offset)
        role = self._current.role
        if isinstance(role, Follower) and now_ms >= role.fetch_deadline_ms:
            role.has_fetched = False  # only of an observer: a voter would be Prospective
        is_granted = role.can_grant_vote(
            request.candidate, is_log_up_to_date=is_up_to_date, is_pre_vote=request.is_pre_vote
        )
        if is_granted and not request.is_pre_vote and role.voted is None:
            self._current.record_vote(request.candidate, now_ms)
        return is_granted

    def _is_meant_for_us(self, voter: ReplicaKey | None) -> bool:
        return voter is None or (
            voter.node_id == self._replica.local.node_id
            and voter.directory_id in (ZERO_UUID, self._replica.local.directory_id)
        )

    def on_begin_epoch_request(self, respond_to: object, request: BeginEpochRequest, now_ms: int) -> None:
        error = self._leader_claim_error(request.leader_epoch, request.leader_id)
        if error == NONE:
            self._current.maybe_follow(request.leader_epoch, request.leader_id, request.leader_endpoints, now_ms)
            if not self._is_meant_for_us(request.voter):
                error = INVALID_VOTER_KEY
        self._out.emit(
            SendResponse(
                respond_to,
                BeginEpochResponse(
                    error=error,
                    leader_epoch=self._current.leader_epoch,
                    leader_id=self._current.leader_id,
                    leader_endpoints=self._current.role.leader_endpoints,
                ),
            )
        )

    def on_end_epoch_request(self, respond_to: object, request: EndEpochRequest, now_ms: int) -> None:
        error = self._leader_claim_error(request.leader_epoch, request.leader_id)
        if error == NONE:
            self._current.maybe_follow(request.leader_epoch, request.leader_id, request.leader_endpoints, now_ms)
            self._shorten_fetch_timeout(request, now_ms)
        self._out.emit(
            SendResponse(
                respond_to,
                EndEpochResponse(
                    error=error,
                    leader_epoch=self._current.leader_epoch,
                    leader_id=self._current.leader_id,
                    leader_endpoints=self._current.role.leader_endpoints,
                ),
            )
        )

    def _shorten_fetch_timeout(self, request: EndEpochRequest, now_ms: int) -> None:
        """Replace the fetch timeout by a short back-off, since the leader has resigned: preferred successors first."""
        role = self._current.role
        if not isinstance(role, Follower) or role.leader_id != request.leader_id:
            return
        successors = request.preferred_successors
        position = next((i for i, key in enumerate(successors) if self._is_meant_for_us(key)), len(successors))
        role.fetch_deadline_ms = now_ms + successor_backoff_ms(
            position, len(successors), self._config.election_backoff_max_ms
        )

    def _leader_claim_error(self, leader_epoch: int, leader_id: int) -> int:
        if leader_epoch < self._current.leader_epoch:
            return FENCED_LEADER_EPOCH
        if (
            leader_id < 0
            or leader_id == self._replica.local.node_id
            or not self._current.is_consistent_leader(leader_epoch, leader_id)
        ):
            return INVALID_REQUEST
        return NONE

    # ---- responses

    def on_vote_response(self, node_id: int, request: VoteRequest, response: VoteResponse, now_ms: int) -> None:
        if not self._current.adopt_from_response(response, now_ms):
            return
        role = self._current.role
        if response.error == UNSUPPORTED_VERSION and request.is_pre_vote and isinstance(role, Prospective):
            # A voter without pre-votes (before Apache Kafka 3.9) can only be asked for a real vote. KIP-996.
            self._current.become_candidate(now_ms)
            if self._current.role is not role:
                return
        if response.error != NONE:
            self._connections.back_off(node_id, now_ms)
            return
        requesting_role = Prospective if request.is_pre_vote else Candidate
        if not isinstance(role, requesting_role) or response.leader_epoch != request.leader_epoch:
            return
        assert isinstance(role, Prospective | Candidate)
        role.tally.record(node_id, response.is_granted)
        self._current.maybe_win_election(now_ms)
        if isinstance(self._current.role, Prospective) and self._current.role.tally.is_lost:
            self.on_pre_vote_lost(self._current.role, now_ms)

    def on_begin_epoch_response(self, node_id: int, response: BeginEpochResponse, now_ms: int) -> None:
        if self._current.adopt_from_response(response, now_ms) and response.error != NONE:
            self._connections.back_off(node_id, now_ms)

    def on_end_epoch_response(self, node_id: int, response: EndEpochResponse, now_ms: int) -> None:
        if not self._current.adopt_from_response(response, now_ms):
            return
        if isinstance(self._current.role, Resigned) and response.error == NONE:
            self._current.role.unacknowledged_voter_ids.discard(node_id)
        elif response.error != NONE:
            self._connections.back_off(node_id, now_ms)

    # ---- time

    def on_pre_vote_lost(self, role: Prospective, now_ms: int) -> None:
        """After a lost or unanswered pre-vote, follow the former leader again if it is known, else wait for a leader.

        A node that was the epoch's leader itself waits in the next epoch.
        """
        if role.leader_id >= 0 and role.leader_endpoints and role.leader_id != self._replica.local.node_id:
            self._current.become_follower(role.leader_epoch, role.leader_id, role.leader_endpoints, now_ms)
        elif role.leader_id == self._replica.local.node_id:
            self._current.leave_epoch(now_ms)
        else:
            self._current.become_unattached(role.leader_epoch, role.leader_id, now_ms)

    def send_votes(self, role: Prospective | Candidate, now_ms: int) -> None:
        if role.tally.is_lost:
            return
        for voter_id in role.tally.open_voter_ids:
            assert voter_id != self._replica.local.node_id, "a node has its own vote"
            voter = self._replica.voters.current.get(voter_id)
            request = VoteRequest(
                candidate=self._replica.local,
                leader_epoch=role.leader_epoch,
                end=OffsetAndEpoch(self._replica.log.end_offset, self._replica.log.last_epoch),
                is_pre_vote=isinstance(role, Prospective),
                voter=voter.key if voter is not None else None,
            )
            self._connections.maybe_send(voter_id, request, self._current.endpoints_of(voter_id), now_ms)

    def send_begin_epochs(self, role: Leader, now_ms: int) -> None:
        interval_ms = self._config.fetch_timeout_ms // 2
        for voter_id in role.progress.silent_voter_ids(now_ms, interval_ms):
            voter = self._replica.voters.current.get(voter_id)
            request = BeginEpochRequest(
                leader_id=self._replica.local.node_id,
                leader_epoch=role.leader_epoch,
                leader_endpoints=self._config.local.endpoints,
                voter=voter.key if voter is not None else None,
            )
            self._connections.maybe_send(voter_id, request, self._current.endpoints_of(voter_id), now_ms)
        role.begin_epoch_deadline_ms = now_ms + interval_ms

    def send_end_epochs(self, role: Resigned, now_ms: int) -> None:
        for voter_id in sorted(role.unacknowledged_voter_ids):
            request = EndEpochRequest(
                leader_id=self._replica.local.node_id,
                leader_epoch=role.leader_epoch,
                preferred_successors=role.preferred_successors,
                leader_endpoints=self._config.local.endpoints,
            )
            self._connections.maybe_send(voter_id, request, self._current.endpoints_of(voter_id), now_ms)
