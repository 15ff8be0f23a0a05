"""The commands that are clients of a running broker, and the overview of all commands (typer).

They use confluent-kafka, as any client would; the distribution's extra `cli` installs it.
"""

import os
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

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
from kafkapy.cli.stand_ins import add_stand_in, without_others
from kafkapy.version import __version__

CONNECTING = ("topics", "configs", "groups", "transactions", "produce", "consume", "security", "cluster")
"""Commands that take --command-config FILE and --profile NAME; `main` reads both before their parsers."""
LOCAL = (("configs", "explain"), ("security", "init"))
"""Commands below those that connect to no broker."""
OF_ANY_CLUSTER = ("check", "status", "voters", "move", "elect", "throttle", "unregister")
"""Commands below `kafkapy cluster` for any cluster; the others are for nodes of this machine."""
HELP = ("-h", "--help")
DEFAULT_DATA_DIR = Path("kafkapy-cluster")
CLUSTER_FILE = "cluster.json"
"""The file of a cluster that `kafkapy cluster up` has created in the directory."""


def new_app(names: Sequence[str], words: Sequence[str] | None = None) -> typer.Typer:
    """Return kafkapy's parser. Only the commands `names` have their options; the others are stand-ins (stand_ins.py).

    words: the arguments of this call: of the commands below `names` only those among them have options. None: all have.
    """
    app = typer.Typer(
        name="kafkapy",
        help="A Kafka-compatible broker in pure Python, and tools for it.",
        epilog="Commands that connect to a broker take --command-config FILE: a client.properties, as Java's tools do. "
        f"Without it, and without --bootstrap-server, they use {SERVERS_VARIABLE} and {CONFIG_VARIABLE}, then the "
        "profile that `kafkapy profile use` has chosen; --profile NAME is another profile for one command.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich's import takes longer than all else that the overview needs
        context_settings={"help_option_names": list(HELP)},
    )
    app.callback()(_root)
    for name, text in {**ALONE, **OWN_PARSERS, **GROUPS}.items():
        if name not in names:
            add_stand_in(app, name, text)
        elif name in GROUPS:
            group = import_module(f"kafkapy.cli.{name}").app
            app.add_typer(group if words is None else without_others(group, words), name=name)
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
    """Whether a command connects to a broker, so that it takes --command-config and --profile."""
    if path[0] == "cluster":
        return len(path) > 1 and path[1] in OF_ANY_CLUSTER
    return path[0] in CONNECTING and tuple(path[:2]) not in LOCAL


def command(
    names: Sequence[str] = (*GROUPS, *ALONE), defaults: Defaults = NO_DEFAULTS, words: Sequence[str] | None = None
) -> Any:
    """Return click's command of `new_app`; the help of commands that connect shows --command-config and --profile."""
    root = typer.main.get_command(new_app(names, words))
    options: list[Any] = typer.main.get_command(_with_options_of_all).params[:2]
    for option in options:
        option.expose_value = False
    if defaults.config.value:
        options[0].show_default = _named(defaults.config)
    _add_options(root, (), options)
    if defaults.names_servers:
        _use_servers(root, defaults.servers)
    _refuse_repetitions(root)
    _show_whole_lines(root)
    _name_values(root)
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
    """Make these brokers the default of --bootstrap-server; the commands' help says where the default comes from."""
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


def _show_whole_lines(command: Any) -> None:
    """Let the list of commands have the first paragraph of each one's help whole: click would cut it off."""
    for below in getattr(command, "commands", {}).values():
        below.short_help = " ".join((below.help or "").partition("\n\n")[0].split())
        _show_whole_lines(below)


VALUES: Final = {
    "key_separator": "TEXT",
    "timeout_ms": "MS",
    "isolation": "LEVEL",
    "key_format": "FORMAT",
    "value_format": "FORMAT",
    "partition": "PARTITION",
    "to": "TARGET",
}
"""What the help calls the values of these options."""


