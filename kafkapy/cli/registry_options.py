"""The command line of `kafkapy registry`; what it runs is kafkapy.registry."""

import argparse
from typing import Final

from kafkapy.cli.addresses import address
from kafkapy.cli.connecting_options import add_config_and_profile, add_servers_and_listen
from kafkapy.cli.parser import OneLineParser

DEFAULT_LISTEN: Final = "127.0.0.1:8081"
LEVELS: Final = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE",
)  # fmt: skip


def new_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="kafkapy registry",
        description="Serve a schema registry with Confluent's HTTP API, on http://127.0.0.1:8081.",
        epilog="Its schemas are in the topic _schemas of any Kafka. Several registries of one group elect the one that "
        "writes; the others send writes to it. Anybody who reaches it may change schemas, unless it has --users.",
        allow_abbrev=False,
    )
    add_servers_and_listen(parser, DEFAULT_LISTEN)
    parser.add_argument(
        "--advertise",
        type=address,
        metavar="HOST:PORT",
        help="where the other registries reach it (default: --listen, the host's name for 0.0.0.0)",
    )
    parser.add_argument("--topic", default="_schemas", metavar="NAME", help="the topic (default _schemas)")
    parser.add_argument(
        "--group", default="schema-registry", metavar="ID", help="the group of registries (default schema-registry)"
    )
    parser.add_argument(
        "--compatibility",
        type=str.upper,  # Confluent's configuration has it in lower case
        choices=LEVELS,
        default="BACKWARD",
        metavar="LEVEL",
        help="the level of subjects where none is set (default BACKWARD)",
    )
    parser.add_argument(
        "--users", metavar="FILE", help="names and passwords for basic authentication, a line each: NAME: PASSWORD"
    )
    parser.add_argument("--tls-certificate", metavar="FILE", help="serve TLS with this certificate (PEM, its chain)")
    parser.add_argument("--tls-key", metavar="FILE", help="the key of the certificate (PEM)")
    parser.add_argument("--tls-client-ca", metavar="FILE", help="let clients in with a certificate of this CA only")
    parser.add_argument("--tls-ca", metavar="FILE", help="the CA of the other registries' certificates")
    add_config_and_profile(parser)
    return parser
