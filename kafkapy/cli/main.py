"""The commands that are clients of a running broker, and the overview of all commands (typer).

They use confluent-kafka, as any client would; the distribution's extra `cli` installs it.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from kafkapy import compiled
from kafkapy.cli import cluster, configs, consume, groups, produce, security, topics, transactions
from kafkapy.cli.client import MissingClientError
from kafkapy.cli.command_config import CommandConfigError, option_taken
from kafkapy.cli.failure import INTERRUPTED, fail
from kafkapy.version import __version__

OWN_PARSER = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""For commands that __main__ dispatches before typer: they are registered only for the overview."""

app = typer.Typer(
    name="kafkapy",
    help="A Kafka-compatible broker in pure Python, and tools for it.",
    epilog="Commands that connect to a broker take --command-config FILE: a client.properties, as Java's tools do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(cluster.app, name="cluster")
app.add_typer(security.app, name="security")
CONNECTING = ("topics", "configs", "groups", "transactions", "produce", "consume", "security", "cluster")
"""Commands from which --command-config FILE is taken, in front of their parsers."""
LOCAL = (("configs", "explain"), ("security", "init"))
OF_ANY_CLUSTER = ("check", "status", "voters", "move", "elect", "throttle", "unregister")
"""Below `kafkapy cluster`: the others are for nodes of this machine."""
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)


CLICK_ERROR: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""The base class of usage errors: click's, or that of the copy inside newer versions of typer."""


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"kafkapy {__version__} {compiled.description()}")
        raise typer.Exit


@app.callback()
def _(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


def connects(path: Sequence[str]) -> bool:
    """Whether a command connects to a broker by --command-config."""
    if path[0] == "cluster":
        return path[1] in OF_ANY_CLUSTER
    return path[0] in CONNECTING and tuple(path) not in LOCAL


def command() -> Any:
    """Return the command kafkapy; those that connect have --command-config in their help."""
    root = typer.main.get_command(app)
    (option,) = typer.main.get_command(_with_command_config).params
    option.expose_value = False
    _add_option(root, (), option)
    _refuse_repetitions(root)
    return root


_with_command_config = typer.Typer(add_completion=False)


@_with_command_config.command()
def _(
    command_config: Annotated[
        str, typer.Option(metavar="FILE", show_default=False, help="A client.properties, as Java's tools take it.")
    ] = "",
) -> None: ...


def _add_option(command: Any, path: tuple[str, ...], option: Any) -> None:
    """Add an option that `main` takes to the commands that connect."""
    for name, below in getattr(command, "commands", {}).items():
        _add_option(below, (*path, name), option)
    if path and not hasattr(command, "commands") and connects(path):
        command.params.append(option)


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
            status = _run(arguments)
        else:
            with option_taken(arguments) as given:
                status = _run(given)
    except CLICK_ERROR as error:
        return _explain(error)
    except typer.Abort:  # click's exception for Ctrl-C
        return INTERRUPTED
    except (MissingClientError, CommandConfigError) as error:
        return fail(str(error))
    return status


def _run(arguments: Sequence[str]) -> int:
    status = command()(args=list(arguments), prog_name="kafkapy", standalone_mode=False)
    return status if isinstance(status, int) else 0


def _explain(error: Any) -> int:
    """Print a usage error in one line, or the help if no arguments were given; return the exit status."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        path = context.command_path if context is not None else "kafkapy"
        fail(f"{error.format_message()}{_moved(error)} (see {path} -h)")
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


def _moved(error: Any) -> str:
    """Return where a command is that does not exist under its name, "" if it is nowhere."""
    for name, path in ELSEWHERE.items():
        if error.format_message().startswith(f"No such command '{name}'"):
            return f" It is `kafkapy {path}`."
    return ""


def _stands_in(name: str, text: str) -> None:
    @app.command(name, help=text, context_settings=OWN_PARSER)
    def _(arguments: Annotated[list[str] | None, typer.Argument(metavar="...")] = None) -> None:
        raise AssertionError(f"{name} has a parser of its own: __main__ dispatches it")


_stands_in("start", "Run a broker in the foreground (kafkapy start --help).")
_stands_in("console", "Serve pages about a cluster to a browser (kafkapy console --help).")
_stands_in("storage", "Format and inspect log directories: format, info, random-uuid.")
_stands_in("protocol", "Decode and encode frames as JSON lines: decode, encode.")
_stands_in("dump-log", "Print segments, snapshots and indexes of a stopped directory.")
_stands_in("completion", "Print the script that completes command lines in bash, zsh or fish.")
_stands_in("man", "Print the manual page of a command, for man (kafkapy man --help).")
