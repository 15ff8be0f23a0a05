"""Which cluster a command of `kafkapy cluster` is about: one of a directory here, or any, by addresses of its nodes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafkapy.cli.failure import INTERRUPTED, fail, reason_of
from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError

if TYPE_CHECKING:
    from kafkapy.server.cluster.queries import Ask

DEFAULT_DATA_DIR: Final = Path("kafkapy-cluster")

DataDir = Annotated[Path, typer.Option("--data-dir", metavar="DIR", help="Where the cluster lies.")]
BrokerServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        help="Brokers of any cluster, of Apache Kafka, too, instead of --data-dir.",
    ),
]
ControllerServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-controller", metavar="HOST:PORT,...", help="Controllers of any cluster, instead of --data-dir."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A cluster by its brokers, or by its directory."""

    data_dir: DataDir = DEFAULT_DATA_DIR
    bootstrap_server: BrokerServers = ""

    @property
    def controllers(self) -> str:
        return ""

    @property
    def is_here(self) -> bool:
        """Whether the cluster is the one of the directory."""
        return not self.bootstrap_server and not self.controllers

    @contextmanager
    def connected(self) -> "Iterator[Ask]":
        """Yield the object that sends requests to the cluster; turn a failure into one line and exit status 1."""
        from kafkapy.cli.cluster_link import ClusterLink
        from kafkapy.server.cluster.local import LocalCluster

        if self.bootstrap_server and self.controllers:
            raise typer.BadParameter("--bootstrap-server or --bootstrap-controller, not both")
        with failures():
            if self.is_here:
                yield LocalCluster.load(self.data_dir).ask_broker()
                return
            servers = self.controllers or self.bootstrap_server
            with ClusterLink(servers, of_controllers=bool(self.controllers)) as link:
                yield link


@dataclass(frozen=True, slots=True, kw_only=True)
class WhereOrControllers(Where):
    """A cluster by its brokers, by its controllers, or by its directory."""

    bootstrap_controller: ControllerServers = ""

    @property
    def controllers(self) -> str:
        return self.bootstrap_controller


@contextmanager
def failures() -> Iterator[None]:
    """Turn an error into one line and exit status 1, Ctrl-C into status 130."""
    try:
        yield
    except (KafkapyError, OSError) as error:
        raise typer.Exit(fail(reason_of(error))) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error


def numbers(text: str, option: str) -> list[int]:
    """Return the ids or partitions of `1,2,...`. Raises BadParameter."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise typer.BadParameter("numbers, separated by commas", param_hint=option)
    return [int(part) for part in parts]
