"""Names of topics on the command line: patterns with *, ? and [...], and the question before many are changed."""

import difflib
import fnmatch
import sys
from collections.abc import Collection, Iterable, Sequence

import typer

from kafkapy.cli.failure import fail
from kafkapy.cli.table import printable

WILDCARDS = frozenset("*?[")
MAX_SIMILAR = 3
"""Suggestions in one line of an error message."""


def is_pattern(name: str) -> bool:
    return not WILDCARDS.isdisjoint(name)


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match, in order; internal ones (__) only for a pattern that begins with __."""
    hidden = not pattern.startswith("__")
    return [
        name for name in sorted(names) if fnmatch.fnmatchcase(name, pattern) and not (hidden and name.startswith("__"))
    ]


def chosen(given: Sequence[str], names: Collection[str], kind: str) -> list[str]:
    """Return the names that were given, or match a pattern that was, each once. Exits if one is not there.

    A text that is one of the names is not read as a pattern: a group may be called app[1]. kind: what the names are
    of, as `topic`.
    """
    found: dict[str, None] = {}
    for each in given:
        hits = [each] if each in names else matching(each, names) if is_pattern(each) else []
        if not hits:
            what = f"no {kind} matches {each}" if is_pattern(each) else missing(kind, each, names)
            raise typer.Exit(fail(what))
        found.update(dict.fromkeys(hits))
    return list(found)


def missing(kind: str, name: str, names: Iterable[str]) -> str:
    """Return the error message for a name that is not there, with similar ones that are."""
    return f"no such {kind}: {name}.{similar(name, names)}"


def similar(name: str, names: Iterable[str]) -> str:
    """Return a "Did you mean" sentence with similar names, "" if there are none."""
    alike = difflib.get_close_matches(name, sorted(names), MAX_SIMILAR)
    return f" Did you mean {' or '.join(alike)}?" if alike else ""


def confirm(lines: Iterable[str], question: str, *, is_confirmed: bool) -> None:
    """Print what is going to be done, and ask. Exits if the answer is not yes, or if there is no terminal to ask on."""
    for line in lines:
        print(printable(line).replace("\n", "\\n"), flush=True)  # names come from anybody, and must hide no other line
    if is_confirmed:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.Exit(fail("nothing was changed: --yes answers the question that is asked on a terminal"))
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Exit(fail("nothing was changed"))
