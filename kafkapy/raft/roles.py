"""The roles of a replica, and the legal transitions between them.

    Unattached --timeout--> Prospective --majority of pre-votes--> Candidate --majority of votes--> Leader
    Follower   --timeout--> Prospective --lost--> Follower (leader still known) or Unattached
    Candidate  --timeout--> Prospective
    Leader     --resigns--> Resigned --timeout--> Unattached in the next epoch
    any        --a higher epoch--> Unattached, or Follower if its leader is known

A vote does not change the role (KIP-996): `voted` is kept by Unattached, Prospective and Follower of the same epoch.
After a restart the leader of an epoch is Resigned in it: records that it had not fsynced are lost, and a different
record must never get their offset in the same epoch.
"""

from dataclasses import field
from enum import Enum
from typing import TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.raft.config import FOREVER_MS
from kafkapy.raft.effects import ElectionState
from kafkapy.raft.election import VoteTally, may_grant_vote
from kafkapy.raft.linger import AppendLinger
from kafkapy.raft.messages import FetchRequest
from kafkapy.raft.progress import QuorumProgress
from kafkapy.raft.voters import Endpoint, Voter
from kafkapy.types import INT32_MAX, INT64_MAX, OffsetAndEpoch, ReplicaKey

LAST_EPOCH = INT32_MAX
"""An epoch is an int32: a replica in the last one starts no election, and leaves no role for the next epoch."""


@dataclass(slots=True, kw_only=True)
class Unattached:
    """Knows no live leader. May grant votes; becomes Prospective when election_deadline_ms passes."""

    leader_epoch: int
    leader_id: int = -1
    """The leader, if its id is known but not its endpoints; else -1."""
    leader_endpoints: tuple[Endpoint, ...] = ()
    voted: ReplicaKey | None = None
    election_deadline_ms: int

    def election_state(self) -> ElectionState:
        return ElectionState(self.leader_epoch, self.leader_id, self.voted)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, is_pre_vote: bool) -> bool:
        return may_grant_vote(
            candidate=candidate,
            voted=self.voted,
            leader_id=self.leader_id,
            is_log_up_to_date=is_log_up_to_date,
            is_pre_vote=is_pre_vote,
        )


@dataclass(slots=True, kw_only=True)
class Prospective:
    """Asks for pre-votes in its current epoch. Keeps the leader it lost, to follow it again if the pre-vote fails."""

    leader_epoch: int
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()
    voted: ReplicaKey | None = None
    tally: VoteTally
    election_deadline_ms: int

    def election_state(self) -> ElectionState:
        return ElectionState(self.leader_epoch, self.leader_id, self.voted)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, is_pre_vote: bool) -> bool:
        return may_grant_vote(
            candidate=candidate,
            voted=self.voted,
            leader_id=self.leader_id,
            is_log_up_to_date=is_log_up_to_date,
            is_pre_vote=is_pre_vote,
        )


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Has voted for itself in a new epoch and asks for votes."""

    leader_epoch: int
    voted: ReplicaKey
    tally: VoteTally
    election_deadline_ms: int
    leader_id: int = -1
    leader_endpoints: tuple[Endpoint, ...] = ()

    def election_state(self) -> ElectionState:
        return ElectionState(self.leader_epoch, -1, self.voted)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Grant pre-votes only: the vote of this epoch is its own."""
        return is_pre_vote and is_log_up_to_date


