"""Options, with their defaults, of the argparse commands that connect to a cluster and serve HTTP."""

import argparse
import os
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kafkapy.cli.addresses import ANY_HOST, address
from kafkapy.cli.command_config import option_taken
from kafkapy.cli.defaults import (
    CONFIG_VARIABLE,
    DEFAULT_SERVER,
    NO_DEFAULTS,
    SERVERS_VARIABLE,
    Defaults,
    defaults_of,
    profile_taken,
)

HELP: Final = ("-h", "--help")
BACKLOG: Final = 128
"""The default of Linux before 5.4 (net.core.somaxconn)."""


def add_servers_and_listen(parser: argparse.ArgumentParser, default_listen: str) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        default=DEFAULT_SERVER,
        metavar="HOST:PORT,...",
        help=f"brokers to connect to; one is enough (default: {SERVERS_VARIABLE}, the profile's, {DEFAULT_SERVER})",
    )
    parser.add_argument(
        "--listen",
        type=_listened,
        default=address(default_listen),
        metavar="[HOST]:PORT",
        help=f"where to serve; :PORT is 0.0.0.0:PORT (default {default_listen})",
    )


def _listened(text: str) -> tuple[str, int]:
    host, port = address(text, may_lack_host=True)
    return host or ANY_HOST[0], port


def add_config_and_profile(parser: argparse.ArgumentParser) -> None:
    """Add the options that `parsed` takes out before the parser sees them: they are here for the help."""
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help=f"a client.properties, as Java's tools take it (default: {CONFIG_VARIABLE}, the profile's)",
    )
    parser.add_argument("--profile", metavar="NAME", help="the cluster of a profile")


@contextmanager
def parsed(
    parser: argparse.ArgumentParser, arguments: Sequence[str], alone: Collection[str] = ()
) -> Iterator[tuple[argparse.Namespace, Defaults]]:
    """Yield what the parser makes of the arguments, and their defaults. The client settings hold until the block ends.

    alone: options with which neither the environment nor a profile counts, as with those for help.
    Raises ProfileError, CommandConfigError.
    """
    left, profile_name = profile_taken(arguments)
    is_alone = not {*HELP, *alone}.isdisjoint(left)
    defaults = NO_DEFAULTS if is_alone else defaults_of(os.environ, left, profile_name)
    with option_taken(left, defaults.config) as own:
        parser.set_defaults(bootstrap_server=defaults.servers.value)
        yield parser.parse_args(own), defaults


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
