"""The state of a cluster: its nodes, its quorum, and the partitions with a problem."""

from collections.abc import Callable, Collection
from dataclasses import field
from typing import TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.server.cluster import queries
from kafkapy.server.cluster.plan import BROKER, COMBINED, CONTROLLER
from kafkapy.server.cluster.queries import Ask, QuorumReplica, QuorumView, TopicPartitions

T = TypeVar("T")


@dataclass(slots=True)
class NodeStatus:
    """`pid`: None if it does not run on this machine. `address`: "" if it is not known."""

    node_id: int
    roles: str
    address: str
    pid: int | None
    state: str
    """stopped, fenced (or starting), running; silent for a controller that does not fetch, unreachable for a broker
    that is unfenced and does not answer; "running, active controller" for the leader of the quorum."""


@dataclass(slots=True)
class ClusterStatus:
    """`quorum` and `partitions` are None if no node answers that knows them. Partitions are `topic-partition`."""

    nodes: list[NodeStatus]
    quorum: QuorumView | None
    partitions: TopicPartitions | None
    at_risk: list[str]
    """Led by a broker that does not answer: offline until it is fenced, or answers."""
    controllers_without_vote: list[QuorumReplica] = field(default_factory=list)
    """Controllers that follow the quorum with a directory that is no voter's."""
    under_min_isr: list[str] = field(default_factory=list)
    """Fewer replicas in sync than min.insync.replicas: acks=all is refused."""
    at_min_isr: list[str] = field(default_factory=list)
    """Partitions with exactly min.insync.replicas in sync: acks=all is refused after the loss of one."""
    reassigning: list[str] = field(default_factory=list)


def status_of_brokers(ask: Ask, is_answering: Callable[[str, int], bool]) -> ClusterStatus:
    """Return the state of a cluster, read through a broker. Raises OSError, KafkapyError.

    is_answering: whether the broker at this host and port serves; False if it cannot be reached from here.
    """
    described = ask(DescribeClusterRequest(include_fenced_brokers=True))
    quorum = or_none(lambda: queries.quorum(ask))
    voters = [] if quorum is None else quorum.voters
    nodes, unreachable = [], set()
    for each in sorted(described.brokers, key=lambda broker: broker.broker_id):
        roles = COMBINED if each.broker_id in voters else BROKER
        state = "fenced" if each.is_fenced else "running"
        if not each.is_fenced and not is_answering(each.host, each.port):
            unreachable.add(each.broker_id)
            state = "unreachable"
        nodes.append(NodeStatus(each.broker_id, roles, f"{each.host}:{each.port}", None, state))
    known = {node.node_id for node in nodes}
    nodes += [_controller(quorum, each) for each in _replicas(quorum) if each.node_id not in known]
    _mark_active(nodes, quorum)
    partitions = queries.partitions(ask)
    status = ClusterStatus(nodes, quorum, partitions, partitions.led_by(unreachable), _without_vote(quorum, voters))
    add_partitions(ask, status)
    return status


def status_of_controllers(ask: Ask) -> ClusterStatus:
    """Return the nodes and the quorum as the active controller sees them. Raises OSError, KafkapyError."""
    described = ask(DescribeClusterRequest(endpoint_type=queries.CONTROLLER_ENDPOINTS))
    quorum = queries.quorum(ask)
    addresses = {each.broker_id: f"{each.host}:{each.port}" for each in described.brokers}
    followers = [] if quorum is None else quorum.others
    silent_first = sorted([*_replicas(quorum), *followers], key=lambda each: not each.is_silent)
    replicas = {each.node_id: each for each in silent_first}
    nodes = []
    for node_id in sorted({*addresses, *replicas}):
        replica = replicas.get(node_id)
        roles = CONTROLLER if node_id in addresses else BROKER
        state = "silent" if replica is None or replica.is_silent else "running"
        nodes.append(NodeStatus(node_id, roles, addresses.get(node_id, ""), None, state))
    _mark_active(nodes, quorum)
    return ClusterStatus(nodes, quorum, None, [], _without_vote(quorum, addresses))


def add_partitions(ask: Ask, status: ClusterStatus) -> None:
    """Add the facts of partitions that take more requests. Raises OSError, KafkapyError."""
    assert status.partitions is not None
    status.under_min_isr, status.at_min_isr = queries.by_min_isr(ask, status.partitions)
    if status.quorum is not None:  # without a controller nobody answers
        status.reassigning = or_none(lambda: queries.reassigning(ask)) or []


def _replicas(quorum: QuorumView | None) -> list[QuorumReplica]:
    return [] if quorum is None else quorum.replicas


def _controller(quorum: QuorumView | None, replica: QuorumReplica) -> NodeStatus:
    listener = quorum.listeners.get(replica.node_id) if quorum is not None else None
    address = f"{listener[1]}:{listener[2]}" if listener is not None else ""
    return NodeStatus(replica.node_id, CONTROLLER, address, None, "silent" if replica.is_silent else "running")


def _mark_active(nodes: list[NodeStatus], quorum: QuorumView | None) -> None:
    for node in nodes:
        if quorum is not None and quorum.leader_id == node.node_id and node.state == "running":
            node.state = "running, active controller"


def _without_vote(quorum: QuorumView | None, controller_ids: Collection[int]) -> list[QuorumReplica]:
    """Return the observers that are controllers: a voter is one too, whose directory another one has replaced."""
    followers = [] if quorum is None else quorum.others
    return [each for each in followers if each.node_id in controller_ids and not each.is_silent]


def or_none(question: Callable[[], T]) -> T | None:
    """Return the result of a query to the cluster, None if no node answers."""
    try:
        return question()
    except (OSError, KafkapyError):
        return None
