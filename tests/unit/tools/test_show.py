"""The places that docs/questions.md names are there, and `tools.show` prints them."""

import re
from pathlib import Path

import pytest

from tools.show import main, show

PAGE = Path(__file__).parents[3] / "docs" / "questions.md"
PLACES = sorted(set(re.findall(r"`([\w/]+\.py(?:::[\w.]+)?)`", PAGE.read_text(encoding="utf-8"))))


def test_the_page_names_places() -> None:
    assert len(PLACES) > 50


@pytest.mark.parametrize("place", PLACES)
def test_each_place_of_the_page_is_there(place: str) -> None:
    assert place.partition("::")[2].rpartition(".")[2] in show(place)


def test_a_method_is_shown_with_its_lines() -> None:
    first, *lines = show("storage/log/log.py::Log.roll").splitlines()
    assert first == f"kafkapy/storage/log/log.py:{lines[0].split()[0]}"
    assert lines[0].split()[1:3] == ["def", "roll(self,"]


def test_a_file_is_shown_by_its_outline() -> None:
    assert re.search(r"^ +\d+     roll  Start a new segment", show("kafkapy/storage/log/log.py"), re.M)


@pytest.mark.parametrize("place", ["storage/gone.py", "storage/log/log.py::Log.gone", "storage/log/log.py::gone"])
def test_a_place_that_is_not_there_is_reported(place: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["show", place])
    assert main() == 1
    assert "no " in capsys.readouterr().err
