"""`kafkapy cluster voters add|remove`: the voters of any cluster's metadata quorum. KIP-853."""

from typing import Annotated, Final

import typer

from kafkapy.cli.cluster_where import WhereOrControllers, failures
from kafkapy.cli.options import takes
from kafkapy.dataclass import dataclass

voters_app = typer.Typer(help="Change the voters of the metadata quorum.", no_args_is_help=True)

CHANGE_TIMEOUT_S: Final = 60.0
"""A voter joins only when it has caught up with the metadata log, perhaps by a snapshot."""

NodeId = Annotated[int, typer.Argument(metavar="NODE", show_default=False, help="A node's id.")]
DirectoryId = Annotated[
    str,
    typer.Option(
        "--directory", metavar="ID", show_default=False, help="Which, if the node is known with several directories."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions(WhereOrControllers):
    """The arguments and options of `kafkapy cluster voters add`."""

    node: NodeId
    directory: DirectoryId = ""
    address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            show_default=False,
            help="Where the other controllers reach it; known with --bootstrap-controller, and of a voter.",
        ),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOptions(WhereOrControllers):
    """The arguments and options of `kafkapy cluster voters remove`."""

    node: NodeId
    directory: DirectoryId = ""


@voters_app.command("add")
@takes(AddOptions)
def add(options: AddOptions) -> None:
    """Make a running controller a voter, in place of the one with a directory that it has lost."""
    from kafkapy.server.cluster.joining import join
    from kafkapy.server.cluster.local import LocalCluster

    if options.is_here:
        with failures():
            LocalCluster.load(options.data_dir).add_voter(options.node)
    else:
        with options.connected() as ask:
            join(
                ask,
                options.node,
                directory_id=options.directory,
                address=options.address,
                of_controllers=bool(options.controllers),
                timeout_s=CHANGE_TIMEOUT_S,
            )
    print(f"Added voter {options.node}.")


@voters_app.command("remove")
@takes(RemoveOptions)
def remove(options: RemoveOptions) -> None:
    """Take a voter out of the quorum: one that does not run any more, or runs on and only follows."""
    from kafkapy.server.cluster.joining import leave

    with options.connected() as ask:
        leave(ask, options.node, directory_id=options.directory, timeout_s=CHANGE_TIMEOUT_S)
    print(f"Removed voter {options.node}.")
