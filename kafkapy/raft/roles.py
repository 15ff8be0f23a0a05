"""The roles of a replica, and which may follow which.

    Unattached --timeout--> Prospective --majority of pre-votes--> Candidate --majority of votes--> Leader
    Follower   --timeout--> Prospective --lost--> Follower (leader still known) or Unattached
    Candidate  --timeout--> Prospective
    Leader     --resigns--> Resigned --timeout--> Unattached in the next epoch
    any        --a higher epoch--> Unattached, or Follower where its leader is known

A vote does not change the role (KIP-996): `voted` is kept by Unattached, Prospective and Follower of the same epoch. On
restart the leader of an epoch is Resigned in it: records it had not synced are lost, and another record must never take
their offset in the same epoch.
"""

from dataclasses import field
from enum import Enum
from typing import TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.raft.effects import ElectionState
from kafkapy.raft.election import VoteTally, may_grant_vote
from kafkapy.raft.messages import FetchRequest
from kafkapy.raft.progress import QuorumProgress
from kafkapy.raft.voters import Endpoint, Voter
from kafkapy.types import OffsetAndEpoch, ReplicaKey

FOREVER_MS = 1 << 62
"""A deadline that never comes."""


@dataclass(slots=True, kw_only=True)
class Unattached:
    """Knows no live leader; votes, and stands for election once election_deadline_ms passes."""

    leader_epoch: int
    leader_id: int = -1
    """Known by name only: nobody said where it listens."""
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
    """Asks for pre-votes in its present epoch; remembers the leader it has lost, should it turn out to be alive."""

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
        return is_pre_vote and is_log_up_to_date


@dataclass(slots=True, kw_only=True)
class Follower:
    """Fetches from the leader; turns Prospective once fetch_deadline_ms passes without a good answer."""

    leader_epoch: int
    leader_id: int
    leader_endpoints: tuple[Endpoint, ...]
    voted: ReplicaKey | None = None
    fetch_deadline_ms: int
    update_voter_deadline_ms: int = FOREVER_MS
    has_fetched: bool = False
    has_told_leader: bool = False
    """Whether the leader knows this voter's directory and endpoints, which the log of kraft.version 0 does not."""
    snapshot_id: OffsetAndEpoch | None = None
    """The snapshot being downloaded, from snapshot_position on."""
    snapshot_position: int = 0
    is_installing: bool = False

    def election_state(self) -> ElectionState:
        return ElectionState(self.leader_epoch, self.leader_id, self.voted)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, is_pre_vote: bool) -> bool:
        """A leader that answers is not voted against; one that has not yet answered may be dead already."""
        return is_pre_vote and is_log_up_to_date and not self.has_fetched


@dataclass(slots=True)
class PendingFetch:
    """A Fetch that waits for more log or a higher high watermark."""

    reply_to: object
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True)
class PendingVoterChange:
    """An AddVoter, RemoveVoter or UpdateVoter whose record is appended but not yet committed."""

    reply_to: object | None
    offset: int
    deadline_ms: int


@dataclass(slots=True, kw_only=True)
class Leader:
    """Takes appends and answers fetches; resigns when a majority of voters has been silent for too long."""

    leader_epoch: int
    leader_id: int
    voted: ReplicaKey
    leader_endpoints: tuple[Endpoint, ...]
    epoch_start_offset: int
    progress: QuorumProgress
    check_quorum_deadline_ms: int
    begin_epoch_deadline_ms: int
    pending_fetches: list[PendingFetch] = field(default_factory=list)
    pending_voter_change: PendingVoterChange | None = None
    told_voters: dict[int, Voter] = field(default_factory=dict)
    """What static voters, whose directories no log knows, have told of themselves: kraft.version 1 begins with it."""
    is_resigning: bool = False

    def election_state(self) -> ElectionState:
        return ElectionState(self.leader_epoch, self.leader_id, None)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, is_pre_vote: bool) -> bool:
        return False


@dataclass(slots=True, kw_only=True)
class Resigned:
    """Was the leader of this epoch and tells the voters so; takes part again in a later epoch."""

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
        return is_pre_vote and is_log_up_to_date


Role: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned


class EpochRule(Enum):
    """How the epoch may move with a transition."""

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
"""Every transition that may happen; leaving the table is an assertion. (Prospective, Prospective) adds a vote;
(Follower, Follower) in one epoch learns more of the leader's endpoints; (Resigned, Prospective) is the only voter's."""


def is_legal(source: Role, target: Role) -> bool:
    """Return whether the table lets `source` become `target` with these epochs."""
    rule = LEGAL_TRANSITIONS.get((type(source), type(target)))
    if rule is None:
        return False
    step = target.leader_epoch - source.leader_epoch
    return {EpochRule.SAME: step == 0, EpochRule.HIGHER: step > 0, EpochRule.SAME_OR_HIGHER: step >= 0}[rule]
