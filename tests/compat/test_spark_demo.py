"""`make demo` as a whole: its page moves while it runs, and it ends by itself with checked bars and a file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.ours]

ROOT = Path(__file__).parents[2]
EVENTS = 4_000
"""A fifth of what `make demo` has, in a sixth of its time: the rest is starting, which nothing makes shorter."""
SYMBOLS = {"BTCUSDT", "ETHUSDT", "SOLUSDT"}


def messages(url: str) -> list[dict[str, Any]]:
    """Return all that the page sends, to its end."""
    with urlopen(f"{url}/events", timeout=300) as response:
        lines = [line.decode() for line in response if line.startswith(b"data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_the_demo_shows_a_page_that_moves_and_ends_by_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spark_jobs.demo", "--seconds", "5", "--events", str(EVENTS), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        (url,) = [line.split()[0] for line, _ in zip(process.stdout, range(2), strict=False) if line.startswith("http")]
        hello, *sent = messages(url)
        told = process.stdout.read()
    assert process.returncode == 0
    assert hello == {"width": "1s"}
    assert {symbol for message in sent for symbol, *_ in message["bars"]} == SYMBOLS
    assert len([message for message in sent if message["bars"]]) > 1
    assert {symbol for message in sent for symbol in message["books"]} == SYMBOLS
    assert any(message["latency"]["p50"] for message in sent)
    last = sent[-1]
    assert last["records"]["silver_trades"] == EVENTS
    assert set(last["jobs"]) >= {"silver", "live"}
    assert last["records"]["ticks"] + 10 > last["records"]["trades"] + last["records"]["depth"]
    assert "equals a plain computation" in last["ended"]
    assert "equals a plain computation" in told
    assert "next: open demo.html" in told
    page = (tmp_path / "demo.html").read_text()
    assert all(f"<h2>{symbol}</h2>" in page for symbol in SYMBOLS)
