"""Order-book messages: Binance's JSON in and out, and what is refused."""

import json
import re

import pytest

from spark_jobs.depth import BadDepth, Delta, Snapshot, parse, units

SPOT = (  # as in Binance's documentation of the diff depth stream
    b'{"e":"depthUpdate","E":1672515782136,"s":"BNBBTC","U":157,"u":160,"b":[["0.0024","10"]],"a":[["0.0026","100"]]}'
)
FEED = (
    b'{"v":1,"symbol":"A","type":"%s","time_ms":5,"first_update_id":7,"last_update_id":9,"prev_update_id":%d,'
    b'"bids":[["1","2"]],"asks":[]}'
)
SNAPSHOT = b'{"lastUpdateId":1027024,"bids":[["4.00000000","431.00000000"]],"asks":[["4.00000200","12.00000000"]]}'


def test_reads_what_binance_sends() -> None:
    assert parse(SPOT, "BNBBTC") == Delta(
        "BNBBTC", 1672515782136, 157, 160, None, [(240_000, 1_000_000_000)], [(260_000, 10_000_000_000)]
    )
    assert parse(SNAPSHOT, "BNBBTC") == Snapshot(
        "BNBBTC", None, 1027024, [(400_000_000, 43_100_000_000)], [(400_000_200, 1_200_000_000)]
    )


def test_reads_what_the_feed_writes() -> None:
    bids = [(100_000_000, 200_000_000)]
    assert parse(FEED % (b"snapshot", -1), "A") == Snapshot("A", 5, 9, bids, [])
    assert parse(FEED % (b"delta", -1), "A") == Delta("A", 5, 7, 9, None, bids, [])
    assert parse(FEED % (b"delta", 6), "A") == Delta("A", 5, 7, 9, 6, bids, [])


@pytest.mark.parametrize("message", [parse(SPOT, "BNBBTC"), parse(SNAPSHOT, "BNBBTC"), Delta("A", 1, 2, 3, 1, [], [])])
def test_writes_what_it_reads(message: Delta | Snapshot) -> None:
    assert parse(message.to_json(), message.symbol) == message


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(SPOT), **fields}).encode()


@pytest.mark.parametrize(
    ("value", "key", "reason"),
    [
        (SPOT, None, "no key"),
        (None, "BNBBTC", "not JSON"),
        (b"\xff\xfe", "BNBBTC", "not JSON"),
        (b"[" * 100_000, "BNBBTC", "not JSON"),
        (b"[]", "BNBBTC", "not a JSON object"),
        (SPOT, "BTCUSDT", "symbol 'BNBBTC' under the key 'BTCUSDT'"),
        (FEED.replace(b":1,", b":2,", 1) % (b"delta", 6), "A", "schema version 2, this job knows 1"),
        (FEED % (b"delta", 6), "B", "symbol 'A' under the key 'B'"),
        (FEED % (b"trade", 6), "A", "type is 'trade'"),
        (FEED.replace(b'"%s"', b"[%s]") % (b"", 6), "A", "type is []"),
        (FEED.replace(b":1,", b":true,", 1) % (b"delta", 6), "A", "schema version True, this job knows 1"),
        (changed(U=None), "BNBBTC", "U is None"),
        (changed(u=True), "BNBBTC", "u is True"),
        (changed(U=161), "BNBBTC", "U 161 is above u 160"),
        (changed(pu="1"), "BNBBTC", "pu is '1'"),
        (changed(E=1 << 63), "BNBBTC", "E is 9223372036854775808"),
        (changed(E=10**18), "BNBBTC", "E is 1000000000000000000, too late for a time in ms"),
        (changed(b={}), "BNBBTC", "b is not a list"),
        (changed(a=[["1"]]), "BNBBTC", "a is not a list of"),
        (changed(a=[7]), "BNBBTC", "a is not a list of"),
        (changed(a=["12"]), "BNBBTC", "a is not a list of"),
        (changed(a=[{"1": 0, "2": 0}]), "BNBBTC", "a is not a list of"),
        (changed(a=[[1.5, "2"]]), "BNBBTC", "1.5 is not a number in a string"),
        (changed(a=[["-1", "2"]]), "BNBBTC", "'-1' is not a number, or is below zero"),
        (changed(a=[["NaN", "2"]]), "BNBBTC", "'NaN' is not a number"),
        (changed(a=[["1.123456789", "2"]]), "BNBBTC", "does not fit"),
        (changed(a=[["10000000000", "2"]]), "BNBBTC", "does not fit"),
    ],
)
def test_refuses_with_the_reason(value: bytes, key: str | None, reason: str) -> None:
    with pytest.raises(BadDepth, match=re.escape(reason)):
        parse(value, key)


@pytest.mark.parametrize("name", ["s", "U", "u", "E", "pu", "b", "a"])
def test_a_reason_is_short_whatever_the_record_holds(name: str) -> None:
    for long in ("x" * 10_000, [["x" * 10_000, "1"]], [[{"a": "x" * 10_000}, "1"]]):
        with pytest.raises(BadDepth) as error:
            parse(changed(**{name: long}), "BNBBTC")
        assert len(str(error.value)) < 120


@pytest.mark.parametrize("depth", [900, 5_000, 30_000, 60_000, 90_000])
@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_field_of_any_depth_is_refused(depth: int, brackets: tuple[bytes, bytes]) -> None:
    deep = brackets[0] * depth + b"1" + brackets[1] * depth
    for field in (b'"v":%s', b'"U":%s', b'"U":1,"u":1,"E":1,"b":[[%s,"1"]]'):
        with pytest.raises(BadDepth):
            parse(b"{" + field % deep + b"}", "A")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1.5", 150_000_000),
        ("0.00000001", 1),
        ("9999999999.99999999", 10**18 - 1),
        ("1.5000000000", 150_000_000),
    ],
)
def test_units_are_exact(text: str, expected: int) -> None:
    assert units(text) == expected
