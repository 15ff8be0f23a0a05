"""Groups that change their protocol: answers and records are those that Apache Kafka gave and wrote (recorded)."""

import gzip
from pathlib import Path

import pytest

from tests.support.migration_script import Play
from tests.support.migrations import SCRIPTS

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "group_migrations.txt.gz"
"""Made by tools/record_migrations.py."""


def recorded(name: str) -> list[str]:
    scripts = gzip.decompress(GOLDEN.read_bytes()).decode().split("# ")
    (script,) = (script for script in scripts if script.startswith(f"{name}\n"))
    return script.splitlines()[1:]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_group_changes_its_protocol_as_in_apache_kafka(bootstrap: str, name: str) -> None:
    play = Play(bootstrap, name)
    try:
        SCRIPTS[name](play)
    finally:
        play.close()
    assert play.lines == recorded(name)
