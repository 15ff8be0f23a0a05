"""The order in which Apache Kafka's group coordinator iterates over its groups, and over a group's members.

Both are in a TimelineHashMap keyed by id, with a power of two of slots. A key's slot is made of the highest bits of its
hash times an odd constant; of the keys of a slot the newest comes first. To put a key, new or there already, first
doubles a table of n slots if one key more would be above n / 0.75.

    in_timeline_order(["a", "b", "c"])    c, b, a

Deviation: Apache Kafka lists groups and members in this order, however many there are. Here more than ORDERED_AT_MOST
are in the order of insertion, because sorting them would hold the event loop for milliseconds.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final, TypeVar

from kafkapy.group.hash_order import hash_of_text

ORDERED_AT_MOST: Final = 100
"""To hash so many keys takes 0.2 ms."""
FEWEST_SLOTS: Final = 2
MULTIPLIER: Final = 0x9E3779B97F4A7C15
"""2 ** 64 divided by the golden ratio."""
SIGN: Final = 1 << 31
ValueT = TypeVar("ValueT")


def in_timeline_order(keys: Collection[str], *, is_put_again: bool = False) -> list[str]:
    """Return the keys, given in the order in which they were put into the map, in the order of its iteration.

    `is_put_again`: keys were put once more after the last new one, as members are at each of their heartbeats' records.
    """
    if len(keys) > ORDERED_AT_MOST:
        return list(keys)
    slots = FEWEST_SLOTS
    while (len(keys) + is_put_again) * 3 > slots * 4:
        slots *= 2
    shift = 65 - slots.bit_length()

    def slot(key: str) -> int:
        hashed = hash_of_text(key)
        signed = (hashed ^ SIGN) - SIGN
        return (signed * MULTIPLIER & 0xFFFFFFFFFFFFFFFF) >> shift

    newest_first = list(keys)[::-1]
    return sorted(newest_first, key=slot)


def members_in_order(members: Mapping[str, ValueT], start: int, count: int | None) -> Iterable[ValueT]:
    """Return `count` of a group's members, all if it is None, from number `start` on."""
    ordered = map(members.__getitem__, in_timeline_order(members, is_put_again=True))
    return islice(ordered, start, None if count is None else start + count)
