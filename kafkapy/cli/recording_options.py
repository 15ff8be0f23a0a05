"""The command lines of `kafkapy record` and `kafkapy replay`; what they run is kafkapy.recording."""

import argparse
from pathlib import Path
from typing import Final

from kafkapy.cli.addresses import address
from kafkapy.cli.defaults import CONFIG_VARIABLE
from kafkapy.cli.parser import OneLineParser

DEFAULT_LISTEN: Final = ("127.0.0.1", 9092)
_CONFIG: Final = f"a client.properties, as Java's tools take it (default: {CONFIG_VARIABLE})"


def record_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="kafkapy record",
        description="Note what clients send to a cluster, and what it answers, until Ctrl-C.",
        epilog="Clients connect to --listen in plaintext, and find all brokers through it. Logins, passwords and "
        "tokens are left out of the file; records are not.",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the recording, which is replaced")
    parser.add_argument("--upstream", type=address, required=True, metavar="HOST:PORT", help="a broker of the cluster")
    parser.add_argument(
        "--listen",
        type=_listened,
        default=DEFAULT_LISTEN,
        metavar="[HOST]:PORT",
        help="where clients connect (default 127.0.0.1:9092)",
    )
    parser.add_argument("--command-config", metavar="FILE", help=f"{_CONFIG}: its TLS reaches the cluster")
    return parser


def replay_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="kafkapy replay",
        description="Send the requests of a recording to a cluster, and show the first response that differs.",
        epilog="Ids, addresses and epochs that a cluster makes up are matched by their roles. "
        "Exit status 1: a response differs.",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a recording of `kafkapy record`")
    parser.add_argument("--to", required=True, metavar="HOST:PORT,...", help="brokers of the cluster; one is enough")
    parser.add_argument("--all", action="store_true", help="go on, and show every response that differs")
    parser.add_argument("--command-config", metavar="FILE", help=_CONFIG)
    return parser


def _listened(text: str) -> tuple[str, int]:
    return address(text, may_lack_host=True)
