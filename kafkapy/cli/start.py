"""`kafkapy start [server.properties]`: runs one node in the foreground, until SIGTERM, SIGINT or SIGHUP.

Without a file it runs an embedded node: with one-node defaults, its directory formatted if necessary. Prints one line
on stdout when clients may connect, or one line on stderr if it cannot start. Its --help lists the exit statuses.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TextIO

from kafkapy.cli.addresses import connectable
from kafkapy.cli.failure import fail, reason_of
from kafkapy.cli.log_options import add_log_options, log_settings
from kafkapy.cli.parser import OneLineParser
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.load import load
from kafkapy.config.properties import parse_properties
from kafkapy.errors import ConfigError, KafkapyError
from kafkapy.named_tuple import NamedTuple

if TYPE_CHECKING:
    import asyncio

    from kafkapy.cli.console_child import ConsoleChild
    from kafkapy.seams import Disk
    from kafkapy.server.process.logs import LogSettings
    from kafkapy.server.run import NodeServer

DEFAULT_PORT: Final = 9092
DEFAULT_DATA_DIR: Final = "kafkapy-data"
DEFAULT_STOP_TIMEOUT_S: Final = 300
"""A controlled shutdown, and flushing a large page cache, may take minutes."""
DEFAULT_CONSOLE_PORT: Final = 8080
MAX_HELP_WIDTH: Final = 98
"""Longer lines are hard to read."""
MAX_STOP_TIMEOUT_S: Final = 86_400
"""A day: a larger one is a mistake in units."""


class NodeHooks(NamedTuple):
    """Hooks of a test's process in a node that it has started: for its loop, its disk, and when it is ready."""

    new_loop: "Callable[[], asyncio.AbstractEventLoop]"
    new_disk: "Callable[[], Disk]"
    on_ready: "Callable[[NodeServer], None]"


def main(arguments: Sequence[str], hooks: NodeHooks | None = None) -> int:
    """Run with the arguments after `kafkapy start`; return the exit status."""
    given = new_parser().parse_args(arguments)
    try:
        overrides = dict(_parse_setting(text) for text in given.set)
        if given.file is None:
            config, warnings = _embedded(given.data_dir or DEFAULT_DATA_DIR, given.port, overrides)
        else:
            properties = properties_of_file(given.file, given.port, given.data_dir, overrides)
            from kafkapy.storage.offline.format import with_absolute_directories

            config, warnings = load(with_absolute_directories(properties))
        console = _console(given, config) if given.console else None
        return _run(config, warnings, log_settings(given), given.stop_timeout, console, hooks)
    except (KafkapyError, OSError) as error:
        return fail(reason_of(error))


