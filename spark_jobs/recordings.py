"""Reads recordings of an exchange as events: Binance's CSV files and websocket dumps.

CSV (plain, .gz, or the one member of a .zip), with or without a header line:

    aggTrades  id, price, quantity, first trade id, last trade id, time, is buyer maker[, is best match]
    trades     id, price, quantity, quote quantity, time, is buyer maker[, is best match]
    depth      symbol, time, first update id, last update id, side (b, a), type (snap, set), price, quantity, previous

Times are ms, or us in files of 2025 and later. A dump has a JSON message in each line, bare or in a combined stream's
{"stream", "data"}: aggTrade, trade, depthUpdate, and order-book snapshots ({"lastUpdateId", "bids", "asks"}).
"""

import csv
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import chain, groupby
from pathlib import Path
from typing import Any, TextIO

from spark_jobs.errors import JobError
from spark_jobs.events import Depth, Event, Trade, depth_event, trade_event

FIRST_MICROSECONDS = 100_000_000_000_000
"""Larger times are microseconds: as milliseconds they would be after the year 5138."""


def read_csv(path: Path, symbol: str | None = None) -> Iterator[Event]:
    """Yield the events of a CSV file. Its first row determines the kind of its columns.

    The symbol of trades is the file name up to its first dash or dot, unless given. Raises JobError naming the line.
    """
    symbol = symbol or path.name.split("-")[0].split(".")[0]
    with open_text(path) as lines:
        rows = ((number, row) for number, row in enumerate(csv.reader(lines), 1) if row)
        first = next(rows, None)
        if first is not None and not any(cell.isdigit() for cell in first[1]):
            first = next(rows, None)
        if first is None:
            raise JobError(f"{path} has no rows")
        numbered = chain((first,), rows)
        if len(first[1]) == 9:
            yield from _depth_events(path, numbered)
            return
        parse = _agg_trade if _is_agg_trades(first[1]) else _trade
        for number, row in numbered:
            try:
                yield trade_event(parse(symbol, row))
            except (ValueError, ArithmeticError):
                raise _bad(path, number, row) from None


def read_dump(path: Path, symbol: str | None = None) -> Iterator[Event]:
    """Yield the events of a websocket dump; messages of other kinds are left out.

    symbol: that of bare snapshots, which do not name it. Raises JobError naming the line.
    """
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                event = _message(json.loads(line), symbol)
            except (ValueError, ArithmeticError, KeyError, TypeError, AttributeError, RecursionError):
                raise JobError(f"{path}:{number}: not a message of the exchange: {line.strip()[:100]!r}") from None
            if event is not None:
                yield event


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a text file, gzipped or zipped by its suffix. Raises JobError if it cannot be read."""
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                members = [name for name in archive.namelist() if not name.endswith("/")]
                if len(members) != 1:
                    raise JobError(f"{path} holds {len(members)} files, one is expected")
                with archive.open(members[0]) as member, io.TextIOWrapper(member, "utf-8", newline="") as text:
                    yield text
        elif path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8", newline="") as text:
                yield text
        else:
            with open(path, encoding="utf-8", newline="") as text:
                yield text
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError, UnicodeDecodeError, csv.Error) as error:
        # RuntimeError: an archive with a password, or of an unknown compression
        raise JobError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _is_agg_trades(row: list[str]) -> bool:
    return len(row) >= 7 and row[5].isdigit()


def _agg_trade(symbol: str, row: list[str]) -> Trade:
    trade_id, price, quantity, _, _, time, is_buyer_maker, *_ = row
    return _checked(symbol, trade_id, price, quantity, time, is_buyer_maker)


def _trade(symbol: str, row: list[str]) -> Trade:
    trade_id, price, quantity, _, time, is_buyer_maker, *_ = row
    return _checked(symbol, trade_id, price, quantity, time, is_buyer_maker)


def _checked(
    symbol: str, trade_id: str | int, price: str, quantity: str, time: str | int, is_buyer_maker: str
) -> Trade:
    for number in (price, quantity):
        if not Decimal(number).is_finite():
            raise ValueError(number)
    if is_buyer_maker.lower() not in ("true", "false"):
        raise ValueError(is_buyer_maker)
    return Trade(symbol, int(trade_id), price, quantity, _ms(time), is_buyer_maker.lower() == "true")


def _depth_events(path: Path, rows: Iterable[tuple[int, list[str]]]) -> Iterator[Event]:
    """Join the rows of an event, which differ only in side, price and quantity."""
    for _, group in groupby(rows, key=lambda numbered: (*numbered[1][:4], numbered[1][5:6], numbered[1][8:])):
        sides: dict[str, list[tuple[str, str]]] = {"b": [], "a": []}
        for number, row in group:
            try:
                symbol, time, first, last, side, kind, price, quantity, previous = row
                Decimal(price), Decimal(quantity)
                sides[side].append((price, quantity))
                name = {"snap": "snapshot", "set": "delta"}[kind]
                depth = Depth(symbol, name, _ms(time), int(first), int(last), int(previous), sides["b"], sides["a"])
            except (ValueError, ArithmeticError, KeyError):
                raise _bad(path, number, row) from None
        yield depth_event(depth)


def _message(message: Any, symbol: str | None) -> Event | None:
    if "stream" in message and "data" in message:
        symbol, message = message["stream"].split("@")[0].upper(), message["data"]
    kind = message.get("e")
    arrival_ms = _ms(message["E"]) if "E" in message else None
    if kind in ("trade", "aggTrade"):
        trade_id = message["t" if kind == "trade" else "a"]
        is_buyer_maker = {True: "true", False: "false"}[message["m"]]
        trade = _checked(message["s"], trade_id, message["p"], message["q"], message["T"], is_buyer_maker)
        return trade_event(trade, arrival_ms)
    if kind == "depthUpdate":
        first, last = int(message["U"]), int(message["u"])
        previous = int(message.get("pu", first - 1))
        levels = _levels(message["b"]), _levels(message["a"])
        return depth_event(Depth(message["s"], "delta", _ms(message["E"]), first, last, previous, *levels))
    if "lastUpdateId" in message:
        market = message.get("s") or symbol
        if market is None:
            raise JobError("a snapshot in the dump does not say its market: set symbol")
        last = int(message["lastUpdateId"])
        levels = _levels(message["bids"]), _levels(message["asks"])
        return depth_event(
            Depth(market, "snapshot", _ms(message.get("T", message.get("E", 0))), last, last, -1, *levels)
        )
    return None


def _levels(pairs: list[list[str]]) -> list[tuple[str, str]]:
    return [(str(price), str(quantity)) for price, quantity, *_ in pairs]


def _ms(time: str | int) -> int:
    value = int(time)
    return value // 1000 if value >= FIRST_MICROSECONDS else value


def _bad(path: Path, number: int, row: list[str]) -> JobError:
    return JobError(f"{path}:{number}: not a row of such a file: {','.join(row)[:100]!r}")
