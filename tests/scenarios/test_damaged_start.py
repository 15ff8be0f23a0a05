"""A directory whose metadata is damaged: the broker says what is wrong, starts nothing, and holds nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.errors import KafkapyError
from tests.support.client_requests import create_topic, metadata
from tests.support.wire import WireClient

pytestmark = pytest.mark.ours

METADATA = "__cluster_metadata-0"
DAMAGED = {
    "meta.properties": b"version=1\nnode.id=one\n",
    f"{METADATA}/quorum-state": b'{"data_version"',
    f"{METADATA}/quorum-state ": b"[]",
    f"{METADATA}/{0:020}-{0:010}.checkpoint": b"garbage",
    "bootstrap.checkpoint": b"",
    "bootstrap.checkpoint ": bytes(12) + b"\xff" * 20,
}


@pytest.fixture
def used(directory: Path) -> Path:
    """A directory that a broker has used."""
    with Broker(data_dir=directory) as broker, WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "kept")
    return directory


@pytest.mark.parametrize(("name", "damage"), DAMAGED.items(), ids=[name.strip() for name in DAMAGED])
def test_damage_is_reported_and_once_mended_the_directory_serves_again(used: Path, name: str, damage: bytes) -> None:
    path = used / name.strip()
    intact = path.read_bytes()
    path.write_bytes(damage)
    with pytest.raises(KafkapyError, match=path.name), Broker(data_dir=used):
        pass
    path.write_bytes(intact)
    with Broker(data_dir=used) as broker, WireClient(broker.bootstrap_servers) as client:
        assert metadata(client, "kept").topics[0].error_code == 0


def test_the_process_reports_it_in_one_line(used: Path) -> None:
    (used / METADATA / "quorum-state").write_bytes(b"{")
    command = [sys.executable, "-m", "kafkapy", "start", "--port", "0", "--data-dir", str(used)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "quorum-state cannot be read" in result.stderr
