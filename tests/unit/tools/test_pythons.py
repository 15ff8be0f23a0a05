"""Which Pythons `make packages` and `make test-pythons` find: no stub, the newest of several, the reason for none."""

import sys
from pathlib import Path

import pytest

from tools import pythons

THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"


def install(directory: Path, name: str, version: str, text: str) -> Path:
    program = directory / name / "bin" / f"python{version}"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o700)
    return program


def test_the_newest_that_runs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    install(tmp_path, f"{THIS}.9", THIS, f"echo {THIS}")
    newest = install(tmp_path, f"cpython-{THIS}.10-linux", THIS, f"echo {THIS}")
    install(tmp_path, f"{THIS}.11", THIS, "exit 127")
    install(tmp_path, f"{THIS}.12", THIS, "echo 2.7")
    assert pythons.interpreter(THIS, [tmp_path]) == str(newest)
    assert pythons.interpreter("3.99", [tmp_path], tmp_path) is None


def test_one_of_the_path_comes_first_unless_it_is_a_stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = install(tmp_path, "stubs", THIS, "exit 127")
    real = install(tmp_path, "real", THIS, f"echo {THIS}")
    other = install(tmp_path / "others", f"{THIS}.1", THIS, f"echo {THIS}")
    for first, found in ((real, real), (stub, other)):
        monkeypatch.setenv("PATH", str(first.parent))
        assert pythons.interpreter(THIS, [tmp_path / "others"]) == str(found)


def test_what_is_not_here_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(pythons, "interpreter", lambda version: "/there" if version == "3.12" else None)
    assert pythons.main() == 0
    output = capsys.readouterr()
    assert output.out == "/there\n"
    missing = [version for version in pythons.SUPPORTED if version != "3.12"]
    assert output.err == "".join(f"Python {version} is not here: skipped\n" for version in missing)


def test_one_of_the_next_pythons_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    fetched = install(tmp_path / "next", "usr", THIS, f"echo {THIS}")
    assert pythons.interpreter(THIS, [tmp_path], tmp_path / "next") == str(fetched)
    installed = install(tmp_path, f"{THIS}.1", THIS, f"echo {THIS}")
    assert pythons.interpreter(THIS, [tmp_path], tmp_path / "next") == str(installed)


def test_others_are_those_of_another_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pythons, "interpreter", lambda version: f"/python{version}")
    pythons.main(["--others"])
    others = [f"/python{version}" for version in pythons.SUPPORTED if version != THIS]
    assert capsys.readouterr().out.split() == others
