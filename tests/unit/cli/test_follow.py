"""cluster logs --follow: lines that are appended to files, also after they are replaced."""

from pathlib import Path

import pytest

from kafkapy.cli import follow as following
from kafkapy.cli.follow import GrowingFile, follow


def test_whole_lines_are_shown_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before\n")
    file = GrowingFile(path)
    with path.open("ab") as appended:
        appended.write(b"one\ntw")
        appended.flush()
        assert file.lines() == ["one"]
        appended.write(b"o\n\xff\n")
        appended.flush()
        assert file.lines() == ["two", "\ufffd"]
    assert file.lines() == []


def test_a_file_that_is_replaced_truncated_or_made_is_read_from_its_begin(tmp_path: Path) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    file = GrowingFile(path)
    assert file.lines() == []
    path.write_text("made\n")
    assert file.lines() == ["made"]
    other.write_text("replaced\nby this\n")
    other.replace(path)
    assert file.lines() == ["replaced", "by this"]
    path.write_text("cut\n")
    assert file.lines() == ["cut"]


def test_a_long_piece_is_read_in_parts(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "log"
    file = GrowingFile(path)
    path.write_text("abcdef\nghi\n")
    monkeypatch.setattr(following, "READ_BYTES", 4)
    assert [file.lines() for _ in range(4)] == [[], ["abcdef"], ["ghi"], []]


def test_files_are_followed_until_ctrl_c(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    files = [(f"{path.name}: ", GrowingFile(path)) for path in paths]
    shown: list[str] = []

    def wait(_: float) -> None:
        if shown:
            raise KeyboardInterrupt
        for path in paths:
            path.write_text(f"of {path.name}\n")

    with pytest.raises(KeyboardInterrupt):
        follow(files, shown.append, wait)
    assert shown == ["a: of a", "b: of b"]
