"""The how-to pages that need neither Java nor root, run from an empty directory; the others: tests/compat."""

import re
from pathlib import Path

import pytest

from kafkapy.config.load import load
from kafkapy.config.properties import parse_properties
from tests.support.pages import ROOT, Block, blocks, read

for needed in ("aiokafka", "confluent_kafka", "xdist", "yaml"):
    pytest.importorskip(needed)

HERE = (
    "asyncio",
    "ci",
    "cluster",
    "command_line",
    "console",
    "embed",
    "fifteen_minutes",
    "faults",
    "node",
    "older",
    "prometheus",
    "pytest",
    "record",
    "registry",
    "observe",
    "snapshots",
    "systemd",
    "test_a_service",
    "time",
    "work_queue",
)
ELSEWHERE = {
    "image": "its commands need a container engine",
    "spark_cluster": "tests/compat/test_pages.py",
    **dict.fromkeys(("promises", "replace", "three_hosts"), "tests/compat/test_several_hosts.py"),
}
HOWTO = ROOT / "docs" / "howto"
HERE_SAID = {
    "kafkapy console -b 127.0.0.1:9092": "kafkapy console -b 127.0.0.1:9092 --listen 127.0.0.1:0",
    "kafkapy cluster up -n 3": "kafkapy cluster up -n 3 --port 0",
}
"""What pages say, and what it is here: free ports."""
README_LINES = 110
"""What a stranger reads at once; the rest has pages of its own."""


def test_every_page_is_run_somewhere() -> None:
    assert {path.stem for path in HOWTO.glob("*.md")} == {*HERE, *ELSEWHERE}


@pytest.mark.parametrize("name", HERE)
def test_a_page_runs_from_an_empty_directory(name: str, tmp_path: Path) -> None:
    printed = read(HOWTO / f"{name}.md", tmp_path, {**HERE_SAID, "/var/lib/kafkapy": str(tmp_path / "data")})
    if name == "asyncio":
        assert printed[-1] == "order 1\n"
    if name == "work_queue":
        assert "job 0, job 1, job 2, job 4, job 3\n" in printed
        (letters,) = [text for text in printed if text.startswith("bad Offset rejected by client.\n")]
        assert "Sent 1 record back." in letters
    if name in ("pytest", "faults", "observe", "snapshots", "test_a_service", "time"):
        assert [line for text in printed for line in text.splitlines() if " passed" in line and " failed" not in line]


def test_what_is_replaced_is_said_by_a_page() -> None:
    texts = "".join((HOWTO / f"{name}.md").read_text() for name in HERE)
    assert [sentence for sentence in HERE_SAID if sentence not in texts] == []


def test_the_readme_runs_from_an_empty_directory(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    printed = "".join(read(ROOT / "README.md", tmp_path))
    assert re.search(r"Produced 1 record to trades, partition \d, offset 0\.\n1\n", printed)
    assert "    kafkapy " not in text, "an indented block is not run"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


def test_blocks_are_distinguished() -> None:
    page = "```sh background=up\na\n```\n\n```python\n# a.py\nb\n```\n\n```text\nc\n```\n\n```sh unrun\nd\n```\n"
    assert [(each.file_name, each.is_run, each.awaited) for each in blocks(page)] == [
        (None, True, "up"),
        ("a.py", True, None),
        (None, False, None),
        (None, False, None),
    ]
    assert blocks(page)[0] == Block("sh", "background=up", "a\n")


def test_the_configuration_of_the_service_has_no_unknown_key() -> None:
    text = next(block.text for block in blocks((HOWTO / "systemd.md").read_text()) if block.language == "properties")
    _, warnings = load(parse_properties(text))
    assert warnings == []
