"""Fetch and FetchSnapshot: replication of the log and of snapshots from the leader to the other replicas.

A replica fetches from its log end offset and names the epoch of its last record. The leader answers with records, with
a diverging epoch to truncate to, or with the id of a snapshot to download. Everything below a voter's fetch offset is
durable: it sends no fetch before its fsync has ended. A broker that is no controller never votes, and does not fsync.
"""

from typing import Final

from kafkapy.raft.commitment import Commitment
from kafkapy.raft.effects import (
    InstallSnapshot,
    SendResponse,
    SendResponseWithRecords,
    SendResponseWithSnapshot,
    WriteSnapshotPart,
)
from kafkapy.raft.local_node import LocalNode
from kafkapy.raft.log_view import FetchPositionKind
from kafkapy.raft.messages import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NO_HIGH_WATERMARK,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    SNAPSHOT_NOT_FOUND,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogBatch,
    Request,
)
from kafkapy.raft.roles import Follower, Leader, PendingFetch, Unattached
from kafkapy.raft.voters import VoterSet
from kafkapy.types import OffsetAndEpoch, ReplicaKey

BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)
"""The snapshot written by `storage format`. It is not a prefix of the log, so replicas must not download it."""
MAX_SEARCH_PAUSE_MS: Final = 100
"""The longest pause between two requests for the leader while no node knows one. A broker may learn of a new leader so
much later."""


