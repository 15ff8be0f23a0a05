"""The page that moves, in Chromium, over topics that are written while it is open."""

import json
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

pytest.importorskip("pyspark")

from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Browser, Page, expect
from prometheus_client import start_http_server

from kafkapy.testing import Broker
from spark_jobs import oracle, page
from spark_jobs.config import JobConfig
from spark_jobs.depth import parse
from spark_jobs.errors import JobError
from spark_jobs.events import SENT_NS, Depth, Trade
from spark_jobs.generator import Market, generate
from spark_jobs.metrics import QueryMetrics
from spark_jobs.order_book import OrderBook
from spark_jobs.schemas import BAR
from spark_jobs.topics import create_topics
from tests.support.eventually import eventually
from tools.console_pictures import browser
from tools.kafka import CHROMIUM_MISSING, chromium

pytestmark = pytest.mark.long

MARKET = Market(events=1_500, depth_per_trade=0.5, late=0, duplicates=0, malformed=0, gaps=0)
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
PAINTED = "document.querySelector('canvas').getContext('2d').getImageData(0, 0, 600, 400).data.some(byte => byte)"
LATENCY_MS = 40
Scheme = Literal["light", "dark"]
Served = tuple[page.Page, Producer, dict[str, str]]
"""A page, a producer, and the names of the page's topics by what they hold."""
WAIT_MS = 30_000


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip(CHROMIUM_MISSING)
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def trades() -> list[Trade]:
    parsed = [oracle.parse(event.value, event.arrival_ms) for event in generate(MARKET) if event.kind == "trade"]
    return [each for each in parsed if isinstance(each, Trade)]


@pytest.fixture
def served(bootstrap: str, topic: str) -> Iterator[Served]:
    """A page over empty topics of its own, a producer, and the topics by their kind."""
    topics = {kind: f"{topic}-{kind}" for kind in ("trades", "depth", "bars", "ticks")}
    create_topics({"bootstrap.servers": bootstrap}, list(topics.values()), 2)
    metrics = QueryMetrics(JobConfig(bootstrap_servers=bootstrap), "live")
    metrics.rows.labels("live").inc(1234)
    metrics.lag.labels("live").set(17)
    metrics.late.labels("live").inc(5)
    server, thread = start_http_server(0, "127.0.0.1", metrics.registry)
    config = page.PageConfig(
        bootstrap_servers=bootstrap,
        port=0,
        bars_topic=topics["bars"],
        depth_topic=topics["depth"],
        ticks_topic=topics["ticks"],
        tick_sources=[topics["trades"], topics["depth"]],
        counted_topics=list(topics.values()),
        metrics=[f"http://127.0.0.1:{server.server_port}/metrics"],
    )
    with page.serving(config) as found:
        yield found, Producer({"bootstrap.servers": bootstrap, "linger.ms": 5}), topics
    server.shutdown()
    server.server_close()
    thread.join()


def bar_json(bar: oracle.Bar) -> bytes:
    """Return a bar as gold and live write it."""
    fields: dict[str, Any] = {name: getattr(bar, name) for name in BAR.names()}
    return json.dumps({"v": BAR.version, **fields}, default=lambda number: f"{number:f}").encode()


def write_bars(served: Served, trades: list[Trade]) -> None:
    _, producer, topics = served
    for bar in oracle.bars(trades):
        producer.produce(topics["bars"], bar_json(bar), f"{bar.symbol}|{bar.width}|{bar.start_ms}")
    assert producer.flush(30) == 0


def write_depth(served: Served) -> None:
    _, producer, topics = served
    for event in generate(MARKET):
        if event.kind == "depth":
            producer.produce(topics["depth"], event.value, event.key)
    assert producer.flush(30) == 0


def write_ticks(served: Served, count: int) -> None:
    """Write records and their ticks: of the last three there is none yet."""
    _, producer, topics = served
    for number in range(count + 3):
        producer.produce(topics["trades"], b"{}", partition=0)
        sent_ns = time.time_ns() - LATENCY_MS * 1_000_000
        source = f"{topics['trades']}-0-{number}"
        if number < count:
            producer.produce(topics["ticks"], b"{}", headers=[(SENT_NS, b"%d" % sent_ns), ("source", source)])
    assert producer.flush(30) == 0


