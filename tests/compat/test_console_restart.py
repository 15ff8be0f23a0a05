"""The console is stopped and started again under open pages: they say that it is away, and go on once it is back."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as kafka
import pytest
from playwright.sync_api import Page, expect

from harness.servers import free_port
from kafkapy import Broker
from tests.support.committed import commit
from tools.console_pictures import browser
from tools.kafka import CHROMIUM_MISSING, chromium

pytestmark = [pytest.mark.long, pytest.mark.ours]
expect.set_options(timeout=60_000)


@contextmanager
def console_at(port: int, servers: str, *options: str) -> Iterator[None]:
    listen = ["--listen", f"127.0.0.1:{port}", "--allow-changes"]
    command = [sys.executable, "-m", "kafkapy", "console", "-b", servers, *listen, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert "ready" in process.stdout.readline()
            yield
        finally:  # Popen waits for its end, for ever if a test fails before it
            process.terminate()


def opened(context, path: str, problems: list[str]) -> Page:
    page: Page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path)
    return page


def test_pages_outlive_a_restart_of_the_console() -> None:
    if chromium() is None:
        pytest.skip(CHROMIUM_MISSING)
    port, problems = free_port(), []
    with Broker() as broker, browser() as running:
        broker.create_topics("orders")
        consumer = kafka.Consumer({**broker.client_config(), "group.id": "readers"})
        commit(consumer, kafka.TopicPartition("orders", 0, 0))
        consumer.close()
        context = running.new_context(base_url=f"http://127.0.0.1:{port}")
        with console_at(port, broker.bootstrap_servers):
            chart, tail, form = (
                opened(context, path, problems)
                for path in ("/group?name=readers", "/topic/tail?name=orders", "/topics?q=or")
            )
            expect(tail.locator(".state")).to_contain_text("Following")
            form.get_by_text("Create a topic").click()
            form.get_by_label("Name", exact=True).fill("late")
        expect(chart.locator("#problem")).to_contain_text("the console does not answer")
        expect(tail.locator(".state")).to_contain_text("trying again")
        with console_at(port, broker.bootstrap_servers):
            expect(chart.locator("#problem")).to_be_hidden()
            expect(tail.locator(".state")).to_contain_text("Following")
            form.get_by_role("button", name="Create…").click()
            expect(form.get_by_role("alert").filter(has_text="out of date")).to_be_visible()
            form.get_by_role("link", name="Load its page again").click()
            form.get_by_text("Create a topic").click()
            form.get_by_label("Name", exact=True).fill("late")
            form.get_by_role("button", name="Create…").click()
            form.get_by_role("button", name="Yes, do it").click()
            expect(form.locator("#problem")).to_contain_text("Created late.")
        context.close()
    assert problems == []


def test_a_login_outlives_a_restart_of_the_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if chromium() is None:
        pytest.skip(CHROMIUM_MISSING)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "token").write_text("a token of some length\n")
    (tmp_path / "other").write_text("another token of some length\n")
    port, problems = free_port(), []
    with Broker() as broker, browser() as running:
        broker.create_topics("orders")
        context = running.new_context(base_url=f"http://127.0.0.1:{port}")
        with console_at(port, broker.bootstrap_servers, "--token-file", str(tmp_path / "token")):
            page = opened(context, "/topics?q=or", problems)
            page.get_by_label("Token").fill("a token of some length")
            page.get_by_role("button", name="Log in").click()
            page.get_by_text("Create a topic").click()
            page.get_by_label("Name", exact=True).fill("late")
        with console_at(port, broker.bootstrap_servers, "--token-file", str(tmp_path / "token")):
            page.get_by_role("button", name="Create…").click()
            page.get_by_role("button", name="Yes, do it").click()
            expect(page.locator("#problem")).to_contain_text("Created late.")
        with console_at(port, broker.bootstrap_servers, "--token-file", str(tmp_path / "other")):
            page.goto("/topics")
            expect(page.get_by_label("Token")).to_be_visible()  # with another token everybody logs in anew
        context.close()
    assert problems == []
