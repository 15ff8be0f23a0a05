"""The commands that are clients of a running broker, and the overview of all commands (typer).

They go through confluent-kafka, as any client would: `pip install kafkapy[cli]`.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from kafkapy.cli import configs, consume, groups, produce, topics
from kafkapy.cli.client import MissingClientError
from kafkapy.cli.failure import fail

OWN_PARSER = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Of commands that __main__ dispatches before typer: they stand here for the overview."""

app = typer.Typer(
    name="kafkapy",
    help="A Kafka-compatible broker in pure Python, and tools for it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)


def main(arguments: Sequence[str]) -> int:
    """Run a command; return the exit status (2 where it was not understood)."""
    try:
        app(args=list(arguments), prog_name="kafkapy")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except MissingClientError as error:
        return fail(str(error))
    return 0


def _stands_in(name: str, text: str) -> None:
    @app.command(name, help=text, context_settings=OWN_PARSER)
    def _(arguments: Annotated[list[str] | None, typer.Argument(metavar="...")] = None) -> None:
        raise AssertionError(f"{name} has a parser of its own: __main__ dispatches it")


_stands_in("start", "Run a broker in the foreground (kafkapy start --help).")
_stands_in("storage", "Format and inspect log directories: format, info, random-uuid.")
_stands_in("protocol", "Decode and encode frames as JSON lines: decode, encode.")
_stands_in("dump-log", "Print segments, snapshots and indexes of a stopped directory.")
