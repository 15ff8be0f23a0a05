"""Restarts the nodes of a local cluster one by one, so that all partitions stay led and acks=all is served.

A node is stopped only while all replicas are in sync and all controllers follow: those that stopped come first, then
brokers, then controllers, the active one last, so that the quorum elects once.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kafkapy.errors import KafkapyError, first_of
from kafkapy.server.cluster import queries
from kafkapy.server.cluster.local import LocalCluster
from kafkapy.server.cluster.plan import ClusterError, NodePlan
from kafkapy.server.cluster.queries import QuorumView, TopicPartitions

POLL_S: Final = 0.1
MAX_LAG: Final = 1_000
"""A controller that is so many records behind the active one does not follow yet."""
NAMES_SHOWN: Final = 3


def restart_one_by_one(cluster: LocalCluster, node_ids: Sequence[int], timeout_s: float) -> Iterator[tuple[int, str]]:
    """Restart these nodes; yield how many are done, and what happens now.

    timeout_s: for replicas to be in sync, each time. Raises ClusterError, with the cluster as it is then.
    """
    nodes = [cluster.plan.node(each) for each in node_ids]
    _check_others_run(cluster, nodes)
    quorum = queries.quorum(cluster.ask_broker())
    stopped = {node.node_id for node in nodes if not cluster.is_running(node.node_id)}
    for done, node in enumerate(order(nodes, None if quorum is None else quorum.leader_id, stopped)):
        if node.node_id not in stopped:
            yield from _until_in_sync(cluster, done, f"before node {node.node_id} stops", timeout_s)
            yield done, f"node {node.node_id} stops"
            cluster.stop(node.node_id)
        yield done, f"node {node.node_id} starts"
        cluster.start(node.node_id)
        yield from _until_in_sync(cluster, done, f"after node {node.node_id} started", timeout_s)
    yield len(nodes), "all replicas are in sync"


def order(nodes: Iterable[NodePlan], active_id: int | None, stopped: Iterable[int] = ()) -> list[NodePlan]:
    """Return the nodes as they are to be restarted: stopped ones, brokers, controllers, the active controller."""
    first = set(stopped)
    return sorted(
        nodes,
        key=lambda node: (node.node_id not in first, node.node_id == active_id, node.is_controller, node.node_id),
    )


def _check_others_run(cluster: LocalCluster, nodes: Sequence[NodePlan]) -> None:
    """Raise ClusterError if a node that is not restarted does not run: one more would be too many."""
    for node in cluster.plan.nodes:
        if node not in nodes and not cluster.is_running(node.node_id):
            raise ClusterError(f"node {node.node_id} does not run: `kafkapy cluster start {node.node_id}` first")


def _until_in_sync(cluster: LocalCluster, done: int, when: str, timeout_s: float) -> Iterator[tuple[int, str]]:
    """Yield until all replicas are in sync and all controllers follow. Raises ClusterError at the time-out."""
    deadline = time.monotonic() + timeout_s
    doing = ""
    while missing := _missing(cluster):
        if time.monotonic() > deadline:
            raise ClusterError(f"{missing} {when}, for {timeout_s:g} s: {done} nodes are restarted")
        yield done, f"waiting: {missing}" if not doing else ""
        doing = missing
        time.sleep(POLL_S)


def _missing(cluster: LocalCluster) -> str:
    """Return in words which replicas are not in sync; empty if all are."""
    try:
        ask = cluster.ask_broker()
        return not_in_sync(queries.partitions(ask), queries.quorum(ask))
    except (OSError, KafkapyError) as error:
        return f"no response: {error}"


def not_in_sync(partitions: TopicPartitions, quorum: QuorumView | None) -> str:
    """Return in words which partitions and controllers are not in sync, empty if all are."""
    behind = sorted({*partitions.offline, *partitions.under_replicated})
    if behind:
        return f"{first_of(behind, NAMES_SHOWN)} not in sync"
    if quorum is None:
        return "no active controller is known"
    silent = [each.node_id for each in quorum.replicas if each.is_silent or each.lag > MAX_LAG]
    return f"controller {', '.join(map(str, silent))} does not follow" if silent else ""
