"""Scenarios as text: commands to a machine, and below them what they printed, as in etcd/raft's datadriven tests.

    # A comment. It stays as it is.

    timeout 1
    status
    ----
    node  role         epoch
    1     Prospective  0

Lines of commands, a line of dashes, the outcome up to a blank line. `replayed` plays a text and returns it with the
outcomes of now: it is equal to the text if nothing has changed. A new scenario is written without outcomes, played with
`--rewrite`, and read. An unknown command is an error in either case.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

END_OF_COMMANDS = "----"
NO_OUTCOME = "ok"

Command = Callable[[Sequence[str]], Iterable[str]]
"""Takes the words after the command's name; returns the lines that it prints."""


class ScenarioError(AssertionError):
    """A scenario whose commands cannot be played. Rewriting does not mend it."""


def replayed(text: str, commands: Mapping[str, Command]) -> str:
    """Return the text with the outcomes that its commands have now."""
    return "\n".join(_lines(iter(enumerate(text.splitlines(), 1)), commands)) + "\n"


def difference(text: str, now: str, name: str) -> str:
    """Return what has changed, as a diff; empty if nothing has."""
    lines = difflib.unified_diff(text.splitlines(), now.splitlines(), f"{name} as written", f"{name} as played", "", "")
    return "\n".join(line.rstrip("\n") for line in lines)


def table(header: str, rows: Iterable[Iterable[object]]) -> list[str]:
    """Return aligned columns; words in the header are separated by two spaces."""
    cells = [header.split("  "), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def options_of(words: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Split words into those alone and the values of name=value."""
    words = list(words)
    alone = [word for word in words if "=" not in word]
    return alone, dict(word.split("=", 1) for word in words if "=" in word)


def _lines(lines: Iterator[tuple[int, str]], commands: Mapping[str, Command]) -> Iterator[str]:
    outcome: list[str] | None = None
    """What the commands since the last outcome have printed; None if there are none."""
    for number, line in lines:
        if line == END_OF_COMMANDS:
            if outcome is None:
                raise ScenarioError(f"line {number}: an outcome without a command")
            yield from _closed(outcome)
            outcome = None
            if _skip_outcome(lines):
                yield ""
        elif not line.strip():
            if outcome is not None:  # commands that have no outcome yet
                yield from _closed(outcome)
                outcome = None
            yield ""
        else:
            if not line.startswith("#"):
                outcome = (outcome or []) + _printed(number, line, commands)
            yield line
    if outcome is not None:
        yield from _closed(outcome)


def _skip_outcome(lines: Iterator[tuple[int, str]]) -> bool:
    """Skip the old outcome; return whether a blank line ended it."""
    return any(not line.strip() for _, line in lines)


def _closed(outcome: list[str]) -> list[str]:
    return [END_OF_COMMANDS, *(outcome or [NO_OUTCOME])]


def _printed(number: int, line: str, commands: Mapping[str, Command]) -> list[str]:
    name, *words = line.split()
    if name not in commands:
        raise ScenarioError(f"line {number}: no command {name!r}; there are: {', '.join(sorted(commands))}")
    try:
        printed = list(commands[name](words))
    except Exception as error:
        error.add_note(f"line {number}: {line}")
        raise
    assert all(each.strip() for each in printed), "a blank line would end the outcome"
    return printed
