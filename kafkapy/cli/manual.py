"""The manual pages kafkapy(1), kafkapy-start(1), kafkapy-topics-create(1), ...: one for each command, from the parsers.

    kafkapy man topics create | man -l -
    kafkapy man --to DIRECTORY

The wheel installs them to share/man/man1 (setup.py), where man looks for the pages of a program in bin/.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kafkapy.cli.command_tree import Argument, Command, Option, command_tree
from kafkapy.cli.failure import fail, reason_of
from kafkapy.cli.man_options import new_parser
from kafkapy.version import __version__

EXIT_STATUS = "0: done. 1: failed, a line on standard error says why. 2: the command line is wrong. 130: Ctrl-C."
SEE_ALSO = "README.md and docs/ of the distribution; kafkapy configs explain KEY for each key of the configuration."


def pages() -> dict[str, str]:
    """Return the pages in man's markup, by the names of their files."""
    root = command_tree()
    return {f"{_title(command)}.1": page(command, root) for command in root.walk()}


def page(command: Command, root: Command) -> str:
    """Return the page of a command. `root`: the command kafkapy, with all others below it."""
    return "\n".join(_lines(command, root)) + "\n"


def _lines(command: Command, root: Command) -> Iterator[str]:
    yield f'.TH {_plain(_title(command).upper())} 1 "" "kafkapy {__version__}" "User Commands"'
    yield ".SH NAME"
    yield f"{_plain(_title(command))} \\- {_plain(command.help)}"
    yield ".SH SYNOPSIS"
    yield f".B {_plain(' '.join(('kafkapy', *command.path)))}"
    words = ["COMMAND"] * bool(command.commands) + ["[OPTIONS]"] + [each.metavar for each in command.arguments]
    yield _plain(" ".join(words))
    yield ".SH DESCRIPTION"
    yield _plain(command.help)
    for paragraph in command.more:
        yield from (".PP", _plain(paragraph))
    if command.commands:
        yield ".SH COMMANDS"
        for each in command.walk():
            if each is not command:
                yield from _entry(" ".join(("kafkapy", *each.path)), each.help)
    if command.arguments:
        yield ".SH ARGUMENTS"
        for argument in command.arguments:
            yield from _argument(argument)
    yield ".SH OPTIONS"
    for option in command.options:
        yield from _option(option)
    # commands with a status of their own explain it in their help
    if "Exit status:" not in " ".join((command.help, *command.more)):
        yield from (".SH EXIT STATUS", _plain(EXIT_STATUS))
    yield ".SH SEE ALSO"
    for other in _related(command, root):
        yield f".BR {_plain(_title(other))} (1),"
    yield _plain(SEE_ALSO)


def _related(command: Command, root: Command) -> Iterator[Command]:
    """Yield the commands directly above and below a command."""
    for other in root.walk():
        above = other.path == command.path[: len(other.path)] and len(other.path) < len(command.path)
        if above or other in command.commands:
            yield other


def _title(command: Command) -> str:
    return "-".join(("kafkapy", *command.path))


def _argument(argument: Argument) -> Iterator[str]:
    yield from _entry(argument.metavar, argument.help)


def _option(option: Option) -> Iterator[str]:
    value = f" {option.metavar}" if option.metavar else ""
    is_listed = not option.choices or all(choice in f"{option.help}{option.metavar}" for choice in option.choices)
    values = "" if is_listed else f" One of {', '.join(option.choices)}."
    yield from _entry(", ".join(option.flags) + value, option.help + values)


def _entry(name: str, text: str) -> Iterator[str]:
    yield from (".TP", f".B {_plain(name)}", _plain(" ".join(text.split())))


def _plain(text: str) -> str:
    """Return text escaped for man."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(arguments: Sequence[str]) -> int:
    """Run with the arguments after `kafkapy man`; return the exit status."""
    parser = new_parser()
    given = parser.parse_args(arguments)
    found = pages()
    if given.to is not None:
        return _write(found, given.to)
    name = f"{'-'.join(('kafkapy', *given.command))}.1"
    if name not in found:
        parser.error(f"{' '.join(given.command)} is no command")
    sys.stdout.write(found[name])
    return 0


def _write(found: dict[str, str], directory: Path) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in found.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        return fail(reason_of(error))
    return 0
