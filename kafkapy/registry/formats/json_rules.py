"""Whether a JSON Schema accepts whatever another one accepted, by the rules that Confluent's registry publishes.

Each difference has a type, a path, and a sentence. Those of COMPATIBLE are harmless; LENIENT are harmless too under
`compatibilityPolicy: LENIENT`. Objects are in json_objects.py, arrays in json_arrays.py.
"""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Final

from kafkapy.registry.formats.json_arrays import compare_arrays
from kafkapy.registry.formats.json_comparison import Comparison, Found, Memo, add_bound, number_of
from kafkapy.registry.formats.json_differences import Difference, harmless_kinds
from kafkapy.registry.formats.json_model import Node, identity_of
from kafkapy.registry.formats.json_objects import compare_objects
from kafkapy.registry.formats.matching import largest_matching
from kafkapy.registry.formats.parsed import Budget

_BYTES: Final = "bytes"


def differences(original: Node, update: Node, *, lenient: bool = False) -> list[Difference]:
    """Return how two schemas differ, harmless differences too.

    Recursive schemas are compared under the assumption that what is being compared is compatible. It is taken back,
    and everything compared again, until no pair that was assumed to be compatible turns out not to be.
    """
    harmless = harmless_kinds(lenient=lenient)
    refuted: dict[tuple[int, int], Found] = {}
    budget = Budget()
    while True:
        memo = Memo(harmless, refuted, _compare, budget)
        comparison = Comparison(memo)
        comparison.compare(original, update)
        found = memo.refuted()
        if not memo.has_assumed or found.keys() == refuted.keys():
            return comparison.found
        refuted = found


def _compare(to: Comparison, original: Node, update: Node) -> None:
    if _is_one_of_update(to, original, update) or _is_one_of_original(to, original, update):
        return
    if original.kind != update.kind:
        if original.kind == "false" or update.kind == "empty":
            return
        if original.raw.get("connect.type") == _BYTES and update.raw.get("connect.type") == _BYTES:
            return  # the encoding of Connect's decimals changed
        to.add("TYPE_CHANGED")
        return
    for keyword, kind in (("$id", "ID"), ("title", "TITLE"), ("description", "DESCRIPTION"), ("default", "DEFAULT")):
        if original.raw.get(keyword) != update.raw.get(keyword):
            to.add(f"{kind}_CHANGED")
    comparer = _COMPARERS.get(original.kind)
    if comparer is not None:
        comparer(to, original, update)


def _is_one_of_update(to: Comparison, original: Node, update: Node) -> bool:
    """Whether a schema became one of several that are combined, and is compatible with it."""
    if original.kind == "combined" or update.kind != "combined":
        return False
    is_single = len(update.parts) == 1
    if not is_single and update.criterion == "allOf":
        return False
    pairs = [(original, part) for part in update.parts]
    return _has_compatible(to, pairs, "" if is_single else "SUM_TYPE_EXTENDED")


def _is_one_of_original(to: Comparison, original: Node, update: Node) -> bool:
    """Whether a schema was a part of a combined one: of allOf, or its only part."""
    if original.kind != "combined" or update.kind == "combined":
        return False
    is_single = len(original.parts) == 1
    if not is_single and original.criterion != "allOf":
        return False
    pairs = [(part, update) for part in original.parts]
    return _has_compatible(to, pairs, "" if is_single else "PRODUCT_TYPE_NARROWED")


def _has_compatible(to: Comparison, pairs: list[tuple[Node, Node]], change: str) -> bool:
    """Whether one of the pairs is compatible: the differences of the first that is are added, and the change."""
    for original, update in pairs:
        below = to.apart()
        below.compare(original, update)
        if below.is_compatible:
            to.found.add_all(below.found)
            if change:
                to.add(change)
            return True
    return False


def _strings(to: Comparison, original: Node, update: Node) -> None:
    add_bound(to, original, update, "maxLength", "MAX_LENGTH")
    add_bound(to, original, update, "minLength", "MIN_LENGTH")
    before, after = original.raw.get("pattern"), update.raw.get("pattern")
    if before != after:
        to.add("PATTERN_" + ("ADDED" if before is None else "REMOVED" if after is None else "CHANGED"), "pattern")


