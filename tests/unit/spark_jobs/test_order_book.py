"""The order book against an exchange that remembers every state, and against the real files of depth data."""

from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

import pytest

from spark_jobs.depth import Delta, Snapshot, decimal_of
from spark_jobs.order_book import BookRow, OrderBook, Status
from tests.support.exchange import Exchange, deliver
from tests.support.market import recorded_depth

DATA = Path(__file__).parents[4] / "shared" / "data"
NO_CHANGE: tuple[list, list] = ([], [])
START = Snapshot("X", None, 100, [(1000, 5), (900, 5)], [(1100, 5), (1200, 5)])


def spot(first: int, last: int, bids=(), asks=()) -> Delta:
    return Delta("X", last, first, last, None, list(bids), list(asks))


def future(first: int, last: int, previous: int) -> Delta:
    return Delta("X", last, first, last, previous, *NO_CHANGE)


def statuses(messages) -> list[str]:
    book = OrderBook()
    return [row.status.value for message in messages for row in book.step(message)]


# -- generated events -----------------------------------------------------------------------------------------------


def run(messages, *, store_every: int = 0) -> tuple[OrderBook, list[BookRow]]:
    """Feed a book; store_every sends it through its stored form every so many messages, as Spark's batches do."""
    book, rows = OrderBook(), []
    for number, message in enumerate(messages, 1):
        rows += book.step(message)
        if store_every and number % store_every == 0:
            book = OrderBook.from_json(book.to_json())
    return book, rows


def assert_true(rows: list[BookRow], exchange: Exchange) -> None:
    for row in rows:
        if row.quote is not None and row.status is not Status.STALE:
            assert asdict(row.quote) == exchange.quotes_at(row.update_id), row


@pytest.mark.parametrize("is_future", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_shows_what_the_exchange_had_at_every_update_and_loses_none_unnoticed(seed: int, is_future: bool) -> None:
    exchange = Exchange("BTCUSDT", seed, is_future)
    delivered = deliver(exchange, 1_500)
    _, rows = run(delivered.messages)
    assert_true(rows, exchange)
    found = {status: sum(row.status is status for row in rows) for status in Status}
    assert delivered.lost > 3
    assert found[Status.GAP] > 0
    assert found[Status.RECOVERED] > 0
    assert found[Status.APPLIED] > 800
    assert found[Status.CROSSED] == found[Status.MALFORMED] == 0


@pytest.mark.parametrize("is_future", [False, True])
def test_without_loss_there_is_no_gap_and_the_last_book_is_the_exchanges(is_future: bool) -> None:
    exchange = Exchange("ETHUSDT", 1, is_future)
    book, rows = run(deliver(exchange, 1_500, loss=0).messages)
    assert not [row for row in rows if row.status is Status.GAP]
    for side, truth in ((book.bids, exchange.bids), (book.asks, exchange.asks)):
        assert {decimal_of(price): decimal_of(quantity) for price, quantity in side.quantities.items()} == truth
        assert side.prices == sorted(side.quantities)


def test_answers_alike_when_its_state_was_stored_in_between() -> None:
    messages = deliver(Exchange("BTCUSDT", 3), 1_000).messages
    (stored, rows), (plain, expected) = run(messages, store_every=7), run(messages)
    assert rows == expected
    assert stored.to_json() == plain.to_json()


# -- the rules ------------------------------------------------------------------------------------------------------


def test_deltas_wait_for_the_snapshot_and_those_behind_it_are_recovered() -> None:
    messages = [spot(90, 95), spot(96, 103), spot(104, 104), START, spot(105, 106)]
    assert statuses(messages) == ["waiting"] * 3 + ["snapshot", "recovered", "recovered", "applied"]


def test_gap_voids_the_book_until_the_next_snapshot() -> None:
    later = Snapshot("X", None, 108, START.bids, START.asks)
    assert statuses([START, spot(101, 102), spot(104, 107), spot(108, 109), later, spot(110, 110)]) == [
        *["snapshot", "applied", "gap", "waiting"],
        *["snapshot", "recovered", "applied"],
    ]


def test_snapshot_too_old_for_the_waiting_deltas_shows_the_gap_again() -> None:
    messages = [spot(110, 112), spot(113, 114), START, Snapshot("X", None, 111, START.bids, START.asks)]
    assert statuses(messages) == ["waiting", "waiting", "snapshot", "gap", "snapshot", "recovered", "recovered"]


def test_repeats_and_old_snapshots_are_stale() -> None:
    assert statuses([START, spot(101, 102), spot(101, 102), START]) == ["snapshot", "applied", "stale", "stale"]


def test_futures_first_delta_covers_the_snapshot_and_later_ones_follow_by_pu() -> None:
    messages = [START, future(99, 100, 98), future(140, 150, 100), future(160, 170, 151)]
    assert statuses(messages) == ["snapshot", "applied", "applied", "gap"]


def test_crossed_book_is_void() -> None:
    assert statuses([START, spot(101, 101, bids=[(1100, 1)]), spot(102, 102)]) == ["snapshot", "crossed", "waiting"]


def test_quantity_zero_removes_a_level() -> None:
    book = OrderBook()
    book.step(START)
    (row,) = book.step(spot(101, 101, bids=[(1000, 0), (800, 0)], asks=[(1050, 7)]))
    assert row.quote is not None
    assert (row.quote.bid, row.quote.ask) == (Decimal("0.00000900"), Decimal("0.00001050"))


def test_empty_side_has_no_quote() -> None:
    (row,) = OrderBook().step(Snapshot("X", 1, 5, [], [(10, 1)]))
    assert (row.status, row.quote) == (Status.SNAPSHOT, None)


# -- real data ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not DATA.is_dir(), reason="shared/data is not beside the project")
def test_finds_the_gap_between_the_real_files() -> None:
    """100 bids of a snapshot; ten minutes later one event that follows an update which is not there."""
    (snapshot,) = recorded_depth(DATA / "btcusdt-depth-snap.csv")
    (delta,) = recorded_depth(DATA / "btcusdt-depth-update.csv")
    assert isinstance(snapshot, Snapshot)
    assert isinstance(delta, Delta)
    assert (len(snapshot.bids), len(delta.bids), len(delta.asks)) == (100, 23, 77)
    book = OrderBook()
    (first,) = book.step(snapshot)
    (second,) = book.step(delta)
    assert first.status is Status.SNAPSHOT
    assert decimal_of(book.kept[0].asks[0][0]) == Decimal("20472.8")
    assert (second.status, second.reason) == (
        Status.GAP,
        "follows 2098041693400, the book is at 2098021528332",
    )
