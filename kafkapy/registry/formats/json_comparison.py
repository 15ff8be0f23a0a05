"""A comparison of two JSON Schemas: the differences at a path, and the pairs that are known already."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from kafkapy.registry.formats.json_differences import Difference
from kafkapy.registry.formats.json_model import Node


class Memo:
    """The pairs that were compared, with paths that begin at the pair."""

    def __init__(
        self,
        harmless: frozenset[str],
        refuted: dict[tuple[int, int], list[Difference]],
        compare: "Callable[[Comparison, Node, Node], None]",
    ) -> None:
        self.harmless = harmless
        self._compare = compare
        self.has_assumed = False
        self._refuted = refuted
        self._known: dict[tuple[int, int], list[Difference]] = {}
        self._open: set[tuple[int, int]] = set()

    def between(self, original: Node, update: Node) -> list[Difference]:
        key = (id(original), id(update))
        if key in self._known:
            return self._known[key]
        if key in self._open:
            if key in self._refuted:
                return self._refuted[key]
            self.has_assumed = True
            return []
        self._open.add(key)
        below = Comparison(self)
        self._compare(below, original, update)
        self._open.discard(key)
        self._known[key] = below.found
        return below.found

    def refuted(self) -> dict[tuple[int, int], list[Difference]]:
        return {key: each for key, each in self._known.items() if any(one.kind not in self.harmless for one in each)}


class Comparison:
    """Differences that are found, at a path. `within` makes one for what lies below."""

    def __init__(self, memo: Memo, path: tuple[str, ...] = (), found: list[Difference] | None = None) -> None:
        self._memo = memo
        self._path = path
        self.found: list[Difference] = [] if found is None else found

    def within(self, *names: str) -> "Comparison":
        """Return a comparison that adds to the same differences, further down."""
        return Comparison(self._memo, (*self._path, *names), self.found)

    def apart(self) -> "Comparison":
        """Return a comparison at the same path whose differences do not count yet."""
        return Comparison(self._memo, self._path)

    def add(self, kind: str, *below: str) -> None:
        self.found.append(Difference(kind, (*self._path, *below)))

    @property
    def is_compatible(self) -> bool:
        return all(each.kind in self._memo.harmless for each in self.found)

    def compare(self, original: Node | None, update: Node | None) -> None:
        if original is None or update is None:
            if original is not None or update is not None:
                self.add("SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED")
            return
        found = self._memo.between(original, update)
        self.found += [Difference(each.kind, (*self._path, *each.path)) for each in found]


def add_removed(to: Comparison, was: Node, kind: str, *, is_open: bool, covering: Node | None) -> None:
    """Add that a schema of one property or item was removed. `covering`: the schema that what is not named has now."""
    if is_open:
        to.add(f"{kind}_REMOVED_FROM_OPEN_CONTENT_MODEL")
    elif covering is not None:
        add_covered(to, was, covering, f"{kind}_REMOVED")
    elif was.kind == "false":
        to.add(f"{kind}_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")
    else:
        to.add(f"{kind}_REMOVED_FROM_CLOSED_CONTENT_MODEL")


def add_covered(to: Comparison, original: Node, update: Node, kind: str) -> None:
    """Compare a schema with the one of what is not named, and add whether one covers the other."""
    below = to.apart()
    below.compare(original, update)
    to.found += below.found
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
