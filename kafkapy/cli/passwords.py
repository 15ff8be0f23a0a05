"""Passwords from a prompt, standard input or a file: on a command line `ps` and the shell's history have them."""

import getpass
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from kafkapy.cli.failure import fail, reason_of

STDIN: Final = "-"
MAX_CHARACTERS: Final = 4_096
"""A file without an end of line, such as /dev/zero, is not read whole."""

Prompt = Annotated[bool, typer.Option("--password-prompt", help="Ask for the password on the terminal, twice.")]
File = Annotated[
    str,
    typer.Option(
        "--password-file",
        metavar="FILE",
        show_default=False,
        help="Read the password from the first line of a file; - for standard input.",
    ),
]


def password_of(password: str | None, *, is_prompted: bool, file: str) -> str | None:
    """Return the password that one of the options gives, None if none does. Raises BadParameter, exits."""
    if sum((password is not None, is_prompted, bool(file))) > 1:
        raise typer.BadParameter("--password, --password-prompt and --password-file: give one of them")
    if is_prompted:
        password = _prompted()
    elif file:
        password = _first_line(file)
    if password == "":
        raise typer.BadParameter("a password is not empty")
    return password


def _prompted() -> str:
    if not sys.stdin.isatty():
        raise typer.Exit(fail("there is no terminal to ask for the password: --password-file - reads standard input"))
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise typer.Exit(fail("the passwords differ"))
    return password


def _first_line(file: str) -> str:
    try:
        if file == STDIN:
            line = sys.stdin.readline(MAX_CHARACTERS + 1)
        else:
            with Path(file).open(encoding="utf-8") as opened:
                line = opened.readline(MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise typer.Exit(fail(f"{file}: {reason_of(error)}")) from error
    if len(line) > MAX_CHARACTERS:
        raise typer.Exit(fail(f"{file}: a password of more than {MAX_CHARACTERS} characters"))
    return line.rstrip("\r\n")
