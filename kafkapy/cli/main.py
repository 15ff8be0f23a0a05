"""The commands that are clients of a running broker, and the overview of all commands (typer).

They use confluent-kafka, as any client would; the distribution's extra `cli` installs it.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from kafkapy import __version__, compiled
from kafkapy.cli import cluster, configs, consume, groups, produce, security, topics, transactions
from kafkapy.cli.client import MissingClientError
from kafkapy.cli.command_config import CommandConfigError, option_taken
from kafkapy.cli.failure import INTERRUPTED, fail

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
"""Commands with the option --command-config FILE."""
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
    status = app(args=list(arguments), prog_name="kafkapy", standalone_mode=False)
    return status if isinstance(status, int) else 0


def _explain(error: Any) -> int:
    """Print a usage error in one line, or the help if no arguments were given; return the exit status."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        path = context.command_path if context is not None else "kafkapy"
        fail(f"{error.format_message()} (see {path} -h)")
    return int(error.exit_code)


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
