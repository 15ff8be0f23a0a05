"""Who a node is in the metadata quorum."""

from kafkapy.dataclass import dataclass
from kafkapy.raft.voters import Endpoint, Voter, VoterSet
from kafkapy.types import ReplicaKey, Uuid


@dataclass(frozen=True, slots=True)
class QuorumIdentity:
    """Who a node is in the metadata quorum, and whom it knows of it at the start.

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