class LeaderReplication:
    """The part of the core that answers the fetches of other replicas."""

    def __init__(self, node: LocalNode, commitment: Commitment) -> None:
        self._config = node.config
        self._replica = node.replica
        self._current = node.current
        self._commitment = commitment
        self._out = node.out

    def on_fetch_request(self, respond_to: object, request: FetchRequest, now_ms: int) -> None:
        error = self._leader_only_error(request.leader_epoch)
        if (
            request.max_wait_ms < 0
            or request.fetch_offset < 0
            or not 0 <= request.last_fetched_epoch <= request.leader_epoch
        ):
            error = INVALID_REQUEST
        if error != NONE:
            self._out.emit(SendResponse(respond_to, self._current.fetch_failure(error)))
            return
        role = self._current.role
        assert isinstance(role, Leader)
        if not self._try_respond_to_fetch(role, respond_to, request, now_ms, is_last_try=request.max_wait_ms == 0):
            role.pending_fetches.append(PendingFetch(respond_to, request, now_ms + request.max_wait_ms))

    def _try_respond_to_fetch(
        self, role: Leader, respond_to: object, request: FetchRequest, now_ms: int, *, is_last_try: bool
    ) -> bool:
        """Answer if there is something to send; return whether it was answered. A valid position counts as progress."""
        kind, position = self._fetch_position(request)
        # another process with this node's id: its fetches would count as this node's own progress
        if kind is FetchPositionKind.VALID and request.replica.node_id == self._replica.local.node_id:
            self._out.emit(SendResponse(respond_to, self._current.fetch_failure(UNKNOWN_SERVER_ERROR)))
            return True
        if kind is FetchPositionKind.VALID:
            self._record_fetch(role, request.replica, request.fetch_offset, now_ms)
        response = FetchResponse(
            leader_epoch=role.leader_epoch,
            leader_id=role.leader_id,
            leader_endpoints=role.leader_endpoints,
            high_watermark=role.progress.high_watermark,
            log_start_offset=self._replica.log.start_offset,
            diverging=position if kind is FetchPositionKind.DIVERGING else None,
            snapshot_id=position if kind is FetchPositionKind.SNAPSHOT else None,
        )
        if kind is not FetchPositionKind.VALID:
            self._out.emit(SendResponse(respond_to, response))
        elif request.fetch_offset < role.linger.released_end_offset and (
            is_last_try or not _awaits_commit(role, request)
        ):
            self._out.emit(SendResponseWithRecords(respond_to, response, request.fetch_offset, request.max_bytes))
        elif is_last_try or request.high_watermark < role.progress.high_watermark:
            self._out.emit(SendResponse(respond_to, response))
        else:
            return False
        return True

    def _fetch_position(self, request: FetchRequest) -> tuple[FetchPositionKind, OffsetAndEpoch]:
        latest = self._replica.log.latest_snapshot
        if request.fetch_offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
            return FetchPositionKind.SNAPSHOT, latest
        return self._replica.log.validate(request.fetch_offset, request.last_fetched_epoch)

    def _record_fetch(self, role: Leader, replica: ReplicaKey, fetch_offset: int, now_ms: int) -> None:
        if replica.node_id < 0:
            return
        if role.progress.record_fetch(replica, fetch_offset, self._replica.log.end_offset, now_ms):
            role.check_quorum_deadline_ms = now_ms + self._config.check_quorum_timeout_ms
        self._commitment.maybe_advance(role)

    def complete_fetches(self, role: Leader, now_ms: int) -> None:
        """Answer the pending fetches that have new records, a higher high watermark, or an expired deadline."""
        waiting, role.pending_fetches = role.pending_fetches, []
        for fetch in waiting:
            has_expired = now_ms >= fetch.deadline_ms
            has_changes = fetch.request.high_watermark < role.progress.high_watermark or (
                fetch.request.fetch_offset < role.linger.released_end_offset and not _awaits_commit(role, fetch.request)
            )
            if not (has_expired or has_changes):
                role.pending_fetches.append(fetch)
                continue
            self._try_respond_to_fetch(role, fetch.respond_to, fetch.request, now_ms, is_last_try=True)

    def on_fetch_snapshot_request(self, respond_to: object, request: FetchSnapshotRequest, now_ms: int) -> None:
        """Answer with a part of a snapshot.

        Deviation: Apache Kafka's leader stops its process on a request under its own id. Here it is refused, as a Fetch
        is, because anybody may send it.
        """
        error = self._leader_only_error(request.leader_epoch)
        is_known = request.snapshot_id in self._replica.log.snapshots and request.snapshot_id != BOOTSTRAP_SNAPSHOT
        if error == NONE and not is_known:
            error = SNAPSHOT_NOT_FOUND
        if error == NONE and request.replica.node_id == self._replica.local.node_id:
            error = UNKNOWN_SERVER_ERROR
        response = FetchSnapshotResponse(
            error=error,
            leader_epoch=self._current.leader_epoch,
            leader_id=self._current.leader_id,
            leader_endpoints=self._current.role.leader_endpoints,
            snapshot_id=request.snapshot_id if error == NONE else None,
            position=request.position,
        )
        if error != NONE:
            self._out.emit(SendResponse(respond_to, response))
            return
        role = self._current.role
        assert isinstance(role, Leader)
        # a voter that downloads a snapshot fetches nothing: without this the leader would miss it, and resign
        if role.progress.record_contact(request.replica):
            role.check_quorum_deadline_ms = now_ms + self._config.check_quorum_timeout_ms
        self._out.emit(
            SendResponseWithSnapshot(respond_to, response, request.snapshot_id, request.position, request.max_bytes)
        )

    def _leader_only_error(self, leader_epoch: int) -> int:
        if leader_epoch < self._current.leader_epoch:
            return FENCED_LEADER_EPOCH
        if leader_epoch > self._current.leader_epoch:
            return UNKNOWN_LEADER_EPOCH
        return NONE if self._current.is_leader else NOT_LEADER_OR_FOLLOWER


def _awaits_commit(role: Leader, request: FetchRequest) -> bool:
    """Whether a fetch is an observer's that has all committed records and knows so, and so waits for more of them.

    An observer acknowledges nothing, and applies a record once it is committed: if it got the record before, it would
    need a second response, with the high watermark. Deviation: Apache Kafka sends both. Here one, because it halves the
    requests.
    """
    high_watermark = role.progress.high_watermark
    return (
        0 <= high_watermark <= request.fetch_offset
        and high_watermark <= request.high_watermark < NO_HIGH_WATERMARK
        and not role.progress.is_voter(request.replica)
    )


