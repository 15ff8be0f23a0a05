"""KRaft as a pure machine: `step(event, now_ms)` returns effects, `deadline_ms()` returns the time of the next timeout.

Raft with Kafka's pull replication (KIP-595), snapshots (KIP-630), voters in the log (KIP-853) and pre-votes (KIP-996).
The core knows offsets, epochs and voters, never records. Its parts: state.py (role, log, connections), voting.py,
replication.py, membership.py; roles.py has the table of transitions.

Invariants, asserted here and checked after every event by tests/simulator/raft_cluster.py: epochs and the high
watermark never decrease; an epoch has at most one leader; no committed record is truncated; state is durable before a
response promises it.
"""

from kafkapy.machine import Effect, Event
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
    VoteRequest,
    VoteResponse,
)
from kafkapy.raft.roles import FOREVER_MS, Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from kafkapy.raft.state import RaftConfig
from kafkapy.raft.voting import VoteHandling

__all__ = ["RaftConfig", "RaftCore"]


class RaftCore(VoteHandling, Membership):
    """One replica of the metadata quorum. Build it from recovered state and step Started before any other event."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Process an event and return the effects to carry out, in order. now_ms is monotonic."""
        self._dispatch(event, now_ms)
        self._poll(now_ms)
        return self._out.take()

    def deadline_ms(self) -> int | None:
        """Return when to step TimePassed if no event comes before, None for never. It may lie in the past."""
        deadlines = [self._role_deadline_ms(self.role), *(peer.due_ms for peer in self.connections.values())]
        earliest_ms = min((deadline for deadline in deadlines if deadline > self._polled_ms), default=FOREVER_MS)
        return earliest_ms if earliest_ms < FOREVER_MS else None

    _polled_ms = -1
    """When _poll last ran: deadlines up to then have been handled."""

    # ---- events

    def _dispatch(self, event: Event, now_ms: int) -> None:
        match event:
            case AppendRequested():
                assert event.leader_epoch == self.leader_epoch
                assert event.record_count > 0
                self._append_as_leader(data=event.data, record_count=event.record_count)
            case LogFlushed():
                self._on_log_flushed(event)
            case KraftUpgradeRequested():
                self._upgrade_kraft_version()
            case RequestReceived():
                self._on_request(event, now_ms)
            case ResponseReceived():
                self._on_response(event, now_ms)
            case RequestFailed():
                if self._complete(event.node_id, event.request_id) is not None:
                    self._back_off(event.node_id, now_ms)
            case SnapshotTaken():
                assert event.snapshot_id.offset <= self.high_watermark
                self.log.add_snapshot(event.snapshot_id)
            case LogPrefixDeleted():
                self.log.advance_start(event.start_offset)
                self.voters.trim_before(event.start_offset)
            case SnapshotInstalled():
                self._on_snapshot_installed(event.snapshot_id, event.voters, event.kraft_version)
            case SnapshotRefused():
                self._end_installation(event.snapshot_id)
            case ResignRequested():
                if isinstance(self.role, Leader) and self.role.leader_epoch == event.leader_epoch:
                    self.role.is_resigning = True
            case Started():
                self._on_started(now_ms)
            case _:
                assert isinstance(event, TimePassed), event

    def _on_log_flushed(self, event: LogFlushed) -> None:
        if self.log.note_durable(event.end_offset, event.generation) and isinstance(self.role, Leader):
            self.role.progress.note_local_durable(self.log.durable_end_offset)
            self._maybe_advance_high_watermark(self.role)

    def _on_request(self, event: RequestReceived, now_ms: int) -> None:
        request, reply_to = event.request, event.reply_to
        match request:
            case FetchRequest():
                self._on_fetch_request(reply_to, request, now_ms)
            case VoteRequest():
                self._on_vote_request(reply_to, request, now_ms)
            case BeginEpochRequest():
                self._on_begin_epoch_request(reply_to, request, now_ms)
            case EndEpochRequest():
                self._on_end_epoch_request(reply_to, request, now_ms)
            case FetchSnapshotRequest():
                self._on_fetch_snapshot_request(reply_to, request, now_ms)
            case AddVoterRequest():
                self._on_add_voter_request(reply_to, request, now_ms)
            case RemoveVoterRequest():
                self._on_remove_voter_request(reply_to, request, now_ms)
            case UpdateVoterRequest():
                self._on_update_voter_request(reply_to, request, now_ms)

    def _on_response(self, event: ResponseReceived, now_ms: int) -> None:
        request = self._complete(event.node_id, event.request_id)
        if request is None:
            return
        response = event.response
        match response:
            case FetchResponse():
                self._on_fetch_response(event.node_id, request, response, now_ms)
            case VoteResponse():
                assert isinstance(request, VoteRequest)
                self._on_vote_response(event.node_id, request, response, now_ms)
            case BeginEpochResponse():
                self._on_begin_epoch_response(event.node_id, response, now_ms)
            case EndEpochResponse():
                self._on_end_epoch_response(event.node_id, response, now_ms)
            case FetchSnapshotResponse():
                self._on_fetch_snapshot_response(event.node_id, response, now_ms)
            case _:
                self._learn_from_response(response, now_ms)
                self._note_told_leader(request, response)

    def _on_started(self, now_ms: int) -> None:
        """Restore the role from quorum-state. A single voter becomes leader at once, in a new epoch."""
        self._adopt(self._initial_role(self._recovered_election, now_ms))
        if isinstance(self.role, Candidate):
            self._maybe_go_forward(now_ms)
        elif self.is_only_voter:
            self._become_prospective(now_ms)

    def _initial_role(self, election: ElectionState, now_ms: int) -> Role:
        deadline_ms = now_ms + self._election_timeout_ms() if self.is_voter else FOREVER_MS
        if election.leader_epoch < self.log.last_epoch:
            return Unattached(leader_epoch=self.log.last_epoch, election_deadline_ms=deadline_ms)
        if election.leader_id == self.local.node_id:
            return Resigned(
                leader_epoch=election.leader_epoch,
                leader_id=self.local.node_id,
                leader_endpoints=self.config.local.endpoints,
                unacknowledged_voter_ids=set(self.voters.current.ids) - {self.local.node_id},
                preferred_successors=(),
                election_deadline_ms=now_ms + self._election_timeout_ms(),
            )
        voted = election.voted
        voted_for_us = voted is not None and voted.node_id == self.local.node_id
        if voted_for_us and election.leader_id < 0 and self.is_voter:
            return self._candidate(election.leader_epoch, now_ms)
        endpoints = self.endpoints_of(election.leader_id)
        if election.leader_id >= 0 and endpoints:
            return self._follower(election.leader_epoch, election.leader_id, endpoints, voted, now_ms)
        return Unattached(
            leader_epoch=election.leader_epoch,
            leader_id=election.leader_id,
            voted=voted,
            election_deadline_ms=deadline_ms,
        )

    # ---- time

    def _poll(self, now_ms: int) -> None:
        """Handle expired deadlines: first role transitions, until no more are due, then the role's requests."""
        self._polled_ms = now_ms
        self._expire_connections(now_ms)
        role = None
        while role is not self.role:
            role = self.role
            self._pass_time(role, now_ms)
        self._send_due(role, now_ms)

    def _pass_time(self, role: Role, now_ms: int) -> None:
        match role:
            case Unattached():
                if now_ms >= role.election_deadline_ms and self.is_voter:
                    self._become_prospective(now_ms)
            case Prospective():
                if role.tally.is_lost or now_ms >= role.election_deadline_ms:
                    self._give_up_prospect(role, now_ms)
            case Candidate():
                if now_ms >= role.election_deadline_ms:
                    self._become_prospective_or_wait(now_ms)
            case Follower():
                if now_ms >= role.fetch_deadline_ms and self.is_voter:
                    self._become_prospective(now_ms)
            case Leader():
                has_lost_quorum = len(role.progress.voters) > 1 and now_ms >= role.check_quorum_deadline_ms
                if role.is_resigning or has_lost_quorum:
                    self._resign(role, now_ms)
            case Resigned():
                if now_ms >= role.election_deadline_ms:
                    self._become_unattached(role.leader_epoch + 1, -1, now_ms)

    def _become_prospective_or_wait(self, now_ms: int) -> None:
        if self.is_voter:
            self._become_prospective(now_ms)
        else:
            self._become_unattached(self.leader_epoch + 1, -1, now_ms)

    def _send_due(self, role: Role, now_ms: int) -> None:
        match role:
            case Prospective() | Candidate():
                self._send_votes(role, now_ms)
            case Leader():
                self._expire_voter_change(role, now_ms)
                self._complete_fetches(role, now_ms)
                if now_ms >= role.begin_epoch_deadline_ms:
                    self._send_begin_epochs(role, now_ms)
            case Resigned():
                self._send_end_epochs(role, now_ms)
            case Follower():
                self._send_as_follower(role, now_ms)
            case Unattached():
                self._send_to_any_bootstrap(now_ms)

    def _send_as_follower(self, role: Follower, now_ms: int) -> None:
        """Send the next request, one at a time. While the leader is in back-off, ask another node for the leader."""
        if role.is_installing:
            return
        has_sent = self._maybe_send_update_voter(role, now_ms) if self.is_voter else self._maybe_join(role, now_ms)
        if has_sent:
            return
        connection = self.connections.get(role.leader_id)
        if connection is not None and now_ms < connection.backoff_until_ms:
            self._send_to_any_bootstrap(now_ms)
        elif any(other.request is not None for other in self.connections.values()):
            return
        elif role.snapshot_id is not None:
            self._send_fetch_snapshot(role, role.snapshot_id, now_ms)
        else:
            self._send_fetch(role.leader_id, now_ms)

    def _send_to_any_bootstrap(self, now_ms: int) -> None:
        """Fetch from any known node, to learn the leader from its response. One request at a time, nodes in turn.

        A deviation: Apache Kafka asks only the bootstrap servers, and finds no leader if all of them are gone. Here the
        voters in the log are asked, too.
        """
        known = dict.fromkeys((*self.config.bootstrap_ids, *self.voters.current.ids))
        others = [node_id for node_id in known if node_id != self.local.node_id]
        if any(connection.request is not None for connection in self.connections.values()):
            return
        for _ in others:
            self._next_bootstrap = (self._next_bootstrap + 1) % len(others)
            if self._send_fetch(others[self._next_bootstrap], now_ms):
                return

    def _role_deadline_ms(self, role: Role) -> int:
        match role:
            case Unattached():
                return role.election_deadline_ms if self.is_voter else FOREVER_MS
            case Prospective() | Candidate() | Resigned():
                return role.election_deadline_ms
            case Follower():
                if not self.is_voter:
                    return role.update_voter_deadline_ms if self.config.joins_by_itself else FOREVER_MS
                return min(role.fetch_deadline_ms, role.update_voter_deadline_ms)
            case Leader():
                return self._leader_deadline_ms(role)

    def _leader_deadline_ms(self, role: Leader) -> int:
        if len(role.progress.voters) <= 1 and not role.pending_fetches and role.pending_voter_change is None:
            return FOREVER_MS
        deadlines = [role.begin_epoch_deadline_ms, role.check_quorum_deadline_ms]
        deadlines.extend(fetch.deadline_ms for fetch in role.pending_fetches)
        if role.pending_voter_change is not None:
            deadlines.append(role.pending_voter_change.deadline_ms)
        return min(deadlines)
