"""A comparison of two JSON Schemas: the differences at a path, and the pairs that are known already."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from kafkapy.registry.formats.json_differences import Difference
from kafkapy.registry.formats.json_model import Node
from kafkapy.registry.formats.parsed import MAX_REASONS, Budget

STEPS_PER_PAIR: Final = 2
STEPS_PER_DIFFERENCE: Final = 2
NAMES_PER_STEP: Final = 8
"""Names in the path of a difference, which is kept with it."""
VALUES_PER_STEP: Final = 8
"""Values of an enum, each of which is written as a text and looked up."""
STEPS_PER_PATTERN: Final = 500
"""The steps for compiling a pattern, which takes up to 10 ms."""
CHARACTERS_PER_STEP: Final = 16
"""Characters of a name that is searched by a pattern."""
PATTERN_BYTES: Final = 4 << 20
"""The memory of a compiled pattern, half of RE2's default. A larger one matches nothing."""
MAX_COMPILED: Final = 128
"""Patterns that a comparison keeps compiled."""


class Memo:
    """The pairs that were compared, with paths that begin at the pair."""

    def __init__(
        self,
        harmless: frozenset[str],
        refuted: "dict[tuple[int, int], Found]",
        compare: "Callable[[Comparison, Node, Node], None]",
        budget: Budget,
    ) -> None:
        self.harmless = harmless
        self.budget = budget
        self.patterns = Patterns(budget)
        self._compare = compare
        self.has_assumed = False
        self._refuted = refuted
        self._known: dict[tuple[int, int], Found] = {}
        self._open: set[tuple[int, int]] = set()

    def between(self, original: Node, update: Node) -> "Found":
        key = (id(original), id(update))
        self.budget.spend()
        if key in self._known:
            return self._known[key]
        if key in self._open:
            if key in self._refuted:
                return self._refuted[key]
            self.has_assumed = True
            return Found(self.harmless, self.budget)
        self.budget.spend(STEPS_PER_PAIR)
        self._open.add(key)
        below = Comparison(self)
        self._compare(below, original, update)
        self._open.discard(key)
        self._known[key] = below.found
        return below.found

    def refuted(self) -> "dict[tuple[int, int], Found]":
        return {key: each for key, each in self._known.items() if not each.is_compatible}


class Found(list[Difference]):
    """Differences: MAX_REASONS of them, and beyond that the first one that is not harmless."""

    def __init__(self, harmless: frozenset[str], budget: Budget) -> None:
        super().__init__()
        self._harmless = harmless
        self._budget = budget
        self.is_compatible = True
        """Whether all are harmless."""

    def add(self, difference: Difference) -> None:
        is_harmless = difference.kind in self._harmless
        if len(self) < MAX_REASONS or (self.is_compatible and not is_harmless):
            self._budget.spend(STEPS_PER_DIFFERENCE + len(difference.path) // NAMES_PER_STEP)
            self.append(difference)
            self.is_compatible = self.is_compatible and is_harmless
        else:
            self._budget.spend()

    def add_all(self, others: "Found", path: tuple[str, ...] = ()) -> None:
        """Add differences that were found below a path."""
        for each in others:
            if len(self) >= MAX_REASONS and (others.is_compatible or not self.is_compatible):
                return
            self.add(Difference(each.kind, (*path, *each.path)) if path else each)


class Patterns:
    """Matches names by RE2, because Python's own expressions may take for ever, with all threads."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._compiled: dict[str, Any] = {}

    def is_found_in(self, pattern: str, name: str) -> bool:
        self._budget.spend(1 + len(name) // CHARACTERS_PER_STEP)
        if pattern not in self._compiled:
            self._budget.spend(STEPS_PER_PATTERN)
            if len(self._compiled) >= MAX_COMPILED:
                self._compiled.clear()
            self._compiled[pattern] = _compiled(pattern)
        compiled = self._compiled[pattern]
        return compiled is not None and compiled.search(name) is not None


def _compiled(pattern: str) -> Any:
    """Return the compiled pattern; None for one of ECMA-262 that RE2 does not have."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


class Comparison:
    """The differences at a path. `within` returns the comparison of a nested path."""

    def __init__(self, memo: Memo, path: tuple[str, ...] = (), found: Found | None = None) -> None:
        self._memo = memo
        self._path = path
        self.found = Found(memo.harmless, memo.budget) if found is None else found

    def within(self, *names: str) -> "Comparison":
        """Return a comparison of a nested path, which adds to the same differences."""
        return Comparison(self._memo, (*self._path, *names), self.found)

    def apart(self) -> "Comparison":
        """Return a comparison at the same path whose differences do not count yet."""
        return Comparison(self._memo, self._path)

    def add(self, kind: str, *below: str) -> None:
        self.found.add(Difference(kind, (*self._path, *below)))

    @property
    def is_compatible(self) -> bool:
        return self.found.is_compatible

    def spend(self, value_count: int) -> None:
        """Spend the steps for values that are compared. Raises TooManyTypesError."""
        self._memo.budget.spend(value_count // VALUES_PER_STEP)

    def is_found_in(self, pattern: str, name: str) -> bool:
        """Return whether a pattern is found in a name."""
        return self._memo.patterns.is_found_in(pattern, name)

    def compare(self, original: Node | None, update: Node | None) -> None:
        if original is None or update is None:
            if original is not None or update is not None:
                self.add("SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED")
            return
        self.found.add_all(self._memo.between(original, update), self._path)


def add_removed(to: Comparison, was: Node, kind: str, *, is_open: bool, covering: Node | None) -> None:
    """Add that the schema of a property or item was removed. `covering`: the schema of unnamed ones now."""
    if is_open:
        to.add(f"{kind}_REMOVED_FROM_OPEN_CONTENT_MODEL")
    elif covering is not None:
        add_covered(to, was, covering, f"{kind}_REMOVED")
    elif was.kind == "false":
        to.add(f"{kind}_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")
    else:
        to.add(f"{kind}_REMOVED_FROM_CLOSED_CONTENT_MODEL")


def add_covered(to: Comparison, original: Node, update: Node, kind: str) -> None:
    """Compare a schema with that of unnamed properties or items, and add whether one covers the other."""
    below = to.apart()
    below.compare(original, update)
    to.found.add_all(below.found)
    covered = "IS_COVERED" if below.is_compatible else "NOT_COVERED"
    to.add(f"{kind}_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL")


def add_bound(to: Comparison, original: Node, update: Node, keyword: str, kind: str) -> None:
    """Add how a bound changed: added, removed, increased or decreased."""
    before, after = number_of(original.raw.get(keyword)), number_of(update.raw.get(keyword))
    if before == after:
        return
    if before is None or after is None:
        change = "ADDED" if before is None else "REMOVED"
    else:
        change = "INCREASED" if before < after else "DECREASED"
    to.add(f"{kind}_{change}", keyword)


def number_of(value: Any) -> Decimal | None:
    return Decimal(str(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None
