"""The site of the documents in Chromium: every link and anchor leads somewhere, a phone's 390 px are enough."""

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Page

from tools import site
from tools.console_pictures import browser
from tools.kafka import CHROMIUM_MISSING, chromium

pytestmark = [pytest.mark.long, pytest.mark.ours]
pytest.importorskip("sphinx")

PHONE = {"width": 390, "height": 800}
OVERFLOW = """Math.max(...[document.documentElement, ...document.querySelectorAll('.content')].map(
    each => each.scrollWidth - each.clientWidth))"""
"""The theme scrolls its content as a whole: tables and code are to scroll by themselves."""
IDS = "[...document.querySelectorAll('[id]')].map(each => each.id)"
LINKS = "[...document.querySelectorAll('a[href]')].map(each => each.href)"
LOST_PICTURES = "[...document.images].filter(each => !each.alt || !each.naturalWidth).map(each => each.src)"


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "tools.site", str(built)], cwd=site.ROOT, check=True)  # warns in our process
    return built


@pytest.fixture(scope="module")
def address(built: Path) -> Iterator[str]:
    handler = functools.partial(QuietFiles, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="site")
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    if chromium() is None:
        pytest.skip(CHROMIUM_MISSING)
    with browser() as running:
        yield running.new_page(viewport=PHONE)


def test_every_link_leads_to_a_page_and_a_phone_is_wide_enough(built: Path, address: str, page: Page) -> None:
    problems: list[str] = []
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda each: problems.append(each.url) if not each.url.startswith(address) else None)
    ids: dict[str, set[str]] = {}
    links: dict[str, list[str]] = {}
    for path in sorted(str(each.relative_to(built)) for each in built.rglob("*.html")):
        page.goto(f"{address}/{path}")
        ids[path], links[path] = set(page.evaluate(IDS)), page.evaluate(LINKS)
        problems += [f"{path}: {each}" for each in page.evaluate(LOST_PICTURES)]
        if page.evaluate(OVERFLOW) > 0:
            problems.append(f"{path} is too wide")
    assert len(ids) > len(site.pages())
    assert problems + broken(built, address, ids, links) == []


def broken(built: Path, address: str, ids: dict[str, set[str]], links: dict[str, list[str]]) -> list[str]:
    """Return the links to pages and anchors of the site that are not there."""
    found = []
    for path, targets in links.items():
        for target in targets:
            parts = urlsplit(target)
            name = unquote(parts.path).lstrip("/") or "index.html"
            if target.startswith(address):
                known = ids.get(name, set()) if (built / name).is_file() else None
                if known is None or (parts.fragment and unquote(parts.fragment) not in known):
                    found.append(f"{path}: {target}")
    return found


def test_the_walk_finds_planted_faults(built: Path, address: str, page: Page) -> None:
    page.goto(f"{address}/index.html")
    wide = "document.querySelector('article').insertAdjacentHTML('beforeend', '<p style=width:2000px>x</p>')"
    page.evaluate(wide)
    assert page.evaluate(OVERFLOW) > 0
    links = {"index.html": [f"{address}/nothing.html", f"{address}/index.html#nowhere", f"{address}/index.html"]}
    assert len(broken(built, address, {"index.html": set()}, links)) == 2
