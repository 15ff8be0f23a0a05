"""`kafkapy cluster status`: nodes, quorum and partitions of any cluster."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from kafkapy.cli.client import AsJson
from kafkapy.cli.cluster_where import WhereOrControllers
from kafkapy.cli.options import takes
from kafkapy.cli.output import print_json, print_table
from kafkapy.dataclass import dataclass
from kafkapy.errors import first_of

if TYPE_CHECKING:
    from kafkapy.server.cluster.queries import QuorumReplica
    from kafkapy.server.cluster.status import ClusterStatus

NAMES_SHOWN: Final = 5
"""A line of a terminal; --json has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusOptions(WhereOrControllers):
    """The options of `kafkapy cluster status`."""

    as_json: AsJson = False


@takes(StatusOptions)
def status(options: StatusOptions) -> None:
    """Show nodes, quorum and partitions, of any cluster by --bootstrap-server or --bootstrap-controller."""
    found = _found(options)
    if options.as_json:
        print_json(asdict(found))
        return
    rows = [(node.node_id, node.roles, node.address or "-", node.pid or "-", node.state) for node in found.nodes]
    columns = ("NODE", "ROLES", "ADDRESS", "PID", "STATE")
    shown = [index for index, column in enumerate(columns) if column != "PID" or options.is_here]
    print_table([columns[index] for index in shown], [[row[index] for index in shown] for row in rows])
    for line in _quorum_lines(found):
        print(line)
    if options.controllers:
        return
    for line in _partition_lines(found):
        print(line)


def _found(options: StatusOptions) -> "ClusterStatus":
    from kafkapy.cli.cluster_link import is_answering
    from kafkapy.cli.cluster_where import failures
    from kafkapy.server.cluster.local import LocalCluster
    from kafkapy.server.cluster.status import status_of_brokers, status_of_controllers

    if options.is_here:
        with failures():
            return LocalCluster.load(options.data_dir).status()
    with options.connected() as ask:
        return status_of_controllers(ask) if options.controllers else status_of_brokers(ask, is_answering)
    raise AssertionError("a failure ends the command")


def _quorum_lines(found: "ClusterStatus") -> Iterator[str]:
    if found.quorum is None:
        yield "quorum: no active controller is known"
        return
    voters = ", ".join(map(str, sorted(found.quorum.voters)))
    yield f"quorum: node {found.quorum.leader_id} leads at epoch {found.quorum.leader_epoch}, voters {voters}"
    yield from (
        f"  voter {each.node_id}: directory {each.directory_id}, {_lag(each)}" for each in found.quorum.replicas
    )
    for each in found.controllers_without_vote:
        yield (
            f"  node {each.node_id} is a controller and no voter with its directory {each.directory_id}, "
            f"{_lag(each)}: `kafkapy cluster voters add {each.node_id}` makes it one"
        )


def _partition_lines(found: "ClusterStatus") -> Iterator[str]:
    partitions = found.partitions
    if partitions is None:
        yield "partitions: no broker answers"
        return
    yield (
        f"partitions: {partitions.partition_count} of {partitions.topic_count} topics"
        f"; offline: {_shown(partitions.offline)}; under-replicated: {_shown(partitions.under_replicated)}"
        f"; at risk, led by a node that does not answer: {_shown(found.at_risk)}"
    )
    yield f"min.insync.replicas: fewer in sync: {_shown(found.under_min_isr)}; just as many: {_shown(found.at_min_isr)}"
    if found.reassigning:
        yield f"moving: {_shown(found.reassigning)}"
    counts: dict[int, int] = {}
    for leaders in partitions.leaders.values():
        for leader in leaders.values():
            counts[leader] = counts.get(leader, 0) + 1
    led = ", ".join(f"node {broker}: {count}" for broker, count in sorted(counts.items()) if broker >= 0)
    yield f"leaders: {led or 'none'}"


def _lag(replica: "QuorumReplica") -> str:
    if replica.lag < 0:
        return "not heard of"
    silent = f", silent for {replica.silent_ms // 1000} s" if replica.is_silent else ""
    return f"{replica.lag} records behind{silent}"


def _shown(names: list[str]) -> str:
    if not names:
        return "none"
    return f"{len(names)} ({first_of(names, NAMES_SHOWN)})"
