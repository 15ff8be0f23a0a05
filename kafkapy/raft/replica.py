"""The state of a replica: the shape of its log, the voters written in it, and its high watermark."""

from kafkapy.raft.config import FOREVER_MS, RaftConfig
from kafkapy.raft.connections import Outbox
from kafkapy.raft.effects import AppendBatch, FlushLog, HighWatermarkAdvanced, ResetLogToSnapshot, TruncateLog
from kafkapy.raft.log_view import LogView
from kafkapy.raft.messages import Control, KRaftVersion, LogBatch, Voters
from kafkapy.raft.roles import Leader, Role, Unattached
from kafkapy.raft.voters import VoterHistory, VoterSet
from kafkapy.types import OffsetAndEpoch, ReplicaKey


class Replica:
    """The log of one replica, and the voters in it, which change together.

    Methods that may change the voters take the current role, which has to know them.
    """

    def __init__(self, config: RaftConfig, log: LogView, voters: VoterHistory, outbox: Outbox) -> None:
        self.local: ReplicaKey = config.local.key
        self._can_become_voter = config.can_become_voter
        self.log = log
        self.voters = voters
        self.high_watermark = log.latest_snapshot.offset if log.latest_snapshot is not None else -1
        """The highest committed end offset that this replica knows of; never decreases."""
        self.has_learned_high_watermark = False
        """Whether a leader, maybe this one, has reported it since the start. Until then it is the last snapshot's."""
        self._out = outbox

    @property
    def is_voter(self) -> bool:
        return self.voters.current.contains(self.local)

    @property
    def is_only_voter(self) -> bool:
        return self.voters.current.is_only_voter(self.local)

    def append_controls(self, role: Leader, controls: tuple[Control, ...]) -> int:
        """Append a batch of control records as leader, which is flushed at once; return its last offset."""
        base_offset = self.log.end_offset
        last_offset = base_offset + len(controls) - 1
        self._append(LogBatch(base_offset, last_offset, role.leader_epoch, controls), role, is_leader=True)
        self.release(role)
        return last_offset

    def append_data(self, role: Leader, data: object, *, record_count: int, size_bytes: int, now_ms: int) -> None:
        """Append a batch of records as leader; it may wait for others before it is flushed (linger.py)."""
        base_offset = self.log.end_offset
        last_offset = base_offset + record_count - 1
        self._append(LogBatch(base_offset, last_offset, role.leader_epoch, (), data), role, is_leader=True)
        high_watermark = role.progress.high_watermark
        end_offset = self.log.end_offset
        if not role.linger.should_wait(size_bytes, high_watermark=high_watermark, end_offset=end_offset, now_ms=now_ms):
            self.release(role)

    def release(self, role: Leader) -> None:
        """Flush what was appended, and let followers fetch it."""
        role.linger.release(self.log.end_offset)
        self._flush()

    def append_fetched(self, batch: LogBatch, role: Role) -> None:
        """Add a batch from the leader."""
        self._append(batch, role, is_leader=False)
        if self._can_become_voter or self.is_voter:
            self._flush()
        else:  # it acknowledges nothing, and fetches again what it loses
            self.log.set_durable(self.log.end_offset, self.log.generation)

    def truncate_to(self, offset: int) -> None:
        assert offset >= self.high_watermark, f"the leader asks to cut committed records: {offset}"
        assert offset >= self.log.start_offset
        self.log.truncate_to(offset)
        self.voters.truncate_to(offset)
        self._out.emit(TruncateLog(offset))

    def reset_to_snapshot(
        self, snapshot_id: OffsetAndEpoch, voters: VoterSet | None, kraft_version: int, role: Role
    ) -> None:
        """Restart the log at the end of an installed snapshot."""
        self.log.reset_to_snapshot(snapshot_id)
        self.voters.reset(snapshot_id.offset, voters, kraft_version)
        self._out.emit(ResetLogToSnapshot(snapshot_id))
        self._apply_voters(role)
        self.learn_high_watermark(snapshot_id.offset)

    def delete_prefix(self, start_offset: int) -> None:
        """Record that the log was deleted below start_offset, the end of a snapshot."""
        assert start_offset <= self.high_watermark, f"records from {self.high_watermark} on are not committed"
        self.log.advance_start(start_offset)
        self.voters.trim_before(start_offset)

    def add_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Record a snapshot that the driver has written."""
        assert snapshot_id.offset <= self.high_watermark
        self.log.add_snapshot(snapshot_id)

    def learn_high_watermark(self, high_watermark: int) -> None:
        """Report newly committed records to the driver. A new leader's high watermark may start below the known one."""
        self.has_learned_high_watermark = True
        known = min(high_watermark, self.log.end_offset)
        if known > self.high_watermark:
            self.high_watermark = known
            self._out.emit(HighWatermarkAdvanced(known))

    def _append(self, batch: LogBatch, role: Role, *, is_leader: bool) -> None:
        assert batch.last_offset >= batch.base_offset, f"{batch} has no record"
        self.log.append(batch.base_offset, batch.last_offset, batch.leader_epoch)
        self._out.emit(AppendBatch(batch, is_leader))
        for offset, control in enumerate(batch.controls, batch.base_offset):
            if isinstance(control, KRaftVersion):
                self.voters.add_kraft_version(offset, control.level)
            elif isinstance(control, Voters):
                self.voters.add_voters(offset, control.voters)
                self._apply_voters(role)

    def _flush(self) -> None:
        self._out.emit(FlushLog(self.log.end_offset, self.log.generation))

    def _apply_voters(self, role: Role) -> None:
        """Pass new voters to the role: a leader counts majorities of them, a new voter may start an election."""
        if isinstance(role, Leader):
            role.progress.set_voters(self.voters.current)
        elif isinstance(role, Unattached) and self.is_voter and role.election_deadline_ms == FOREVER_MS:
            role.election_deadline_ms = 0
