"""A directory whose logs are there, but not what says whose they are: the start refuses, touches nothing, says why."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.errors import KafkapyError
from tests.support.client_requests import create_topic, metadata
from tests.support.wire import WireClient

pytestmark = pytest.mark.ours

METADATA = "__cluster_metadata-0"


@pytest.fixture
def used(directory: Path) -> Path:
    """A directory that a broker has used."""
    with Broker(data_dir=directory) as broker, WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "kept")
    return directory


def lose_metadata_log(used: Path) -> None:
    (used / METADATA).rename(used.parent / METADATA)


def lose_what_is_in_the_metadata_log(used: Path) -> None:
    lose_metadata_log(used)
    (used / METADATA).mkdir()


def lose_meta_properties(used: Path) -> None:
    (used / "meta.properties").rename(used.parent / "meta.properties")


def give_back(used: Path) -> None:
    for name in (METADATA, "meta.properties"):
        if (used.parent / name).exists():
            shutil.rmtree(used / name, ignore_errors=True)
            (used.parent / name).rename(used / name)


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("lose", "output"),
    [
        (lose_metadata_log, f"{METADATA} is missing or empty.* Restore"),
        (lose_what_is_in_the_metadata_log, f"{METADATA} is missing or empty.* Restore"),
        (lose_meta_properties, "No readable meta.properties files found.* Restore"),
    ],
)
def test_a_start_touches_nothing_and_once_mended_the_directory_serves_again(
    used: Path, lose: Callable[[Path], None], output: str
) -> None:
    lose(used)
    before = contents(used)
    for _ in range(2):
        with pytest.raises(KafkapyError, match=output), Broker(data_dir=used):
            pass
        assert contents(used) == before
    give_back(used)
    with Broker(data_dir=used) as broker, WireClient(broker.bootstrap_servers) as client:
        assert metadata(client, "kept").topics[0].error_code == 0


@pytest.mark.parametrize("arguments", [["start", "--port", "0", "--data-dir"], ["storage", "format", "--standalone"]])
def test_the_process_reports_it_in_one_line(used: Path, arguments: list[str], tmp_path: Path) -> None:
    lose_meta_properties(used)
    before = contents(used)
    if arguments[0] == "start":
        arguments = [*arguments, str(used)]
    else:
        properties = tmp_path / "server.properties"
        properties.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            "controller.quorum.bootstrap.servers=localhost:19093\n"
            f"listeners=PLAINTEXT://localhost:19092,CONTROLLER://localhost:19093\nlog.dirs={used}\n"
        )
        arguments = [*arguments, "--cluster-id", "CCCCCCCCCCCCCCCCCCCCCQ", "--config", str(properties)]
    command = [sys.executable, "-m", "kafkapy", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "No readable meta.properties files found." in result.stderr
    assert contents(used) == before


def test_without_logs_a_directory_begins_anew(used: Path) -> None:
    lose_metadata_log(used)
    lose_meta_properties(used)
    for path in used.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    with Broker(data_dir=used) as broker, WireClient(broker.bootstrap_servers) as client:
        assert metadata(client, "kept").topics[0].error_code == 3


def test_an_interrupted_format_is_finished(directory: Path) -> None:
    """meta.properties is written last; before it, the voters' checkpoint of the metadata log."""
    with Broker(data_dir=directory):
        pass
    for path in directory.iterdir():
        if path.is_file():
            path.unlink()
    for path in (directory / METADATA).iterdir():
        if path.name != f"{0:020}-{0:010}.checkpoint":
            path.unlink()
    with Broker(data_dir=directory) as broker, WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "new")


@pytest.mark.parametrize(("controllers", "status"), [("localhost:19093", 1), ("localhost:19093,localhost:19094", 0)])
def test_a_lost_metadata_directory_is_formatted_where_other_controllers_have_the_metadata(
    used: Path, tmp_path: Path, controllers: str, status: int
) -> None:
    """The node has two directories: the first, with the metadata, is new; the second has its records still."""
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers={controllers}\n"
        f"listeners=PLAINTEXT://localhost:19092,CONTROLLER://localhost:19093\nlog.dirs={tmp_path / 'new'},{used}\n"
    )
    lose_metadata_log(used)
    cluster_id = next(line for line in (used / "meta.properties").read_text().splitlines() if "cluster.id" in line)
    options = ["-c", str(properties), "-t", cluster_id.partition("=")[2], "--ignore-formatted"]
    assert main(["storage", "format", *options, "--no-initial-controllers"]) == status
    assert (tmp_path / "new" / "meta.properties").exists() == (status == 0)
