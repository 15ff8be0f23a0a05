"""A node's identity in the metadata quorum, and the directory of its metadata log."""

from collections.abc import Callable

from kafkapy.config.quorum import QuorumConfig
from kafkapy.dataclass import dataclass
from kafkapy.raft.config import RaftConfig
from kafkapy.raft.voters import Endpoint, Voter, VoterSet, static_voter
from kafkapy.seams import IoPool
from kafkapy.types import ReplicaKey, Uuid


@dataclass(frozen=True, slots=True)
class QuorumIdentity:
    """A node's identity in the metadata quorum, and the other nodes that it knows at the start.

    static_voters: of controller.quorum.voters, empty if unset. bootstrap_ids: the nodes that a node without voters asks
    for the leader; the transport knows their addresses.
    """

    cluster_id: str
    node_id: int
    directory_id: Uuid
    endpoints: tuple[Endpoint, ...]
    static_voters: VoterSet
    bootstrap_ids: tuple[int, ...] = ()
    can_become_voter: bool = True

    @property
    def voter(self) -> Voter:
        return Voter(ReplicaKey(self.node_id, self.directory_id), self.endpoints)

    def voters_of(self, voter_ids: tuple[int, ...]) -> VoterSet:
        """Return the voters recorded in quorum-state, for a configuration without static voters."""
        return VoterSet(
            static_voter(voter_id, *(self.endpoints if voter_id == self.node_id else ())) for voter_id in voter_ids
        )

    def raft_config(self, config: QuorumConfig, voters: VoterSet) -> RaftConfig:
        """Return the core's configuration; `voters`: those of the log, also searched for the leader."""
        others = {*voters.ids, *self.bootstrap_ids} - {self.node_id}
        return RaftConfig(
            local=self.voter,
            can_become_voter=self.can_become_voter,
            joins_by_itself=self.can_become_voter and config.controller_quorum_auto_join_enable,
            bootstrap_ids=tuple(sorted(others)),
            election_timeout_ms=config.controller_quorum_election_timeout_ms,
            election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
            request_timeout_ms=config.controller_quorum_request_timeout_ms,
            retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
            append_linger_ms=config.controller_quorum_append_linger_ms,
            max_batch_bytes=config.internal_metadata_max_batch_size_in_bytes,
            fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
            fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        )


@dataclass(frozen=True, slots=True)
class MetadataDirectory:
    """The directory of `__cluster_metadata-0`.

    was_clean_shutdown: the log directory had .kafka_cleanshutdown, so the log need not be recovered. make_room: called
    if there is too little space for an append (storage/manager/space_reserve.py). on_flushed: called with how long each
    flush took, in microseconds. flush_pool: a worker for the fsyncs alone, so that other calls of the IO pool on a slow
    disk delay no commit; without one they run in the system's pool.
    """

    path: str
    was_clean_shutdown: bool = False
    make_room: Callable[[], None] = lambda: None
    on_flushed: Callable[[int], None] | None = None
    flush_pool: IoPool | None = None
