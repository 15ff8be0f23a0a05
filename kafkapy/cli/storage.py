"""`kafkapy storage format|info|random-uuid`: prepares and inspects log directories, like kafka-storage.sh."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.cli.failure import fail, reason_of
from kafkapy.cli.parser import OneLineParser
from kafkapy.cli.start import properties_of_file
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.load import load
from kafkapy.config.releases import RELEASES
from kafkapy.errors import KafkapyError
from kafkapy.server.process.system_clock import SystemClock, SystemRandom
from kafkapy.storage.checkpoint import MetaProperties
from kafkapy.storage.errors import CheckpointError
from kafkapy.storage.offline.format import (
    FormatError,
    FormatRequest,
    Voter,
    directories_of,
    format_directories,
    read_meta_properties,
)
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import uuid_to_string

if TYPE_CHECKING:
    from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord


MAX_LEVEL_DIGITS: Final = 100
"""Leading zeros included. int() refuses thousands."""


def main(arguments: Sequence[str]) -> int:
    """Run with the arguments after `kafkapy storage`; return the exit status."""
    given = new_parser().parse_args(arguments)
    try:
        if given.command == "random-uuid":
            print(uuid_to_string(SystemRandom().uuid()))
            return 0
        config, _ = load(properties_of_file(given.config, None, None, {}))
        return _info(config) if given.command == "info" else _format(given, config)
    except (KafkapyError, OSError) as error:
        return fail(reason_of(error))


def _format(given: argparse.Namespace, config: BrokerConfig) -> int:
    voters = [Voter.parse(text) for text in given.initial_controllers.split(",")] if given.initial_controllers else None
    request = FormatRequest(
        config=config,
        cluster_id=_checked_cluster_id(given.cluster_id),
        is_standalone=given.standalone,
        has_no_initial_controllers=given.no_initial_controllers,
        voters=voters,
        feature_levels=_feature_levels(given),
        ignore_formatted=given.ignore_formatted,
        scram_records=_scram_records(given.add_scram or ()),
    )
    format_directories(request, SystemDisk(), SystemRandom(), SystemClock(), print)
    return 0


def _scram_records(arguments: Sequence[str]) -> "list[UserScramCredentialRecord]":
    if not arguments:
        return []
    from kafkapy.storage.offline.scram_arguments import parse_scram_argument

    return [parse_scram_argument(argument, SystemRandom()) for argument in arguments]


def _checked_cluster_id(cluster_id: str) -> str:
    if not cluster_id.strip():
        raise FormatError("The cluster id must not be empty: `kafkapy storage random-uuid` makes one.")
    return cluster_id


def _feature_levels(given: argparse.Namespace) -> dict[str, int]:
    levels = {}
    for text in given.feature or ():
        name, equals, level = text.partition("=")
        if not equals:
            raise FormatError(f"Can't parse feature=level string {text}: equals sign not found.")
        if not level.strip().isdecimal() or len(level.strip()) > MAX_LEVEL_DIGITS:
            raise FormatError(f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short.")
        levels[name.strip()] = int(level)
    if given.release_version is None:
        return levels
    if "metadata.version" in levels:
        raise FormatError("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
    return {**levels, "metadata.version": _release_level(given.release_version)}


def _release_level(name: str) -> int:
    """Return the level of a release: "4.4-IV2", or the highest of "4.4". Raises FormatError."""
    matching = [level for release, level in RELEASES.items() if name in (release, release.partition("-")[0])]
    if not matching:
        raise FormatError(f"Unknown metadata.version '{name}'. Supported metadata.version are: {', '.join(RELEASES)}")
    return max(matching)


def _info(config: BrokerConfig) -> int:
    """Describe a configuration's log directories; return 1 if there are problems with them."""
    problems: list[str] = []
    found: dict[str, MetaProperties] = {}
    existing = []
    for path in directories_of(config):
        if not SystemDisk().is_directory(path):
            problems.append(f"{path} {'is not a directory' if SystemDisk().exists(path) else 'does not exist'}")
            continue
        existing.append(path)
        properties = _meta_properties(path, problems)
        if properties is not None:
            found[path] = properties
    problems += _disagreements(found)
    _print_list("Found log director", existing)
    for properties in list(found.values())[:1]:
        print(f"Found metadata: {_shown(properties)}\n")
    if problems:
        print("Found problem:" if len(problems) == 1 else "Found problems:")
        print("".join(f"  {problem}\n" for problem in problems))
    return 1 if problems else 0


def _meta_properties(path: str, problems: list[str]) -> MetaProperties | None:
    try:
        properties = read_meta_properties(SystemDisk(), path)
    except CheckpointError as error:
        problems.append(str(error))
        return None
    if properties is None:
        problems.append(f"{path} is not formatted.")
    return properties


def _disagreements(found: dict[str, MetaProperties]) -> list[str]:
    first = next(iter(found.values()), None)
    return [
        f"Metadata for {path}/meta.properties was {_shown(properties)}, but other directories have {_shown(first)}"
        for path, properties in found.items()
        if first is not None and (properties.cluster_id, properties.node_id) != (first.cluster_id, first.node_id)
    ]


def _shown(properties: MetaProperties) -> str:
    entries = {"cluster.id": properties.cluster_id, "node.id": str(properties.node_id), "version": "1"}
    if properties.directory_id is not None:
        entries["directory.id"] = uuid_to_string(properties.directory_id)
    return "{" + ", ".join(f"{key}={entries[key]}" for key in sorted(entries)) + "}"


def _print_list(title: str, paths: Sequence[str]) -> None:
    if paths:
        print(f"{title}{'y' if len(paths) == 1 else 'ies'}:")
        print("".join(f"  {path}\n" for path in paths))


def new_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="kafkapy storage", description="Prepare and inspect log directories.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="format|info|random-uuid")
    commands.add_parser("random-uuid", help="print a random UUID, fit for a cluster id")
    info = commands.add_parser("info", help="describe what the log directories hold")
    info.add_argument(
        "-c", "--config", required=True, metavar="server.properties", help="the node's configuration file"
    )
    _add_format(commands.add_parser("format", help="make the log directories ready for a node"))
    return parser


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", required=True, metavar="server.properties", help="the node's configuration file"
    )
    parser.add_argument("-t", "--cluster-id", required=True, help="the cluster that the node belongs to")
    parser.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="skip directories that are formatted already"
    )
    parser.add_argument("-r", "--release-version", help="metadata.version by release, such as 4.4-IV2 (default) or 4.3")
    parser.add_argument("-f", "--feature", action="append", metavar="NAME=LEVEL", help="a feature's level")
    parser.add_argument(
        "-S",
        "--add-scram",
        action="append",
        metavar="SCRAM_CREDENTIAL",
        help="a credential that the cluster begins with, such as 'SCRAM-SHA-256=[name=alice,password=alice-secret]'",
    )
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument("-s", "--standalone", action="store_true", help="form a quorum of this controller alone")
    quorum.add_argument("-N", "--no-initial-controllers", action="store_true", help="this node joins a quorum later")
    quorum.add_argument(
        "-I", "--initial-controllers", metavar="ID@HOST:PORT:DIRECTORY,...", help="the first controllers of the quorum"
    )
