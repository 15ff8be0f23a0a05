"""ACLs in words: a sentence for each rule."""

from collections.abc import Mapping
from typing import Final

from kafkapy.console.access import Acl

WORDS: Final[Mapping[tuple[str, str], str]] = {
    ("topic", "read"): "read records of",
    ("topic", "write"): "write records to",
    ("topic", "create"): "create",
    ("topic", "delete"): "delete, and delete records of,",
    ("topic", "alter"): "add partitions to, and move,",
    ("topic", "describe"): "see that there is, with its offsets,",
    ("topic", "describe configs"): "see the configs of",
    ("topic", "alter configs"): "change the configs of",
    ("group", "read"): "join, and commit offsets of,",
    ("group", "describe"): "see the members and offsets of",
    ("group", "delete"): "delete",
    ("group", "describe configs"): "see the configs of",
    ("group", "alter configs"): "change the configs of",
    ("transactional id", "write"): "run transactions by",
    ("transactional id", "describe"): "see the state of",
    ("transactional id", "two phase commit"): "prepare transactions (two-phase commit) by",
    ("cluster", "create"): "create topics anywhere in",
    ("cluster", "alter"): "change users, ACLs, quotas and leaders of",
    ("cluster", "describe"): "list brokers, groups and transactions of",
    ("cluster", "cluster action"): "act as a broker of",
    ("cluster", "alter configs"): "change the configs of brokers of",
    ("cluster", "describe configs"): "see the configs of brokers of",
    ("cluster", "idempotent write"): "produce idempotently to",
    ("delegation token", "describe"): "see",
    ("user", "create tokens"): "create delegation tokens for",
    ("user", "describe tokens"): "see the delegation tokens of",
}
ALL: Final = "do everything with"


def in_words(rule: Acl) -> str:
    """Return what a rule permits or denies: `User:shop may write records to topic orders`."""
    may = "may not" if rule.permission == "deny" else "may"
    what = ALL if rule.operation == "all" else WORDS.get((rule.resource_type, rule.operation), f"{rule.operation} on")
    who = "everybody" if rule.principal in ("User:*", "*") else rule.principal
    where = "" if rule.host == "*" else f" from {rule.host}"
    return f"{who} {may} {what} {_resource(rule)}{where}"


def _resource(rule: Acl) -> str:
    if rule.resource_type == "cluster":
        return "the cluster"
    if rule.resource == "*" and rule.pattern == "literal":
        return f"every {rule.resource_type}"
    if rule.pattern == "prefixed":
        return f"every {rule.resource_type} whose name begins with {rule.resource}"
    return f"{rule.resource_type} {rule.resource}"
