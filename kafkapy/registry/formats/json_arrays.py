"""The rules for arrays: one schema for all items, or one for each of the first items and one for the others."""

from kafkapy.registry.formats.json_comparison import Comparison, add_bound, add_covered, add_removed
from kafkapy.registry.formats.json_model import Node
from kafkapy.registry.formats.json_objects import compare_additional, compare_unevaluated, other_schema


def compare_arrays(to: Comparison, original: Node, update: Node) -> None:
    to.within("items").compare(_of_all(original), _of_all(update))
    _firsts(to, original, update)
    keywords = (_rest_keyword(original), _rest_keyword(update))
    compare_additional(to.within("additionalItems"), original, update, keywords, "ADDITIONAL_ITEMS")
    compare_unevaluated(to, original, update, "unevaluatedItems", "UNEVALUATED_ITEMS")
    add_bound(to, original, update, "maxItems", "MAX_ITEMS")
    add_bound(to, original, update, "minItems", "MIN_ITEMS")
    if bool(original.raw.get("uniqueItems")) != bool(update.raw.get("uniqueItems")):
        to.add("UNIQUE_ITEMS_REMOVED" if original.raw.get("uniqueItems") else "UNIQUE_ITEMS_ADDED", "uniqueItems")
    add_bound(to, original, update, "maxContains", "MAX_CONTAINS")
    add_bound(to, original, update, "minContains", "MIN_CONTAINS")


def _of_all(node: Node) -> Node | None:
    """Return the schema of all items."""
    items = node.raw.get("items")
    if items is None or isinstance(items, list) or "prefixItems" in node.raw:
        return None
    return node.below("items")


def _first_schemas(node: Node) -> list[Node]:
    """Return the schemas of the first items, by their place."""
    return node.each_below("prefixItems") if "prefixItems" in node.raw else node.each_below("items")


def _rest_keyword(node: Node) -> str:
    """Return the keyword with the schema of the items after the first ones."""
    return "items" if "prefixItems" in node.raw else "additionalItems"


def _firsts(to: Comparison, original: Node, update: Node) -> None:
    before, after = _first_schemas(original), _first_schemas(update)
    for index in range(max(len(before), len(after))):
        here = to.within(f"items/{index}")
        if index >= len(after):
            add_removed(here, before[index], "ITEM", is_open=_is_open(update), covering=_other(update))
        elif index >= len(before):
            _added(here, after[index], original)
        else:
            here.compare(before[index], after[index])


def _added(to: Comparison, now: Node, original: Node) -> None:
    if _is_open(original):
        kind = "ITEM_WITH_EMPTY_SCHEMA" if now.kind == "empty" else "ITEM"
        to.add(f"{kind}_ADDED_TO_OPEN_CONTENT_MODEL")
        return
    covering = _other(original)
    if covering is None:
        to.add("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")
    else:
        add_covered(to, covering, now, "ITEM_ADDED")


def _is_open(node: Node) -> bool:
    if node.raw.get(_rest_keyword(node), True) is not True:
        return False
    unevaluated = node.below("unevaluatedItems")
    return unevaluated is None or unevaluated.kind == "empty"


def _other(node: Node) -> Node | None:
    return other_schema(node, _rest_keyword(node), "unevaluatedItems")
