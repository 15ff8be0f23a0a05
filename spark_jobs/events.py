"""The feed's trades and order-book updates, and their bytes on a topic (schemas.TRADE, schemas.DEPTH)."""

import json
from dataclasses import dataclass

from spark_jobs.schemas import DEPTH, TRADE

SENT_NS = "sent_ns"
"""The header with the time at which a record was given to its producer, by this machine's clock."""
Level = tuple[str, str]
"""(price, quantity), with all digits of the source."""


@dataclass(slots=True)
class Trade:
    symbol: str
    trade_id: int
    price: str
    quantity: str
    time_ms: int
    is_buyer_maker: bool

    def to_json(self) -> bytes:
        return _json(TRADE.version, {name: getattr(self, name) for name in TRADE.names()})


@dataclass(slots=True)
class Depth:
    """type is "snapshot" or "delta"."""

    symbol: str
    type: str
    time_ms: int
    first_update_id: int
    last_update_id: int
    prev_update_id: int
    bids: list[Level]
    asks: list[Level]

    def to_json(self) -> bytes:
        return _json(DEPTH.version, {name: getattr(self, name) for name in DEPTH.names()})


@dataclass(slots=True)
class Event:
    """The content of a record: `kind` ("trade" or "depth") selects the topic; arrival_ms is the time of its arrival."""

    kind: str
    key: str
    value: bytes
    arrival_ms: int


def trade_event(trade: Trade, arrival_ms: int | None = None) -> Event:
    return Event("trade", trade.symbol, trade.to_json(), trade.time_ms if arrival_ms is None else arrival_ms)


def depth_event(depth: Depth, arrival_ms: int | None = None) -> Event:
    return Event("depth", depth.symbol, depth.to_json(), depth.time_ms if arrival_ms is None else arrival_ms)


def _json(version: int, fields: dict[str, object]) -> bytes:
    return json.dumps({"v": version, **fields}, separators=(",", ":")).encode()
