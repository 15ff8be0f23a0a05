"""Every page of the console in Chromium: axe finds nothing in either theme, and a phone's 390 px are enough.

What the tests look with is tried on planted faults first.
"""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from kafkapy.decoders.row import record_of
from tools.console_pictures import ENDED, FOLDER, LONG, PAGES, browser, console_of, take_all, wait_until_ready, world
from tools.kafka import CHROMIUM_MISSING, chromium

pytestmark = [pytest.mark.long, pytest.mark.ours]
expect.set_options(timeout=60_000)

PHONE_PX = 390
DESK_PX = 1280
MAX_BREAKS = 8
"""Lines of a name in a table: one that is shown letter by letter has far more."""
FEWEST_COLOURS = 100
"""Of a picture with text: letters have soft edges."""
CONTRAST = {"runOnly": ["color-contrast"]}
VIOLATIONS = """async options => {
    const found = await axe.run(document, {...options, resultTypes: ['violations']});
    return found.violations.map(each => `${each.id}: ${each.nodes[0].target}`);
}"""
"""Without `resultTypes` most of the time goes to selectors of the nodes that passed."""
NARROW = "each.style.cssText = 'min-width: 0; max-width: 2rem; overflow-wrap: anywhere'"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SPILLED = """[...document.querySelectorAll('td')].filter(each => each.scrollWidth > each.clientWidth + 1
    && getComputedStyle(each).overflowX === 'visible').map(each => each.textContent.trim().slice(0, 40))"""
"""Cells whose text lies over the next cell."""
NAME_LINES = """Math.max(0, ...[...document.querySelectorAll('tbody th a, h1')].map(
    each => each.getClientRects().length && Math.round(each.getBoundingClientRect().height / 18)))"""


NOTE_CUT_LABELS = """window.cutLabels = new Set();
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
    const share = {right: 1, end: 1, center: 0.5}[this.textAlign] || 0;
    if (x < share * this.measureText(text).width) window.cutLabels.add(text);
    return fillText.call(this, text, x, ...rest);
};"""
"""Labels of charts that begin left of their canvas."""
HIDDEN_PX = "Math.max(...[...document.querySelectorAll('.scroll')].map(each => each.scrollWidth - each.clientWidth))"
CUT_WORDS = """[...document.querySelectorAll('.fact dd')].flatMap(each => {
    const text = each.firstChild, range = document.createRange();
    return [...text.data.matchAll(/[^ -]+/g)].filter(word => {
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        return range.getClientRects().length > 1;
    }).map(word => word[0]);
})"""


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip(CHROMIUM_MISSING)
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def console() -> Iterator[str]:
    with world() as (servers, metrics), console_of(servers, "--metrics", metrics, "--allow-changes") as address:
        yield address


def page_of(running: Browser, console: str, width: int) -> Page:
    size = {"width": width, "height": 800}
    context = running.new_context(base_url=console, viewport=size, reduced_motion="reduce")
    context.add_init_script(AXE_SCRIPT)
    context.add_init_script(NOTE_CUT_LABELS)
    return context.new_page()


def violations(page: Page, options: dict[str, object] | None = None) -> list[str]:
    found: list[str] = page.evaluate(VIOLATIONS, options or {})
    return found


def test_axe_finds_nothing_in_either_theme_and_a_phone_is_wide_enough(running: Browser, console: str) -> None:
    page = page_of(running, console, DESK_PX)
    found = {}
    for path in PAGES:
        page.set_viewport_size({"width": DESK_PX, "height": 800})
        page.emulate_media(color_scheme="light")
        page.goto(path)
        wait_until_ready(page)
        light = violations(page)
        page.emulate_media(color_scheme="dark")
        dark = violations(page, CONTRAST)
        spilled = page.evaluate(SPILLED)
        page.set_viewport_size({"width": PHONE_PX, "height": 800})
        wide, lines = page.evaluate(OVERFLOW), page.evaluate(NAME_LINES)
        spilled += page.evaluate(SPILLED)
        narrow = wide > 0 and f"{wide} px too wide", lines > MAX_BREAKS and f"{lines} lines"
        found[path] = (light, dark, spilled, *narrow, page.evaluate("[...window.cutLabels]"))
    assert {path: each for path, each in found.items() if any(each)} == {}
    page.context.close()


def test_the_checks_find_planted_faults(running: Browser, console: str) -> None:
    page = page_of(running, console, PHONE_PX)
    page.goto("/topics")
    page.evaluate("document.querySelector('h1').style.cssText = 'color: #999; background: #aaa'")
    page.evaluate("document.querySelector('#q').labels[0].replaceWith(document.querySelector('#q'))")
    assert sorted(each.partition(":")[0] for each in violations(page)) == ["color-contrast", "label"]
    page.evaluate("document.querySelector('main').style.width = '600px'")
    assert page.evaluate(OVERFLOW) > 0
    page.goto("/topics")
    page.evaluate(f"document.querySelectorAll('tbody th').forEach(each => {{ {NARROW} }})")
    assert page.evaluate(NAME_LINES) > MAX_BREAKS
    page.context.close()


def test_a_phone_shows_rules_whole_and_cuts_no_word_of_a_fact(running: Browser, console: str) -> None:
    page = page_of(running, console, PHONE_PX)
    page.goto("/access")
    expect(page.locator("table.cards").first).to_contain_text("User:shop may write records to topic orders")
    assert page.evaluate(HIDDEN_PX) == 0
    for path in ("/", f"/transaction?id={ENDED}"):
        page.goto(path)
        assert page.evaluate(CUT_WORDS) == []
    page.context.close()