class FollowerReplication:
    """The part of the core that fetches the log, or a snapshot, from the leader."""

    def __init__(self, node: LocalNode) -> None:
        self._config = node.config
        self._replica = node.replica
        self._current = node.current
        self._connections = node.connections
        self._out = node.out
        self._next_bootstrap = 0
        self._searching: Unattached | None = None
        """The role in which requests for the leader were in vain, `_vain_count` times."""
        self._vain_count = 0

    def send_fetch(self, node_id: int, now_ms: int) -> bool:
        """Fetch from the log end offset, if all below it is durable; return whether a request was sent."""
        if self._replica.log.durable_end_offset < self._replica.log.end_offset:
            return False
        request = FetchRequest(
            replica=self._replica.local,
            leader_epoch=self._current.leader_epoch,
            fetch_offset=self._replica.log.end_offset,
            last_fetched_epoch=self._replica.log.last_epoch,
            high_watermark=self._replica.high_watermark,
            max_wait_ms=self._config.fetch_max_wait_ms,
            max_bytes=self._config.fetch_max_bytes,
        )
        return self._connections.maybe_send(node_id, request, self._current.endpoints_of(node_id), now_ms)

    def send_to_any_bootstrap(self, now_ms: int) -> None:
        """Fetch from any known node, to learn the leader from its response. One request at a time, nodes in turn.

        Deviation: Apache Kafka asks only the bootstrap servers. Here requests go to the voters in the log, too, because
        all of those may be gone.
        """
        if self._connections.has_request_in_flight:
            return
        others = self._known_nodes()
        for _ in others:
            self._next_bootstrap = (self._next_bootstrap + 1) % len(others)
            if self.send_fetch(others[self._next_bootstrap], now_ms):
                return

    def _known_nodes(self) -> list[int]:
        """Return the bootstrap servers and the other voters."""
        known = dict.fromkeys((*self._config.bootstrap_ids, *self._replica.voters.current.ids))
        return [node_id for node_id in known if node_id != self._replica.local.node_id]

    def _record_search_in_vain(self, now_ms: int) -> None:
        """Count a response that names no leader. Once all nodes have sent one, ask the next only after a pause.

        Deviation: Apache Kafka asks on without a pause, as long as no election ends. Here with a back-off, because it
        would take a core.
        """
        role = self._current.role
        if not isinstance(role, Unattached):
            return
        if self._searching is not role:
            self._searching, self._vain_count = role, 0
        self._vain_count += 1
        nodes = self._known_nodes()
        rounds = self._vain_count // max(len(nodes), 1)
        if rounds == 0:
            return
        shortest_ms = self._config.retry_backoff_ms
        pause_ms = min(shortest_ms << min(rounds - 1, 10), max(shortest_ms, MAX_SEARCH_PAUSE_MS))
        for node_id in nodes:
            self._connections.pause(node_id, now_ms + pause_ms)

    def send_fetch_snapshot(self, role: Follower, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        request = FetchSnapshotRequest(
            replica=self._replica.local,
            leader_epoch=role.leader_epoch,
            snapshot_id=snapshot_id,
            position=role.snapshot_position,
            max_bytes=self._config.fetch_snapshot_max_bytes,
        )
        self._connections.maybe_send(role.leader_id, request, role.leader_endpoints, now_ms)

    def on_fetch_response(self, node_id: int, request: Request, response: FetchResponse, now_ms: int) -> None:
        if not self._current.adopt_from_response(response, now_ms) or response.error != NONE:
            if not self._current.is_leader:
                self._connections.back_off(node_id, now_ms)
                self._record_search_in_vain(now_ms)
            return
        role = self._current.role
        if not isinstance(role, Follower) or node_id != role.leader_id or response.leader_epoch != role.leader_epoch:
            return
        assert isinstance(request, FetchRequest)
        if response.snapshot_id is not None and min(response.snapshot_id) < 0:
            self._connections.back_off(node_id, now_ms)
            return
        if response.diverging is not None:
            self._replica.truncate_to(self._replica.log.truncation_offset(response.diverging))
        elif response.snapshot_id is not None:
            self._begin_snapshot_download(role, response.snapshot_id)
        elif not self._append_fetched(response, role):
            # Paused, as the next response may be as large; without a new time-out: another leader may have them whole.
            self._connections.pause(node_id, now_ms + self._config.fetch_timeout_ms // 2)
            return
        role.has_fetched = True
        role.fetch_deadline_ms = now_ms + self._config.fetch_timeout_ms

    def _append_fetched(self, response: FetchResponse, role: Follower) -> bool:
        """Append the batches that continue the log; return False if there are batches, but the first does not."""
        for batch in response.batches:
            if not self._is_next(batch, response.leader_epoch):
                if batch is response.batches[0]:
                    return False
                break
            self._replica.append_fetched(batch, role)
        if response.high_watermark >= 0:
            self._replica.learn_high_watermark(response.high_watermark)
        return True

    def _is_next(self, batch: LogBatch, leader_epoch: int) -> bool:
        """Return whether a batch continues the log. If not, it and the rest of the response are dropped."""
        return (
            batch.base_offset == self._replica.log.end_offset
            and self._replica.log.last_epoch <= batch.leader_epoch <= leader_epoch
            and batch.last_offset >= batch.base_offset
        )

    def _begin_snapshot_download(self, role: Follower, snapshot_id: OffsetAndEpoch) -> None:
        if snapshot_id.offset <= max(self._replica.high_watermark, self._replica.log.start_offset):
            return
        role.snapshot_id = snapshot_id
        role.snapshot_position = 0

    def on_fetch_snapshot_response(self, node_id: int, response: FetchSnapshotResponse, now_ms: int) -> None:
        if not self._current.adopt_from_response(response, now_ms):
            self._connections.back_off(node_id, now_ms)
            return
        role = self._current.role
        if not isinstance(role, Follower) or node_id != role.leader_id:
            return
        has_no_id = response.snapshot_id is None or min(response.snapshot_id) < 0
        if response.error == SNAPSHOT_NOT_FOUND or (response.error == NONE and has_no_id):
            role.snapshot_id = None
            role.fetch_deadline_ms = now_ms + self._config.fetch_timeout_ms
            return
        if response.error != NONE:
            self._connections.back_off(node_id, now_ms)
            return
        self._append_snapshot_part(role, response, now_ms)

    def _append_snapshot_part(self, role: Follower, response: FetchSnapshotResponse, now_ms: int) -> None:
        is_requested = (response.snapshot_id, response.position) == (role.snapshot_id, role.snapshot_position)
        if not is_requested or not response.data:
            self._connections.back_off(role.leader_id, now_ms)  # without a new time-out: no leader sends such parts
            return
        assert role.snapshot_id is not None
        self._out.emit(WriteSnapshotPart(role.snapshot_id, response.position, response.data))
        role.snapshot_position += len(response.data)
        role.fetch_deadline_ms = now_ms + self._config.fetch_timeout_ms
        if role.snapshot_position >= response.size_bytes:
            role.is_installing = True
            self._out.emit(InstallSnapshot(role.snapshot_id))

    def on_snapshot_installed(self, snapshot_id: OffsetAndEpoch, voters: VoterSet | None, kraft_version: int) -> None:
        """Restart the log at the snapshot's end, even if the leader has changed: it holds committed records only.

        Deviation: Apache Kafka's process stops ("Full log truncation expected but didn't happen") if its log ends where
        the snapshot does, in a later epoch, as an isolated leader's may. Here such a log begins again, too, because
        each start would stop again.
        """
        self.end_installation(snapshot_id)
        if self._replica.log.holds(snapshot_id):
            return
        self._replica.reset_to_snapshot(snapshot_id, voters, kraft_version, self._current.role)

    def on_snapshot_refused(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """After a corrupt download, ask the leader again, but only after half a fetch timeout."""
        self.end_installation(snapshot_id)
        if isinstance(self._current.role, Follower):
            pause_ms = self._config.fetch_timeout_ms // 2
            self._connections.pause(self._current.role.leader_id, now_ms + pause_ms)

    def end_installation(self, snapshot_id: OffsetAndEpoch) -> None:
        role = self._current.role
        if isinstance(role, Follower) and role.snapshot_id == snapshot_id:
            role.snapshot_id = None
            role.snapshot_position = 0
            role.is_installing = False
