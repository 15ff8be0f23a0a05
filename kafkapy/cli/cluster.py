"""`kafkapy cluster up|status|logs|start|stop|kill|add|voters|move|remove|down|check`: several nodes on this machine.

The data directory describes the cluster, so each command reads its state from there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkapy.cli.client import AsJson, parse_settings
from kafkapy.cli.cluster_check import check
from kafkapy.cli.failure import INTERRUPTED, fail, note, reason_of
from kafkapy.cli.output import print_json, print_table
from kafkapy.config.properties import parse_properties
from kafkapy.errors import KafkapyError

if TYPE_CHECKING:
    from kafkapy.server.cluster.local import ClusterStatus, LocalCluster
    from kafkapy.server.cluster.queries import QuorumReplica

app = typer.Typer(
    help="Run a cluster of several nodes on this machine; check one that is to be migrated.", no_args_is_help=True
)
app.command("check")(check)
voters_app = typer.Typer(help="Change the voters of the metadata quorum.", no_args_is_help=True)
app.add_typer(voters_app, name="voters")

DEFAULT_DATA_DIR = Path("kafkapy-cluster")
DEFAULT_BROKERS = 3
DEFAULT_PORT = 9092
NAMES_SHOWN = 5

DataDir = Annotated[Path, typer.Option("--data-dir", metavar="DIR", help="Where the cluster lies.")]
NodeId = Annotated[int, typer.Argument(metavar="NODE", show_default=False, help="A node's id.")]


@contextmanager
def _failures() -> Iterator[None]:
    """Turn an error into one line and exit status 1, Ctrl-C into status 130."""
    try:
        yield
    except (KafkapyError, OSError) as error:
        raise typer.Exit(fail(reason_of(error))) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error


def _load(data_dir: Path) -> "LocalCluster":
    from kafkapy.server.cluster.local import LocalCluster

    return LocalCluster.load(data_dir)


@app.command()
def up(
    brokers: Annotated[
        int | None, typer.Option("-n", "--brokers", min=1, help=f"How many brokers (default {DEFAULT_BROKERS}).")
    ] = None,
    controllers: Annotated[
        int | None,
        typer.Option(
            "--controllers",
            min=0,
            help="How many controllers of their own; without, the first three brokers are controllers as well.",
        ),
    ] = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A properties file that every node shares.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A key of every node; may be repeated.")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Of the first broker, the others follow; 0 for free ones.")
    ] = DEFAULT_PORT,
) -> None:
    """Make a cluster where there is none, start what does not run, return once all brokers serve."""
    from kafkapy.server.cluster.local import LocalCluster

    with _failures():
        if (data_dir / "cluster.json").exists():
            cluster = LocalCluster.load(data_dir)
            _check_unchanged(cluster, brokers, controllers, config, settings)
        else:
            cluster = LocalCluster.create(
                data_dir,
                broker_count=DEFAULT_BROKERS if brokers is None else brokers,
                controller_count=controllers or 0,
                properties={**_properties_of(config), **parse_settings(settings)},
                first_port=port,
            )
        cluster.up()
    print(cluster.plan.bootstrap_servers)


def _check_unchanged(cluster: "LocalCluster", brokers: int | None, controllers: int | None, *others: Any) -> None:
    """Raise ClusterError if `up` is called with other settings than the existing cluster has."""
    from kafkapy.server.cluster.plan import ClusterError

    plan = cluster.plan
    if any(others):
        raise ClusterError("the cluster exists already: change its configuration with `kafkapy configs alter`")
    alone = [node for node in plan.controllers if not node.is_broker]
    if brokers not in (None, len(plan.brokers)) or controllers not in (None, len(alone)):
        raise ClusterError(
            f"{cluster.data_dir} holds a cluster of {len(plan.brokers)} brokers and {len(alone)} controllers of their "
            "own: `kafkapy cluster add` adds a broker, --data-dir makes another cluster"
        )


def _properties_of(path: Path | None) -> dict[str, str]:
    return parse_properties(path.read_text()) if path is not None else {}


@app.command()
def status(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: AsJson = False) -> None:
    """Show nodes, quorum and partitions."""
    with _failures():
        cluster = _load(data_dir)
        found = cluster.status()
    if as_json:
        print_json(asdict(found))
        return
    rows = [(node.node_id, node.roles, node.address, node.pid or "-", node.state) for node in found.nodes]
    print_table(("NODE", "ROLES", "ADDRESS", "PID", "STATE"), rows)
    for line in _lines_of(found):
        print(line)


def _lines_of(found: "ClusterStatus") -> Iterator[str]:
    if found.quorum is None:
        yield "quorum: no active controller is known"
    else:
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
    if found.partitions is None:
        yield "partitions: no broker answers"
        return
    partitions = found.partitions
    yield (
        f"partitions: {partitions.partition_count} of {partitions.topic_count} topics"
        f"; offline: {_shown(partitions.offline)}; under-replicated: {_shown(partitions.under_replicated)}"
        f"; at risk, led by a node that does not answer: {_shown(found.at_risk)}"
    )
    counts: dict[int, int] = {}
    for leaders in partitions.leaders.values():
        for leader in leaders.values():
            counts[leader] = counts.get(leader, 0) + 1
    led = ", ".join(f"node {broker}: {count}" for broker, count in sorted(counts.items()) if broker >= 0)
    yield f"leaders: {led or 'none'}"


def _lag(replica: "QuorumReplica") -> str:
    return f"{replica.lag} records behind" if replica.lag >= 0 else "not heard of"


def _shown(names: list[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{len(names)} ({', '.join(names[:NAMES_SHOWN])}{more})"


@app.command()
def logs(
    node: Annotated[int | None, typer.Argument(metavar="[NODE]", show_default=False, help="A node's id.")] = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="How many of the last lines.")] = 20,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Show what nodes have printed: of one, or of all."""
    with _failures():
        cluster = _load(data_dir)
        node_ids = list(cluster.processes) if node is None else [cluster.plan.node(node).node_id]
    for node_id in node_ids:
        process = cluster.processes[node_id]
        print(f"==> {process.log_file} <==")
        for line in process.last_lines(lines):
            print(line)


