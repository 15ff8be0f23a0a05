"""The commands that are clients of a running broker, and the overview of all commands (typer).

They use confluent-kafka, as any client would; the distribution's extra `cli` installs it.
"""

import os
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkapy import compiled
from kafkapy.cli.client import MissingClientError
from kafkapy.cli.command_config import CommandConfigError, option_taken
from kafkapy.cli.defaults import (
    CONFIG_VARIABLE,
    NO_DEFAULTS,
    SERVERS_VARIABLE,
    Defaults,
    Setting,
    defaults_of,
    profile_taken,
)
from kafkapy.cli.failure import INTERRUPTED, fail
from kafkapy.cli.overview import ALONE, GROUPS, OWN_PARSERS
from kafkapy.cli.profiles import ProfileError
from kafkapy.version import __version__

STAND_IN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""For commands that are registered for the overview alone."""

CONNECTING = ("topics", "configs", "groups", "transactions", "produce", "consume", "security", "cluster")
"""Commands from which --command-config FILE is taken, in front of their parsers."""
LOCAL = (("configs", "explain"), ("security", "init"))
OF_ANY_CLUSTER = ("check", "status", "voters", "move", "elect", "throttle", "unregister")
"""Below `kafkapy cluster`: the others are for nodes of this machine."""
HELP = ("-h", "--help")
DEFAULT_DATA_DIR = Path("kafkapy-cluster")
CLUSTER_FILE = "cluster.json"
"""Of a cluster that `kafkapy cluster up` has made in the directory."""


def new_app(names: Sequence[str]) -> typer.Typer:
    """Return kafkapy's parser with these of its commands; the others are there by name, for help and errors."""
    app = typer.Typer(
        name="kafkapy",
        help="A Kafka-compatible broker in pure Python, and tools for it.",
        epilog="Commands that connect to a broker take --command-config FILE: a client.properties, as Java's tools do. "
        f"Without it, and without --bootstrap-server, they use {SERVERS_VARIABLE} and {CONFIG_VARIABLE}, then the "
        "profile that `kafkapy profile use` has chosen; --profile NAME is another profile for one command.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": list(HELP)},
    )
    app.callback()(_root)
    for name, text in {**ALONE, **OWN_PARSERS, **GROUPS}.items():
        if name not in names:
            _stand_in(app, name, text)
        elif name in GROUPS:
            app.add_typer(import_module(f"kafkapy.cli.{name}").app, name=name)
        else:
            app.command(name)(getattr(import_module(f"kafkapy.cli.{name}"), name))
    return app


CLICK_ERROR: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""The base class of usage errors: click's, or that of the copy inside newer versions of typer."""


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"kafkapy {__version__} {compiled.description()}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


def connects(path: Sequence[str]) -> bool:
    """Whether a command connects to a broker by --command-config."""
    if path[0] == "cluster":
        return len(path) > 1 and path[1] in OF_ANY_CLUSTER
    return path[0] in CONNECTING and tuple(path[:2]) not in LOCAL


def command(names: Sequence[str] = (*GROUPS, *ALONE), defaults: Defaults = NO_DEFAULTS) -> Any:
    """Return the command kafkapy with these of its commands; those that connect show the options of all."""
    root = typer.main.get_command(new_app(names))
    options: list[Any] = typer.main.get_command(_with_options_of_all).params[:2]
    for option in options:
        option.expose_value = False
    if defaults.config.value:
        options[0].show_default = _named(defaults.config)
    _add_options(root, (), options)
    if defaults.names_servers:
        _use_servers(root, defaults.servers)
    _refuse_repetitions(root)
    return root


_with_options_of_all = typer.Typer(add_completion=False)


@_with_options_of_all.command()
def _(
    command_config: Annotated[
        str, typer.Option(metavar="FILE", show_default=False, help="A client.properties, as Java's tools take it.")
    ] = "",
    profile: Annotated[
        str, typer.Option(metavar="NAME", show_default=False, help="A profile, for this command alone.")
    ] = "",
) -> None: ...


def _add_options(command: Any, path: tuple[str, ...], options: list[Any]) -> None:
    """Add the options that `main` takes to the commands that connect."""
    for name, below in getattr(command, "commands", {}).items():
        _add_options(below, (*path, name), options)
    if path and not hasattr(command, "commands") and connects(path):
        command.params.extend(options)


def _use_servers(command: Any, servers: Setting, path: tuple[str, ...] = ()) -> None:
    """Let the commands that connect use these brokers without --bootstrap-server; their help says who names them."""
    for name, below in getattr(command, "commands", {}).items():
        _use_servers(below, servers, (*path, name))
    if not path or hasattr(command, "commands") or not connects(path):
        return
    for param in command.params:
        if "--bootstrap-server" in param.opts:
            param.default = servers.value
            param.show_default = _named(servers)


def _named(setting: Setting) -> str:
    return f"{setting.value} of {setting.source}"


