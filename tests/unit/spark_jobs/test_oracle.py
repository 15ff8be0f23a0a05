"""The oracle itself, by hand."""

from decimal import Decimal

import pytest

from spark_jobs import oracle
from spark_jobs.events import Trade

GOOD = b'{"v":1,"symbol":"A","trade_id":1,"price":"1.10","quantity":"2","time_ms":1000,"is_buyer_maker":true}'


def test_a_bar_by_hand():
    trades = [
        Trade("A", 2, "2.00", "1", 1_500, True),
        Trade("A", 1, "1.00", "3", 1_500, False),
        Trade("A", 3, "4.00", "0.5", 2_000, False),
    ]
    first, second = oracle.bars(trades, {"1s": 1_000})
    assert (first.open, first.close, first.trades, str(first.turnover)) == (1, 2, 2, "5.00")
    assert (str(first.vwap), str(first.imbalance)) == ("1.25000000", "0.50000000")
    assert (second.start_ms, second.open_trade_id, second.sell_volume) == (2_000, 3, 0)


def test_the_price_is_rounded_half_up():
    (bar,) = oracle.bars(
        [Trade("A", 1, "0.00000001", "1", 0, True), Trade("A", 2, "0.00000002", "1", 0, True)], {"1s": 1000}
    )
    assert bar.vwap == Decimal("0.00000002")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "empty"),
        (None, "empty"),
        (GOOD[:-1], "not JSON"),
        (GOOD + b"}", "not JSON"),
        (GOOD + b" {}", "not JSON"),
        (b"[" + GOOD + b"]", "not JSON"),
        (b"\xef\xbb\xbf" + GOOD, "not JSON"),
        (GOOD.replace(b'"v":1,', b""), "v is missing"),
        (GOOD.replace(b'"v":1,', b'"v":2,'), "unknown version 2"),
        (GOOD.replace(b'"v":1,', b'"v":"%s",' % (b"2" * 1_000)), "unknown version " + "2" * 20),
        (GOOD.replace(b'"v":1,', b'"v":0.000010,'), "unknown version 1.0E-5"),
        (GOOD.replace(b'"v":1,', b'"v":-123456789.5,'), "unknown version -1.234567895E8"),
        (GOOD.replace(b'"1.10"', b"0.0001"), "price is not of its type"),
        (GOOD.replace(b'"1.10"', b"null"), "price is missing"),
        (GOOD.replace(b"1.10", b"1.123456789"), "price is not of its type"),
        (GOOD.replace(b'"2"', b'"0.0"'), "quantity is 0"),
        (GOOD.replace(b"1000", b"9999999999"), "time_ms is ahead of the record's timestamp"),
    ],
)
def test_why_a_record_is_no_trade(value, reason):
    assert oracle.parse(value, 1_000) == reason


def test_a_trade_is_late_against_the_batch_before_the_last():
    def at(*times_ms: int) -> list[Trade]:
        return [Trade("A", time_ms, "1", "1", time_ms, True) for time_ms in times_ms]

    counted, late, watermark_ms = oracle.in_time([at(100), at(5_000, 1), at(91), at(9_000)], 10)
    assert [trade.time_ms for trade in late] == []
    counted, late, watermark_ms = oracle.in_time([at(100), at(5_000), at(90, 91), at(4_990)], 10)
    assert [trade.time_ms for trade in late] == [90, 4_990]
    assert len(counted) == 3
    assert watermark_ms == 4_990