@app.command()
def start(node: NodeId, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Start a node; return once it serves."""
    with _failures():
        cluster = _load(data_dir)
        is_broker = cluster.plan.node(node).is_broker
        if not cluster.is_running(node):
            note(f"waiting until node {node} answers{' and its broker is unfenced' if is_broker else ''}")
        cluster.start(node)
    print(f"Started node {node}.")


@app.command()
def stop(node: NodeId, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Stop a node in order."""
    with _failures():
        _load(data_dir).stop(node)
    print(f"Stopped node {node}.")


@app.command()
def kill(node: NodeId, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """End a node as a crash does."""
    with _failures():
        _load(data_dir).kill(node)
    print(f"Killed node {node}.")


@app.command()
def add(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Where clients connect; 0 for a free one.")] = 0,
    is_controller: Annotated[
        bool, typer.Option("--controller", help="Add a controller of its own, which becomes a voter of the quorum.")
    ] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Add a broker and start it, which gets new partitions only; or a controller."""
    with _failures():
        cluster = _load(data_dir)
        added = cluster.add_controller(port) if is_controller else cluster.add(port)
    print(f"Added node {added.node_id} on {added.address[0]}:{added.address[1]}.")


@voters_app.command("add")
def add_voter(node: NodeId, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Make a running controller a voter, in place of the one with a directory that it has lost."""
    with _failures():
        _load(data_dir).add_voter(node)


@app.command()
def move(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic to move.")],
    to: Annotated[str, typer.Option("--to", metavar="NODE,...", help="The brokers that are to have its partitions.")],
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Move a topic's partitions to other brokers, as many replicas as before; Ctrl-C leaves the move running."""
    broker_ids = [part.strip() for part in to.split(",")]
    if not all(part.isdecimal() for part in broker_ids):
        raise typer.BadParameter("broker ids, separated by commas", param_hint="--to")
    with _failures():
        for arrived, count in _load(data_dir).move(topic, [int(part) for part in broker_ids]):
            print(f"{arrived} of {count} partitions are there", flush=True)


@app.command()
def remove(node: NodeId, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Take a broker that holds no replicas, or a controller of its own, out of the cluster."""
    with _failures():
        _load(data_dir).remove(node)
    print(f"Removed node {node}.")


@app.command()
def down(
    delete_data: Annotated[bool, typer.Option("--delete-data", help="Remove the data directory, too.")] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Stop all nodes."""
    with _failures():
        cluster = _load(data_dir)
        cluster.down()
        if delete_data:
            cluster.delete()
    print("Stopped all nodes" + (", deleted their data." if delete_data else "."))
