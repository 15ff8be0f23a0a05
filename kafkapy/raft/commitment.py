"""The commits of a leader: it advances the high watermark to what a majority has, and completes voter changes."""

from kafkapy.raft.effects import SendResponse
from kafkapy.raft.local_node import LocalNode
from kafkapy.raft.messages import NONE
from kafkapy.raft.roles import Leader


class Commitment:
    """The part of the core that advances the high watermark."""

    def __init__(self, node: LocalNode) -> None:
        self._replica = node.replica
        self._current = node.current
        self._out = node.out

    def set_durable(self, end_offset: int, generation: int) -> None:
        """Record the end of an fsync of this replica's own log."""
        role = self._current.role
        if self._replica.log.set_durable(end_offset, generation) and isinstance(role, Leader):
            role.progress.set_local_durable(self._replica.log.durable_end_offset)
            self.maybe_advance(role)

    def maybe_advance(self, role: Leader) -> None:
        """Advance the high watermark to what a majority has, and complete a voter change that this commits.

        Deviation: Apache Kafka's leader goes on although the committed voters do not include it if it answered the
        RemoveRaftVoter request before, at its timeout. Here it resigns in any case, because it is no voter.
        """
        if not role.progress.maybe_advance_high_watermark():
            return
        assert role.progress.high_watermark <= self._replica.log.end_offset, "a leader commits what it has"
        self._replica.learn_high_watermark(role.progress.high_watermark)
        if role.pending_voter_change is not None:
            self._complete_voter_change(role)
        if not self._replica.is_voter and role.progress.high_watermark > self._replica.voters.current_offset:
            role.is_resigning = True  # the committed voter set does not include this node

    def _complete_voter_change(self, role: Leader) -> None:
        change = role.pending_voter_change
        if change is None or role.progress.high_watermark <= change.offset:
            return
        role.pending_voter_change = None
        if change.respond_to is not None:
            self._out.emit(SendResponse(change.respond_to, self._current.voter_change_response(NONE)))
