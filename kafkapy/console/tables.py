"""The order and the pages of a list, as the URL has them: ?sort=size&desc=1&page=2."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from kafkapy.console.fields import choice, number
from kafkapy.dataclass import dataclass

T = TypeVar("T")

PAGE_SIZE: Final = 50


@dataclass(frozen=True, slots=True)
class Order:
    """The column by which a list is sorted, and whether the largest comes first."""

    key: str
    is_descending: bool


BY_NAME: Final = Order("name", False)


@dataclass(frozen=True, slots=True)
class Paged:
    """A page of a list; `number` counts from 1. `note`: why it is not sorted as requested, "" if it is."""

    rows: tuple[Any, ...]
    number: int
    page_count: int
    match_count: int
    total_count: int
    order: Order
    note: str = ""


def order_of(fields: Mapping[str, str], keys: Sequence[str]) -> Order:
    """Return the order that the URL names, by the first key without one. Raises BadRequest."""
    return Order(choice(fields, "sort", keys, keys[0]), fields.get("desc") == "1")


def page_number(fields: Mapping[str, str]) -> int:
    """Return the number of the requested page, 1 without one. Raises BadRequest."""
    return number(fields, "page", 1, 1, 10**6)


def ordered(rows: Sequence[T], key: Callable[[T], Any], *, is_descending: bool) -> list[T]:
    """Sort the rows; those with an unknown key (None) come last in either order."""
    known = [each for each in rows if key(each) is not None]
    return sorted(known, key=key, reverse=is_descending) + [each for each in rows if key(each) is None]


def shown_of(rows: Sequence[T], page: int) -> tuple[Sequence[T], int, int]:
    """Return the rows of a page, its number (the last one if there are fewer), and how many there are."""
    page_count = max(1, -(-len(rows) // PAGE_SIZE))
    page = min(max(1, page), page_count)
    return rows[(page - 1) * PAGE_SIZE : page * PAGE_SIZE], page, page_count
