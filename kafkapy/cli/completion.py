"""`kafkapy completion [bash|zsh|fish]`: the script by which a shell completes kafkapy's command lines (default: bash).

    eval "$(kafkapy completion bash)"                                       in ~/.bashrc, or
    kafkapy completion bash > /etc/bash_completion.d/kafkapy                for all users

    eval "$(kafkapy completion zsh)"                                        in ~/.zshrc, after compinit, or
    kafkapy completion zsh > /usr/local/share/zsh/site-functions/_kafkapy   for all users

    kafkapy completion fish > ~/.config/fish/completions/kafkapy.fish

It holds all words, so that nothing has to be run for a completion: made again for each version, from the parsers.
"""

import shlex
import sys
from collections.abc import Iterator

from kafkapy.cli.command_tree import Command, Option, command_tree
from kafkapy.cli.usage import print_usage

USAGE = "[bash|zsh|fish]"


def bash_script() -> str:
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
{_bash_cases(root)}
  esac
  case "$before" in
{_bash_values(root)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _kafkapy kafkapy
"""


def _paths(root: Command) -> str:
    """Return a shell pattern that matches all commands."""
    return "|".join(shlex.quote(" ".join(command.path)) for command in root.walk() if command.path)


def _bash_cases(root: Command) -> str:
    """Return a case for each command: the words that may follow it."""
    return "\n".join(
        f"    {shlex.quote(' '.join(command.path))}) words={shlex.quote(' '.join(_words(command)))} ;;"
        for command in root.walk()
    )


def _words(command: Command) -> list[str]:
    flags = [flag for option in command.options for flag in option.flags]
    return [*(each.name for each in command.commands), *flags]


def _bash_values(root: Command) -> str:
    """Return a case for each option with a value: its choices if known, else empty (bash completes file names)."""
    known = _choices(root)
    return "\n".join(f"    {flag}) words={shlex.quote(' '.join(known[flag]))} ;;" for flag in sorted(known))


def _choices(root: Command) -> dict[str, tuple[str, ...]]:
    """Return the known values of each option that has a value, by flag."""
    return {
        flag: option.choices
        for command in root.walk()
        for option in command.options
        for flag in option.flags
        if option.metavar
    }


# -- zsh ----------------------------------------------------------------------------------------------------------


def zsh_script() -> str:
    """Return the script for zsh: to be evaluated, or a function file of its fpath."""
    root = command_tree()
    return f"""\
#compdef kafkapy
_kafkapy() {{
  local command="" word
  local -a offered
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "${{command:+$command }}$word" in
      {_paths(root)}) command="${{command:+$command }}$word" ;;
    esac
  done
  case "${{words[CURRENT-1]}}" in
{_zsh_values(root)}
  esac
  case "$command" in
{_zsh_cases(root)}
  esac
  _describe kafkapy offered || _files
}}
if [[ "${{funcstack[1]}}" = _kafkapy ]]; then _kafkapy "$@"; else compdef _kafkapy kafkapy; fi
"""


def _zsh_values(root: Command) -> str:
    known = _choices(root)
    return "\n".join(
        f"    {flag}) {f'compadd -- {shlex.join(known[flag])}' if known[flag] else '_files'}; return ;;"
        for flag in sorted(known)
    )


def _zsh_cases(root: Command) -> str:
    return "\n".join(
        f"    {shlex.quote(' '.join(command.path))}) offered=({shlex.join(_described(command))}) ;;"
        for command in root.walk()
    )


def _described(command: Command) -> Iterator[str]:
    """Yield `word:explanation` of each word that may follow a command."""
    for each in command.commands:
        yield f"{each.name}:{each.help}"
    for option in command.options:
        for flag in option.flags:
            yield f"{flag}:{' '.join(option.help.split())}"


# -- fish ---------------------------------------------------------------------------------------------------------


def fish_script() -> str:
    """Return the script for fish."""
    root = command_tree()
    known = " ".join(_fish_quoted(" ".join(command.path)) for command in root.walk() if command.path)
    lines = [line for command in root.walk() for line in _fish_lines(command)]
    return f"""\
function __kafkapy_at
    set -l command ''
    for word in (commandline -opc)[2..-1]
        set -l longer (string trim -- "$command $word")
        if contains -- "$longer" {known}
            set command "$longer"
        end
    end
    test "$command" = "$argv[1]"
end
complete -c kafkapy -e
{chr(10).join(lines)}
"""


def _fish_lines(command: Command) -> Iterator[str]:
    """Yield a `complete` for each word that may follow a command."""
    condition = _fish_quoted(f"__kafkapy_at {_fish_quoted(' '.join(command.path))}")
    start = f"complete -c kafkapy -n {condition}"
    if command.commands:
        yield f"{start} -f"
    for each in command.commands:
        yield f"{start} -a {each.name} -d {_fish_quoted(each.help)}"
    for option in command.options:
        yield f"{start} {_fish_option(option)} -d {_fish_quoted(' '.join(option.help.split()))}"


def _fish_option(option: Option) -> str:
    flags = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
    if option.choices:
        undescribed = " ".join(rf"{choice}\t" for choice in option.choices)  # else each has the option's description
        flags.append(f"-x -a {_fish_quoted(undescribed)}")
    elif option.metavar:
        flags.append("-r")
    return " ".join(flags)


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


def main(arguments: list[str]) -> int:
    """Run with the arguments after `kafkapy completion`; return the exit status."""
    shells = arguments or ["bash"]
    if len(shells) > 1 or shells[0] not in SCRIPTS:
        return print_usage(arguments, "completion", USAGE, __doc__)
    sys.stdout.write(SCRIPTS[shells[0]]())
    return 0
