"""Order-book messages as the book reads them from a topic.

A message is a JSON object keyed by its symbol: the feed's (schemas.DEPTH), or Binance's. A delta of Binance is an event
of the diff depth stream: e, E (ms), s, U and u (the first and the last update id that it covers), b and a (lists of
[price, quantity], the new total at that price; 0 removes it); futures add pu, the u of the event before. A snapshot is
a response of /depth: lastUpdateId, bids, asks; futures add E.

Prices and quantities are integers of 10^-8 here: exact, and cheap to add, compare and keep as state. A number that does
not fit DECIMAL(18,8) is refused, never rounded.
"""

import json
import reprlib
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from spark_jobs.schemas import DEPTH

PLACES = 8
UNITS = 10**PLACES
LARGEST = 10**18 - 1
"""DECIMAL(18,8) in units."""
LATEST_MS = ((1 << 63) - 1) // 1_000
"""Spark keeps a time as microseconds in 64 bits."""

VERSION = DEPTH.version
UNKNOWN_VERSION = "schema version"
NAMES = {
    "snapshot": {"time_ms": "E", "last_update_id": "lastUpdateId", "bids": "bids", "asks": "asks"},
    "delta": {
        "time_ms": "E",
        "first_update_id": "U",
        "last_update_id": "u",
        "prev_update_id": "pu",
        "bids": "b",
        "asks": "a",
    },
}
"""The feed's names, and Binance's."""

Level = tuple[int, int]
"""(price, quantity) in units of 10^-8."""


class BadDepth(Exception):
    """A message that cannot be used; the text says why."""


@dataclass(slots=True)
class Delta:
    """The changes of update ids first_update_id to last_update_id; previous_update_id is futures' pu, else None."""

    symbol: str
    time_ms: int
    first_update_id: int
    last_update_id: int
    previous_update_id: int | None
    bids: list[Level]
    asks: list[Level]

    def to_json(self) -> bytes:
        fields: dict[str, object] = {"e": "depthUpdate", "E": self.time_ms, "s": self.symbol}
        fields |= {"U": self.first_update_id, "u": self.last_update_id}
        if self.previous_update_id is not None:
            fields["pu"] = self.previous_update_id
        fields |= {"b": texts(self.bids), "a": texts(self.asks)}
        return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(slots=True)
class Snapshot:
    """The whole book, or its best levels, as of last_update_id; time_ms is None if the exchange sent none."""

    symbol: str
    time_ms: int | None
    last_update_id: int
    bids: list[Level]
    asks: list[Level]

    def to_json(self) -> bytes:
        fields: dict[str, object] = {"lastUpdateId": self.last_update_id}
        if self.time_ms is not None:
            fields["E"] = self.time_ms
        fields |= {"bids": texts(self.bids), "asks": texts(self.asks)}
        return json.dumps(fields, separators=(",", ":")).encode()


DepthMessage = Delta | Snapshot


def parse(value: bytes | None, symbol: str | None) -> DepthMessage:
    """Read one record of the topic; `symbol` is its key. Raises BadDepth."""
    if not symbol:
        raise BadDepth("no key: the symbol is unknown")
    try:
        fields = json.loads(value or b"")
    except (ValueError, RecursionError):
        raise BadDepth("not JSON") from None
    if not isinstance(fields, dict):
        raise BadDepth("not a JSON object")
    if fields.get("s", symbol) != symbol:
        raise BadDepth(f"symbol {_shown(fields['s'])} under the key {_shown(symbol)}")
    if "v" in fields:
        fields = _as_binance(fields, symbol)
    return _snapshot(fields, symbol) if "lastUpdateId" in fields else _delta(fields, symbol)


def _as_binance(fields: dict[str, Any], symbol: str) -> dict[str, Any]:
    """Translate an event of schemas.DEPTH, whose prev_update_id is -1 for none."""
    if type(fields["v"]) is not int or fields["v"] != VERSION:
        raise BadDepth(f"{UNKNOWN_VERSION} {_shown(fields['v'])}, this job knows {VERSION}")
    if fields.get("symbol") != symbol:
        raise BadDepth(f"symbol {_shown(fields.get('symbol'))} under the key {_shown(symbol)}")
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in NAMES:
        raise BadDepth(f"type is {_shown(kind)}, not snapshot or delta")
    return {theirs: fields[ours] for ours, theirs in NAMES[kind].items() if fields.get(ours, -1) != -1}


def _snapshot(fields: dict[str, Any], symbol: str) -> Snapshot:
    time_ms = _time_ms(fields) if "E" in fields else None
    return Snapshot(symbol, time_ms, _whole(fields, "lastUpdateId"), _levels(fields, "bids"), _levels(fields, "asks"))


def _delta(fields: dict[str, Any], symbol: str) -> Delta:
    first, last = _whole(fields, "U"), _whole(fields, "u")
    if first > last:
        raise BadDepth(f"U {first} is above u {last}")
    previous = _whole(fields, "pu") if "pu" in fields else None
    return Delta(symbol, _time_ms(fields), first, last, previous, _levels(fields, "b"), _levels(fields, "a"))


def _whole(fields: dict[str, Any], name: str) -> int:
    number = fields.get(name)
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise BadDepth(f"{name} is {_shown(number)}, not a whole number")
    return number


def _time_ms(fields: dict[str, Any]) -> int:
    time_ms = _whole(fields, "E")
    if time_ms > LATEST_MS:
        raise BadDepth(f"E is {_shown(time_ms)}, too late for a time in ms")
    return time_ms


def _shown(field: object) -> str:
    """Return the beginning of a field, however large or deep it is."""
    return reprlib.repr(field)[:40]


def _levels(fields: dict[str, Any], name: str) -> list[Level]:
    levels = fields.get(name)
    if not isinstance(levels, list):
        raise BadDepth(f"{name} is not a list")
    if not all(isinstance(level, list) for level in levels):  # the two characters of a text would be taken for numbers
        raise BadDepth(f"{name} is not a list of [price, quantity]")
    try:
        return [(units(price), units(quantity)) for price, quantity, *_ in levels]
    except (TypeError, ValueError):
        raise BadDepth(f"{name} is not a list of [price, quantity]") from None


def units(text: str) -> int:
    """Return a decimal number as whole units of 10^-8. Raises BadDepth if that would lose a digit or overflow."""
    if not isinstance(text, str):
        raise BadDepth(f"{_shown(text)} is not a number in a string")
    whole, _, fraction = text.partition(".")
    if not (whole.isdecimal() and whole.isascii()) or (fraction and not (fraction.isdecimal() and fraction.isascii())):
        raise BadDepth(f"{text[:40]!r} is not a number, or is below zero")
    fraction = fraction.rstrip("0")
    if len(fraction) > PLACES or len(whole) > 30:
        raise BadDepth(f"{text[:40]!r} does not fit DECIMAL(18,8)")
    number: int = int(whole) * UNITS + int(fraction.ljust(PLACES, "0"))
    if number > LARGEST:
        raise BadDepth(f"{text[:40]!r} does not fit DECIMAL(18,8)")
    return number


def decimal_of(number: int) -> Decimal:
    return Decimal(number).scaleb(-PLACES)


def texts(levels: list[Level]) -> list[list[str]]:
    return [[f"{decimal_of(price):f}", f"{decimal_of(quantity):f}"] for price, quantity in levels]
