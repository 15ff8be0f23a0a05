"""The places and names in docs/questions.md and docs/chains.md are there, and `tools.show` prints them."""

import re
from pathlib import Path

import pytest

from tools.show import MOST_SHOWN, main, show

DOCS = Path(__file__).parents[3] / "docs"
QUESTIONS, CHAINS = ((DOCS / name).read_text(encoding="utf-8") for name in ("questions.md", "chains.md"))
PLACES = sorted(set(re.findall(r"`([\w/]+\.py(?:::[\w.]+)?)`", QUESTIONS)))
NAMES = sorted(set(re.findall(r"`([A-Z]\w+\.\w+)`", QUESTIONS + CHAINS)))


def test_the_page_names_places() -> None:
    assert len(PLACES) > 50


@pytest.mark.parametrize("place", PLACES)
def test_each_place_of_the_page_is_there(place: str) -> None:
    assert place.partition("::")[2].rpartition(".")[2] in show(place)


@pytest.mark.parametrize("name", NAMES)
def test_each_method_that_the_pages_name_is_found_without_its_file(name: str) -> None:
    assert re.match(r"kafkapy/[\w/]+\.py:\d+\n", show(name))


def test_a_name_alone_is_found_in_all_files() -> None:
    assert show("_hold_back") == show("runtime/followers/replica_fetcher.py::ReplicaFetcher._hold_back")
    assert show("SHORTAGES") == show("storage/log_dir.py::SHORTAGES")
    assert show("FollowerLogs") == show("replication/follower_log.py::FollowerLogs")


def test_of_a_name_with_many_definitions_the_places_are_listed() -> None:
    lines = show("apply_delta").splitlines()
    assert len(lines) > MOST_SHOWN
    assert all(re.fullmatch(r"kafkapy/[\w/]+\.py:\d+ \w+\.apply_delta", line) for line in lines)


def test_a_method_is_shown_with_its_lines() -> None:
    first, *lines = show("storage/log/log.py::Log.roll").splitlines()
    assert first == f"kafkapy/storage/log/log.py:{lines[0].split()[0]}"
    assert lines[0].split()[1:3] == ["def", "roll(self,"]


def test_a_file_is_shown_by_its_outline() -> None:
    assert re.search(r"^ +\d+     roll  Start a new segment", show("kafkapy/storage/log/log.py"), re.M)


@pytest.mark.parametrize(
    "place",
    ["storage/gone.py", "storage/log/log.py::Log.gone", "storage/log/log.py::gone", "Log.gone", "gone_for_good"],
)
def test_a_place_that_is_not_there_is_reported(place: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["show", place])
    assert main() == 1
    assert "no " in capsys.readouterr().err