def value_name(parameter: Any) -> str:
    """Return what the help and the manual pages call a value: N, a number; else as the option or argument is called."""
    if parameter.metavar:
        return str(parameter.metavar)
    is_number = parameter.param_type_name == "option" and parameter.type.name.startswith("int")
    return VALUES.get(parameter.name) or ("N" if is_number else parameter.name.replace("_", "-").upper())


def _name_values(command: Any) -> None:
    """Have the help name the values of options and arguments, where typer would show their types: <str>."""
    for below in getattr(command, "commands", {}).values():
        _name_values(below)
    for param in command.params:
        if not getattr(param, "is_flag", False):
            param.metavar = value_name(param)


def _refuse_repetitions(command: Any) -> None:
    """Make a command refuse an option of one value that is given twice: click would use the last one."""
    for below in getattr(command, "commands", {}).values():
        _refuse_repetitions(below)
    make_parser = command.make_parser

    def new_parser(context: Any) -> Any:
        parser = make_parser(context)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            values, remaining, order = parse(args)
            once = [each for each in order if each.param_type_name == "option" and not (each.multiple or each.is_flag)]
            twice = next((each for each in once if once.count(each) > 1), None)
            if twice is not None:
                raise typer.BadParameter(f"it is given more than once: {'/'.join(twice.opts)} takes one value", context)
            return values, remaining, order

        parser.parse_args = parse_args
        return parser

    command.make_parser = new_parser


def main(arguments: Sequence[str]) -> int:
    """Run a command; return the exit status, as failure.py lists them."""
    try:
        if not arguments or arguments[0] not in CONNECTING:
            status = _run(arguments, NO_DEFAULTS)
        else:
            remaining, profile_name = _profile_taken(arguments)
            defaults = _defaults(remaining, profile_name)
            is_help = not set(HELP).isdisjoint(remaining)  # help is printed even if the file cannot be read
            with option_taken(remaining, None if is_help else defaults.config) as given:
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
    remaining, name = profile_taken(arguments)
    return (remaining, name) if len(remaining) > 1 and connects(remaining) else (list(arguments), None)


def _defaults(arguments: list[str], profile_name: str | None) -> Defaults:
    """Return the defaults of the environment and the profile; none for a command that does not connect.

    Raises ProfileError.
    """
    if len(arguments) < 2 or not connects(arguments):
        return NO_DEFAULTS
    if profile_name is not None:
        return defaults_of(os.environ, arguments, profile_name)
    if arguments[:2] == ["cluster", "check"]:  # which knows no directory
        if any(each.partition("=")[0] == "--config" for each in arguments):
            return NO_DEFAULTS  # only files are checked
    elif arguments[0] == "cluster" and (DEFAULT_DATA_DIR / CLUSTER_FILE).exists():
        return NO_DEFAULTS  # the cluster of this directory, which `cluster up` has made
    return defaults_of(os.environ, arguments)


def _run(arguments: Sequence[str], defaults: Defaults) -> int:
    names = [name for name in (*GROUPS, *ALONE) if name in arguments]
    status = command(names, defaults, arguments)(args=list(arguments), prog_name="kafkapy", standalone_mode=False)
    return status if isinstance(status, int) else 0


def _explain(error: Any) -> int:
    """Print a usage error in one line, or the help if no arguments were given; return the exit status."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        path = context.command_path if context is not None else "kafkapy"
        fail(f"{_message(error, path)} (see {path} -h)")
    return int(error.exit_code)


def _message(error: Any, path: str) -> str:
    """Return the text of a usage error, with a hint.

    Of options click says "(Possible options: --a)"; commands and names have "Did you mean" here.
    """
    similar = getattr(error, "possibilities", None)
    text = str(error.message if similar else error.format_message())
    hint = _hint(text, path)
    if hint or not similar:
        return text + hint
    return f"{text}. Did you mean {' or '.join(sorted(similar))}?"


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
    """Return a hint at the intended command, after another name for it, or a topic without its option."""
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
