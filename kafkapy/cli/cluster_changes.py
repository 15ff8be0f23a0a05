"""`kafkapy cluster move|elect|throttle|unregister`: changes of any cluster, kafkapy's or Apache Kafka's."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kafkapy.cli.client import AsJson
from kafkapy.cli.cluster_where import Where, WhereOrControllers, numbers
from kafkapy.cli.failure import fail, note
from kafkapy.cli.options import takes
from kafkapy.cli.output import counted, print_json, print_table
from kafkapy.dataclass import dataclass

if TYPE_CHECKING:
    from kafkapy.server.cluster.queries import Ask
    from kafkapy.server.cluster.throttling import Move

Partitions = Annotated[
    str, typer.Option("--partitions", metavar="N,...", show_default=False, help="Which; without, all of the topic.")
]
BytesPerSecond = Annotated[
    int | None,
    typer.Option(
        "--throttle", min=1, metavar="BYTES", show_default=False, help="A second, of each broker, for what moves."
    ),
]
THROTTLE_STAYS = "the throttle stays: `kafkapy cluster throttle --off` takes it away"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions(Where):
    """The arguments and options of `kafkapy cluster move`."""

    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic to move.")]
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="NODE,...", show_default=False, help="The brokers that are to have its partitions."
        ),
    ] = ""
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", min=1, help="How many replicas of each; without, as many as before."
        ),
    ] = None
    partitions: Partitions = ""
    throttle: BytesPerSecond = None
    is_cancelled: Annotated[bool, typer.Option("--cancel", help="End the move that is running.")] = False


@takes(MoveOptions)
def move(options: MoveOptions) -> None:
    """Move a topic's partitions to other brokers, or change how many replicas they have.

    Without --to, replicas are added or dropped, and those that stay do not move. Ctrl-C leaves the move running.
    """
    from kafkapy.server.cluster import moving

    if options.is_cancelled == bool(options.to or options.replication_factor):
        raise typer.BadParameter("--to, --replication-factor, or --cancel alone")
    chosen = numbers(options.partitions, "--partitions") if options.partitions else None
    to = numbers(options.to, "--to") if options.to else []
    with options.connected() as ask:
        replicas = moving.replicas_of(ask, options.topic, chosen)
        if options.is_cancelled:
            found = [each.partition_index for each in moving.running(ask, options.topic, list(replicas))]
            if found:
                moving.reassign(ask, options.topic, dict.fromkeys(found))
            print(f"Cancelled the move of {counted(len(found), 'partition')}.")
            return
        if to:
            wanted = moving.targets(replicas, to, options.replication_factor)
        else:
            assert options.replication_factor is not None
            wanted = moving.resized(replicas, options.replication_factor, *_brokers(ask))
        _move(ask, options.topic, wanted, replicas, options.throttle)


def _brokers(ask: "Ask") -> tuple[dict[int, str | None], dict[int, int]]:
    """Return the racks of the brokers that are unfenced, and the number of replicas by broker."""
    from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
    from kafkapy.server.cluster import queries

    racks = {each.broker_id: each.rack for each in ask(DescribeClusterRequest()).brokers}
    return racks, queries.partitions(ask).replica_counts


def _move(
    ask: "Ask", topic: str, wanted: dict[int, list[int]], replicas: dict[int, list[int]], throttle: int | None
) -> None:
    from kafkapy.server.cluster import moving, throttling

    if throttle is not None:
        moves = [
            throttling.Move(topic, partition, before, [each for each in wanted[partition] if each not in before])
            for partition, before in replicas.items()
        ]
        throttling.limit(ask, throttle, moves)
    try:
        for arrived, count in moving.move(ask, topic, wanted):
            print(f"{arrived} of {count} partitions are there", flush=True)
    except BaseException:
        if throttle is not None:
            note(THROTTLE_STAYS)
        raise
    if throttle is not None:
        throttling.lift(ask, [topic])


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectOptions(WhereOrControllers):
    """The arguments and options of `kafkapy cluster elect`."""

    topic: Annotated[str, typer.Argument(metavar="[TOPIC]", show_default=False, help="Without, all topics.")] = ""
    partitions: Partitions = ""
    is_unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Elect a replica that is not in sync where no other is left: records are lost."),
    ] = False


@takes(ElectOptions)
def elect(options: ElectOptions) -> None:
    """Elect the preferred leaders of partitions: the first of their replicas."""
    from kafkapy.server.cluster import electing, moving

    if (options.partitions or options.is_unclean) and not options.topic:
        raise typer.BadParameter("--partitions and --unclean are for a TOPIC")
    if options.topic and not options.partitions and options.controllers:
        raise typer.BadParameter("controllers do not know a topic's partitions: --partitions, or --bootstrap-server")
    chosen = numbers(options.partitions, "--partitions") if options.partitions else None
    with options.connected() as ask:
        wanted = None
        if options.topic:
            known = chosen if options.controllers else [*moving.replicas_of(ask, options.topic, chosen)]
            wanted = {options.topic: known or []}
        elected, refused = electing.elect(ask, wanted, is_unclean=options.is_unclean)
    print(f"Elected leaders of {counted(len(elected), 'partition')}.")
    for name, reason in refused.items():
        fail(f"{name}: {reason}")
    if refused:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleOptions(Where):
    """The arguments and options of `kafkapy cluster throttle`."""

    rate: Annotated[
        int | None,
        typer.Argument(metavar="[BYTES]", min=1, show_default=False, help="A second, of each broker; without, show."),
    ] = None
    is_off: Annotated[bool, typer.Option("--off", help="Take all limits away.")] = False
    as_json: AsJson = False


@takes(ThrottleOptions)
def throttle(options: ThrottleOptions) -> None:
    """Limit how fast the partitions that move now are replicated; without BYTES show the limits that are set."""
    from kafkapy.server.cluster import queries, throttling

    if options.rate is not None and options.is_off:
        raise typer.BadParameter("BYTES or --off")
    with options.connected() as ask:
        topics = list(queries.partitions(ask).leaders)
        if options.is_off:
            throttling.lift(ask, sorted({each.topic for each in throttling.throttles(ask, topics) if each.topic}))
            print("Took the limits away.")
            return
        if options.rate is not None:
            moves = list(_moves(ask))
            throttling.limit(ask, options.rate, moves)
            print(f"Limited {len(moves)} moving partitions to {options.rate} bytes a second.")
            return
        found = list(throttling.throttles(ask, topics))
    if options.as_json:
        print_json([asdict(each) for each in found])
    else:
        print_table(("TOPIC", "KEY", "VALUE"), [(each.topic or "-", each.key, each.value) for each in found])


def _moves(ask: "Ask") -> "Iterator[Move]":
    """Yield the partitions that move now."""
    from kafkapy.server.cluster import moving, throttling

    for topic, each in moving.all_running(ask):
        sources = [replica for replica in each.replicas if replica not in each.adding_replicas]
        yield throttling.Move(topic, each.partition_index, sources, each.adding_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterOptions(Where):
    """The arguments and options of `kafkapy cluster unregister`."""

    node: Annotated[int, typer.Argument(metavar="NODE", show_default=False, help="A broker's id.")]


@takes(UnregisterOptions)
def unregister(options: UnregisterOptions) -> None:
    """Forget a broker that is stopped, holds no replicas, and will not come back."""
    from kafkapy.server.cluster import queries
    from kafkapy.server.cluster.plan import ClusterError

    with options.connected() as ask:
        known = queries.brokers(ask)
        if options.node not in known:
            raise ClusterError(f"there is no broker {options.node}: this cluster has {', '.join(map(str, known))}")
        if known[options.node]:
            raise ClusterError(f"broker {options.node} is running: stop it first")
        count = queries.partitions(ask).replica_counts.get(options.node, 0)
        if count:
            raise ClusterError(
                f"broker {options.node} has replicas of {count} partitions: `kafkapy cluster move` moves them first"
            )
        queries.unregister(ask, options.node)
    print(f"Unregistered broker {options.node}.")
