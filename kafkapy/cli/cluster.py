"""`kafkapy cluster up|logs|start|stop|restart|kill|add|remove|down`: several nodes on this machine.

The data directory describes the cluster, so each command reads its state from there. Those for any cluster:
cluster_status.py, cluster_voters.py, cluster_changes.py, cluster_check.py.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkapy.cli.client import parse_settings
from kafkapy.cli.cluster_changes import elect, move, throttle, unregister
from kafkapy.cli.cluster_check import check
from kafkapy.cli.cluster_status import status
from kafkapy.cli.cluster_voters import voters_app
from kafkapy.cli.cluster_where import DEFAULT_DATA_DIR, DataDir, failures
from kafkapy.cli.failure import note
from kafkapy.cli.overview import GROUPS
from kafkapy.config.properties import parse_properties

if TYPE_CHECKING:
    from kafkapy.server.cluster.local import LocalCluster

app = typer.Typer(help=GROUPS["cluster"], no_args_is_help=True)

DEFAULT_BROKERS = 3
DEFAULT_PORT = 9092
DEFAULT_SYNC_S = 300.0
"""Enough for a replica that was down for minutes to catch up; the option gives another."""

NodeId = Annotated[int, typer.Argument(metavar="NODE", show_default=False, help="A node's id.")]


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

    with failures():
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
    # the only line on standard output, and the last: scripts read the address of a running cluster from it
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
def logs(
    node: Annotated[int | None, typer.Argument(metavar="[NODE]", show_default=False, help="A node's id.")] = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="How many of the last lines.")] = 20,
    is_followed: Annotated[bool, typer.Option("--follow", "-f", help="Show what they print from now on, too.")] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Show what nodes have printed: of one, or of all."""
    from kafkapy.cli.follow import GrowingFile, follow

    with failures():
        cluster = _load(data_dir)
        node_ids = list(cluster.processes) if node is None else [cluster.plan.node(node).node_id]
        prefix = "node {}: " if len(node_ids) > 1 else ""
        followed = [(prefix.format(each), GrowingFile(cluster.processes[each].log_file)) for each in node_ids]
        for node_id in node_ids:
            process = cluster.processes[node_id]
            print(f"==> {process.log_file} <==")
            for line in process.last_lines(lines):
                print(line)
        if is_followed:
            print("==> following, Ctrl-C ends <==", flush=True)
            follow(followed, lambda line: print(line, flush=True))


@app.command()
def start(node: NodeId, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Start a node; return once it serves."""
    with failures():
        cluster = _load(data_dir)
        is_broker = cluster.plan.node(node).is_broker
        if not cluster.is_running(node):
            note(f"waiting until node {node} answers{' and its broker is unfenced' if is_broker else ''}")
        cluster.start(node)
    print(f"Started node {node}.")


@app.command()
def stop(node: NodeId, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Stop a node in order."""
    with failures():
        _load(data_dir).stop(node)
    print(f"Stopped node {node}.")


@app.command()
def restart(
    nodes: Annotated[
        list[int] | None, typer.Argument(metavar="[NODE...]", show_default=False, help="Ids of nodes; without, all.")
    ] = None,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=1, help="How long replicas may take to be in sync each time."),
    ] = DEFAULT_SYNC_S,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Restart nodes one by one, the active controller last: one stops only while all replicas are in sync."""
    from kafkapy.cli.progress import Progress
    from kafkapy.server.cluster.rolling import restart_one_by_one

    with failures():
        cluster = _load(data_dir)
        node_ids = list(dict.fromkeys(nodes or cluster.processes))
        with Progress("nodes restarted", len(node_ids)) as progress:
            for done, doing in restart_one_by_one(cluster, node_ids, timeout_s):
                progress.show(done, doing)
    print(f"Restarted {'node' if len(node_ids) == 1 else 'nodes'} {', '.join(map(str, sorted(node_ids)))}.")


@app.command()
def kill(node: NodeId, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """End a node as a crash does."""
    with failures():
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
    with failures():
        cluster = _load(data_dir)
        added = cluster.add_controller(port) if is_controller else cluster.add(port)
    print(f"Added node {added.node_id} on {added.address[0]}:{added.address[1]}.")


@app.command()
def remove(node: NodeId, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Take a broker that holds no replicas, or a controller of its own, out of the cluster."""
    with failures():
        _load(data_dir).remove(node)
    print(f"Removed node {node}.")


@app.command()
def down(
    delete_data: Annotated[bool, typer.Option("--delete-data", help="Remove the data directory, too.")] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Stop all nodes."""
    with failures():
        cluster = _load(data_dir)
        cluster.down()
        if delete_data:
            cluster.delete()
    print("Stopped all nodes" + (", deleted their data." if delete_data else "."))


app.command("status")(status)
app.command("move")(move)
app.command("elect")(elect)
app.command("throttle")(throttle)
app.command("unregister")(unregister)
app.add_typer(voters_app, name="voters")
app.command("check")(check)
