"""The page of deviations: which paragraphs of a file it takes, and whose they are."""

from pathlib import Path

import pytest

from tools import deviations
from tools.deviations import found_in, is_well_formed, main

SOURCE = '''"""What it holds.

A deviation of the module: Kafka does otherwise.

Something else.
"""

LIMIT = 3
"""Ours alone, a deviation."""


class Log:
    """A log."""

    def append(self) -> None:
        """Append.

        Deviations: two,
        in two lines.
        """
        value = "no deviation: it is a string"
        # A comment about something.

        # Kafka waits here; a named deviation,
        # with its reason.
        return value
'''


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kafkapy" / "storage" / "log.py"
    path.parent.mkdir(parents=True)
    path.write_text(SOURCE)
    return path


def test_paragraphs_that_name_a_deviation_are_found_with_their_owners(source: Path) -> None:
    assert sorted((each.owner, each.text) for each in found_in([source])) == [
        ("", "A deviation of the module: Kafka does otherwise."),
        ("LIMIT", "Ours alone, a deviation."),
        ("Log.append", "Deviations: two,\nin two lines."),
        ("Log.append", "Kafka waits here; a named deviation,\nwith its reason."),
    ]


def test_a_deviation_in_another_form_is_reported(source, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(deviations, "ROOT", tmp_path)
    assert main([]) == 1
    assert capsys.readouterr().err.count("not of the form") == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Deviation: Apache Kafka waits. Here nothing does, because it is late.", True),
        ("It waits. Deviation: Apache Kafka's log\nis longer. Here it is not, because of that.", True),
        ("Deviation: Apache Kafka waits. Here nothing does.", False),
        ("Deviation: Apache Kafka waits, because it is late.", False),
        ("Deviation: nothing waits here, because it is late. Here.", False),
        ("A deviation: Apache Kafka waits. Here nothing does, because it is late.", False),
        ("Deviation: Apache Kafka waits. Here not, because. Another deviation: it goes on.", False),
    ],
)
def test_a_deviation_says_what_apache_kafka_does_and_what_is_done_here_and_why(text: str, expected: bool) -> None:
    assert is_well_formed(text) is expected


def test_a_page_that_is_not_up_to_date_is_reported(source, tmp_path, monkeypatch, capsys) -> None:
    written = '"""Deviation: Apache Kafka waits. Here nothing does, because it is late."""\n'
    source.write_text(written)
    monkeypatch.setattr(deviations, "ROOT", tmp_path)
    monkeypatch.setattr(deviations, "PAGE", tmp_path / "deviations.md")
    assert main(["--check"]) == 1
    assert "deviations.md is not what the code says: run make generate" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert "> Deviation: Apache Kafka waits. Here nothing does" in (tmp_path / "deviations.md").read_text()
    source.write_text(written.replace("late", "early"))
    assert main(["--check"]) == 1
