"""The manual page kafkapy(1), generated from the parsers: `kafkapy man > kafkapy.1`."""

import sys

from kafkapy import __version__
from kafkapy.cli.command_tree import Command, Option, command_tree
from kafkapy.cli.usage import print_usage

USAGE = "usage: kafkapy man > kafkapy.1"


def page() -> str:
    """Return the page in man's markup."""
    root = command_tree()
    lines = [
        f'.TH KAFKAPY 1 "" "kafkapy {__version__}" "User Commands"',
        ".SH NAME",
        f"kafkapy \\- {_plain(root.help)}",
        ".SH SYNOPSIS",
        ".B kafkapy",
        ".RI [ command ]\n.RI [ options ]",
        ".SH DESCRIPTION",
        "A broker that speaks the protocol of Apache Kafka, and tools for it. Commands that connect to a broker take",
        ".B \\-\\-command\\-config",
        "FILE: a client.properties, as Java's tools do.",
        ".SH COMMANDS",
    ]
    for command in root.walk():
        if command.path:
            lines += _command(command)
    lines += [
        ".SH EXIT STATUS",
        "0: done. 1: failed, a line on standard error says why. 2: the command line is wrong. 130: Ctrl\\-C.",
        ".SH SEE ALSO",
        "README.md and docs/ of the distribution; kafkapy configs explain KEY for each key of the configuration.",
    ]
    return "\n".join(lines) + "\n"


def _command(command: Command) -> list[str]:
    arguments = "".join(f" {argument}" for argument in command.arguments)
    lines = [f'.SS "kafkapy {_plain(" ".join(command.path) + arguments)}"', _plain(command.help)]
    for option in command.options:
        lines += _option(option)
    return lines


def _option(option: Option) -> list[str]:
    flags = ", ".join(option.flags)
    metavar = f" {option.metavar}" if option.metavar else ""
    return [".TP", f"\\fB{_plain(flags)}\\fR{_plain(metavar)}", _plain(option.help.replace("\n", " "))]


def _plain(text: str) -> str:
    """Return text escaped for man."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(arguments: list[str]) -> int:
    """Run with the arguments after `kafkapy man`; return the exit status."""
    if arguments:
        return print_usage(arguments, USAGE)
    sys.stdout.write(page())
    return 0
