"""Every event and row of the pipeline, versioned, in one place.

On topics an event is a JSON object whose first key `v` is the version of its schema. Prices and quantities are strings,
because a double would lose digits. A change that an old reader would misread gets a new version: jobs refuse unknown
versions.

Decimals: price and quantity are DECIMAL(18,8); their product is DECIMAL(37,16), the sums DECIMAL(28,8) and
DECIMAL(38,16): all exact. Quotients are rounded half up to 8 places.
"""

from dataclasses import dataclass, replace

SHOWN_VERSION = 20
"""Characters of an unknown version that a reason quotes: it is a header, a label of metrics, and a part of messages."""
PRICE = "DECIMAL(18,8)"
VOLUME = "DECIMAL(28,8)"
TURNOVER = "DECIMAL(38,16)"

JSON_TYPES = {"STRING": "string", "LONG": "integer", "INT": "integer", "BOOLEAN": "boolean"}


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    doc: str
    is_optional: bool = False
    """Left out of an event's JSON if it is null."""


@dataclass(frozen=True, slots=True)
class Schema:
    name: str
    version: int
    doc: str
    columns: tuple[Column, ...]

    def ddl(self) -> str:
        """Return the columns with Spark's types, as DDL."""
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)

    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def versioned_name(self) -> str:
        return f"{self.name}.v{self.version}"

    def json_schema(self) -> dict[str, object]:
        """Return the schema of an event on a topic in JSON Schema's form."""
        properties: dict[str, object] = {"v": {"const": self.version}}
        properties |= {column.name: {**_json_type(column.type), "description": column.doc} for column in self.columns}
        return {
            "$id": self.versioned_name(),
            "description": self.doc,
            "type": "object",
            "properties": properties,
            "required": ["v", *(column.name for column in self.columns if not column.is_optional)],
        }


def as_strings(*schemas: Schema) -> str:
    """Return the DDL that reads all scalar columns as text, which is checked before it is cast."""
    types = {
        column.name: column.type if column.type.startswith("ARRAY") else "STRING"
        for schema in schemas
        for column in schema.columns
    }
    return ", ".join(f"{name} {kind}" for name, kind in {"v": "STRING", **types}.items())


def _json_type(sql_type: str) -> dict[str, object]:
    if sql_type.startswith("ARRAY"):
        return {"type": "array", "items": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}}
    if sql_type.startswith("DECIMAL"):
        scale = sql_type.rstrip(")").split(",")[1]
        return {"type": "string", "pattern": rf"^-?[0-9]+(\.[0-9]{{1,{scale}}})?$"}
    return {"type": JSON_TYPES[sql_type]}


LEVELS = "ARRAY<ARRAY<STRING>>"

TRADE = Schema(
    "trade",
    1,
    "A trade, or an aggregate of trades of one order at one price; keyed by symbol",
    (
        Column("symbol", "STRING", "the market"),
        Column("trade_id", "LONG", "unique and rising within a symbol"),
        Column("price", PRICE, "above 0, at most 10 digits before the point and 8 after it"),
        Column("quantity", PRICE, "above 0, in the base asset, digits as for price"),
        Column("time_ms", "LONG", "event time at the exchange, ms since 1970 UTC"),
        Column("is_buyer_maker", "BOOLEAN", "true when the seller was the aggressor"),
    ),
)

DEPTH = Schema(
    "depth",
    1,
    "A snapshot of an order book, or an update to it; keyed by symbol",
    (
        Column("symbol", "STRING", "the market"),
        Column("type", "STRING", "snapshot: the levels are the book; delta: each level replaces its price's quantity"),
        Column("time_ms", "LONG", "event time at the exchange, ms since 1970 UTC"),
        Column("first_update_id", "LONG", "first sequence number that the event covers"),
        Column("last_update_id", "LONG", "last sequence number that the event covers"),
        Column("prev_update_id", "LONG", "last_update_id of the event before; -1 in a snapshot"),
        Column("bids", LEVELS, "[price, quantity] pairs; quantity 0 removes the level"),
        Column("asks", LEVELS, "[price, quantity] pairs; quantity 0 removes the level"),
    ),
)

SILVER_TRADE = Schema(
    "silver_trade",
    1,
    "A trade that was checked, typed and seen once; keyed by symbol|trade_id",
    TRADE.columns,
)

BAR = Schema(
    "bar",
    1,
    "OHLCV of a symbol over a width of event time; keyed by symbol|width|start_ms",
    (
        Column("symbol", "STRING", "the market"),
        Column("width", "STRING", "1s, 1m or 1h"),
        Column("start_ms", "LONG", "inclusive, ms since 1970 UTC"),
        Column("end_ms", "LONG", "exclusive"),
        Column("open", PRICE, "price of the first trade by (time, trade id)"),
        Column("high", PRICE, "highest price"),
        Column("low", PRICE, "lowest price"),
        Column("close", PRICE, "price of the last trade by (time, trade id)"),
        Column("volume", VOLUME, "sum of quantity, exact"),
        Column("turnover", TURNOVER, "sum of price x quantity, exact"),
        Column("vwap", PRICE, "turnover / volume, half up"),
        Column("trades", "LONG", "number of trades"),
        Column("buy_volume", VOLUME, "quantity of trades whose buyer was the aggressor"),
        Column("sell_volume", VOLUME, "quantity of trades whose seller was the aggressor"),
        Column("imbalance", PRICE, "(buy_volume - sell_volume) / volume, half up: -1 to 1"),
        Column("open_trade_id", "LONG", "trade that opened the bar"),
        Column("close_trade_id", "LONG", "trade that closed the bar"),
    ),
)

