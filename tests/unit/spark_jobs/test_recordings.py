"""Recorded files as events: what Binance's files and streams look like, and what is wrong with a line."""

import gzip
import json
import zipfile
from pathlib import Path

import pytest

from spark_jobs.errors import JobError
from spark_jobs.recordings import read_csv, read_dump

AGG_TRADES = """13519807,0.00141342,23.00000000,15373518,15373518,1570752011620,true,true
13519808,0.00141266,54.00000000,15373519,15373519,1570752011620,false,true
"""
FIRST = {
    "v": 1,
    "symbol": "XRPETH",
    "trade_id": 13519807,
    "price": "0.00141342",
    "quantity": "23.00000000",
    "time_ms": 1570752011620,
    "is_buyer_maker": True,
}


def values(events) -> list[dict[str, object]]:
    return [json.loads(event.value) for event in events]


def write(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("inner.csv", text)
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".zip"])
@pytest.mark.parametrize("header", ["", "agg_trade_id,price,quantity,first_trade_id,last_trade_id,transact_time,m,b\n"])
def test_agg_trades_keep_their_digits(tmp_path, suffix, header):
    events = list(read_csv(write(tmp_path / f"XRPETH-aggTrades{suffix}", header + AGG_TRADES)))
    assert values(events)[0] == FIRST
    assert [(event.kind, event.key, event.arrival_ms) for event in events] == [("trade", "XRPETH", 1570752011620)] * 2


@pytest.mark.parametrize(
    ("row", "time_ms"),
    [
        ("5,10.5,2,21.0,1700000000123,true,true", 1700000000123),
        ("5,10.5,2,21.0,1735689600123456,True,True", 1735689600123),
        ("5,10.5,2,21.0,1700000000123,false", 1700000000123),
    ],
)
def test_trades_are_distinguished_from_agg_trades(tmp_path, row, time_ms):
    (value,) = values(read_csv(write(tmp_path / "BTCUSDT-trades-2025.csv", row + "\n")))
    assert (value["symbol"], value["trade_id"], value["price"], value["time_ms"]) == ("BTCUSDT", 5, "10.5", time_ms)


def test_rows_of_a_depth_file_join_into_events(tmp_path):
    text = """symbol,timestamp,first_update_id,last_update_id,side,update_type,price,qty,pu
BTCUSDT,1000,7,7,b,snap,20377.00,1.770,-1
BTCUSDT,1000,7,7,a,snap,20378.00,0.5,-1
BTCUSDT,1200,8,10,a,set,20378.00,0,7
"""
    snapshot, delta = values(read_csv(write(tmp_path / "btcusdt-depth.csv", text)))
    assert snapshot["type"] == "snapshot"
    assert (snapshot["bids"], snapshot["asks"]) == ([["20377.00", "1.770"]], [["20378.00", "0.5"]])
    assert (delta["type"], delta["first_update_id"], delta["last_update_id"]) == ("delta", 8, 10)
    assert (delta["prev_update_id"], delta["bids"], delta["asks"]) == (7, [], [["20378.00", "0"]])


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("A.csv", AGG_TRADES + "13519809,x,1,1,1,1570752011620,true,true\n", "A.csv:3: not a row of such a file"),
        ("A.csv", AGG_TRADES + "1,2\n", "A.csv:3: not a row"),
        ("A.csv", AGG_TRADES + "13519809,1,1,1,1,1570752011620,maybe,true\n", "A.csv:3: not a row"),
        ("A.csv", "", "has no rows"),
        ("A.csv", "id,price\n", "has no rows"),
        ("D.csv", "BTCUSDT,1000,7,7,x,snap,1,1,-1\n", "D.csv:1: not a row"),
    ],
)
def test_a_bad_row_is_named(tmp_path, name, text, told):
    with pytest.raises(JobError, match=told):
        list(read_csv(write(tmp_path / name, text)))