def _refuse_repetitions(command: Any) -> None:
    """Let a command refuse an option that is given twice and takes one value: click would take the last one."""
    for below in getattr(command, "commands", {}).values():
        _refuse_repetitions(below)
    make_parser = command.make_parser

    def new_parser(context: Any) -> Any:
        parser = make_parser(context)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            values, left, order = parse(args)
            once = [each for each in order if each.param_type_name == "option" and not (each.multiple or each.is_flag)]
            twice = next((each for each in once if once.count(each) > 1), None)
            if twice is not None:
                raise typer.BadParameter(f"it is given more than once: {'/'.join(twice.opts)} takes one value", context)
            return values, left, order

        parser.parse_args = parse_args
        return parser

    command.make_parser = new_parser


def main(arguments: Sequence[str]) -> int:
    """Run a command; return the exit status (2 for a usage error)."""
    try:
        if not arguments or arguments[0] not in CONNECTING:
            status = _run(arguments, NO_DEFAULTS)
        else:
            left, profile_name = _profile_taken(arguments)
            defaults = _defaults(left, profile_name)
            is_help = not set(HELP).isdisjoint(left)  # whatever the file is
            with option_taken(left, None if is_help else defaults.config) as given:
                status = _run(given, defaults)
    except CLICK_ERROR as error:
        return _explain(error)
    except typer.Abort:  # click's exception for Ctrl-C
        return INTERRUPTED
    except (MissingClientError, CommandConfigError, ProfileError) as error:
        return fail(str(error))
    return status


def _profile_taken(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """Take --profile from the arguments of a command that connects. Raises ProfileError."""
    left, name = profile_taken(arguments)
    return (left, name) if len(left) > 1 and connects(left) else (list(arguments), None)


def _defaults(arguments: list[str], profile_name: str | None) -> Defaults:
    """Return what the environment and the profile name, nothing for a command that does not connect.

    Raises ProfileError.
    """
    if len(arguments) < 2 or not connects(arguments):
        return NO_DEFAULTS
    if profile_name is not None:
        return defaults_of(os.environ, arguments, profile_name)
    if arguments[0] == "cluster" and (DEFAULT_DATA_DIR / CLUSTER_FILE).exists():
        return NO_DEFAULTS  # as `cluster up` and `cluster kill` here
    if arguments[:2] == ["cluster", "check"] and any(each.partition("=")[0] == "--config" for each in arguments):
        return NO_DEFAULTS  # files alone are checked
    return defaults_of(os.environ, arguments)


def _run(arguments: Sequence[str], defaults: Defaults) -> int:
    names = [name for name in (*GROUPS, *ALONE) if name in arguments]
    status = command(names, defaults)(args=list(arguments), prog_name="kafkapy", standalone_mode=False)
    return status if isinstance(status, int) else 0


def _explain(error: Any) -> int:
    """Print a usage error in one line, or the help if no arguments were given; return the exit status."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        path = context.command_path if context is not None else "kafkapy"
        fail(f"{error.format_message()}{_hint(error.format_message(), path)} (see {path} -h)")
    return int(error.exit_code)


ELSEWHERE = {
    "acl": "security acl",
    "acls": "security acl",
    "user": "security user",
    "users": "security user",
    "quota": "security quota",
    "quotas": "security quota",
    "token": "security token",
    "delegation-tokens": "security token",
    "consumer-groups": "groups",
    "reassign-partitions": "cluster move",
}
"""Commands by other names: those of Kafka's tools, and what stands below `security`."""


OTHERS_NAMES = {
    ("kafkapy consume", "option: --count"): "--max-messages (-n)",
    ("kafkapy consume", "option: --num"): "--max-messages (-n)",
    ("kafkapy consume", "option: --exit"): "--until-end (-e)",
    ("kafkapy consume", "option: --follow"): "the default, until Ctrl-C",
    ("kafkapy profile", "command 'create'"): "kafkapy profile add",
    ("kafkapy topics", "command 'add-partitions'"): "kafkapy topics alter --partitions",
    ("kafkapy topics", "command 'trim-prefix'"): "kafkapy topics trim",
    ("kafkapy groups", "command 'seek'"): "kafkapy groups reset",
}
"""What options and commands of rpk or kcat are called here, by our command and what follows its "No such"."""


def _hint(message: str, path: str) -> str:
    """Return what was meant, as far as one can tell: a command by another name, or a topic without its option."""
    for name, elsewhere in ELSEWHERE.items():
        if message.startswith(f"No such command '{name}'"):
            return f" It is `kafkapy {elsewhere}`."
    for (where, unknown), known in OTHERS_NAMES.items():
        # the look-ahead: --number does not begin with --num
        if path == where and re.match(rf"No such {re.escape(unknown)}(?!\S*\w)", message):
            return f"{'' if message.endswith(('.', ')')) else '.'} Here it is {known}."
    if message.startswith("Got unexpected extra argument") and path.startswith("kafkapy configs "):
        return " Say whose configs by --topic, --broker or --group, a change by --set KEY=VALUE."
    return ""


def _stand_in(app: typer.Typer, name: str, text: str) -> None:
    @app.command(name, help=text, context_settings=STAND_IN)
    def _(arguments: Annotated[list[str] | None, typer.Argument(metavar="...")] = None) -> None:
        raise AssertionError(f"{name} is not imported, or has a parser of its own that __main__ calls")
