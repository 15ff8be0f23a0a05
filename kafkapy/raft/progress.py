"""The leader's view of each replica's progress: high watermark, check-quorum, which replicas are caught up.

The high watermark is the largest offset below which a majority of voters has everything durable. It advances only to
include a record of the leader's own epoch (a record of an older epoch on a majority may still be lost: Raft, section
5.4.2).
"""

from kafkapy.dataclass import dataclass
from kafkapy.raft.voters import VoterSet
from kafkapy.types import ZERO_UUID, ReplicaKey

OBSERVER_SESSION_TIMEOUT_MS = 300_000
"""An observer that has not fetched for this long is removed (Kafka's LeaderState)."""

CAUGHT_UP_WINDOW_MS = 3_600_000
"""A replica may become a voter if it was caught up and has fetched within this time."""


@dataclass(slots=True)
class ReplicaProgress:
    """The progress of one replica; -1 means never."""

    key: ReplicaKey
    durable_end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_offset_at_last_fetch: int = -1

    def on_fetch(self, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Record a fetch. The replica is caught up if it has all that the leader has now, or had at the previous fetch.

        In the second case it was caught up at the time of the previous fetch.
        """
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif 0 < self.leader_end_offset_at_last_fetch <= fetch_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.leader_end_offset_at_last_fetch = leader_end_offset
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self.durable_end_offset = fetch_offset


class QuorumProgress:
    """All replicas during one leader epoch: the voters (including the leader, unless it was removed) and observers."""

    __slots__ = ("_epoch_start_offset", "_fetched_voter_ids", "_local", "high_watermark", "observers", "voters")

    def __init__(self, local: ReplicaKey, voters: VoterSet, epoch_start_offset: int) -> None:
        self._local = local
        self._epoch_start_offset = epoch_start_offset
        self._fetched_voter_ids: set[int] = set()
        self.high_watermark = -1
        self.voters = {voter.node_id: ReplicaProgress(voter.key) for voter in voters}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}

    def set_voters(self, voters: VoterSet) -> None:
        """Adopt an appended voter set. A replica keeps its progress when it moves between voters and observers."""
        former = self.voters
        self.voters = {}
        for voter in voters:
            known = former.get(voter.node_id)
            was_static = known is not None and known.key.directory_id == ZERO_UUID
            if known is None or not (was_static or voter.matches(known.key)):
                known = self.observers.pop(voter.key, None) or ReplicaProgress(voter.key)
            else:
                del former[voter.node_id]
            known.key = voter.key
            self.voters[voter.node_id] = known
        for replica in former.values():
            self.observers.setdefault(replica.key, replica)
        self._fetched_voter_ids &= self.voters.keys()

    def replica(self, key: ReplicaKey) -> ReplicaProgress:
        """Return the progress of the voter or observer `key`; an unknown replica is added as an observer."""
        voter = self._voter(key)
        if voter is not None:
            return voter
        return self.observers.setdefault(key, ReplicaProgress(key))

    def is_voter(self, key: ReplicaKey) -> bool:
        return self._voter(key) is not None

    def _voter(self, key: ReplicaKey) -> ReplicaProgress | None:
        voter = self.voters.get(key.node_id)
        return voter if voter is not None and voter.key.directory_id in (bytes(16), key.directory_id) else None

    def set_local_durable(self, end_offset: int) -> None:
        local = self.replica(self._local)
        assert end_offset >= local.durable_end_offset, "a leader never truncates its log"
        local.durable_end_offset = end_offset

    def record_fetch(self, key: ReplicaKey, fetch_offset: int, leader_end_offset: int, now_ms: int) -> bool:
        """Record a valid Fetch; return whether a majority of voters has fetched since this last returned True."""
        assert fetch_offset <= leader_end_offset, f"{key} has more than its leader: the fetch is not valid"
        self.replica(key).on_fetch(fetch_offset, leader_end_offset, now_ms)
        return self.record_contact(key)

    def record_contact(self, key: ReplicaKey) -> bool:
        """Record that a replica follows; return whether a majority of voters has since this last returned True.

        That may be so because the voters have become fewer, and is always so of a leader that is the only voter.
        """
        if self._voter(key) is not None:
            self._fetched_voter_ids.add(key.node_id)
        needed = len(self.voters) // 2 + 1 - (self._local.node_id in self.voters)
        if len(self._fetched_voter_ids) < needed:
            return False
        self._fetched_voter_ids.clear()
        return True

    def maybe_advance_high_watermark(self) -> bool:
        if not self.voters:
            return False
        offsets = sorted([voter.durable_end_offset for voter in self.voters.values()], reverse=True)
        majority_offset = offsets[len(offsets) // 2]
        if majority_offset <= self._epoch_start_offset or majority_offset <= self.high_watermark:
            return False
        self.high_watermark = majority_offset
        return True

    def successors(self) -> tuple[ReplicaKey, ...]:
        """Return the other voters, most advanced first: the preferred successors when the leader resigns."""
        others = [voter for node_id, voter in self.voters.items() if node_id != self._local.node_id]
        others.sort(key=lambda voter: (-voter.durable_end_offset, voter.key))
        return tuple(voter.key for voter in others)

    def silent_voter_ids(self, now_ms: int, interval_ms: int) -> tuple[int, ...]:
        """Return the other voters that have not fetched for interval_ms: they may not know the leader."""
        return tuple(
            node_id
            for node_id, voter in self.voters.items()
            if node_id != self._local.node_id
            and (voter.last_fetch_ms < 0 or now_ms - voter.last_fetch_ms >= interval_ms)
        )

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        observer = self.observers.get(key)
        return (
            observer is not None
            and observer.last_caught_up_ms >= 0
            and observer.last_fetch_ms > now_ms - CAUGHT_UP_WINDOW_MS
        )

    def forget_silent_observers(self, now_ms: int) -> None:
        self.observers = {
            key: observer
            for key, observer in self.observers.items()
            if now_ms - observer.last_fetch_ms < OBSERVER_SESSION_TIMEOUT_MS or key == self._local
        }
