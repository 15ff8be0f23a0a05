"""The role of a replica and its changes: elections started, won, lost; a leader followed; leadership resigned.

Each change is checked against the table of roles.py, persisted, and announced to the driver.
"""

from kafkapy.dataclass import dataclass
from kafkapy.raft.config import FOREVER_MS, RaftConfig
from kafkapy.raft.connections import Connections, Outbox
from kafkapy.raft.effects import ElectionState, LeaderChanged, PersistElection, SendResponse
from kafkapy.raft.election import VoteTally
from kafkapy.raft.linger import AppendLinger
from kafkapy.raft.messages import (
    INVALID_REQUEST,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    Control,
    FetchResponse,
    KRaftVersion,
    LeaderChange,
    Response,
    VoterChangeResponse,
    Voters,
)
from kafkapy.raft.progress import QuorumProgress
from kafkapy.raft.replica import Replica
from kafkapy.raft.roles import (
    LAST_EPOCH,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    is_legal,
)
from kafkapy.raft.voters import Endpoint
from kafkapy.types import ZERO_UUID, ReplicaKey


@dataclass(slots=True)
class Jitter:
    """A deterministic pseudorandom generator (Knuth's MMIX), seeded by the driver: the core has no other randomness."""

    state: int

    def below(self, bound: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        return (self.state >> 33) % max(bound, 1)


class CurrentRole:
    """The current role. Only methods here replace it; the part of the core that acts in a role writes its fields."""

    def __init__(
        self, config: RaftConfig, replica: Replica, connections: Connections, outbox: Outbox, seed: int
    ) -> None:
        self.role: Role = Unattached(leader_epoch=0, election_deadline_ms=FOREVER_MS)
        self._config = config
        self._replica = replica
        self._connections = connections
        self._out = outbox
        self._jitter = Jitter(seed)
        self._persisted: ElectionState | None = None
        self._announced = (-2, -1)

    @property
    def leader_epoch(self) -> int:
        return self.role.leader_epoch

    @property
    def leader_id(self) -> int:
        return self.role.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    def endpoints_of(self, node_id: int) -> tuple[Endpoint, ...]:
        """Return a node's endpoints: the leader's as it announced them, others' from the voter set."""
        role = self.role
        if node_id == role.leader_id:
            return role.leader_endpoints
        return self._replica.voters.current.endpoints_of(node_id)

    # ---- changing roles

    def restore(self, election: ElectionState, now_ms: int) -> None:
        """Take the role that quorum-state and the log leave after a start."""
        self._adopt(self._initial_role(election, now_ms))

    def _enter(self, role: Role) -> None:
        """Become `role`: fail the old role's pending requests, persist the election state, announce a new leader."""
        assert is_legal(self.role, role), f"{self.role} must not become {role}"
        self._adopt(role)

    def _adopt(self, role: Role) -> None:
        former, self.role = self.role, role
        if isinstance(former, Leader):
            self._abandon_leadership(former)
        self._connections.forget_all()
        self._persist_election()
        self._announce_leader()

    def _persist_election(self) -> None:
        state = self.role.election_state()
        if state == self._persisted:
            return
        former = self._persisted
        if former is not None:
            assert state.leader_epoch >= former.leader_epoch, "epochs never go back"
            is_same_vote = former.voted is None or state.voted in (None, former.voted)
            assert state.leader_epoch > former.leader_epoch or is_same_vote, f"a second vote: {former}, then {state}"
        self._persisted = state
        self._out.emit(PersistElection(state, self._replica.voters.kraft_version, self._replica.voters.current.ids))

    def _announce_leader(self) -> None:
        leader_id = -1 if isinstance(self.role, Resigned) else self.role.leader_id
        if (leader_id, self.role.leader_epoch) == self._announced:
            return
        self._announced = (leader_id, self.role.leader_epoch)
        start_offset = self.role.epoch_start_offset if isinstance(self.role, Leader) else 0
        self._out.emit(LeaderChanged(leader_id, self.role.leader_epoch, start_offset))

    def _abandon_leadership(self, former: Leader) -> None:
        if former.linger.is_waiting:
            self._replica.release(former)  # a replica fetches, and starts an election, only with a durable log
        for fetch in former.pending_fetches:
            self._out.emit(SendResponse(fetch.respond_to, self.fetch_failure(NOT_LEADER_OR_FOLLOWER)))
        change = former.pending_voter_change
        if change is not None and change.respond_to is not None:
            self._out.emit(SendResponse(change.respond_to, self.voter_change_response(NOT_LEADER_OR_FOLLOWER)))

    def become_unattached(self, leader_epoch: int, leader_id: int, now_ms: int) -> None:
        """Wait for a leader until the election timeout passes.

        A timeout that runs already is kept, so that a replica whose timeout has passed starts an election at once;
        after a lost pre-vote it starts again.
        """
        role = self.role
        deadline_ms = now_ms + self._election_timeout_ms()
        if not self._replica.is_voter:
            deadline_ms = FOREVER_MS
        elif isinstance(role, Prospective) and role.tally.is_lost:
            pass
        elif isinstance(role, Unattached | Candidate | Prospective | Resigned):
            deadline_ms = role.election_deadline_ms if role.election_deadline_ms < FOREVER_MS else deadline_ms
        voted = role.voted if leader_epoch == role.leader_epoch else None
        self._enter(
            Unattached(leader_epoch=leader_epoch, leader_id=leader_id, voted=voted, election_deadline_ms=deadline_ms)
        )

    def become_follower(self, leader_epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], now_ms: int) -> None:
        assert leader_id != self._replica.local.node_id
        voted = self.role.voted if leader_epoch == self.role.leader_epoch else None
        self._enter(self._follower(leader_epoch, leader_id, endpoints, voted, now_ms))

    def _follower(
        self,
        leader_epoch: int,
        leader_id: int,
        endpoints: tuple[Endpoint, ...],
        voted: ReplicaKey | None,
        now_ms: int,
    ) -> Follower:
        assert leader_id >= 0, "a follower knows whom to follow"
        assert endpoints, f"a follower knows where to reach node {leader_id}"
        return Follower(
            leader_epoch=leader_epoch,
            leader_id=leader_id,
            leader_endpoints=endpoints,
            voted=voted,
            fetch_deadline_ms=now_ms + self._config.fetch_timeout_ms,
            update_voter_deadline_ms=now_ms + self._config.fetch_timeout_ms,
        )

    def become_prospective(self, now_ms: int, voted: ReplicaKey | None = None) -> None:
        """Start a pre-vote. A single voter has won it already, and becomes candidate at once."""
        assert self._replica.is_voter
        role = self.role
        self._enter(
            Prospective(
                leader_epoch=role.leader_epoch,
                leader_id=role.leader_id,
                leader_endpoints=role.leader_endpoints,
                voted=voted or role.voted,
                tally=VoteTally(self._replica.voters.current, self._replica.local),
                election_deadline_ms=now_ms + self._election_timeout_ms(),
            )
        )
        self.maybe_win_election(now_ms)

    def record_vote(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Record the vote in the same role and restart the election timeout, to give the candidate time to win."""
        role = self.role
        assert role.voted is None, f"epoch {role.leader_epoch} has this node's vote already: {role.voted}"
        if isinstance(role, Prospective):
            self.become_prospective(now_ms, voted=candidate)
            return
        assert isinstance(role, Unattached)
        self._enter(
            Unattached(
                leader_epoch=role.leader_epoch,
                leader_id=role.leader_id,
                voted=candidate,
                election_deadline_ms=now_ms + self._election_timeout_ms(),
            )
        )

    def become_candidate(self, now_ms: int) -> None:
        """Start an election in the next epoch, if there is one.

        Deviation: Apache Kafka's candidate goes on with -2^31 after the last epoch. Here it starts no election, because
        no other voter would grant its vote.
        """
        if self.role.leader_epoch < LAST_EPOCH:
            self._enter(self._candidate(self.role.leader_epoch + 1, now_ms))
            self.maybe_win_election(now_ms)

    def leave_epoch(self, now_ms: int) -> None:
        """Wait for a leader of the next epoch, if there is one."""
        if self.role.leader_epoch < LAST_EPOCH:
            self.become_unattached(self.role.leader_epoch + 1, -1, now_ms)

    def _candidate(self, leader_epoch: int, now_ms: int) -> Candidate:
        return Candidate(
            leader_epoch=leader_epoch,
            voted=self._replica.local,
            tally=VoteTally(self._replica.voters.current, self._replica.local),
            election_deadline_ms=now_ms + self._election_timeout_ms(),
        )

    def maybe_win_election(self, now_ms: int) -> None:
        """Become Candidate after Prospective, or Leader after Candidate, if a majority has granted its vote."""
        role = self.role
        if isinstance(role, Prospective) and role.tally.is_won:
            self.become_candidate(now_ms)
        elif isinstance(role, Candidate) and role.tally.is_won:
            self._become_leader(role, now_ms)

    def _become_leader(self, candidate: Candidate, now_ms: int) -> None:
        """Become leader: persist the election state, then append the control records that open the epoch."""
        assert candidate is self.role, f"{candidate} was elected for a role that ended"
        voters = self._replica.voters.current
        log, local = self._replica.log, self._replica.local
        role = Leader(
            leader_epoch=candidate.leader_epoch,
            leader_id=local.node_id,
            voted=local,
            leader_endpoints=self._config.local.endpoints,
            epoch_start_offset=log.end_offset,
            progress=QuorumProgress(local, voters, log.end_offset),
            check_quorum_deadline_ms=now_ms + self._config.check_quorum_timeout_ms,
            begin_epoch_deadline_ms=now_ms,
            linger=AppendLinger(self._config.append_linger_ms, self._config.max_batch_bytes, log.end_offset),
        )
        self._enter(role)
        role.progress.set_local_durable(log.durable_end_offset)
        change = LeaderChange(local.node_id, voters.ids, candidate.tally.granting_voter_ids)
        self._replica.append_controls(role, (change, *self._voter_controls()))

    def _voter_controls(self) -> tuple[Control, ...]:
        """Return the records that write an updated local voter entry, or a bootstrap snapshot's voters, to the log."""
        if self._replica.voters.kraft_version == 0:
            return ()
        voters = self._replica.voters.current
        if self._replica.voters.current_offset >= 0 and not voters.needs_update(self._config.local):
            return ()
        return (KRaftVersion(self._replica.voters.kraft_version), Voters(voters.with_voter(self._config.local)))

    def resign(self, role: Leader, now_ms: int) -> None:
        assert role is self.role, f"{role} has ended"
        others = set(self._replica.voters.current.ids) - {self._replica.local.node_id}
        self._enter(
            Resigned(
                leader_epoch=role.leader_epoch,
                leader_id=self._replica.local.node_id,
                leader_endpoints=role.leader_endpoints,
                unacknowledged_voter_ids=others,
                preferred_successors=role.progress.successors(),
                election_deadline_ms=now_ms + self._election_timeout_ms(),
            )
        )

    def _initial_role(self, election: ElectionState, now_ms: int) -> Role:
        deadline_ms = now_ms + self._election_timeout_ms() if self._replica.is_voter else FOREVER_MS
        # A vote is persisted before its epoch has records. An epoch below the log's: the file was lost, or is a copy.
        if election.leader_epoch < self._replica.log.last_epoch:
            return Unattached(leader_epoch=self._replica.log.last_epoch, election_deadline_ms=deadline_ms)
        # It led this epoch before it stopped, and may have lost records that were not flushed. Going on, it would
        # append others at the same offsets and epoch. As Resigned it neither leads nor votes in that epoch.
        if election.leader_id == self._replica.local.node_id:
            return Resigned(
                leader_epoch=election.leader_epoch,
                leader_id=self._replica.local.node_id,
                leader_endpoints=self._config.local.endpoints,
                unacknowledged_voter_ids=set(self._replica.voters.current.ids) - {self._replica.local.node_id},
                preferred_successors=(),
                election_deadline_ms=now_ms + self._election_timeout_ms(),
            )
        voted = election.voted
        voted_for_us = voted in (self._replica.local, ReplicaKey(self._replica.local.node_id, ZERO_UUID))
        if voted_for_us and election.leader_id < 0 and self._replica.is_voter:
            return self._candidate(election.leader_epoch, now_ms)
        # The leader's endpoints are unknown if it has left the voters, or if this log does not have it as a voter yet.
        endpoints = self._replica.voters.current.endpoints_of(election.leader_id)
        if election.leader_id >= 0 and endpoints:
            return self._follower(election.leader_epoch, election.leader_id, endpoints, voted, now_ms)
        return Unattached(
            leader_epoch=election.leader_epoch,
            leader_id=election.leader_id,
            voted=voted,
            election_deadline_ms=deadline_ms,
        )

    # ---- following a higher epoch or a leader

    def is_consistent_leader(self, leader_epoch: int, leader_id: int) -> bool:
        """Return whether the claim fits the local state: one leader per epoch, and we know if it is this node."""
        if leader_id == self._replica.local.node_id:
            return leader_epoch == self.leader_epoch and isinstance(self.role, Leader | Resigned)
        return leader_epoch != self.leader_epoch or leader_id < 0 or self.leader_id in (-1, leader_id)

    def maybe_follow(self, leader_epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], now_ms: int) -> None:
        """Change role if a message names a newer epoch, an unknown leader of this epoch, or more of its endpoints."""
        endpoints = endpoints or self._replica.voters.current.endpoints_of(leader_id)
        if leader_epoch > self.leader_epoch:
            if leader_id >= 0 and endpoints:
                self.become_follower(leader_epoch, leader_id, endpoints, now_ms)
            else:
                self.become_unattached(leader_epoch, leader_id, now_ms)
        elif leader_epoch == self.leader_epoch and leader_id >= 0 and endpoints:
            knows_less = self.leader_id < 0 or len(endpoints) > len(self.role.leader_endpoints)
            if knows_less and leader_id != self._replica.local.node_id:
                self.become_follower(leader_epoch, leader_id, endpoints, now_ms)

    def adopt_from_response(self, response: Response, now_ms: int) -> bool:
        """Adopt a response's epoch and leader if newer; return whether the rest of the response is still relevant."""
        if response.leader_epoch < self.leader_epoch:
            return False
        if not self.is_consistent_leader(response.leader_epoch, response.leader_id):
            return False
        role = self.role
        self.maybe_follow(response.leader_epoch, response.leader_id, response.leader_endpoints, now_ms)
        return role is self.role and response.error not in (NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST, REQUEST_TIMED_OUT)

    def fetch_failure(self, error: int) -> FetchResponse:
        return FetchResponse(
            error=error,
            leader_epoch=self.leader_epoch,
            leader_id=self.leader_id,
            leader_endpoints=self.role.leader_endpoints,
        )

    def voter_change_response(self, error: int, message: str | None = None) -> VoterChangeResponse:
        return VoterChangeResponse(
            error=error,
            message=message,
            leader_epoch=self.leader_epoch,
            leader_id=self.leader_id,
            leader_endpoints=self.role.leader_endpoints,
        )

    def _election_timeout_ms(self) -> int:
        return self._config.election_timeout_ms + self._jitter.below(self._config.election_timeout_ms)
