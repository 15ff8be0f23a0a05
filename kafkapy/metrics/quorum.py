"""Latencies of the metadata quorum: how long records take to be committed, and elections to be decided."""

from kafkapy.recent import RecentValues


class QuorumCounts:
    """Exists only on a node with an admin listener. Times: of a monotonic clock."""

    def __init__(self) -> None:
        self.commit_ms = RecentValues()
        """By record, of the batches that this node appended as the leader: time to commit a batch / its records."""
        self.election_ms = RecentValues()
        """From becoming prospective or a candidate until there is a leader."""
        self._election_began_ms: int | None = None
        self._role: object = None

    def count_commit(self, passed_ms: int, record_count: int, now_ms: int) -> None:
        self.commit_ms.record(max(passed_ms, 0) / record_count, now_ms)

    def record_role(self, role: object, *, is_electing: bool, has_leader: bool, now_ms: int) -> None:
        """Take the node's role after a step. An election begins with each change to prospective or candidate."""
        if role is self._role:
            return
        self._role = role
        if is_electing:
            self._election_began_ms = now_ms
        elif has_leader and self._election_began_ms is not None:
            self.election_ms.record(now_ms - self._election_began_ms, now_ms)
            self._election_began_ms = None