def _numbers(to: Comparison, original: Node, update: Node) -> None:
    for keyword, kind in (
        ("maximum", "MAXIMUM"),
        ("minimum", "MINIMUM"),
        ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM"),
        ("exclusiveMinimum", "EXCLUSIVE_MINIMUM"),
    ):
        add_bound(to, original, update, keyword, kind)
    before, after = number_of(original.raw.get("multipleOf")), number_of(update.raw.get("multipleOf"))
    if before != after:
        to.add(f"MULTIPLE_OF_{_change_of_multiple(before, after)}", "multipleOf")
    if original.requires_integer != update.requires_integer:
        to.add("TYPE_EXTENDED" if original.requires_integer else "TYPE_NARROWED")


def _change_of_multiple(before: Decimal | None, after: Decimal | None) -> str:
    if before is None or after is None:
        return "ADDED" if before is None else "REMOVED"
    if _is_multiple(after, before):
        return "EXPANDED"
    return "REDUCED" if _is_multiple(before, after) else "CHANGED"


def _is_multiple(number: Decimal, other: Decimal) -> bool:
    return bool(other) and Fraction(number) % Fraction(other) == 0  # a Decimal's remainder has 28 digits at most


def _enums(to: Comparison, original: Node, update: Node) -> None:
    to.spend(len(original.raw["enum"]) + len(update.raw["enum"]))
    before, after = ({identity_of(each) for each in node.raw["enum"]} for node in (original, update))
    if before != after:
        change = "EXTENDED" if before < after else "NARROWED" if before > after else "CHANGED"
        to.add(f"ENUM_ARRAY_{change}", "enum")


def _constants(to: Comparison, original: Node, update: Node) -> None:
    if identity_of(original.raw["const"]) != identity_of(update.raw["const"]):
        to.add("ENUM_ARRAY_CHANGED", "const")


def _negations(to: Comparison, original: Node, update: Node) -> None:
    below = to.apart()
    below.compare(update.below("not"), original.below("not"))
    to.add("NOT_TYPE_NARROWED" if below.is_compatible else "NOT_TYPE_EXTENDED", "not")


def _combinations(to: Comparison, original: Node, update: Node) -> None:
    change = _change_of_criterion(original, update)
    if change:
        to.add(change)
    if change == "COMBINED_TYPE_CHANGED":
        return
    before, after = _distinct(original.parts), _distinct(update.parts)
    if len(before) < len(after):
        to.add("PRODUCT_TYPE_EXTENDED" if update.criterion == "allOf" else "SUM_TYPE_EXTENDED")
    elif len(before) > len(after):
        to.add("PRODUCT_TYPE_NARROWED" if original.criterion == "allOf" else "SUM_TYPE_NARROWED")
    edges: dict[tuple[int, int], Found] = {}
    for index, one in enumerate(before):
        for number, other in enumerate(after):
            below = to.within(f"{original.criterion}/{index}").apart()
            below.compare(one, other)
            if below.is_compatible:
                edges[(index, number)] = below.found
    matching = largest_matching(len(before), edges)
    for pair in matching:
        to.found.add_all(edges[pair])
    if len(matching) < min(len(before), len(after)):
        to.add("COMBINED_TYPE_SUBSCHEMAS_CHANGED")


def _change_of_criterion(original: Node, update: Node) -> str:
    if original.criterion == update.criterion:
        return ""
    was_single, is_single = len(original.parts) == 1, len(update.parts) == 1
    if (
        update.criterion == "anyOf"
        or (was_single and is_single)
        or (was_single and update.criterion == "oneOf")
        or (is_single and original.criterion == "allOf")
    ):
        return "COMBINED_TYPE_EXTENDED"
    return "COMBINED_TYPE_CHANGED"


def _distinct(parts: list[Node]) -> list[Node]:
    found: dict[tuple[str, bytes], Node] = {}
    for each in parts:
        found.setdefault((each.kind, each.digest), each)
    return list(found.values())


_COMPARERS: Final[dict[str, Callable[[Comparison, Node, Node], None]]] = {
    "string": _strings,
    "number": _numbers,
    "enum": _enums,
    "const": _constants,
    "not": _negations,
    "combined": _combinations,
    "object": compare_objects,
    "array": compare_arrays,
}