@dataclass(slots=True, kw_only=True)
class Follower:
    """Fetches from the leader. Becomes Prospective when fetch_deadline_ms passes without a successful fetch."""

    leader_epoch: int
    leader_id: int
    leader_endpoints: tuple[Endpoint, ...]
    voted: ReplicaKey | None = None
    fetch_deadline_ms: int
    update_voter_deadline_ms: int = FOREVER_MS
    has_fetched: bool = False
    is_known_to_leader: bool = False
    """Whether the leader knows this voter's directory and endpoints. With kraft.version 0 they are not in the log."""
    snapshot_id: OffsetAndEpoch | None = None
    """The snapshot being downloaded; snapshot_position is the next byte."""
    snapshot_position: int = 0
    is_installing: bool = False

    def election_state(self) -> ElectionState:
        return ElectionState(self.leader_epoch, self.leader_id, self.voted)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Grant pre-votes only until the first successful fetch: before it, the leader may already be dead."""
        return is_pre_vote and is_log_up_to_date and not self.has_fetched


@dataclass(slots=True)
class PendingFetch:
    """A Fetch that waits for more records or a higher high watermark."""

    respond_to: object
    request: FetchRequest
    deadline_ms: int


FOREVER_OFFSET = INT64_MAX
"""An offset that is never committed."""


@dataclass(slots=True)
class PendingVoterChange:
    """An AddVoter or RemoveVoter, until its record is committed or its time has passed."""

    respond_to: object | None
    offset: int
    """The offset of its record; FOREVER_OFFSET before that is appended."""
    deadline_ms: int
    candidate: ReplicaKey | None = None
    """The new voter while the driver asks it for its versions."""


@dataclass(slots=True, kw_only=True)
class Leader:
    """Takes appends and answers fetches. Resigns if no majority of voters fetches before check_quorum_deadline_ms."""

    leader_epoch: int
    leader_id: int
    voted: ReplicaKey
    leader_endpoints: tuple[Endpoint, ...]
    epoch_start_offset: int
    progress: QuorumProgress
    check_quorum_deadline_ms: int
    begin_epoch_deadline_ms: int
    linger: AppendLinger
    pending_fetches: list[PendingFetch] = field(default_factory=list)
    pending_voter_change: PendingVoterChange | None = None
    described_voters: dict[int, Voter] = field(default_factory=dict)
    """Static voters as they described themselves by UpdateRaftVoter: the first voter set of kraft.version 1."""
    is_resigning: bool = False

    def election_state(self) -> ElectionState:
        return ElectionState(self.leader_epoch, self.leader_id, None)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, is_pre_vote: bool) -> bool:
        return False


@dataclass(slots=True, kw_only=True)
class Resigned:
    """Was the leader of this epoch and sends EndQuorumEpoch to the voters; takes part again in a later epoch."""

    leader_epoch: int
    leader_id: int
    leader_endpoints: tuple[Endpoint, ...]
    unacknowledged_voter_ids: set[int]
    preferred_successors: tuple[ReplicaKey, ...]
    election_deadline_ms: int
    voted: ReplicaKey | None = None

    def election_state(self) -> ElectionState:
        return ElectionState(self.leader_epoch, self.leader_id, None)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Grant pre-votes only: this epoch has had its leader."""
        return is_pre_vote and is_log_up_to_date


Role: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned


class EpochRule(Enum):
    """The allowed change of the epoch in a transition."""

    SAME = "same"
    HIGHER = "higher"
    SAME_OR_HIGHER = "same or higher"


LEGAL_TRANSITIONS: dict[tuple[type[Role], type[Role]], EpochRule] = {
    (Unattached, Unattached): EpochRule.SAME_OR_HIGHER,
    (Unattached, Prospective): EpochRule.SAME,
    (Unattached, Follower): EpochRule.SAME_OR_HIGHER,
    (Prospective, Unattached): EpochRule.SAME_OR_HIGHER,
    (Prospective, Prospective): EpochRule.SAME,
    (Prospective, Candidate): EpochRule.HIGHER,
    (Prospective, Follower): EpochRule.SAME_OR_HIGHER,
    (Candidate, Unattached): EpochRule.HIGHER,
    (Candidate, Prospective): EpochRule.SAME,
    (Candidate, Follower): EpochRule.SAME_OR_HIGHER,
    (Candidate, Leader): EpochRule.SAME,
    (Follower, Unattached): EpochRule.HIGHER,
    (Follower, Prospective): EpochRule.SAME,
    (Follower, Follower): EpochRule.SAME_OR_HIGHER,
    (Leader, Unattached): EpochRule.HIGHER,
    (Leader, Follower): EpochRule.HIGHER,
    (Leader, Resigned): EpochRule.SAME,
    (Resigned, Unattached): EpochRule.HIGHER,
    (Resigned, Prospective): EpochRule.SAME,
    (Resigned, Follower): EpochRule.HIGHER,
}
"""All legal transitions; any other fails an assertion. (Prospective, Prospective) adds a vote; (Follower, Follower) in
one epoch adds endpoints of the leader; (Resigned, Prospective) happens only to a single voter."""


def is_legal(source: Role, target: Role) -> bool:
    """Return whether `source` may become `target`, given their types and epochs."""
    rule = LEGAL_TRANSITIONS.get((type(source), type(target)))
    if rule is None:
        return False
    step = target.leader_epoch - source.leader_epoch
    return {EpochRule.SAME: step == 0, EpochRule.HIGHER: step > 0, EpochRule.SAME_OR_HIGHER: step >= 0}[rule]
