"""Splits a large request into parts that are handled one after another, and joins their responses.

A row of the table names its API's arrays; serving/large_requests.py drives the parts, yielding to the loop in between.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from copy import copy
from typing import Any, Final

from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.table import Levels, Parts

PART_ELEMENTS: Final = 250
"""About one millisecond of work."""

Handler = Callable[[Any, RequestContext, Any], Awaitable[Any]]
Prepare = Callable[[Any, RequestContext, Any], None]
"""Called with services, context and a large request before it is split; `prepare` of a handler's module."""


def levels_of(parts: Parts, request: Any) -> Levels | None:
    return next((levels for levels in parts.either if getattr(request, levels[0][0])), None)


def cut(entries: Sequence[Any], levels: Levels) -> Iterator[tuple[list[Any], int]]:
    """Yield (entries, continued): lists of entries with about PART_ELEMENTS elements each.

    A larger entry is split itself, over several lists. `continued` is the number of levels on which the list's first
    entry continues the last entry of the previous list: 0 unless it is a further piece of a split entry.
    """
    attribute = levels[1][0] if len(levels) > 1 else None
    part: list[Any] = []
    weight = 0
    for entry in entries:
        entry_weight = 1 if attribute is None else _weight(entry, levels[1:])
        if part and weight + entry_weight > PART_ELEMENTS:
            yield part, 0
            part, weight = [], 0
        if attribute is not None and entry_weight > PART_ELEMENTS:
            for index, (inner, continued) in enumerate(cut(getattr(entry, attribute), levels[1:])):
                yield [with_entries(entry, attribute, inner)], 1 + continued if index else 0
        else:
            part.append(entry)
            weight += entry_weight
    if part:
        yield part, 0


def _weight(entry: Any, levels: Levels) -> int:
    inner = getattr(entry, levels[0][0]) or ()
    return 1 + len(inner) if len(levels) == 1 else 1 + sum(_weight(each, levels[1:]) for each in inner)


def with_entries(struct: Any, attribute: str, value: Any) -> Any:
    """Return a shallow copy of a struct with one attribute replaced."""
    copied = copy(struct)
    setattr(copied, attribute, value)
    return copied


def join(whole: Any, response: Any, levels: Levels, continued: int) -> None:
    """Append a part's response to the joined response; the first error_code other than 0 is kept."""
    if getattr(response, "error_code", 0) and not whole.error_code:
        whole.error_code = response.error_code
    mine, further = getattr(whole, levels[0][1]), getattr(response, levels[0][1])
    if continued and mine and further:
        join(mine[-1], further[0], levels[1:], continued - 1)
        further = further[1:]
    mine.extend(further)
