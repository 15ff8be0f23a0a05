"""All commands with their options, extracted from the parsers: the source of shell completion and manual pages."""

import argparse
from collections.abc import Iterator
from typing import Any, Final

from kafkapy.dataclass import dataclass

HELP: Final = ("-h", "--help")


@dataclass(frozen=True, slots=True)
class Option:
    """`flags`: as written on the command line; `metavar` is empty for an option without a value."""

    flags: tuple[str, ...]
    metavar: str
    help: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument: its name in the usage, and what it is."""

    metavar: str
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """`path`: the words after kafkapy, () for kafkapy itself; `help`: one line; `more`: paragraphs that follow it."""

    path: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...]
    commands: tuple["Command", ...] = ()
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else "kafkapy"

    def walk(self) -> Iterator["Command"]:
        """Yield this command and all its descendants."""
        yield self
        for command in self.commands:
            yield from command.walk()


def command_tree() -> Command:
    """Return the command kafkapy with all its subcommands."""
    from kafkapy.cli import (
        console_options,
        dump_log,
        man_options,
        recording_options,
        registry_options,
        start,
        storage,
    )
    from kafkapy.cli.main import command

    own = {
        "start": _of_argparse(start.new_parser(), ("start",)),
        "console": _of_argparse(console_options.new_parser(), ("console",)),
        "record": _of_argparse(recording_options.record_parser(), ("record",)),
        "replay": _of_argparse(recording_options.replay_parser(), ("replay",)),
        "registry": _of_argparse(registry_options.new_parser(), ("registry",)),
        "storage": _of_argparse(storage.new_parser(), ("storage",)),
        "dump-log": _of_argparse(dump_log.new_parser(), ("dump-log",)),
        "protocol": _of_protocol(),
        "completion": _of_completion(),
        "man": _of_argparse(man_options.new_parser(), ("man",)),
    }
    return _of_typer(command(), (), own)


def _of_typer(command: Any, path: tuple[str, ...], own: dict[str, Command]) -> Command:
    """`own`: replacements for commands that typer lists but does not parse."""
    below = getattr(command, "commands", {})
    commands = [own.get(name) or _of_typer(each, (*path, name), {}) for name, each in sorted(below.items())]
    options = [_of_typer_option(each) for each in command.params if each.param_type_name == "option"]
    arguments = [
        Argument(str(each.metavar), _line(each.help)) for each in command.params if each.param_type_name == "argument"
    ]
    options.append(Option(HELP, "", "Show this message and exit."))
    first, *more = [*_paragraphs(command.help), *_paragraphs(command.epilog)] or [""]
    return Command(path, first, tuple(options), tuple(arguments), tuple(commands), tuple(more))


def _of_typer_option(option: Any) -> Option:
    flags = (*option.opts, *option.secondary_opts)
    choices = tuple(str(choice) for choice in getattr(getattr(option, "type", None), "choices", ()))
    return Option(flags, "" if option.is_flag else str(option.metavar), option.help or "", choices)


def _of_argparse(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Command:
    options, arguments, commands = [], [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, below in action.choices.items():
                command = _of_argparse(below, (*path, name))
                commands.append(command if command.help else _with_help(command, helps.get(name, "")))
        elif action.option_strings:
            options.append(_of_argparse_option(action))
        else:
            arguments.append(Argument(str(action.metavar or action.dest.upper()), _line(action.help)))
    first, *more = [*(_paragraphs(parser.description) or [""]), *_paragraphs(parser.epilog)]
    return Command(path, first, tuple(options), tuple(arguments), tuple(commands), tuple(more))


def _of_argparse_option(action: argparse.Action) -> Option:
    choices = tuple(str(choice) for choice in action.choices or ())
    metavar = "" if action.nargs == 0 else str(action.metavar or "|".join(choices) or action.dest.upper())
    return Option(tuple(action.option_strings), metavar, action.help or "", choices)


def _with_help(command: Command, text: str) -> Command:
    return Command(command.path, text, command.options, command.arguments, command.commands, command.more)


def _of_protocol() -> Command:
    """Return the `protocol` command; its two subcommands have no parser."""
    decode = Command(("protocol", "decode"), "Add what frames say, line by line, as JSON.", (), ())
    encode = Command(("protocol", "encode"), "Add the bytes of what lines say as JSON.", (), ())
    options = (Option(HELP, "", "Show this message and exit."),)
    return Command(("protocol",), "Decode and encode frames as JSON lines.", options, (), (decode, encode))


def _of_completion() -> Command:
    """Return the `completion` command, whose argument completes like a subcommand."""
    shells = tuple(
        Command(("completion", shell), f"Print the script for {shell}.", (), ()) for shell in ("bash", "zsh", "fish")
    )
    options = (Option(HELP, "", "Show this message and exit."),)
    return Command(("completion",), "Print the script that completes command lines.", options, (), shells)


def _paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a help text, each in one line."""
    return [line for line in map(_line, (text or "").split("\n\n")) if line]


def _line(text: str | None) -> str:
    return " ".join((text or "").split())
