"""The cluster id and listener that message conversion needs, and the error by which a message is refused."""

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
    """A request or a response that is refused as a whole; `message` is sent to the requester."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class WirePeer:
    """This node's cluster, and the name of the listener that connects it with the peer."""

    cluster_id: str
    listener_name: str

    def check_cluster_id(self, cluster_id: str | None) -> None:
        """Raise PeerError if the request names another cluster."""
        if cluster_id is not None and cluster_id != self.cluster_id:
            message = f'The given id "{cluster_id}" doesn\'t match the cluster id "{self.cluster_id}"'
            raise PeerError(INCONSISTENT_CLUSTER_ID, message)

    def endpoints_of(self, leader_id: int, nodes: Sequence[Any]) -> tuple[Endpoint, ...]:
        """Return the leader's endpoints that a response gives."""
        return tuple(Endpoint(self.listener_name, node.host, node.port) for node in nodes if node.node_id == leader_id)

    def leader_address(self, response: Response) -> Endpoint | None:
        """Return the leader's address on the listener of this name, None if unknown."""
        if response.leader_id < 0:
            return None
        return next((each for each in response.leader_endpoints if each.name == self.listener_name), None)


class Part(Protocol):
    """The conversions of one API: requests and responses, each in both directions."""

    def to_request(self, request: Any, version: int, peer: WirePeer) -> Message: ...

    def from_request(self, message: Any, version: int, peer: WirePeer) -> Any: ...

    def to_response(self, response: Any, version: int, peer: WirePeer) -> Message: ...

    def from_response(self, message: Any, version: int, peer: WirePeer) -> Any: ...

    def refusal(self, error: PeerError) -> Message: ...


def only_partition(topics: Sequence[Any], *, code: int = INVALID_REQUEST) -> Any:
    """Return the one partition of a Vote, BeginQuorumEpoch or EndQuorumEpoch.

    Raises PeerError unless the message has exactly the metadata partition.
    """
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise PeerError(code)
    topic, partition = topics[0], topics[0].partitions[0]
    if (topic.topic_name, partition.partition_index) != METADATA_PARTITION:
        raise PeerError(code)
    return partition


def check_error(code: int) -> None:
    """Raise PeerError if a response has a top-level error code."""
    if code:
        raise PeerError(code)
