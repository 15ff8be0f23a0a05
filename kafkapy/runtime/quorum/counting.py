"""Counts for /metrics: this node's role in the metadata quorum, and the commits of its appends as the leader."""

from typing import TYPE_CHECKING

from kafkapy.raft.roles import Candidate, Follower, Leader, Prospective, Role
from kafkapy.seams import Clock
from kafkapy.storage.metadata.metadata_log import CommittedBatch

if TYPE_CHECKING:
    from kafkapy.metrics.quorum import QuorumCounts


class QuorumCounting:
    """Updates a QuorumCounts."""

    def __init__(self, counts: "QuorumCounts", clock: Clock) -> None:
        self._counts = counts
        self._clock = clock

    def count_commits(self, batches: list[CommittedBatch]) -> None:
        """Count batches that this node has appended as the leader, now that they are committed."""
        wall_ms, now_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        for batch in batches:
            record_count = batch.last_offset - batch.base_offset + 1
            self._counts.count_commit(wall_ms - batch.append_timestamp_ms, record_count, now_ms)

    def record_role(self, role: Role) -> None:
        """Record the role after a step."""
        self._counts.record_role(
            role,
            is_electing=isinstance(role, Prospective | Candidate),
            has_leader=isinstance(role, Leader | Follower),
            now_ms=self._clock.monotonic_ms(),
        )
