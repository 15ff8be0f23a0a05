"""Counting votes, and who may be granted one. Pure functions and a tally; roles and core use them.

Pre-vote (KIP-996): a replica that misses its leader first asks whether it could win, without raising its epoch, so that
one behind a partition does not disturb the others when it comes back.
"""

from kafkapy.raft.voters import VoterSet
from kafkapy.types import ReplicaKey


class VoteTally:
    """The votes of one election: granted, rejected, or still open, by voter id."""

    __slots__ = ("_majority_count", "_votes")

    def __init__(self, voters: VoterSet, own_key: ReplicaKey) -> None:
        self._votes: dict[int, bool | None] = dict.fromkeys(voters.ids)
        self._majority_count = voters.majority_count
        if voters.contains(own_key):
            self._votes[own_key.node_id] = True

    def record(self, voter_id: int, is_granted: bool) -> None:
        """Note a vote; an answer from somebody who is no voter is ignored, a granted vote is never taken back."""
        if voter_id in self._votes and self._votes[voter_id] is not True:
            self._votes[voter_id] = is_granted

    @property
    def is_won(self) -> bool:
        return self._count(True) >= self._majority_count

    @property
    def is_lost(self) -> bool:
        return self._count(True) + self._count(None) < self._majority_count

    @property
    def open_voter_ids(self) -> tuple[int, ...]:
        return tuple(voter_id for voter_id, vote in self._votes.items() if vote is None)

    @property
    def granting_voter_ids(self) -> tuple[int, ...]:
        return tuple(voter_id for voter_id, vote in self._votes.items() if vote)

    def _count(self, vote: bool | None) -> int:
        return sum(1 for each in self._votes.values() if each is vote)


def may_grant_vote(
    *, candidate: ReplicaKey, voted: ReplicaKey | None, leader_id: int, is_log_up_to_date: bool, is_pre_vote: bool
) -> bool:
    """Decide for a replica without a live leader (Unattached, Prospective): one vote an epoch, to an up-to-date log."""
    if is_pre_vote:
        return is_log_up_to_date
    if voted is not None:
        return voted.node_id == candidate.node_id and voted.directory_id in (bytes(16), candidate.directory_id)
    return leader_id < 0 and is_log_up_to_date


def successor_backoff_ms(position: int, successor_count: int, max_backoff_ms: int) -> int:
    """Return how long the replica at `position` of the preferred successors waits before it stands.

    The first not at all; the others twice as long as the one before them, up to max_backoff_ms, as strangers wait.
    """
    if position == 0:
        return 0
    if not 0 < position < successor_count:
        return max_backoff_ms
    return min(max_backoff_ms, (max_backoff_ms >> (successor_count - 1)) << (position - 1))