BOOK = Schema(
    "book",
    1,
    "What a record of the depth topic did to its symbol's order book; keyed by symbol",
    (
        Column("symbol", "STRING", "the market: the record's key"),
        Column("partition", "INT", "where the record lies"),
        Column("offset", "LONG", "where the record lies"),
        Column("time_ms", "LONG", "event time, or the record's timestamp if the event has none"),
        Column("update_id", "LONG", "last update id of the record; -1 when malformed"),
        Column("status", "STRING", "snapshot, applied, recovered, stale, waiting, gap, crossed or malformed"),
        Column("reason", "STRING", "why, if it is not snapshot, applied or recovered", is_optional=True),
        Column(
            "bid",
            PRICE,
            "best bid; this and the next columns are null if the book is void or a side is empty",
            is_optional=True,
        ),
        Column("bid_quantity", PRICE, "quantity at the best bid", is_optional=True),
        Column("ask", PRICE, "best ask", is_optional=True),
        Column("ask_quantity", PRICE, "quantity at the best ask", is_optional=True),
        Column("mid", "DECIMAL(20,9)", "(bid + ask) / 2, exact", is_optional=True),
        Column("spread", PRICE, "ask - bid", is_optional=True),
        Column(
            "microprice", PRICE, "each best price weighed with the other side's quantity, half up", is_optional=True
        ),
        Column(
            "imbalance", PRICE, "(bid_depth - ask_depth) / (bid_depth + ask_depth), half up: -1 to 1", is_optional=True
        ),
        Column("bid_depth", VOLUME, "quantity of the ten best bids, exact", is_optional=True),
        Column("ask_depth", VOLUME, "quantity of the ten best asks, exact", is_optional=True),
    ),
)

TICK = Schema(
    "tick",
    1,
    "A trade or an order-book update, checked and typed, as soon as it came; keyed by symbol",
    (
        Column("symbol", "STRING", "the market"),
        Column("kind", "STRING", "trade, or quote: an order-book update"),
        Column("time_ms", "LONG", "event time at the exchange, ms since 1970 UTC"),
        Column("id", "LONG", "the trade's id, or the last update id of a quote"),
        Column("price", PRICE, "of a trade", is_optional=True),
        Column("quantity", PRICE, "of a trade", is_optional=True),
        Column("side", "STRING", "of a trade: buy or sell, who was the aggressor", is_optional=True),
        Column("size_class", "STRING", "of a trade: small, medium or large, by price x quantity", is_optional=True),
        Column("bid", PRICE, "of a quote: the highest bid that the update names", is_optional=True),
        Column("bid_quantity", PRICE, "quantity at that bid", is_optional=True),
        Column("ask", PRICE, "of a quote: the lowest ask that the update names", is_optional=True),
        Column("ask_quantity", PRICE, "quantity at that ask", is_optional=True),
        Column("spread", "DECIMAL(19,8)", "ask - bid, if the update has both", is_optional=True),
        Column(
            "is_book", "BOOLEAN", "of a quote: bid and ask are those of the whole book (a snapshot)", is_optional=True
        ),
    ),
)

BOOK_SECOND = Schema(
    "book_second",
    1,
    "A symbol's order book at the start of a second, if there was one; keyed by symbol",
    (
        Column("symbol", "STRING", "the market"),
        Column("time_ms", "LONG", "the second's start, ms since 1970 UTC"),
        Column("update_id", "LONG", "last update id that the book holds"),
        *(replace(column, is_optional=False) for column in BOOK.columns[-10:]),
        Column("bids", LEVELS, "[price, quantity] of the best ten, the best first"),
        Column("asks", LEVELS, "[price, quantity] of the best ten, the best first"),
    ),
)

FILL = Schema(
    "fill",
    1,
    "A trade beside the order book as its second began, and what it cost; keyed by symbol|trade_id",
    (
        *(column for column in TRADE.columns if column.name != "is_buyer_maker"),
        Column("side", "STRING", "buy or sell: who was the aggressor"),
        Column(
            "bid", PRICE, "best bid as the second began; this and what follows is null without a book", is_optional=True
        ),
        Column("ask", PRICE, "best ask as the second began", is_optional=True),
        Column("spread", PRICE, "ask - bid", is_optional=True),
        Column(
            "effective_spread",
            "DECIMAL(20,8)",
            "twice the way from mid to price, in the aggressor's direction, exact; negative: better than mid",
            is_optional=True,
        ),
        Column(
            "slippage",
            "DECIMAL(19,8)",
            "price - ask of a buy, bid - price of a sell: what the trade paid beyond the best quote, exact",
            is_optional=True,
        ),
    ),
)

SCHEMAS = (TRADE, DEPTH, SILVER_TRADE, BAR, BOOK, TICK, BOOK_SECOND, FILL)

WIDTHS_MS = {"1s": 1_000, "1m": 60_000, "1h": 3_600_000}
