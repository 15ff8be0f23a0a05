"""Counting votes, and deciding whether to grant one. Used by the roles and the core.

Pre-vote (KIP-996): a replica that has lost its leader first asks whether it could win, without raising its epoch. So a
replica that was cut off by a network partition does not disrupt the quorum when it returns.
"""

from kafkapy.raft.voters import VoterSet
from kafkapy.types import ReplicaKey


class VoteTally:
    """The votes of one election: granted, rejected, or still open, by voter id."""

    __slots__ = ("_majority_count", "_votes")

    def __init__(self, voters: VoterSet, own_key: ReplicaKey) -> None:
        self._votes: dict[int, bool | None] = dict.fromkeys(voters.ids)
        self._majority_count = voters.majority_count
        assert self._majority_count <= len(self._votes), "an election that nobody could win"
        if voters.contains(own_key):
            self._votes[own_key.node_id] = True

    def record(self, voter_id: int, is_granted: bool) -> None:
        """Record a vote. Votes of non-voters are ignored; a granted vote cannot be revoked."""
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
    """Return whether a replica without a live leader (Unattached, Prospective) grants its vote.

    A candidate needs an up-to-date log; an epoch has one vote, pre-votes are not limited.
    """
    if is_pre_vote:
        return is_log_up_to_date
    if voted is not None:
        return voted.node_id == candidate.node_id and voted.directory_id in (bytes(16), candidate.directory_id)
    return leader_id < 0 and is_log_up_to_date


def successor_backoff_ms(position: int, successor_count: int, max_backoff_ms: int) -> int:
    """Return how long the replica at `position` of the preferred successors waits before it starts an election.

    0 for the first; then it doubles, up to max_backoff_ms. Replicas that are not successors wait max_backoff_ms.
    """
    if position == 0:
        return 0
    if not 0 < position < successor_count:
        return max_backoff_ms
    return min(max_backoff_ms, (max_backoff_ms >> (successor_count - 1)) << (position - 1))
