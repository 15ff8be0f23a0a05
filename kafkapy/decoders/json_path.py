"""Conditions on JSON by a path: `$.price > 100`, `$.items[*].id == "a"`, `$..error`.

A part of JSONPath (RFC 9535): `.name`, `['name']`, `[2]`, `[-1]`, `.*`, `[*]`, `..name`. After the path may come ==,
!=, <, <=, >, >= and a JSON value, or =~ and a regular expression. A condition is met if one of the values that the path
selects meets it; without a comparison, if it selects any.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.decoders.errors import DecodeError
from kafkapy.errors import quoted

MAX_CHARACTERS: Final = 1_000
"""A person types it; each step costs time for every record."""
EVERY: Final = "*"
STEP: Final = re.compile(
    r"(?P<deep>\.\.)?(?:"
    r"(?<=\.)(?P<after>[\w-]+|\*)"  # behind ..
    r"|\.(?P<name>[\w-]+|\*)"
    r"|\[(?:(?P<index>-?\d{1,9}|\*)|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\")\])"
)
COMPARISON: Final = re.compile(r"\s*(==|!=|<=|>=|=~|<|>)\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Step:
    """`key`: a name, an index, or EVERY for all; `is_deep`: of the value and of all that are in it."""

    key: str | int
    is_deep: bool


class JsonPath:
    """A path with its comparison, if it has one. Raises DecodeError for a text that is none.

    compile_pattern: what compiles the regular expression after =~; others than re's raise DecodeError themselves.
    """

    def __init__(self, text: str, compile_pattern: Callable[[str], Any] = re.compile) -> None:
        if len(text) > MAX_CHARACTERS:
            raise DecodeError(f"a JSON path of more than {MAX_CHARACTERS} characters")
        rest = text.strip()
        if not rest.startswith("$"):
            raise DecodeError(f"{quoted(text)} is no JSON path: it begins with $, as $.price > 100")
        self._steps, position = _steps(rest)
        self._accepts: Callable[[Any], bool] | None = None
        if rest[position:].strip():
            found = COMPARISON.fullmatch(rest[position:])
            if found is None:
                left = rest[position:].strip()
                equal = ": equal is ==" if left.startswith("=") else ""
                raise DecodeError(f"{quoted(text)} is no JSON path: {quoted(left)} is not understood{equal}")
            self._accepts = _comparison(found[1], found[2].strip(), compile_pattern)

    @property
    def deep_count(self) -> int:
        """The number of steps at any depth: for each of them, a value is visited as a whole."""
        return sum(step.is_deep for step in self._steps)

    def select(self, value: Any) -> Iterator[Any]:
        """Yield the parts of a JSON value that the path selects, each once, however many ways lead to it."""
        selected: Iterator[Any] = iter((value,))
        for step in self._steps:
            selected = _selected(selected, step)
        return selected

    def replaced(self, value: Any, by: Any) -> Any:
        """Return a JSON value in which everything that the path selects is replaced. Raises RecursionError."""
        return self._replaced(value, {0}, by)

    def _replaced(self, value: Any, taken: set[int], by: Any) -> Any:
        """`taken`: the numbers of steps that some way to this value has taken. Each value is visited once."""
        if len(self._steps) in taken:
            return by
        if taken and isinstance(value, dict):
            return {key: self._replaced(each, self._taken_to(key, None, taken), by) for key, each in value.items()}
        if taken and isinstance(value, list):
            size = len(value)
            return [
                self._replaced(each, self._taken_to(index, index - size, taken), by) for index, each in enumerate(value)
            ]
        return value

    def _taken_to(self, key: str | int, from_end: int | None, taken: set[int]) -> set[int]:
        """Return the numbers of steps that are taken at a child; `from_end`: its index from the end of a list."""
        found = set()
        for number in taken:
            step = self._steps[number]
            if step.is_deep:
                found.add(number)
            if step.key in (EVERY, key, from_end):
                found.add(number + 1)
        return found

    def is_met(self, value: Any) -> bool:
        return any(self._accepts is None or self._accepts(each) for each in self.select(value))


def _steps(text: str) -> tuple[list[_Step], int]:
    """Return the steps after $, and where they end."""
    steps, position = [], 1
    while (found := STEP.match(text, position)) is not None:
        index = found["index"]
        names = (found["after"], found["name"], found["single"], found["double"])
        name = next((each for each in names if each is not None), "")
        is_index = index is not None and index != EVERY
        steps.append(_Step(int(index) if is_index else index or name, found["deep"] is not None))
        position = found.end()
    return steps, position


def _selected(values: Iterator[Any], step: _Step) -> Iterator[Any]:
    seen: set[int] = set()
    for value in values:
        for each in _containers(value, seen) if step.is_deep else (value,):
            yield from _children(each, step.key)


def _children(value: Any, key: str | int) -> Iterator[Any]:
    if isinstance(value, list):
        if key == EVERY:
            yield from value
        elif isinstance(key, int) and -len(value) <= key < len(value):
            yield value[key]
    elif isinstance(value, dict):
        if key == EVERY:
            yield from value.values()
        elif key in value:
            yield value[key]


def _containers(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the objects and arrays among a value and all that are in it, except `seen` ones; add their ids to it."""
    stack = [value]
    while stack:
        each = stack.pop()
        if not isinstance(each, dict | list) or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        stack += reversed(each.values() if isinstance(each, dict) else each)


def _comparison(operator: str, text: str, compile_pattern: Callable[[str], Any]) -> Callable[[Any], bool]:
    """Return the test that a filter's operator makes with the value after it. Raises DecodeError."""
    if not text:
        raise DecodeError(f"a JSON path with nothing after {operator}")
    if operator == "=~":
        return _matching(text.strip("/"), compile_pattern)
    try:
        wanted = json.loads(text)
    except ValueError:
        wanted = text.strip("'")
    if operator in ("==", "!="):
        return lambda value: _is_equal(value, wanted) == (operator == "==")
    order = ORDERS[operator]
    return lambda value: _is_ordered(value, wanted) and order(value, wanted)


ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda value, wanted: value < wanted,
    "<=": lambda value, wanted: value <= wanted,
    ">": lambda value, wanted: value > wanted,
    ">=": lambda value, wanted: value >= wanted,
}


def _matching(text: str, compile_pattern: Callable[[str], Any]) -> Callable[[Any], bool]:
    try:
        pattern = compile_pattern(text)
    except re.error as error:
        raise DecodeError(f"{quoted(text)} is no regular expression: {error}") from error
    return lambda value: isinstance(value, str) and _is_found(pattern, value)


def _is_found(pattern: Any, text: str) -> bool:
    try:
        return pattern.search(text) is not None
    except UnicodeEncodeError:  # by RE2: JSON may hold half of a surrogate pair
        return pattern.search(text.encode("utf-8", "replace").decode()) is not None


def _is_equal(value: Any, wanted: Any) -> bool:
    """Whether two JSON values are equal: true is not 1."""
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


def _is_ordered(value: Any, wanted: Any) -> bool:
    """Whether one of two JSON values can be less: numbers, or texts."""
    if isinstance(value, str) and isinstance(wanted, str):
        return True
    numbers = (int, float)
    return not isinstance(value, bool) and isinstance(value, numbers) and isinstance(wanted, numbers)