def test_a_refused_change_can_be_mended_on_a_phone(running: Browser, console: str) -> None:
    page = page_of(running, console, PHONE_PX)
    page.goto("/topics")
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name", exact=True).fill("mended")
    page.get_by_label("Configs, a line each").fill("retention.ms=1h")
    page.get_by_role("button", name="Create…").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.get_by_role("alert").filter(has_text="retention.ms=3600000")).to_be_visible()
    assert (violations(page), page.evaluate(OVERFLOW)) == ([], 0)
    page.get_by_label("Configs").fill("retention.ms=3600000")
    page.get_by_role("button", name="Ask again…").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.locator("#problem")).to_contain_text("Created")
    page.context.close()


def test_the_pictures_of_the_documents_can_be_made_again(running: Browser, console: str, tmp_path: Path) -> None:
    take_all(console, running, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in FOLDER.iterdir())
    for path in tmp_path.iterdir():
        with Image.open(path) as made, Image.open(FOLDER / path.name) as kept:
            assert made.size == kept.size, path.name
            assert len(made.convert("RGB").getcolors(1 << 24) or ()) > FEWEST_COLOURS, path.name


def test_one_request_renews_both_parts_of_the_overview(running: Browser, console: str) -> None:
    page = page_of(running, console, DESK_PX)
    page.goto("/")
    wait_until_ready(page)
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url.removeprefix(console)))
    page.evaluate("document.querySelectorAll('#live, #more').forEach(each => each.classList.add('old'))")
    expect(page.locator(".old")).to_have_count(0, timeout=60_000)
    assert [each for each in requested if each == "/"] == ["/"]
    expect(page.locator("#more")).to_contain_text("Log directories")
    assert page.evaluate("[...window.cutLabels]") == []  # a minute after the first test its charts have lines
    page.context.close()


def test_a_table_is_sorted_and_filtered_and_the_url_has_it(running: Browser, console: str) -> None:
    page = page_of(running, console, DESK_PX)
    page.goto("/transactions")
    ids = page.locator("tbody th")
    expect(ids).to_have_count(2)
    page.get_by_role("button", name="Transactional id").click()
    first = ids.first.inner_text()
    page.get_by_role("button", name="Transactional id").click()
    assert ids.first.inner_text() != first
    assert "by0=0d" in page.url
    page.get_by_label("Ids with").fill("payments-2")
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    page.reload()
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    assert ids.first.inner_text() != first
    page.context.close()


def test_topics_are_sorted_on_the_server(running: Browser, console: str) -> None:
    page = page_of(running, console, DESK_PX)
    page.goto("/topics")
    page.get_by_role("link", name="Size").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Size")
    expect(page.locator("tbody th").first).to_have_text("orders")
    page.get_by_label("Name contains").fill("eu-central")
    expect(page.locator("tbody th")).to_have_text([LONG])
    page.context.close()


def test_a_record_is_opened_kept_and_produced_again(running: Browser, console: str) -> None:
    page = page_of(running, console, DESK_PX)
    page.goto("/topic/messages?name=orders&from=beginning&limit=3")
    wait_until_ready(page)
    row = page.locator(".records tbody tr").first
    row.locator("summary").first.click()
    expect(row.locator(".tree .j-number").first).to_be_visible()
    expect(row.locator(".tree")).to_contain_text('"country"')
    with page.expect_download() as loading:
        page.get_by_role("button", name="JSON lines").click()
    lines = [json.loads(line) for line in loading.value.path().read_text().splitlines()]
    assert [sorted(record_of(line)) for line in lines] == [["headers", "key", "partition", "timestamp", "value"]] * 3
    with page.expect_download() as loading:
        page.get_by_role("button", name="CSV").click()
    assert len(list(csv.DictReader(loading.value.path().read_text().splitlines()))) == 3
    row.get_by_role("button", name="Produce again…").click()
    expect(page.get_by_label("Value", exact=True)).to_have_value(re.compile('"order":'))
    page.get_by_label("Value", exact=True).fill('{"order": "edited"}')
    page.get_by_role("button", name="Produce…").click()
    expect(page.locator(".will")).to_contain_text("Headers: 2")
    page.context.close()


def test_a_search_is_saved_by_name_and_a_file_is_loaded(running: Browser, console: str, tmp_path: Path) -> None:
    page = page_of(running, console, DESK_PX)
    page.goto("/topic/messages?name=shipments&json_path=$.n%20>%201")
    page.get_by_text("Saved searches").click()
    page.get_by_label("Name of this search").fill("large ones")
    page.get_by_role("button", name="Save in this browser").click()
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps({"key": f"k{number}", "value": {"n": number}}) + "\n" for number in range(5000)))
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Count its records").click()
    expect(page.locator("[data-confirm]")).to_contain_text("5,000 records of records.jsonl to shipments?")
    page.get_by_role("button", name="Yes, produce them").click()
    expect(page.locator("[data-progress]")).to_contain_text("5,000 of 5,000 produced. Done.")
    page.goto("/topic/messages?name=shipments")
    page.get_by_text("Saved searches").click()
    page.get_by_role("link", name="large ones").click()
    expect(page.get_by_label("JSON path")).to_have_value("$.n > 1")
    expect(page.locator(".records tbody tr")).to_have_count(100)
    page.context.close()
