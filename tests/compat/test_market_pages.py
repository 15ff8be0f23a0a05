"""The pages of bars and latencies in Chromium: drawn, readable in both themes, wide enough on a phone, alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

pytest.importorskip("matplotlib")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from spark_jobs import picture
from tools.console_pictures import browser
from tools.kafka import CHROMIUM_MISSING, chromium

pytestmark = pytest.mark.long

Scheme = Literal["light", "dark"]
START_MS = 1_700_000_040_000
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
COLOURS = """Math.max(0, ...[...document.querySelectorAll('canvas')].map(canvas => {
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height), found = new Set();
  for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) found.add(data.slice(at, at + 3).join());
  return found.size;
}))"""
LARGEST_LIBRARY = 200 * 1024


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip(CHROMIUM_MISSING)
    with browser() as found:
        yield found


def bars_of(price: float, count: int) -> list[picture.Bar]:
    return [
        {
            "start_ms": START_MS + 60_000 * n,
            "end_ms": START_MS + 60_000 * (n + 1),
            "open": price + n,
            "high": price + n + 2,
            "low": price + n - 1,
            "close": price + n + (1 if n % 3 else -1),
            "vwap": price + n,
            "volume": n + 1,
        }
        for n in range(count)
    ]


def looked_at(page: Page, width: int, scheme: Scheme) -> None:
    """Look at the page at a width, in a theme: drawn, no wider than the screen, nothing that axe finds."""
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    expect(page.locator("canvas").first).to_be_visible()
    page.wait_for_function(f"{COLOURS} >= 3")
    assert page.evaluate(OVERFLOW) == 0
    assert [each["id"] for each in Axe().run(page).response["violations"]] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_of_candles_shows_every_symbol_and_what_was_checked(
    running: Browser, tmp_path: Path, scheme: Scheme
) -> None:
    file = tmp_path / "bars.html"
    bars = {"BTCUSDT": bars_of(37_000.0, 30), "<i>ETH</i>": bars_of(0.5, 20)}
    picture.draw(bars, "Bars of 1 minute", file, "Each of the 50 bars was checked.")
    assert file.stat().st_size < LARGEST_LIBRARY
    page = running.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    for width in (1280, 390):
        looked_at(page, width, scheme)
    assert page.title() == "Bars of 1 minute"
    expect(page.locator("main")).to_contain_text("Each of the 50 bars was checked.")
    assert page.locator("h2").all_inner_texts() == ["BTCUSDT", "<i>ETH</i>"]
    expect(page.locator(".readout").first).to_contain_text("2023-11-14 22:43:00open 37,029high 37,031")
    page.locator(".u-over").first.hover(position={"x": 1, "y": 20})
    expect(page.locator(".readout").first).to_contain_text("2023-11-14 22:14:00open 37,000")
    assert [each for each in asked if not each.startswith(("file:", "data:"))] == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_of_latencies_names_each_series(running: Browser, tmp_path: Path, scheme: Scheme) -> None:
    file = tmp_path / "latency.html"
    picture.draw_histogram({"real time": [9.0, 11.0, 12.0], "batches": [900.0, 2000.0]}, "Latencies", file)
    page = running.new_page()
    page.goto(file.as_uri())
    for width in (1280, 390):
        looked_at(page, width, scheme)
    assert page.locator(".legend li").all_inner_texts() == ["real time", "batches"]
    page.close()
