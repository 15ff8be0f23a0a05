"""Getting the next Pythons: the reason that is printed where they cannot be had, and what is left behind."""

from pathlib import Path

import pytest

from tools import next_pythons

ARCHIVE = "Debian main http://127.0.0.1:9/debian/"


def program(directory: Path, name: str, text: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(0o700)


@pytest.mark.parametrize(
    ("apt_get", "reason"),
    [
        (None, "this is no Debian"),
        ("exit 0", "apt knows no Debian archive"),
        (f'case $1 in indextargets) echo "{ARCHIVE}";; *) echo "E: no route" >&2; exit 100;; esac', "E: no route"),
        (f'case $1 in indextargets) echo "{ARCHIVE}";; esac', "no package was downloaded"),
    ],
)
def test_where_they_cannot_be_had_the_reason_is_printed_and_nothing_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    apt_get: str | None,
    reason: str,
) -> None:
    programs = tmp_path / "bin"
    program(programs, "dpkg", "exit 0")
    if apt_get is not None:
        program(programs, "apt-get", apt_get)
    monkeypatch.setenv("PATH", str(programs))
    target = tmp_path / "tools" / "pythons"
    target.parent.mkdir()
    assert next_pythons.main(target) == 0
    assert "of Debian's sid are not here: skipped: " in (printed := capsys.readouterr().out)
    assert reason in printed
    assert list(target.parent.iterdir()) == []


def test_what_is_there_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    next_pythons.fetch(tmp_path)