def properties_of_file(
    path: str, port: int | None, data_dir: str | None, overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return a file's properties, overridden by those of the command line. Raises ConfigError, OSError."""
    properties = parse_properties(_read(path))
    if data_dir is not None:
        properties["log.dirs"] = data_dir
        properties.pop("metadata.log.dir", None)
    properties.update(overrides)
    return properties if port is None else with_port(properties, port)


def with_port(properties: Mapping[str, str], port: int) -> dict[str, str]:
    """Return the properties with the first client listener, and its advertised address, at `port`."""
    controllers = _items(properties.get("controller.listener.names", ""))
    listeners = _items(properties.get("listeners", "PLAINTEXT://:9092"))
    name = next((each.partition("://")[0] for each in listeners if each.partition("://")[0] not in controllers), None)
    changed = dict(properties)
    for key, entries in (
        ("listeners", listeners),
        ("advertised.listeners", _items(properties.get("advertised.listeners", ""))),
    ):
        if entries:
            changed[key] = ",".join(
                _at_port(entry, port) if entry.partition("://")[0] == name else entry for entry in entries
            )
    return changed


def _at_port(listener: str, port: int) -> str:
    return f"{listener.rpartition(':')[0]}:{port}"


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError("--set", text, "it must read key=value")
    return key.strip(), value


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        with open(path, encoding="latin-1") as file:  # Java's encoding of properties files
            return file.read()


def _embedded(data_dir: str, port: int | None, overrides: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """Return the configuration of an embedded node and format its directory. Raises KafkapyError, OSError."""
    from kafkapy.server.process.system_clock import SystemClock, SystemRandom
    from kafkapy.storage.offline.format import embedded_config, format_embedded
    from kafkapy.storage.system_disk import SystemDisk

    disk = SystemDisk()
    config, warnings = embedded_config(
        disk, os.path.abspath(data_dir), DEFAULT_PORT if port is None else port, overrides
    )
    format_embedded(config, disk, SystemRandom(), SystemClock())
    return config, warnings


def _console(given: argparse.Namespace, config: BrokerConfig) -> "ConsoleChild":
    from kafkapy.cli.console_child import ConsoleChild

    return ConsoleChild(config, given.console_port, given.console_config)


def _run(
    config: BrokerConfig,
    warnings: Sequence[str],
    log: "LogSettings",
    stop_timeout_s: float,
    console: "ConsoleChild | None",
    hooks: NodeHooks | None,
) -> int:
    import logging

    import uvloop

    from kafkapy.server.process import failpoints, logs
    from kafkapy.server.run import run_node

    def on_ready(server: "NodeServer") -> None:
        if hooks is not None:
            hooks.on_ready(server)
        _say_ready(server)
        if console is not None:
            console.start(connectable(server.bootstrap_servers))

    failpoints.install_from_environment()  # first: a test may have it die at any point that follows
    with logs.started(log):
        # The configuration is read before there is a log, because it may be wrong: its warnings have waited.
        for warning in warnings:
            logging.getLogger("kafkapy.config").warning("%s", warning)
        status = run_node(
            config,
            on_ready=on_ready,
            stop_timeout_s=stop_timeout_s,
            new_loop=uvloop.new_event_loop if hooks is None else hooks.new_loop,
            disk=None if hooks is None else hooks.new_disk(),
        )
        if console is not None:
            console.stop()
    # After the last line of the log, which may be written to these streams.
    for stream in (sys.stdout, sys.stderr):
        _forget_unwritten(stream)
    return status


def _say_ready(server: "NodeServer") -> None:
    """Print the ready line; if that fails (for example on a full disk), the broker serves nevertheless.

    The installation is checked afterwards, so that the check does not delay the start.
    """
    import logging

    from kafkapy import compiled
    from kafkapy.server.process.distributions import missing_packages, warnings_of_installation
    from kafkapy.version import __version__

    address = connectable(server.bootstrap_servers)
    with contextlib.suppress(OSError):
        role = "node" if server.config.is_broker else "controller"
        print(f"kafkapy ready on {address} (cluster {server.cluster_id}, {role} {server.node_id})", flush=True)
    logger = logging.getLogger("kafkapy.server")
    logger.info("Running kafkapy %s, %s", __version__, compiled.description())
    for path in compiled.unlisted_modules():
        logger.warning("Running %s, a compiled module whose source is not known: remove it", path)
    for warning in (*warnings_of_installation(), *missing_packages()):
        logger.warning("%s", warning)


def _forget_unwritten(stream: TextIO) -> None:
    """Discard a stream's unwritten output if it cannot be flushed: Python would exit with status 120."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _help_width() -> int:
    """Return how long lines of the help may be: at most MAX_HELP_WIDTH, and two less than the terminal, as argparse."""
    try:
        columns = os.get_terminal_size(1).columns
    except OSError:  # stdout is no terminal
        columns = 0
    return min(columns - 2, MAX_HELP_WIDTH) if columns else MAX_HELP_WIDTH  # some terminals do not know their size


def new_parser() -> argparse.ArgumentParser:
    width = _help_width()  # else argparse imports shutil and its codecs to find it
    parser = OneLineParser(
        prog="kafkapy start",
        description="Run a node in the foreground: as a server.properties says, or embedded with one-node defaults.",
        epilog="Exit status: 0 stopped as it was asked to; 1 it could not start or go on, or its stop was not clean; "
        "2 a wrong command line; 3 its stop took too long. After 1 and 3 the next start recovers the logs.",
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=width),
    )
    parser.add_argument("file", nargs="?", metavar="server.properties", help="Apache Kafka's configuration file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a configuration key, overriding the file; may be repeated",
    )
    parser.add_argument(
        "--port", type=_port, help=f"where clients connect; 0 for a free port (without a file: {DEFAULT_PORT})"
    )
    parser.add_argument("--data-dir", metavar="DIR", help=f"the log directory (without a file: ./{DEFAULT_DATA_DIR})")
    add_log_options(parser)
    parser.add_argument("--console", action="store_true", help="run `kafkapy console` beside it; it ends with the node")
    parser.add_argument(
        "--console-port",
        type=_port,
        default=DEFAULT_CONSOLE_PORT,
        metavar="PORT",
        help=f"where the console serves, on 127.0.0.1 (default {DEFAULT_CONSOLE_PORT})",
    )
    parser.add_argument(
        "--console-config", metavar="FILE", help="a client.properties for the console, where clients log in or use TLS"
    )
    parser.add_argument(
        "--stop-timeout",
        type=_seconds,
        default=DEFAULT_STOP_TIMEOUT_S,
        metavar="SECONDS",
        help=f"how long a stop may take before the process ends with status 3 (default {DEFAULT_STOP_TIMEOUT_S})",
    )
    return parser


def _seconds(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MAX_STOP_TIMEOUT_S:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds: 1 to {MAX_STOP_TIMEOUT_S}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: 0 to 65535")
    return int(text)
