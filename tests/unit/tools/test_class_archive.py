"""The archive of Kafka's classes, with a `java` that is killed amid writing it."""

from pathlib import Path

import pytest

from harness.class_archive import make

JAVA = """#!/bin/sh
case "$*" in
    -version) echo 'openjdk version "17.0.1"' >&2;;
    *StorageTool*) ;;
    *-Xshare:on*) exit 1;;
    *) for option; do case $option in -XX:ArchiveClassesAtExit=*) echo half >"${option#*=}";; esac; done; exit 137;;
esac
"""


@pytest.mark.parametrize("before", [None, "of another Java"])
def test_a_killed_jvm_leaves_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text(JAVA)
    (tmp_path / "bin" / "java").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    archive = tmp_path / "kafka" / "classes.jsa"
    archive.parent.mkdir()
    if before is not None:
        archive.write_text(before)
    with pytest.raises(RuntimeError, match="did not start"):
        make(archive)
    assert list(archive.parent.iterdir()) == []
