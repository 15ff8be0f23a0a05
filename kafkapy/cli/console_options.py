"""The command line of `kafkapy console`; what it runs is kafkapy.console."""

import argparse
from typing import Final

from kafkapy.cli.connecting_options import add_config_and_profile, add_servers_and_listen
from kafkapy.cli.parser import OneLineParser

DEFAULT_LISTEN: Final = "127.0.0.1:8080"
TOKEN_VARIABLE: Final = "KAFKAPY_CONSOLE_TOKEN"


def new_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="kafkapy console",
        description="Serve pages about a cluster to a browser, on http://127.0.0.1:8080.",
        epilog="Anybody who reaches it may read all topics. Off loopback it needs a token: --token-file, or "
        f"{TOKEN_VARIABLE}.",
        allow_abbrev=False,
    )
    add_servers_and_listen(parser, DEFAULT_LISTEN)
    _add_access(parser)
    _add_pages(parser)
    add_config_and_profile(parser)
    parser.add_argument("-X", "--client-config", action="append", default=[], metavar="KEY=VALUE", help=_CLIENT_CONFIG)
    # `kafkapy start --console` holds the other end of the pipe: its end, by kill -9 too, ends the console
    parser.add_argument("--end-with-stdin", action="store_true", help="stop at the end of standard input")
    return parser


def _add_access(parser: argparse.ArgumentParser) -> None:
    """Add the options that say who reaches the console, and what they may do."""
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers reach it, besides addresses and localhost; may be repeated",
    )
    parser.add_argument("--token-file", metavar="FILE", help="a file whose first line everybody has to know")
    oidc = parser.add_argument_group("OpenID Connect", "a login besides, or instead of, the token (extra oauth)")
    oidc.add_argument("--oidc-issuer", metavar="URL", help="the provider")
    oidc.add_argument("--oidc-client-id", metavar="ID", help="this console, as the provider knows it")
    oidc.add_argument("--oidc-client-secret-file", metavar="FILE", help="its secret, if it has one: the first line")
    oidc.add_argument("--oidc-claim", default="groups", metavar="NAME", help="the claim with roles (default groups)")
    oidc.add_argument("--oidc-viewer", action="append", default=[], metavar="VALUE", help=_VIEWER)
    oidc.add_argument("--oidc-editor", action="append", default=[], metavar="VALUE", help=_EDITOR)
    oidc.add_argument(
        "--url", metavar="URL", help="by which browsers reach the console, where a proxy stands before it"
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="let pages create, produce, alter, reset and delete; each is confirmed and logged",
    )


def _add_pages(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what the pages show, and what is written down of changes."""
    parser.add_argument(
        "--cluster",
        action="append",
        default=[],
        metavar="PROFILE",
        help="serve pages of this cluster, too: by its profile (kafkapy profile add); may be repeated",
    )
    parser.add_argument(
        "--mask",
        action="append",
        default=[],
        metavar="[TOPIC:]PATH",
        help="hide what this JSON path selects in values, of topics that match: 'payments-*:$..iban'; may be repeated",
    )
    parser.add_argument("--audit-log", metavar="FILE", help="append a line for each change here, besides stderr")
    parser.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="URL",
        help="/metrics of a broker, for charts; may be repeated",
    )
    parser.add_argument("--schema-registry", metavar="URL|DIR", help="where schemas of records are")


_VIEWER: Final = "who has this in the claim may look (default: whoever logs in); may be repeated"
_EDITOR: Final = "who has this in the claim may change what --allow-changes allows; may be repeated"
_CLIENT_CONFIG: Final = "a property of the client (librdkafka's names); may be repeated"
