"""Fetch and FetchSnapshot: replication of the log and of snapshots from the leader to the other replicas.

A replica fetches from its log end offset and names the epoch of its last record. The leader answers with records, with
a diverging epoch to truncate to, or with the id of a snapshot to download. Everything below a voter's fetch offset is
durable: it sends no fetch before its fsync has ended.
"""

from kafkapy.raft.effects import (
    HighWatermarkAdvanced,
    InstallSnapshot,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    ResetLogToSnapshot,
    TruncateLog,
    WriteSnapshotPart,
)
from kafkapy.raft.log_view import FetchPosition
from kafkapy.raft.messages import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    SNAPSHOT_NOT_FOUND,
    UNKNOWN_LEADER_EPOCH,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogBatch,
    Request,
)
from kafkapy.raft.roles import Follower, Leader, PendingFetch
from kafkapy.raft.state import RaftState
from kafkapy.raft.voters import VoterSet
from kafkapy.types import OffsetAndEpoch, ReplicaKey

BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)
"""The snapshot written by `storage format`. It is not a prefix of the log, so replicas must not download it."""


class Replication(RaftState):
    """The part of the core that replicates the log."""

    # ---- as leader

    def _on_fetch_request(self, reply_to: object, request: FetchRequest, now_ms: int) -> None:
        error = self._leader_only_error(request.leader_epoch)
        if request.fetch_offset < 0 or not 0 <= request.last_fetched_epoch <= request.leader_epoch:
            error = INVALID_REQUEST
        if request.replica.node_id == self.local.node_id:
            error = INVALID_REQUEST
        if error != NONE:
            self._emit(Reply(reply_to, self._fetch_failure(error)))
            return
        role = self.role
        assert isinstance(role, Leader)
        if not self._try_answer_fetch(role, reply_to, request, now_ms, is_last_try=request.max_wait_ms == 0):
            role.pending_fetches.append(PendingFetch(reply_to, request, now_ms + request.max_wait_ms))

    def _try_answer_fetch(
        self, role: Leader, reply_to: object, request: FetchRequest, now_ms: int, *, is_last_try: bool
    ) -> bool:
        """Answer if there is something to send; return whether it was answered. A valid position counts as progress."""
        kind, position = self._fetch_position(request)
        if kind is FetchPosition.VALID:
            self._note_fetch(role, request.replica, request.fetch_offset, now_ms)
        response = FetchResponse(
            leader_epoch=role.leader_epoch,
            leader_id=role.leader_id,
            leader_endpoints=role.leader_endpoints,
            high_watermark=role.progress.high_watermark,
            log_start_offset=self.log.start_offset,
            diverging=position if kind is FetchPosition.DIVERGING else None,
            snapshot_id=position if kind is FetchPosition.SNAPSHOT else None,
        )
        if kind is not FetchPosition.VALID:
            self._emit(Reply(reply_to, response))
        elif request.fetch_offset < self.log.end_offset:
            self._emit(ReplyWithRecords(reply_to, response, request.fetch_offset, request.max_bytes))
        elif is_last_try or request.high_watermark < role.progress.high_watermark:
            self._emit(Reply(reply_to, response))
        else:
            return False
        return True

    def _fetch_position(self, request: FetchRequest) -> tuple[FetchPosition, OffsetAndEpoch]:
        latest = self.log.latest_snapshot
        if request.fetch_offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
            return FetchPosition.SNAPSHOT, latest
        return self.log.validate(request.fetch_offset, request.last_fetched_epoch)

    def _note_fetch(self, role: Leader, replica: ReplicaKey, fetch_offset: int, now_ms: int) -> None:
        if replica.node_id < 0:
            return
        if role.progress.note_fetch(replica, fetch_offset, self.log.end_offset, now_ms):
            role.check_quorum_deadline_ms = now_ms + self._check_quorum_timeout_ms()
        self._maybe_advance_high_watermark(role)

    def _maybe_advance_high_watermark(self, role: Leader) -> None:
        if not role.progress.maybe_advance_high_watermark():
            return
        self._learn_high_watermark(role.progress.high_watermark)
        self._on_committed(role)

    def _on_committed(self, role: Leader) -> None:
        """Overridden by Membership, which completes a committed voter change."""

    def _learn_high_watermark(self, high_watermark: int) -> None:
        """Report newly committed records to the driver. A new leader's high watermark may start below the known one."""
        self.has_learned_high_watermark = True
        known = min(high_watermark, self.log.end_offset)
        if known > self.high_watermark:
            self.high_watermark = known
            self._emit(HighWatermarkAdvanced(known))

    def _complete_fetches(self, role: Leader, now_ms: int) -> None:
        """Answer the pending fetches that have new records, a higher high watermark, or an expired deadline."""
        waiting, role.pending_fetches = role.pending_fetches, []
        for fetch in waiting:
            has_expired = now_ms >= fetch.deadline_ms
            has_news = (
                fetch.request.fetch_offset < self.log.end_offset
                or fetch.request.high_watermark < role.progress.high_watermark
            )
            if not (has_expired or has_news):
                role.pending_fetches.append(fetch)
                continue
            self._try_answer_fetch(role, fetch.reply_to, fetch.request, now_ms, is_last_try=True)

    def _on_fetch_snapshot_request(self, reply_to: object, request: FetchSnapshotRequest, now_ms: int) -> None:
        error = self._leader_only_error(request.leader_epoch)
        is_known = request.snapshot_id in self.log.snapshots and request.snapshot_id != BOOTSTRAP_SNAPSHOT
        if error == NONE and not is_known:
            error = SNAPSHOT_NOT_FOUND
        response = FetchSnapshotResponse(
            error=error,
            leader_epoch=self.leader_epoch,
            leader_id=self.leader_id,
            leader_endpoints=self.role.leader_endpoints,
            snapshot_id=request.snapshot_id if error == NONE else None,
            position=request.position,
        )
        if error != NONE:
            self._emit(Reply(reply_to, response))
            return
        role = self.role
        assert isinstance(role, Leader)
        if role.progress.note_contact(request.replica):
            role.check_quorum_deadline_ms = now_ms + self._check_quorum_timeout_ms()
        self._emit(ReplyWithSnapshot(reply_to, response, request.snapshot_id, request.position, request.max_bytes))

    def _leader_only_error(self, leader_epoch: int) -> int:
        if leader_epoch < self.leader_epoch:
            return FENCED_LEADER_EPOCH
        if leader_epoch > self.leader_epoch:
            return UNKNOWN_LEADER_EPOCH
        return NONE if self.is_leader else NOT_LEADER_OR_FOLLOWER

    # ---- as follower

    def _send_fetch(self, node_id: int, now_ms: int) -> bool:
        """Fetch from the log end offset, if all below it is durable; return whether a request was sent."""
        if self.log.durable_end_offset < self.log.end_offset:
            return False
        request = FetchRequest(
            replica=self.local,
            leader_epoch=self.leader_epoch,
            fetch_offset=self.log.end_offset,
            last_fetched_epoch=self.log.last_epoch,
            high_watermark=self.high_watermark,
            max_wait_ms=self.config.fetch_max_wait_ms,
            max_bytes=self.config.fetch_max_bytes,
        )
        return self._maybe_send(node_id, request, now_ms)

    def _send_fetch_snapshot(self, role: Follower, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        request = FetchSnapshotRequest(
            replica=self.local,
            leader_epoch=role.leader_epoch,
            snapshot_id=snapshot_id,
            position=role.snapshot_position,
            max_bytes=self.config.fetch_snapshot_max_bytes,
        )
        self._maybe_send(role.leader_id, request, now_ms)

    def _on_fetch_response(self, node_id: int, request: Request, response: FetchResponse, now_ms: int) -> None:
        if not self._learn_from_response(response, now_ms) or response.error != NONE:
            if not self.is_leader:
                self._back_off(node_id, now_ms)
            return
        role = self.role
        if not isinstance(role, Follower) or node_id != role.leader_id or response.leader_epoch != role.leader_epoch:
            return
        assert isinstance(request, FetchRequest)
        if response.diverging is not None:
            self._truncate_to_divergence(response.diverging)
        elif response.snapshot_id is not None:
            self._begin_snapshot_download(role, response.snapshot_id)
        else:
            self._append_fetched(request, response)
        role.has_fetched = True
        role.fetch_deadline_ms = now_ms + self.config.fetch_timeout_ms

    def _truncate_to_divergence(self, diverging: OffsetAndEpoch) -> None:
        offset = self.log.truncation_offset(diverging)
        assert offset >= self.high_watermark, f"the leader asks to cut committed records: {diverging}"
        assert offset >= self.log.start_offset
        self.log.truncate_to(offset)
        self.voters.truncate_to(offset)
        self._emit(TruncateLog(offset))

    def _append_fetched(self, request: FetchRequest, response: FetchResponse) -> None:
        for batch in response.batches:
            if not self._is_next(batch, response.leader_epoch):
                break
            self._append(batch, is_leader=False)
        if response.high_watermark >= 0:
            self._learn_high_watermark(response.high_watermark)

    def _is_next(self, batch: LogBatch, leader_epoch: int) -> bool:
        """Return whether a batch continues the log. If not, it and the rest of the response are dropped."""
        return (
            batch.base_offset == self.log.end_offset
            and self.log.last_epoch <= batch.leader_epoch <= leader_epoch
            and batch.last_offset >= batch.base_offset
        )

    def _begin_snapshot_download(self, role: Follower, snapshot_id: OffsetAndEpoch) -> None:
        if snapshot_id.offset <= max(self.high_watermark, self.log.start_offset):
            return
        role.snapshot_id = snapshot_id
        role.snapshot_position = 0

    def _on_fetch_snapshot_response(self, node_id: int, response: FetchSnapshotResponse, now_ms: int) -> None:
        if not self._learn_from_response(response, now_ms):
            self._back_off(node_id, now_ms)
            return
        role = self.role
        if not isinstance(role, Follower) or node_id != role.leader_id:
            return
        if response.error == SNAPSHOT_NOT_FOUND or response.snapshot_id is None:
            role.snapshot_id = None
            role.fetch_deadline_ms = now_ms + self.config.fetch_timeout_ms
            return
        if response.error != NONE:
            self._back_off(node_id, now_ms)
            return
        self._take_snapshot_part(role, response, now_ms)

    def _take_snapshot_part(self, role: Follower, response: FetchSnapshotResponse, now_ms: int) -> None:
        if response.snapshot_id != role.snapshot_id or response.position != role.snapshot_position:
            return
        assert role.snapshot_id is not None
        self._emit(WriteSnapshotPart(role.snapshot_id, response.position, response.data))
        role.snapshot_position += len(response.data)
        role.fetch_deadline_ms = now_ms + self.config.fetch_timeout_ms
        if role.snapshot_position >= response.size_bytes:
            role.is_installing = True
            self._emit(InstallSnapshot(role.snapshot_id))

    def _on_snapshot_installed(self, snapshot_id: OffsetAndEpoch, voters: VoterSet | None, kraft_version: int) -> None:
        """Restart the log at the snapshot's end, even if the leader has changed: it holds committed records only."""
        self._end_installation(snapshot_id)
        if snapshot_id.offset <= self.log.end_offset and snapshot_id.leader_epoch <= self.log.last_epoch:
            return
        self.log.reset_to_snapshot(snapshot_id)
        self.voters.reset(snapshot_id.offset, voters, kraft_version)
        self._emit(ResetLogToSnapshot(snapshot_id))
        self._on_voters_changed()
        self._learn_high_watermark(snapshot_id.offset)

    def _end_installation(self, snapshot_id: OffsetAndEpoch) -> None:
        role = self.role
        if isinstance(role, Follower) and role.snapshot_id == snapshot_id:
            role.snapshot_id = None
            role.snapshot_position = 0
            role.is_installing = False
