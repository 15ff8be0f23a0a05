"""Finds the directory and address that join a cluster's quorum as a voter, or leave it; voters.py makes the change."""

from typing import Final

from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.server.cluster import queries
from kafkapy.server.cluster.plan import ClusterError
from kafkapy.server.cluster.queries import Ask, QuorumView
from kafkapy.server.cluster.voters import remove_voter, replace_voter
from kafkapy.storage.offline.format import Voter
from kafkapy.types import uuid_from_string

NO_DIRECTORY: Final = "A" * 22
"""The directory id of voters of a quorum whose voters are static (kraft.version 0)."""


def join(ask: Ask, node_id: int, *, directory_id: str, address: str, of_controllers: bool, timeout_s: float) -> None:
    """Make a controller that follows the quorum a voter, in place of one with a former directory of the same node.

    directory_id: as text, "" for the one that follows. address: HOST:PORT of its controllers' listener, "" to find it.
    of_controllers: whether the request goes to a controller, which knows all controllers' addresses.
    Raises ClusterError, OSError, KafkapyError.
    """
    quorum = _quorum(ask)
    following = directory_id or _following(quorum, node_id)
    host, port = _parsed(address) if address else _address(ask, quorum, node_id, of_controllers)
    (listener_name, _, _) = next(iter(quorum.listeners.values()))
    voter = Voter(node_id, host, port, uuid_from_string(following))
    replace_voter(ask, None, voter, listener_name, timeout_s=timeout_s)


def leave(ask: Ask, node_id: int, *, directory_id: str, timeout_s: float) -> None:
    """Remove a voter. directory_id: as text; "" if the node is a voter with one. Raises as `join`."""
    quorum = _quorum(ask)
    directories = [each.directory_id for each in quorum.replicas if each.node_id == node_id]
    if not directories or directory_id not in ("", *directories):
        voters = ", ".join(f"{each.node_id} ({each.directory_id})" for each in quorum.replicas)
        raise ClusterError(f"node {node_id} is no voter{' with that directory' if directories else ''}: {voters} are")
    if not directory_id and len(directories) > 1:
        raise ClusterError(f"node {node_id} is a voter with {' and '.join(directories)}: --directory says which leaves")
    leaving = uuid_from_string(directory_id or directories[0])
    remove_voter(ask, None, node_id, leaving, timeout_s=timeout_s)


def _quorum(ask: Ask) -> QuorumView:
    quorum = queries.quorum(ask)
    if quorum is None:
        raise ClusterError("no controller is active")
    if any(each.directory_id == NO_DIRECTORY for each in quorum.replicas):
        raise ClusterError("the voters are those of controller.quorum.voters: kraft.version 1 lets them change")
    return quorum


def _following(quorum: QuorumView, node_id: int) -> str:
    """Return the directory with which a node follows the quorum and has fetched most recently."""
    found = [each for each in quorum.others if each.node_id == node_id and not each.is_silent]
    if found:
        return min(found, key=lambda each: each.silent_ms).directory_id
    if node_id in quorum.voters:
        raise ClusterError(f"node {node_id} is a voter, and follows with no other directory")
    raise ClusterError(
        f"node {node_id} does not follow the quorum: format it with `kafkapy storage format --no-initial-controllers` "
        "and start it as a controller, with the others in controller.quorum.bootstrap.servers"
    )


def _address(ask: Ask, quorum: QuorumView, node_id: int, of_controllers: bool) -> tuple[str, int]:
    """Return where the other controllers reach a node: as it has registered, or as it was a voter."""
    if of_controllers:
        for node in ask(DescribeClusterRequest(endpoint_type=queries.CONTROLLER_ENDPOINTS)).brokers:
            if node.broker_id == node_id:
                return node.host, node.port
        raise ClusterError(f"node {node_id} is no controller that has registered")
    if node_id in quorum.listeners:
        _, host, port = quorum.listeners[node_id]
        return host, port
    raise ClusterError(
        f"where do the others reach node {node_id}? --address HOST:PORT says so, --bootstrap-controller knows it"
    )


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterError(f"--address {address} is not HOST:PORT")
    return host.strip("[]"), int(port)