@pytest.mark.parametrize("name", ["A.csv.gz", "A.zip", "missing.csv", "cut.csv.gz"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    path = tmp_path / name
    if name.startswith("cut"):
        path.write_bytes(gzip.compress(AGG_TRADES.encode() * 1000)[:60])
    elif name != "missing.csv":
        path.write_bytes(b"this is no archive")
    with pytest.raises(JobError, match=name):
        list(read_csv(path))


def test_a_file_that_is_damaged_within_is_named(tmp_path):
    packed = bytearray(gzip.compress(b"".join(b"%d,1,2,3,4,5,true\n" % n for n in range(9_000))))
    packed[len(packed) // 2 : len(packed) // 2 + 9] = b"\xff" * 9
    (tmp_path / "A.csv.gz").write_bytes(packed)
    write(tmp_path / "B.csv", AGG_TRADES + "9" * 200_000 + ",1\n")
    for suffix, flags, method in (("password", 1, 8), ("method", 0, 99)):
        with zipfile.ZipFile(tmp_path / f"{suffix}.zip", "w") as archive:
            archive.writestr("A.csv", AGG_TRADES)
        data = bytearray((tmp_path / f"{suffix}.zip").read_bytes())
        for header, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            place = data.index(header) + at
            data[place : place + 4] = bytes((flags, 0, method, 0))
        (tmp_path / f"{suffix}.zip").write_bytes(data)
    for name in ("A.csv.gz", "B.csv", "password.zip", "method.zip"):
        with pytest.raises(JobError, match=name):
            list(read_csv(tmp_path / name))


def test_a_dump_gives_trades_and_books_and_leaves_the_rest_out(tmp_path):
    agg = {
        "e": "aggTrade",
        "E": 1005,
        "s": "BTCUSDT",
        "a": 9,
        "p": "1.10",
        "q": "2",
        "f": 1,
        "l": 2,
        "T": 1000,
        "m": True,
    }
    trade = {"e": "trade", "E": 1006, "s": "BTCUSDT", "t": 10, "p": "1.2", "q": "3", "T": 1001, "m": False}
    depth = {"e": "depthUpdate", "E": 1007, "s": "BTCUSDT", "U": 5, "u": 8, "b": [["1.0", "0"]], "a": []}
    snapshot = {"stream": "btcusdt@depth20", "data": {"lastUpdateId": 20, "bids": [["1.0", "3"]], "asks": []}}
    messages = [{"result": None, "id": 1}, {"stream": "btcusdt@aggTrade", "data": agg}, trade, depth, snapshot]
    path = write(tmp_path / "dump.jsonl.gz", "".join(json.dumps(message) + "\n" for message in messages))
    events = list(read_dump(path))
    assert [event.kind for event in events] == ["trade", "trade", "depth", "depth"]
    first, second, third, fourth = values(events)
    assert (first["trade_id"], first["time_ms"], events[0].arrival_ms) == (9, 1000, 1005)
    assert (second["trade_id"], second["is_buyer_maker"]) == (10, False)
    assert (third["type"], third["prev_update_id"], third["last_update_id"]) == ("delta", 4, 8)
    assert (fourth["type"], fourth["symbol"], fourth["last_update_id"]) == ("snapshot", "BTCUSDT", 20)


BAD_TRADE = '{"e":"trade","E":1,"s":"A","t":1,"p":"%s","q":"1","T":5,"m":%s}'


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[1]",
        '{"e":' + "[" * 100_000,
        "7",
        '{"e":"trade","s":"A"}',
        BAD_TRADE % ("x", "true"),
        BAD_TRADE % ("NaN", "true"),
        BAD_TRADE % ("1", "1.5"),
    ],
)
def test_a_line_of_a_dump_that_is_no_message_is_named(tmp_path, line):
    path = write(tmp_path / "dump.jsonl", f'{{"id":1}}\n{line}\n')
    with pytest.raises(JobError, match=r"dump\.jsonl:2: not a message"):
        list(read_dump(path))


def test_a_bare_snapshot_needs_its_symbol(tmp_path):
    path = write(tmp_path / "dump.jsonl", '{"lastUpdateId":1,"bids":[],"asks":[]}\n')
    assert values(read_dump(path, "BTCUSDT"))[0]["symbol"] == "BTCUSDT"
    with pytest.raises(JobError, match="set symbol"):
        list(read_dump(path))
