"""`kafkapy completion`: the script that bash completes kafkapy's command lines with.

    eval "$(kafkapy completion)"                                 in ~/.bashrc, or
    kafkapy completion > /etc/bash_completion.d/kafkapy          for everybody

It holds all words, so that nothing has to be run for a completion: made anew for each version, from the parsers.
"""

import shlex
import sys

from kafkapy.cli.command_tree import Command, command_tree
from kafkapy.cli.usage import print_usage

USAGE = "usage: kafkapy completion"


def script() -> str:
    """Return the script for bash."""
    root = command_tree()
    return f"""\
_kafkapy() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command="" word words=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "${{command:+$command }}$word" in
      {_paths(root)}) command="${{command:+$command }}$word" ;;
    esac
  done
  case "$command" in
{_cases(root)}
  esac
  case "$before" in
{_values(root)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _kafkapy kafkapy
"""


def _paths(root: Command) -> str:
    """Return a shell pattern that matches all commands."""
    return "|".join(shlex.quote(" ".join(command.path)) for command in root.walk() if command.path)


def _cases(root: Command) -> str:
    """Return a case for each command: the words that may follow it."""
    return "\n".join(
        f"    {shlex.quote(' '.join(command.path))}) words={shlex.quote(' '.join(_words(command)))} ;;"
        for command in root.walk()
    )


def _words(command: Command) -> list[str]:
    flags = [flag for option in command.options for flag in option.flags]
    return [*(each.name for each in command.commands), *flags]


def _values(root: Command) -> str:
    """Return a case for each option with a value: its choices if known, else empty (bash completes file names)."""
    known = {
        flag: " ".join(option.choices)
        for command in root.walk()
        for option in command.options
        for flag in option.flags
        if option.metavar
    }
    return "\n".join(f"    {flag}) words={shlex.quote(choices)} ;;" for flag, choices in sorted(known.items()))


def main(arguments: list[str]) -> int:
    """Run with what follows `kafkapy completion`; return the exit status."""
    if not arguments:
        sys.stdout.write(script())
        return 0
    return print_usage(arguments, USAGE, __doc__)
