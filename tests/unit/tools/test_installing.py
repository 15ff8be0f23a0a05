"""What `make tools` installs of Debian, with an `apt-get` that only writes down what it was given."""

import os
from pathlib import Path

import pytest

from tools import kafka


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may install packages")
@pytest.mark.parametrize("has_systemd", [False, True])
def test_prometheus_is_installed_only_where_that_starts_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_systemd: bool
) -> None:
    program = tmp_path / "apt-get"
    program.write_text(f'#!/bin/sh\necho "$RUNLEVEL $*" >>{tmp_path}/calls\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(kafka, "SYSTEMD", tmp_path if has_systemd else tmp_path / "none")
    kafka.fetch_prometheus()
    calls = tmp_path / "calls"
    if has_systemd:
        assert not calls.exists()
        assert "install it (Debian: prometheus)" in capsys.readouterr().out
    else:
        assert calls.read_text().splitlines()[-1] == "1 install -y -qq --no-install-recommends prometheus"