def opened(running: Browser, url: str, width: int, scheme: Scheme) -> tuple[Page, list[str]]:
    """Open the page; return it with what it asked of other places, and the errors of its scripts."""
    context = running.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    found = context.new_page()
    wrong: list[str] = []
    found.on("request", lambda request: None if request.url.startswith((url, "data:")) else wrong.append(request.url))
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    found.goto(url)
    return found, wrong


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_candles_form_as_the_topic_grows(
    running: Browser, served: Served, trades: list[Trade], width: int, scheme: Scheme
) -> None:
    looked, wrong = opened(running, served[0].url, width, scheme)
    expect(looked.locator("#status")).to_contain_text("Waiting for the first bar")
    candles = looked.locator("section[data-symbol=BTCUSDT]")
    for known in (trades[: len(trades) // 2], trades):
        write_bars(served, known)
        bars = [bar for bar in oracle.bars(known) if (bar.symbol, bar.width) == ("BTCUSDT", "1m")]
        told = f"{len(bars)} candles of BTCUSDT"
        expect(candles.locator(".plot")).to_have_attribute("aria-label", told, timeout=WAIT_MS)
        expect(candles.locator(".readout")).to_contain_text(f"close {shown(bars[-1].close)}VWAP")
    looked.wait_for_function(PAINTED)
    write_depth(served)
    write_ticks(served, 50)
    expect(looked.locator("#p50")).to_contain_text("ms", timeout=WAIT_MS)
    assert looked.locator("section[data-symbol] h2").all_inner_texts() == ["BTCUSDT", "ETHUSDT", "SOLUSDT"]
    assert looked.evaluate(OVERFLOW) == 0
    assert [each["id"] for each in Axe().run(looked).response["violations"]] == []
    assert wrong == []
    looked.context.close()


def shown(price: Decimal) -> str:
    return f"{price:,.2f}".rstrip("0").rstrip(".")


def test_the_ladder_is_the_book_and_the_facts_are_those_of_topics_and_jobs(running: Browser, served: Served) -> None:
    looked, _ = opened(running, served[0].url, 1280, "light")
    write_depth(served)
    book = OrderBook()
    for event in (event for event in generate(MARKET) if (event.kind, event.key) == ("depth", "BTCUSDT")):
        book.step(parse(event.value, "BTCUSDT"))
    best = book.quote()
    assert best is not None
    first = looked.locator("section[data-symbol=BTCUSDT] tbody tr").first
    expect(first.locator("td").nth(1)).to_have_text(shown(best.bid), timeout=WAIT_MS)
    expect(first.locator("td").nth(2)).to_have_text(shown(best.ask))
    write_ticks(served, 50)
    behind = 3 + sum(event.kind == "depth" for event in generate(MARKET))  # no update of a book has a tick
    expect(looked.locator("#behind")).to_have_text(str(behind), timeout=WAIT_MS)
    expect(looked.locator("#late")).to_have_text("5")
    expect(looked.locator("#lag")).to_have_text("17")
    expect(looked.locator("#jobs tbody tr")).to_contain_text(["live1,2341750"])
    expect(looked.locator("#topics tbody tr").first).to_contain_text("-trades53")
    _, changes = served[0].changes(0)
    assert LATENCY_MS <= changes["latency"]["p50"] <= changes["latency"]["p99"]
    looked.context.close()


def test_a_book_with_a_gap_says_that_it_waits(running: Browser, served: Served) -> None:
    looked, wrong = opened(running, served[0].url, 390, "light")
    _, producer, topics = served
    delta = Depth("XRPUSDT", "delta", 1, 9, 9, 8, [("0.5", "1")], [])
    producer.produce(topics["depth"], delta.to_json(), "XRPUSDT")
    assert producer.flush(30) == 0
    ladder = looked.locator("section[data-symbol=XRPUSDT] .ladder")
    expect(ladder).to_contain_text("waiting for a snapshot", timeout=WAIT_MS)
    assert wrong == []
    looked.context.close()


def test_another_width_shows_its_bars_and_the_end_is_told(
    running: Browser, served: Served, trades: list[Trade]
) -> None:
    looked, wrong = opened(running, served[0].url, 390, "dark")
    write_bars(served, trades)
    candles = looked.locator("section[data-symbol=ETHUSDT]")
    expect(candles.locator("canvas").first).to_be_visible(timeout=WAIT_MS)
    looked.get_by_role("button", name="1 h").click()
    (hour,) = [bar for bar in oracle.bars(trades) if (bar.symbol, bar.width) == ("ETHUSDT", "1h")]
    expect(candles.locator(".readout")).to_contain_text(f"open {shown(hour.open)}high {shown(hour.high)}")
    served[0].finish("Each bar was checked.")
    expect(looked.locator("#status")).to_have_text("Each bar was checked.")
    assert wrong == []
    looked.context.close()


def test_topics_that_are_made_again_are_read_from_their_beginning(
    running: Browser, served: Served, trades: list[Trade], bootstrap: str
) -> None:
    """Of a topic of before neither its offsets are kept, nor its bars, nor the update ids of its books."""
    looked, wrong = opened(running, served[0].url, 1280, "light")
    _, _, topics = served
    write_bars(served, trades)
    write_book(served, "BTCUSDT", update_id=1_000)
    best_bid = looked.locator("section[data-symbol=BTCUSDT] tbody tr td").nth(1)
    expect(best_bid).to_have_text("1,000", timeout=WAIT_MS)
    expect(looked.locator("section[data-symbol=SOLUSDT] .readout")).to_contain_text("close", timeout=WAIT_MS)
    again = [topics["bars"], topics["depth"]]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_topics(again).values():
        deleted.result(30)
    create_topics({"bootstrap.servers": bootstrap}, again, 2)
    write_bars(served, [trade for trade in trades if trade.symbol == "BTCUSDT"][:1])
    write_book(served, "BTCUSDT", update_id=7)
    expect(best_bid).to_have_text("7", timeout=WAIT_MS)
    told = "1 candles of BTCUSDT"
    expect(looked.locator("section[data-symbol=BTCUSDT] .plot")).to_have_attribute("aria-label", told, timeout=WAIT_MS)
    assert looked.locator("section[data-symbol] h2").all_inner_texts() == ["BTCUSDT"]
    assert wrong == []
    looked.context.close()


def write_book(served: Served, symbol: str, *, update_id: int) -> None:
    """Write a snapshot whose best bid is its update id."""
    _, producer, topics = served
    bids, asks = [(str(update_id), "1")], [(str(update_id + 1), "1")]
    producer.produce(
        topics["depth"], Depth(symbol, "snapshot", 1, update_id, update_id, -1, bids, asks).to_json(), symbol
    )
    assert producer.flush(30) == 0


def test_a_broker_that_does_not_answer_is_told_until_it_does(
    running: Browser, tmp_path: Path, trades: list[Trade]
) -> None:
    with Broker(tmp_path) as broker:
        create_topics({"bootstrap.servers": broker.bootstrap_servers}, ["live_bars"], 2)
        with page.serving(page.PageConfig(bootstrap_servers=broker.bootstrap_servers, port=0)) as found:
            served = found, Producer({"bootstrap.servers": broker.bootstrap_servers}), {"bars": "live_bars"}
            looked, wrong = opened(running, found.url, 390, "light")
            write_bars(served, trades[:10])
            status = looked.locator("#status")
            expect(status).to_have_text("Live, from the topics.", timeout=WAIT_MS)
            broker.kill()
            expect(status).to_contain_text("No broker answers", timeout=WAIT_MS)
            broker.restart()
            write_bars(served, trades)
            expect(status).to_have_text("Live, from the topics.", timeout=WAIT_MS)
            bars = [bar for bar in oracle.bars(trades) if (bar.symbol, bar.width) == ("BTCUSDT", "1m")]
            told = f"{len(bars)} candles of BTCUSDT"
            candles = looked.locator("section[data-symbol=BTCUSDT] .plot")
            expect(candles).to_have_attribute("aria-label", told, timeout=WAIT_MS)
            assert wrong == []
            looked.context.close()


def test_records_that_others_wrote_do_not_stop_the_page(served: Served, trades: list[Trade]) -> None:
    found, producer, topics = served
    first, *others = [trade for trade in trades if trade.symbol == "BTCUSDT"]
    write_bars(served, [first])
    eventually(lambda: found.source.state.bars, 30)  # ticks are read from now on
    for digits in (30, 400, 5_000):
        number = b"1" + b"0" * digits
        headers = [(SENT_NS, number), ("source", b"a-0-" + number)]
        producer.produce(topics["ticks"], b"{}", headers=headers, partition=0)
        bar = bar_json(oracle.bars([first])[0])
        producer.produce(topics["bars"], bar.replace(b'"start_ms": ', b'"start_ms": ' + number), partition=0)
    producer.produce(topics["ticks"], b"{}", headers=[("source", "a-²-³"), (SENT_NS, "²")], partition=0)
    producer.produce(topics["depth"], b'{"v":1,"symbol":"A","type":[]}', "A", partition=0)
    write_bars(served, [first, *others])
    write_ticks(served, 5)
    eventually(lambda: found.source.state.next_offsets == {(topics["trades"], 0): 5}, 30)
    closes = {bar.close for bar in oracle.bars([first, *others]) if bar.width == "1h"}
    eventually(lambda: {bar[6] for bar in found.changes(0)[1]["bars"] if bar[1] == "1h"} == set(map(float, closes)), 30)
    assert found.changes(0)[1]["books"] == {}


def test_a_port_that_is_taken_and_a_page_that_is_not_there_are_told(served: Served) -> None:
    found = served[0]
    config = page.PageConfig(bootstrap_servers="127.0.0.1:1", port=int(found.url.rpartition(":")[2]))
    with pytest.raises(JobError, match=r"cannot be served on .*: Address already in use"), page.serving(config):
        pass
    nowhere = page.PageConfig(bootstrap_servers="127.0.0.1:1", host="no.such.host.invalid")
    with pytest.raises(JobError, match=r"served on no.such.host.invalid:8090: .* \(set host\)"), page.serving(nowhere):
        pass
    of_java = page.PageConfig(bootstrap_servers="127.0.0.1:1", port=0, kafka={"sasl.jaas.config": "x"})
    with pytest.raises(JobError, match=r"kafka takes librdkafka's options, not those of Java"), page.serving(of_java):
        pass
    with pytest.raises(ValueError, match="http://host:port/metrics is expected"):
        page.PageConfig(bootstrap_servers="127.0.0.1:1", metrics=["127.0.0.1:9101/metrics"])
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"{found.url}/../pyproject.toml")
