"""Stand-ins for commands that do not run: they have a name and help, but no options.

typer makes an object of every option of every command, which takes as long as most commands run. So only the command
that runs has its options. The others are stand-ins, for the list of commands, and for hints after a typing error.
"""

import copy
import inspect
from collections.abc import Sequence
from typing import Any, Final

import typer

CONTEXT: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def add_stand_in(app: typer.Typer, name: str, text: str) -> None:
    """Register a stand-in for a command."""
    app.command(name, help=text, context_settings=CONTEXT)(_never_run)


def without_others(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """Return a copy of the app with stand-ins for commands that are not among the words."""
    light = copy.copy(app)
    light.registered_commands = [each if _name(each) in words else _stand_in(each) for each in app.registered_commands]
    light.registered_groups = [_light_group(each, words) for each in app.registered_groups]
    return light


def _light_group(group: Any, words: Sequence[str]) -> Any:
    light = copy.copy(group)
    light.typer_instance = without_others(group.typer_instance, words)
    return light


def _name(command: Any) -> str:
    return str(command.name or command.callback.__name__.replace("_", "-"))


def _stand_in(command: Any) -> Any:
    light = copy.copy(command)
    light.name, light.callback, light.context_settings = _name(command), _never_run, CONTEXT
    light.help = command.help or inspect.getdoc(command.callback)
    return light


def _never_run() -> None:
    raise AssertionError(
        "a stand-in runs: the command was not imported, or has a parser of its own that __main__ calls"
    )
