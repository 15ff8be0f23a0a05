"""The state of a replica that all parts of the core share: role, log, voters, connections; and role transitions."""

from dataclasses import field

from kafkapy.dataclass import dataclass
from kafkapy.machine import Effect
from kafkapy.raft.effects import (
    AppendBatch,
    ElectionState,
    FlushLog,
    LeaderChanged,
    PersistElection,
    Reply,
    SendRequest,
)
from kafkapy.raft.election import VoteTally
from kafkapy.raft.log_view import LogView
from kafkapy.raft.messages import (
    INVALID_REQUEST,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    Control,
    FetchResponse,
    KRaftVersion,
    LeaderChange,
    LogBatch,
    Request,
    Response,
    VoterChangeResponse,
    Voters,
)
from kafkapy.raft.progress import QuorumProgress
from kafkapy.raft.roles import (
    FOREVER_MS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    is_legal,
)
from kafkapy.raft.voters import Endpoint, Voter, VoterHistory
from kafkapy.types import ReplicaKey

CHECK_QUORUM_FACTOR = 1.5
"""A leader resigns after 1.5 fetch timeouts without fetches from a majority: followers give up after one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """This replica's voter entry, and Kafka's controller.quorum.* timeouts."""

    local: Voter
    can_become_voter: bool = True
    joins_by_itself: bool = False
    """Whether a controller that is an observer asks to become a voter (controller.quorum.auto.join.enable)."""
    bootstrap_ids: tuple[int, ...] = ()
    """Nodes to ask while the leader is unknown: node ids of voters, or negative ids of bootstrap servers."""
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20


@dataclass(slots=True)
class Connection:
    """The requests to one peer: at most one in flight, and a back-off after a failure."""

    request_id: int = -1
    request: Request | None = None
    deadline_ms: int = FOREVER_MS
    backoff_until_ms: int = 0

    @property
    def due_ms(self) -> int:
        return self.deadline_ms if self.request is not None else self.backoff_until_ms


@dataclass(slots=True)
class Jitter:
    """A deterministic pseudorandom generator (Knuth's MMIX), seeded by the driver: the core has no other randomness."""

    state: int

    def below(self, bound: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        return (self.state >> 33) % max(bound, 1)


@dataclass(slots=True)
class Outbox:
    """Effects of the current step, in order."""

    effects: list[Effect] = field(default_factory=list)

    def take(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects


class RaftState:
    """The state of one quorum replica. The parts (VoteHandling, Membership, ...) extend it; RaftCore combines them."""

    def __init__(
        self, config: RaftConfig, log: LogView, voters: VoterHistory, election: ElectionState, seed: int
    ) -> None:
        self.config = config
        self.local: ReplicaKey = config.local.key
        self.log = log
        self.voters = voters
        self.high_watermark = log.latest_snapshot.offset if log.latest_snapshot is not None else -1
        """The highest committed end offset that this replica knows of; never decreases."""
        self.has_learned_high_watermark = False
        """Whether a leader, this replica or another, has said it since the start. Before, it is the last snapshot's."""
        self.jitter = Jitter(seed)
        self.connections: dict[int, Connection] = {}
        self.role: Role = Unattached(leader_epoch=0, election_deadline_ms=FOREVER_MS)
        self._recovered_election = election
        self._persisted: ElectionState | None = None
        self._announced = (-2, -1)
        self._next_request_id = 0
        self._next_bootstrap = 0
        self._out = Outbox()

    # ---- what we are

    @property
    def leader_epoch(self) -> int:
        return self.role.leader_epoch

    @property
    def leader_id(self) -> int:
        return self.role.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def is_voter(self) -> bool:
        return self.voters.current.contains(self.local)

    @property
    def is_only_voter(self) -> bool:
        return self.voters.current.is_only_voter(self.local)

    def endpoints_of(self, node_id: int) -> tuple[Endpoint, ...]:
        return self.voters.current.endpoints_of(node_id)

    # ---- changing roles

    def _enter(self, role: Role) -> None:
        """Become `role`: fail the old role's pending requests, persist the election state, announce a new leader."""
        assert is_legal(self.role, role), f"{self.role} must not become {role}"
        self._adopt(role)

    def _adopt(self, role: Role) -> None:
        former, self.role = self.role, role
        if isinstance(former, Leader):
            self._abandon_leadership(former)
        self.connections.clear()
        self._persist_election()
        self._announce_leader()

    def _persist_election(self) -> None:
        state = self.role.election_state()
        if state == self._persisted:
            return
        assert self._persisted is None or state.leader_epoch >= self._persisted.leader_epoch, "epochs never go back"
        self._persisted = state
        self._emit(PersistElection(state, self.voters.kraft_version, self.voters.current.ids))

    def _announce_leader(self) -> None:
        leader_id = -1 if isinstance(self.role, Resigned) else self.role.leader_id
        if (leader_id, self.role.leader_epoch) == self._announced:
            return
        self._announced = (leader_id, self.role.leader_epoch)
        start_offset = self.role.epoch_start_offset if isinstance(self.role, Leader) else 0
        self._emit(LeaderChanged(leader_id, self.role.leader_epoch, start_offset))

    def _abandon_leadership(self, former: Leader) -> None:
        for fetch in former.pending_fetches:
            self._emit(Reply(fetch.reply_to, self._fetch_failure(NOT_LEADER_OR_FOLLOWER)))
        change = former.pending_voter_change
        if change is not None and change.reply_to is not None:
            self._emit(Reply(change.reply_to, self._voter_change_response(NOT_LEADER_OR_FOLLOWER)))

    def _become_unattached(self, leader_epoch: int, leader_id: int, now_ms: int) -> None:
        role = self.role
        deadline_ms = now_ms + self._election_timeout_ms()
        if not self.is_voter:
            deadline_ms = FOREVER_MS
        elif isinstance(role, Prospective) and role.tally.is_lost:
            pass
        elif isinstance(role, Unattached | Candidate | Prospective | Resigned) and role.election_deadline_ms > now_ms:
            deadline_ms = min(role.election_deadline_ms, deadline_ms)
        voted = role.voted if leader_epoch == role.leader_epoch else None
        self._enter(
            Unattached(leader_epoch=leader_epoch, leader_id=leader_id, voted=voted, election_deadline_ms=deadline_ms)
        )

    def _become_follower(self, leader_epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], now_ms: int) -> None:
        assert leader_id != self.local.node_id
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
        return Follower(
            leader_epoch=leader_epoch,
            leader_id=leader_id,
            leader_endpoints=endpoints,
            voted=voted,
            fetch_deadline_ms=now_ms + self.config.fetch_timeout_ms,
            update_voter_deadline_ms=now_ms + self.config.fetch_timeout_ms,
        )

    def _become_prospective(self, now_ms: int, voted: ReplicaKey | None = None) -> None:
        """Start asking for pre-votes. A single voter has won already and becomes candidate at once."""
        assert self.is_voter
        role = self.role
        self._enter(
            Prospective(
                leader_epoch=role.leader_epoch,
                leader_id=role.leader_id,
                leader_endpoints=role.leader_endpoints,
                voted=voted or role.voted,
                tally=VoteTally(self.voters.current, self.local),
                election_deadline_ms=now_ms + self._election_timeout_ms(),
            )
        )
        self._maybe_go_forward(now_ms)

    def _become_candidate(self, now_ms: int) -> None:
        self._enter(self._candidate(self.role.leader_epoch + 1, now_ms))
        self._maybe_go_forward(now_ms)

    def _candidate(self, leader_epoch: int, now_ms: int) -> Candidate:
        return Candidate(
            leader_epoch=leader_epoch,
            voted=self.local,
            tally=VoteTally(self.voters.current, self.local),
            election_deadline_ms=now_ms + self._election_timeout_ms(),
        )

    def _maybe_go_forward(self, now_ms: int) -> None:
        """Move from Prospective to Candidate, or from Candidate to Leader, if a majority has granted its vote."""
        role = self.role
        if isinstance(role, Prospective) and role.tally.is_won:
            self._become_candidate(now_ms)
        elif isinstance(role, Candidate) and role.tally.is_won:
            self._become_leader(role, now_ms)

    def _become_leader(self, candidate: Candidate, now_ms: int) -> None:
        """Become leader: persist the election state, then append the control records that open the epoch."""
        voters = self.voters.current
        progress = QuorumProgress(self.local, voters, self.log.end_offset)
        self._enter(
            Leader(
                leader_epoch=candidate.leader_epoch,
                leader_id=self.local.node_id,
                voted=self.local,
                leader_endpoints=self.config.local.endpoints,
                epoch_start_offset=self.log.end_offset,
                progress=progress,
                check_quorum_deadline_ms=now_ms + self._check_quorum_timeout_ms(),
                begin_epoch_deadline_ms=now_ms,
            )
        )
        progress.note_local_durable(self.log.durable_end_offset)
        change = LeaderChange(self.local.node_id, voters.ids, candidate.tally.granting_voter_ids)
        self._append_as_leader((change, *self._voter_controls()))

    def _voter_controls(self) -> tuple[Control, ...]:
        """Return the records that write an updated local voter entry, or a bootstrap snapshot's voters, to the log."""
        if self.voters.kraft_version == 0:
            return ()
        voters = self.voters.current
        if self.voters.current_offset >= 0 and not voters.needs_update(self.config.local):
            return ()
        return (KRaftVersion(self.voters.kraft_version), Voters(voters.with_voter(self.config.local)))

    def _resign(self, role: Leader, now_ms: int) -> None:
        others = set(self.voters.current.ids) - {self.local.node_id}
        self._enter(
            Resigned(
                leader_epoch=role.leader_epoch,
                leader_id=self.local.node_id,
                leader_endpoints=role.leader_endpoints,
                unacknowledged_voter_ids=others,
                preferred_successors=role.progress.successors(),
                election_deadline_ms=now_ms + self._election_timeout_ms(),
            )
        )

    # ---- appending

    def _append_as_leader(self, controls: tuple[Control, ...] = (), data: object = None, record_count: int = 0) -> int:
        """Add one batch to the log view and emit its append; return its last offset."""
        role = self.role
        assert isinstance(role, Leader)
        base_offset = self.log.end_offset
        last_offset = base_offset + (len(controls) or record_count) - 1
        batch = LogBatch(base_offset, last_offset, role.leader_epoch, controls, data)
        self._append(batch, is_leader=True)
        return last_offset

    def _append(self, batch: LogBatch, *, is_leader: bool) -> None:
        self.log.append(batch.base_offset, batch.last_offset, batch.leader_epoch)
        self._emit(AppendBatch(batch, is_leader))
        self._emit(FlushLog(self.log.end_offset, self.log.generation))
        for offset, control in enumerate(batch.controls, batch.base_offset):
            self._note_control(offset, control)

    def _note_control(self, offset: int, control: Control) -> None:
        if isinstance(control, KRaftVersion):
            self.voters.add_kraft_version(offset, control.level)
        elif isinstance(control, Voters):
            self.voters.add_voters(offset, control.voters)
            self._on_voters_changed()

    def _on_voters_changed(self) -> None:
        role = self.role
        if isinstance(role, Leader):
            role.progress.set_voters(self.voters.current)
        elif isinstance(role, Unattached) and self.is_voter and role.election_deadline_ms == FOREVER_MS:
            role.election_deadline_ms = 0

    # ---- requests and responses

    def _emit(self, effect: Effect) -> None:
        self._out.effects.append(effect)

    def _maybe_send(self, node_id: int, request: Request, now_ms: int) -> bool:
        """Send unless a request to that node is in flight or it is in back-off; return whether it was sent."""
        connection = self.connections.setdefault(node_id, Connection())
        if connection.request is not None or now_ms < connection.backoff_until_ms:
            return False
        self._next_request_id += 1
        connection.request_id = self._next_request_id
        connection.request = request
        connection.deadline_ms = now_ms + self.config.request_timeout_ms
        endpoints = self.role.leader_endpoints if node_id == self.role.leader_id else self.endpoints_of(node_id)
        self._emit(SendRequest(node_id, connection.request_id, request, endpoints))
        return True

    def _complete(self, node_id: int, request_id: int) -> Request | None:
        """Return the request that was in flight, or None if the response is to an older one and must be ignored."""
        connection = self.connections.get(node_id)
        if connection is None or connection.request_id != request_id:
            return None
        request, connection.request = connection.request, None
        connection.deadline_ms = FOREVER_MS
        return request

    def _back_off(self, node_id: int, now_ms: int) -> None:
        self.connections[node_id] = Connection(backoff_until_ms=now_ms + self.config.retry_backoff_ms)

    def _expire_connections(self, now_ms: int) -> None:
        for node_id, connection in list(self.connections.items()):
            if connection.request is not None and now_ms >= connection.deadline_ms:
                self._back_off(node_id, now_ms)

    def _fetch_failure(self, error: int) -> FetchResponse:
        return FetchResponse(
            error=error,
            leader_epoch=self.leader_epoch,
            leader_id=self.leader_id,
            leader_endpoints=self.role.leader_endpoints,
        )

    def _voter_change_response(self, error: int, message: str | None = None) -> VoterChangeResponse:
        return VoterChangeResponse(
            error=error, message=message, leader_epoch=self.leader_epoch, leader_id=self.leader_id
        )

    # ---- following a higher epoch or a leader

    def _is_consistent_leader(self, leader_epoch: int, leader_id: int) -> bool:
        """Return whether the claim fits the local state: one leader per epoch, and we know if it is this node."""
        if leader_id == self.local.node_id:
            return leader_epoch == self.leader_epoch and isinstance(self.role, Leader | Resigned)
        return leader_epoch != self.leader_epoch or leader_id < 0 or self.leader_id in (-1, leader_id)

    def _maybe_follow(self, leader_epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], now_ms: int) -> None:
        """Change role if a message names a newer epoch, an unknown leader of this epoch, or more of its endpoints."""
        endpoints = endpoints or self.voters.current.endpoints_of(leader_id)
        if leader_epoch > self.leader_epoch:
            if leader_id >= 0 and endpoints:
                self._become_follower(leader_epoch, leader_id, endpoints, now_ms)
            else:
                self._become_unattached(leader_epoch, leader_id, now_ms)
        elif leader_epoch == self.leader_epoch and leader_id >= 0 and endpoints:
            knows_less = self.leader_id < 0 or len(endpoints) > len(self.role.leader_endpoints)
            if knows_less and leader_id != self.local.node_id:
                self._become_follower(leader_epoch, leader_id, endpoints, now_ms)

    def _learn_from_response(self, response: Response, now_ms: int) -> bool:
        """Adopt a response's epoch and leader if newer; return whether the rest of the response is still relevant."""
        if response.leader_epoch < self.leader_epoch:
            return False
        if not self._is_consistent_leader(response.leader_epoch, response.leader_id):
            return False
        role = self.role
        self._maybe_follow(response.leader_epoch, response.leader_id, response.leader_endpoints, now_ms)
        return role is self.role and response.error not in (NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST, REQUEST_TIMED_OUT)

    def _election_timeout_ms(self) -> int:
        return self.config.election_timeout_ms + self.jitter.below(self.config.election_timeout_ms)

    def _check_quorum_timeout_ms(self) -> int:
        return int(self.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
