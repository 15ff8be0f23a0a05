"""What audit-book says of a state whose topic lost, doubled, moved or changed a message; without Spark."""

from collections.abc import Callable
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

from spark_jobs.audit_book import judge
from spark_jobs.depth import Delta, DepthMessage, Snapshot
from spark_jobs.order_book import OrderBook
from tests.support.exchange import Exchange, deliver

Messages = list[DepthMessage]


def messages(*, is_future: bool) -> Messages:
    """Return a stream that ends with ten deltas of a whole book."""
    exchange = Exchange("BTCUSDT", 5, is_future)
    return [
        *deliver(exchange, 60, loss=0, repeats=0).messages,
        exchange.snapshot(),
        *(exchange.trade() for _ in range(10)),
    ]


def book_of(found: Messages) -> OrderBook:
    book = OrderBook()
    for message in found:
        book.step(message)
    return OrderBook.from_json(book.to_json())


def judged(found: Messages, planted: Messages) -> str:
    return judge(book_of(found), book_of(planted), is_forgotten=False)


def with_digit(message: DepthMessage) -> DepthMessage:
    (price, quantity), *others = message.bids or [(1, 0)]
    return replace(message, bids=[(price, quantity + 1), *others])


FAULTS: list[tuple[str, Callable[[Messages], Messages]]] = [
    ("a delta lost", lambda found: [*found[:-3], *found[-2:]]),
    ("the last delta lost", lambda found: found[:-1]),
    ("deltas moved", lambda found: [*found[:-3], found[-2], found[-3], found[-1]]),
    ("a quantity changed", lambda found: [*found[:-1], with_digit(found[-1])]),
    ("a level too many", lambda found: [*found[:-1], replace(found[-1], bids=[*found[-1].bids, (7, 7)])]),
]


@pytest.mark.parametrize("is_future", [False, True])
@pytest.mark.parametrize("plant", [plant for _, plant in FAULTS], ids=[name for name, _ in FAULTS])
def test_a_planted_fault_of_the_topic_makes_another_book(plant, is_future: bool) -> None:
    found = messages(is_future=is_future)
    assert judged(found, found) == "current"
    assert judged(found, plant(found)) == "differing"
    assert judged(plant(found), found) == "differing"


@pytest.mark.parametrize("is_future", [False, True])
def test_a_delta_that_comes_twice_changes_nothing(is_future: bool) -> None:
    found = messages(is_future=is_future)
    assert judged(found, [*found, found[-1]]) == "current"


def test_deltas_that_wait_for_a_snapshot_are_compared_one_by_one() -> None:
    waiting: Messages = [message for message in messages(is_future=False) if isinstance(message, Delta)]
    assert judged(waiting, waiting) == "void"
    assert judged(waiting, waiting[1:]) == "differing"
    assert judged(waiting, [*waiting, waiting[-1]]) == "differing"
    assert judged(waiting, [waiting[1], waiting[0], *waiting[2:]]) == "differing"


def test_whether_a_snapshot_was_the_last_is_compared() -> None:
    """Futures' rule for the next delta is another one then."""
    snapshot = Snapshot("S", None, 10, [(1, 1)], [(2, 1)])
    delta = Delta("S", 5, 9, 10, 8, [], [])
    assert judged([snapshot, delta], [snapshot]) == "differing"


def test_a_symbol_without_a_state_or_without_records_is_told() -> None:
    found = messages(is_future=False)
    book = book_of(found)
    assert judge(None, book, is_forgotten=False) == "missing"
    assert judge(None, OrderBook(), is_forgotten=False) == "void"
    assert judge(book, None, is_forgotten=False) == "unexpected"


def test_a_forgotten_book_is_gone_or_still_the_right_one() -> None:
    found = messages(is_future=False)
    book = book_of(found)
    assert judge(None, book, is_forgotten=True) == "forgotten"
    assert judge(OrderBook(), book, is_forgotten=True) == "forgotten"
    assert judge(book, book, is_forgotten=True) == "current"
    assert judge(book_of(found[:-1]), book, is_forgotten=True) == "differing"
