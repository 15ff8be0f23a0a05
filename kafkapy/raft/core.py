"""KRaft as a pure machine: `step(event, now_ms)` returns effects, `deadline_ms()` returns the time of the next timeout.

Raft with Kafka's pull replication (KIP-595), snapshots (KIP-630), voters in the log (KIP-853) and pre-votes (KIP-996).
The core knows offsets, epochs and voters, never records. Driven by `runtime/quorum/quorum.py`. It owns one object per
concern; each uses those before it:

    LocalNode              what the parts share:
      Outbox, Connections    effects of the step; requests in flight
      Replica                the log's shape, the voters in it, the high watermark
      CurrentRole            the role and its changes; roles.py has the table of transitions
    Commitment             what follows when a majority has more of the leader's log
    Voting, LeaderReplication, FollowerReplication, Membership    the handling of requests, responses and time

Invariants, asserted here and checked after every event by tests/simulator/raft_cluster.py: epochs and the high
watermark never decrease; an epoch has at most one leader; no committed record is truncated; state is durable before a
response promises it.
"""

from kafkapy.machine import Effect, Event
from kafkapy.raft.commitment import Commitment
from kafkapy.raft.config import FOREVER_MS, RaftConfig
from kafkapy.raft.effects import ElectionState
from kafkapy.raft.events import (
    AppendRequested,
    KraftUpgradeRequested,
    LogFlushed,
    LogPrefixDeleted,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotTaken,
    Started,
    TimePassed,
)
from kafkapy.raft.local_node import LocalNode
from kafkapy.raft.log_view import LogView
from kafkapy.raft.membership import Membership
from kafkapy.raft.messages import (
    AddVoterRequest,
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from kafkapy.raft.replication import FollowerReplication, LeaderReplication
from kafkapy.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from kafkapy.raft.voters import VoterHistory
from kafkapy.raft.voting import Voting

__all__ = ["RaftConfig", "RaftCore"]


class RaftCore:
    """One replica of the metadata quorum. Build it from recovered state and step Started before any other event."""

    def __init__(
        self, config: RaftConfig, log: LogView, voters: VoterHistory, election: ElectionState, seed: int
    ) -> None:
        """`election`: from quorum-state. `seed`: for the election timeouts."""
        self.log = log
        self.voters = voters
        self.local = config.local.key
        self._config = config
        self._recovered_election = election
        self._polled_ms = -1
        """When _poll last ran: deadlines up to then have been handled."""
        node = LocalNode(config, log, voters, seed)
        self._out, self._replica, self._current = node.out, node.replica, node.current
        self.connections = node.connections
        self._commitment = Commitment(node)
        self._voting = Voting(node)
        self._serving = LeaderReplication(node, self._commitment)
        self._fetching = FollowerReplication(node)
        self._membership = Membership(node, self._commitment)

    # ---- what this replica is

    @property
    def role(self) -> Role:
        return self._current.role

    @property
    def leader_epoch(self) -> int:
        return self._current.role.leader_epoch

    @property
    def leader_id(self) -> int:
        return self._current.role.leader_id

    @property
    def is_leader(self) -> bool:
        return self._current.is_leader

    @property
    def is_only_voter(self) -> bool:
        return self._replica.is_only_voter

    @property
    def high_watermark(self) -> int:
        """The highest committed end offset that this replica knows of, -1 for none; never decreases."""
        return self._replica.high_watermark

    @property
    def has_learned_high_watermark(self) -> bool:
        """Whether a leader has reported the high watermark since the start; until then it is the last snapshot's."""
        return self._replica.has_learned_high_watermark

    def begin_adding(self, request: AddVoterRequest, now_ms: int) -> VoterChangeResponse | None:
        """Return the error response to an AddRaftVoter, or None to go on and ask the new voter for its versions.

        Other changes are refused until the request is stepped, end_adding() is called, or its time has passed.
        """
        return self._membership.begin_adding(request, now_ms)

    def end_adding(self, request: AddVoterRequest) -> None:
        """Give up a request that begin_adding() let pass: the new voter has not sent its versions."""
        self._membership.end_adding(request)

    def kraft_upgrade_refusal(self) -> tuple[int, str] | None:
        """Return (error code, reason) if kraft.version cannot be raised to 1 now, else None. On the leader only."""
        return self._membership.kraft_upgrade_refusal()

    # ---- steps

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Process an event and return the effects to carry out, in order. now_ms is monotonic."""
        self._dispatch(event, now_ms)
        self._poll(now_ms)
        return self._out.pop()

    def deadline_ms(self) -> int | None:
        """Return when to step TimePassed if no event comes before, None for never. It may lie in the past."""
        role_deadline_ms = self._role_deadline_ms(self._current.role)
        latest_ms = role_deadline_ms if role_deadline_ms > self._polled_ms else FOREVER_MS
        earliest_ms = self.connections.next_due_ms(after_ms=self._polled_ms, latest_ms=latest_ms)
        return earliest_ms if earliest_ms < FOREVER_MS else None

    # ---- events

    def _dispatch(self, event: Event, now_ms: int) -> None:
        match event:
            case AppendRequested():
                self._append(event, now_ms)
            case LogFlushed():
                self._commitment.set_durable(event.end_offset, event.generation)
            case KraftUpgradeRequested():
                self._membership.upgrade_kraft_version()
            case RequestReceived():
                self._on_request(event, now_ms)
            case ResponseReceived():
                self._on_response(event, now_ms)
            case RequestFailed():
                # else it was given up before: its failure says nothing about the request after it
                if self.connections.complete(event.node_id, event.request_id) is not None:
                    self.connections.back_off(event.node_id, now_ms)
            case SnapshotTaken():
                self._replica.add_snapshot(event.snapshot_id)
            case LogPrefixDeleted():
                self._replica.delete_prefix(event.start_offset)
            case SnapshotInstalled():
                self._fetching.on_snapshot_installed(event.snapshot_id, event.voters, event.kraft_version)
            case SnapshotRefused():
                self._fetching.on_snapshot_refused(event.snapshot_id, now_ms)
            case ResignRequested():
                role = self._current.role
                if isinstance(role, Leader) and role.leader_epoch == event.leader_epoch:
                    role.is_resigning = True
            case Started():
                self._on_started(now_ms)
            case _:
                assert isinstance(event, TimePassed), event

    def _append(self, event: AppendRequested, now_ms: int) -> None:
        role = self._current.role
        assert isinstance(role, Leader), "only a leader appends"
        assert event.leader_epoch == role.leader_epoch
        assert event.record_count > 0
        self._replica.append_data(
            role, event.data, record_count=event.record_count, size_bytes=event.size_bytes, now_ms=now_ms
        )

    def _on_request(self, event: RequestReceived, now_ms: int) -> None:
        request, respond_to = event.request, event.respond_to
        match request:
            case FetchRequest():
                self._serving.on_fetch_request(respond_to, request, now_ms)
            case VoteRequest():
                self._voting.on_vote_request(respond_to, request, now_ms)
            case BeginEpochRequest():
                self._voting.on_begin_epoch_request(respond_to, request, now_ms)
            case EndEpochRequest():
                self._voting.on_end_epoch_request(respond_to, request, now_ms)
            case FetchSnapshotRequest():
                self._serving.on_fetch_snapshot_request(respond_to, request, now_ms)
            case AddVoterRequest():
                self._membership.on_add_voter_request(respond_to, request, now_ms)
            case RemoveVoterRequest():
                self._membership.on_remove_voter_request(respond_to, request, now_ms)
            case UpdateVoterRequest():
                self._membership.on_update_voter_request(respond_to, request, now_ms)

    def _on_response(self, event: ResponseReceived, now_ms: int) -> None:
        request = self.connections.complete(event.node_id, event.request_id)
        if request is None:
            return
        response = event.response
        match response:
            case FetchResponse():
                self._fetching.on_fetch_response(event.node_id, request, response, now_ms)
            case VoteResponse():
                assert isinstance(request, VoteRequest)
                self._voting.on_vote_response(event.node_id, request, response, now_ms)
            case BeginEpochResponse():
                self._voting.on_begin_epoch_response(event.node_id, response, now_ms)
            case EndEpochResponse():
                self._voting.on_end_epoch_response(event.node_id, response, now_ms)
            case FetchSnapshotResponse():
                self._fetching.on_fetch_snapshot_response(event.node_id, response, now_ms)
            case _:
                self._membership.on_voter_change_response(event.node_id, request, response, now_ms)

    def _on_started(self, now_ms: int) -> None:
        """Restore the role from quorum-state. A single voter becomes leader at once, in a new epoch."""
        self._current.restore(self._recovered_election, now_ms)
        if isinstance(self._current.role, Candidate):
            self._current.maybe_win_election(now_ms)
        elif self._replica.is_only_voter:
            self._current.become_prospective(now_ms)

    # ---- time

    def _poll(self, now_ms: int) -> None:
        """Handle expired deadlines: first role transitions, until no more are due, then the role's requests."""
        self._polled_ms = now_ms
        self.connections.expire(now_ms)
        role = None
        while role is not self._current.role:
            role = self._current.role
            self._pass_time(role, now_ms)
        self._send_due(role, now_ms)

    def _pass_time(self, role: Role, now_ms: int) -> None:
        match role:
            case Unattached():
                if now_ms >= role.election_deadline_ms and self._replica.is_voter:
                    self._current.become_prospective(now_ms)
            case Prospective():
                if role.tally.is_lost or now_ms >= role.election_deadline_ms:
                    self._voting.on_pre_vote_lost(role, now_ms)
            case Candidate():
                if now_ms >= role.election_deadline_ms:
                    self._become_prospective_or_wait(now_ms)
            case Follower():
                if now_ms >= role.fetch_deadline_ms and self._replica.is_voter:
                    self._current.become_prospective(now_ms)
            case Leader():
                has_lost_quorum = len(role.progress.voters) > 1 and now_ms >= role.check_quorum_deadline_ms
                if role.is_resigning or has_lost_quorum:
                    self._current.resign(role, now_ms)
            case Resigned():
                if now_ms >= role.election_deadline_ms:
                    self._current.leave_epoch(now_ms)

    def _become_prospective_or_wait(self, now_ms: int) -> None:
        if self._replica.is_voter:
            self._current.become_prospective(now_ms)
        else:
            self._current.leave_epoch(now_ms)

    def _send_due(self, role: Role, now_ms: int) -> None:
        match role:
            case Prospective() | Candidate():
                self._voting.send_votes(role, now_ms)
            case Leader():
                if role.pending_voter_change is not None:
                    self._membership.expire_voter_change(role, now_ms)
                if now_ms >= role.linger.deadline_ms:
                    self._replica.release(role)
                if role.pending_fetches:
                    self._serving.complete_fetches(role, now_ms)
                if now_ms >= role.begin_epoch_deadline_ms:
                    self._voting.send_begin_epochs(role, now_ms)
            case Resigned():
                self._voting.send_end_epochs(role, now_ms)
            case Follower():
                self._send_as_follower(role, now_ms)
            case Unattached():
                self._fetching.send_to_any_bootstrap(now_ms)

    def _send_as_follower(self, role: Follower, now_ms: int) -> None:
        """Send the next request, one at a time. While the leader is in back-off, ask another node for the leader."""
        if role.is_installing:
            return
        has_sent = (
            self._membership.maybe_send_update_voter(role, now_ms)
            if self._replica.is_voter
            else self._membership.maybe_join(role, now_ms)
        )
        if has_sent:
            return
        if self.connections.is_in_back_off(role.leader_id, now_ms):
            self._fetching.send_to_any_bootstrap(now_ms)
        elif self.connections.has_request_in_flight:
            return
        elif role.snapshot_id is not None:
            self._fetching.send_fetch_snapshot(role, role.snapshot_id, now_ms)
        else:
            self._fetching.send_fetch(role.leader_id, now_ms)

    def _role_deadline_ms(self, role: Role) -> int:
        match role:
            case Unattached():
                return role.election_deadline_ms if self._replica.is_voter else FOREVER_MS
            case Prospective() | Candidate() | Resigned():
                return role.election_deadline_ms
            case Follower():
                if not self._replica.is_voter:
                    return role.update_voter_deadline_ms if self._config.joins_by_itself else FOREVER_MS
                return min(role.fetch_deadline_ms, role.update_voter_deadline_ms)
            case Leader():
                return self._leader_deadline_ms(role)

    def _leader_deadline_ms(self, role: Leader) -> int:
        if len(role.progress.voters) <= 1 and not role.pending_fetches and role.pending_voter_change is None:
            return role.linger.deadline_ms
        deadlines = [role.linger.deadline_ms, role.begin_epoch_deadline_ms, role.check_quorum_deadline_ms]
        deadlines.extend(fetch.deadline_ms for fetch in role.pending_fetches)
        if role.pending_voter_change is not None:
            deadlines.append(role.pending_voter_change.deadline_ms)
        return min(deadlines)
