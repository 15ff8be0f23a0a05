"""What both directions of the wire need to know of this node and its cluster, and how a message is refused."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.primitives import Message
from kafkapy.raft.messages import INVALID_REQUEST, Response
from kafkapy.raft.voters import Endpoint
from kafkapy.types import METADATA_PARTITION

INCONSISTENT_CLUSTER_ID: Final = ErrorCode.INCONSISTENT_CLUSTER_ID.value
UNKNOWN_TOPIC_OR_PARTITION: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value


class PeerError(KafkapyError):
    """A request or a response that is refused as a whole; `message` is for the asker."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class WirePeer:
    """The cluster that this node belongs to, and the listener by which the other side is, or was, reached."""

    cluster_id: str
    listener_name: str

    def check_cluster_id(self, cluster_id: str | None) -> None:
        """Raise PeerError unless the request may be meant for this cluster."""
        if cluster_id is not None and cluster_id != self.cluster_id:
            message = f'The given id "{cluster_id}" doesn\'t match the cluster id "{self.cluster_id}"'
            raise PeerError(INCONSISTENT_CLUSTER_ID, message)

    def endpoints_of(self, leader_id: int, nodes: Sequence[Any]) -> tuple[Endpoint, ...]:
        """Return where a response says that the leader listens."""
        return tuple(Endpoint(self.listener_name, node.host, node.port) for node in nodes if node.node_id == leader_id)

    def leader_address(self, response: Response) -> Endpoint | None:
        """Return where the leader listens by the name of this listener; None where it is unknown."""
        if response.leader_id < 0:
            return None
        return next((each for each in response.leader_endpoints if each.name == self.listener_name), None)


class Part(Protocol):
    """One API's four directions."""

    def to_request(self, request: Any, version: int, peer: WirePeer) -> Message: ...

    def from_request(self, message: Any, version: int, peer: WirePeer) -> Any: ...

    def to_response(self, response: Any, version: int, peer: WirePeer) -> Message: ...

    def from_response(self, message: Any, version: int, peer: WirePeer) -> Any: ...

    def refusal(self, error: PeerError) -> Message: ...


def only_partition(topics: Sequence[Any], *, code: int = INVALID_REQUEST) -> Any:
    """Return the one partition of a Vote, BeginQuorumEpoch or EndQuorumEpoch. Raises PeerError if it is another."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise PeerError(code)
    topic, partition = topics[0], topics[0].partitions[0]
    if (topic.topic_name, partition.partition_index) != METADATA_PARTITION:
        raise PeerError(code)
    return partition


def check_error(code: int) -> None:
    """Raise PeerError if a response failed as a whole."""
    if code:
        raise PeerError(code)
