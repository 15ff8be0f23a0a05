"""The rules for objects. A content model is open if it accepts properties that it does not name, closed if none."""

from collections.abc import Mapping
from typing import Any

from kafkapy.registry.formats.json_comparison import Comparison, add_bound, add_covered, add_removed
from kafkapy.registry.formats.json_model import Node


def compare_objects(to: Comparison, original: Node, update: Node) -> None:
    _required(to.within("required"), original, update)
    _properties(to.within("properties"), original, update)
    _dependencies(to.within("dependencies"), original, update)
    keywords = ("additionalProperties", "additionalProperties")
    compare_additional(to.within("additionalProperties"), original, update, keywords, "ADDITIONAL_PROPERTIES")
    compare_unevaluated(to, original, update, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
    add_bound(to, original, update, "maxProperties", "MAX_PROPERTIES")
    add_bound(to, original, update, "minProperties", "MIN_PROPERTIES")


def _required(to: Comparison, original: Node, update: Node) -> None:
    after = update.all_below("properties")
    required_before, required_after = _required_of(original), _required_of(update)
    for name in original.all_below("properties"):
        if name not in after:
            continue
        was, now = name in required_before, name in required_after
        if was and not now:
            to.add("REQUIRED_ATTRIBUTE_REMOVED", name)
        elif now and not was:
            has_default = "default" in after[name].raw
            to.add("REQUIRED_ATTRIBUTE_" + ("WITH_DEFAULT_ADDED" if has_default else "ADDED"), name)


def _required_of(node: Node) -> frozenset[str]:
    found = node.raw.get("required")
    return frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()


def _properties(to: Comparison, original: Node, update: Node) -> None:
    before, after = original.all_below("properties"), update.all_below("properties")
    required = _required_of(update)
    for name in dict.fromkeys((*before, *after)):
        here = to.within(name)
        if name not in after:
            covering = _partly_open(to, update, name)
            add_removed(here, before[name], "PROPERTY", is_open=_is_open(update), covering=covering)
        elif name not in before:
            _added(here, after[name], name, original, is_required=name in required)
        else:
            here.compare(before[name], after[name])


def _added(to: Comparison, now: Node, name: str, original: Node, *, is_required: bool) -> None:
    has_default = "default" in now.raw
    kind = "OPTIONAL_PROPERTY"
    if is_required:
        kind = "REQUIRED_PROPERTY_WITH_DEFAULT" if has_default else "REQUIRED_PROPERTY"
    if _is_open(original):
        if now.kind == "empty":
            kind = "PROPERTY_WITH_EMPTY_SCHEMA"
        to.add(f"{kind}_ADDED_TO_OPEN_CONTENT_MODEL")
        return
    covering = _partly_open(to, original, name)
    if covering is not None:
        add_covered(to, covering, now, "PROPERTY_ADDED")
    to.add(f"{kind}_ADDED_TO_UNOPEN_CONTENT_MODEL")


def _is_open(node: Node) -> bool:
    """Whether any property is accepted."""
    additional = node.below("additionalProperties")
    if additional is not None and node.raw["additionalProperties"] is not True:
        return False
    if node.raw.get("patternProperties"):
        return False
    unevaluated = node.below("unevaluatedProperties")
    return unevaluated is None or unevaluated.kind == "empty"


def _partly_open(to: Comparison, node: Node, name: str) -> Node | None:
    """Return the schema of properties that are not named."""
    by_pattern = node.raw.get("patternProperties")
    if isinstance(by_pattern, Mapping):
        for pattern, raw in by_pattern.items():
            if to.is_found_in(pattern, name):
                return node.loader.load(raw, node.resolver)
    return other_schema(node, "additionalProperties", "unevaluatedProperties")


def other_schema(node: Node, additional: str, unevaluated: str) -> Node | None:
    """Return the schema of unnamed properties: that of the additional, else of the unevaluated ones."""
    given = node.raw.get(additional)
    if given is not None and given is not True:
        return None if given is False else node.below(additional)
    found = node.below(unevaluated)
    return None if found is None or found.kind in ("false", "empty") else found


def compare_additional(to: Comparison, original: Node, update: Node, keywords: tuple[str, str], kind: str) -> None:
    """Compare which other properties are accepted: true and absent accept all, false none.

    `keywords`: by which the original says so, and the update.
    """
    before, after = original.raw.get(keywords[0], True), update.raw.get(keywords[1], True)
    if (before is False) != (after is False):
        to.add(f"{kind}_ADDED" if before is False else f"{kind}_REMOVED")
    elif before is False:
        return
    elif before is True or after is True:
        if before is not after:
            to.add(f"{kind}_NARROWED" if before is True else f"{kind}_EXTENDED")
    else:
        to.compare(original.below(keywords[0]), update.below(keywords[1]))


def compare_unevaluated(to: Comparison, original: Node, update: Node, keyword: str, kind: str) -> None:
    before, after = original.below(keyword), update.below(keyword)
    here = to.within(keyword)
    if before is None and after is None:
        return
    if before is None:
        assert after is not None
        here.add(f"{kind}_REMOVED" if after.kind == "false" else f"{kind}_NARROWED")
    elif after is None:
        here.add(f"{kind}_ADDED" if before.kind == "false" else f"{kind}_EXTENDED")
    elif (before.kind == "false") != (after.kind == "false"):
        here.add(f"{kind}_ADDED" if before.kind == "false" else f"{kind}_REMOVED")
    elif (before.kind == "empty") != (after.kind == "empty"):
        here.add(f"{kind}_NARROWED" if before.kind == "empty" else f"{kind}_EXTENDED")
    else:
        here.compare(before, after)


def _dependencies(to: Comparison, original: Node, update: Node) -> None:
    before, after = _listed(original), _listed(update)
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            to.add("DEPENDENCY_ARRAY_REMOVED", name)
        elif name not in before:
            to.add("DEPENDENCY_ARRAY_ADDED", name)
        elif before[name] != after[name]:
            change = (
                "EXTENDED" if before[name] < after[name] else "NARROWED" if before[name] > after[name] else "CHANGED"
            )
            to.add(f"DEPENDENCY_ARRAY_{change}", name)
    old, new = _schemas(original), _schemas(update)
    for name in dict.fromkeys((*old, *new)):
        if name not in new:
            to.add("DEPENDENCY_SCHEMA_REMOVED", name)
        elif name not in old:
            to.add("DEPENDENCY_SCHEMA_ADDED", name)
        else:
            to.within(name).compare(old[name], new[name])


def _listed(node: Node) -> dict[str, frozenset[str]]:
    found = _dependent(node, "dependentRequired")
    return {
        name: frozenset(part for part in each if isinstance(part, str))
        for name, each in found.items()
        if isinstance(each, list)
    }


def _schemas(node: Node) -> dict[str, Node]:
    found = _dependent(node, "dependentSchemas")
    return {name: node.loader.load(each, node.resolver) for name, each in found.items() if not isinstance(each, list)}


def _dependent(node: Node, keyword: str) -> dict[str, Any]:
    """Return what `dependencies` and a keyword of later drafts have, which no earlier draft checks."""
    given = (node.raw.get("dependencies"), node.raw.get(keyword))
    return {name: each for members in given if isinstance(members, Mapping) for name, each in members.items()}
