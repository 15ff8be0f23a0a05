"""The list of groups with members, topics and lag, sorted and paged.

Members, topics and lag are asked for the rows that are shown, and of all groups only to sort by them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafkapy.cli.group_list import facts_of
from kafkapy.console import other_groups
from kafkapy.console.brokers import Brokers, ClusterError
from kafkapy.console.client import Clients, failures
from kafkapy.console.groups import SHARE, STREAMS, GroupRow
from kafkapy.console.tables import Order, Paged, ordered, shown_of
from kafkapy.dataclass import dataclass

KEYS: Final = ("name", "type", "protocol", "state", "members", "topics", "lag")
MAX_SORTED: Final = 500
"""By members, topics and lag at most so many groups are sorted: each is asked for at its coordinator."""
MAX_OTHERS: Final = 50
"""Share groups and streams groups that are asked for, one by one."""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group of the list; `members` and `lag` are None if its coordinator does not say."""

    name: str
    type: str
    state: str
    protocol: str
    members: int | None
    topics: tuple[str, ...]
    lag: int | None


def group_page(
    brokers: Brokers, clients: Clients, found: Sequence[GroupRow], *, search: str, order: Order, number: int
) -> Paged:
    """Return a page of the groups whose name contains `search`. Raises ClusterError."""
    matching = [each for each in found if search.lower() in each.name.lower()]
    note = ""
    if order.key in _MEASURED and len(matching) > MAX_SORTED:
        note = f"More than {MAX_SORTED} groups match: they are sorted by name. Search for fewer to sort by {order.key}."
        order = Order("name", order.is_descending)
    if order.key in _MEASURED:
        lines = ordered(_lines(brokers, clients, matching), _MEASURED[order.key], is_descending=order.is_descending)
        shown, number, page_count = shown_of(lines, number)
        return Paged(tuple(shown), number, page_count, len(matching), len(found), order, note)
    rows = ordered(matching, lambda each: (getattr(each, order.key), each.name), is_descending=order.is_descending)
    some, number, page_count = shown_of(rows, number)
    return Paged(tuple(_lines(brokers, clients, some)), number, page_count, len(matching), len(found), order, note)


_MEASURED: Final[Mapping[str, Callable[[GroupLine], Any]]] = {
    "members": lambda each: each.members,
    "topics": lambda each: len(each.topics),
    "lag": lambda each: each.lag,
}
"""Columns that ListGroups does not have."""


def _lines(brokers: Brokers, clients: Clients, rows: Sequence[GroupRow]) -> list[GroupLine]:
    consuming = [each.name for each in rows if each.type not in (SHARE, STREAMS)]
    with failures():
        facts = facts_of(clients, consuming)
    others = iter(range(MAX_OTHERS))
    return [
        GroupLine(each.name, each.type, each.state, each.protocol, fact.members, tuple(fact.topics), fact.lag)
        if (fact := facts.get(each.name)) is not None
        else _line_of_other(brokers, clients, each, is_asked=next(others, None) is not None)
        for each in rows
    ]


def _line_of_other(brokers: Brokers, clients: Clients, row: GroupRow, *, is_asked: bool) -> GroupLine:
    try:
        group = other_groups.group(brokers, clients, row.name) if is_asked else None
    except ClusterError:
        group = None
    if group is None:
        return GroupLine(row.name, row.type, row.state, row.protocol, None, (), None)
    topics = tuple(sorted({each.topic for each in group.offsets}))
    return GroupLine(row.name, row.type, row.state, row.protocol, len(group.members), topics, group.lag)
