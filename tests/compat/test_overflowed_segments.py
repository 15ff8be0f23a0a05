"""Segments whose offsets their indexes cannot hold, written by Apache Kafka's classes: loading them makes of them what
Apache Kafka's loading does, file by file.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from harness.servers import java
from kafkapy.config.log import LogConfig
from kafkapy.record.batches import batches
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import TopicPartition
from tests.compat.conftest import QUICK_JVM
from tools.kafka import JAVA_LIBS

pytestmark = pytest.mark.ours

SOURCE = Path(__file__).with_name("OverflowedSegments.java")
CASES = ["three-parts", "starts-late", "across-the-limit", "far-apart", "old-gzip", "old-plain", "transactions"]
CONFIG = {"index_interval_bytes": 200, "segment_bytes": 1 << 20, "segment_index_bytes": 4096}
Made = tuple[Path, dict[tuple[str, str], tuple[int, int]]]
"""A directory, and the log start and end offsets of Apache Kafka's logs in it, by (how it was stopped, case)."""

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Made:
    if not JAVA_LIBS.is_dir() or shutil.which("java") is None:
        pytest.skip("Apache Kafka's jars or Java are missing: run `make tools`")
    directory = tmp_path_factory.mktemp("overflowed")
    command = java(str(SOURCE), str(directory))
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JVM}
    )
    assert found.returncode == 0, found.stderr
    rows = (line.split() for line in found.stdout.splitlines())
    return directory, {(how, case): (int(start), int(end)) for how, case, start, end in rows}


def load(directory: Path, *, is_clean: bool, policy: str = "compact") -> Log:
    return open_log(
        SystemDisk(),
        str(directory),
        TopicPartition("t", 0),
        LogConfig(**CONFIG, cleanup_policy=(policy,), retention_ms=-1),  # type: ignore[arg-type]
        now_ms=time.time_ns() // 1_000_000,
        last_stop=LastStop(was_clean=is_clean),
    )


def files_in(directory: Path) -> dict[str, bytes]:
    """Return the files of the log; those that are empty are there or not by chance.

    Apache Kafka 4.4.0 leaves the zeros behind an index's entries, for which it set room aside.
    """
    found = {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix in SUFFIXES}
    trimmed = {name: data.rstrip(b"\0") if name.endswith("index") else data for name, data in found.items()}
    return {name: data for name, data in trimmed.items() if data}


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("case", CASES)
def test_after_a_kill_it_becomes_what_apache_kafka_makes_of_it(
    kafka: Made, tmp_path: Path, case: str, policy: str
) -> None:
    root, offsets = kafka
    directory = tmp_path / "t-0"
    shutil.copytree(root / "written" / case / "t-0", directory)
    log = load(directory, is_clean=False, policy=policy)
    assert (log.log_start_offset, log.log_end_offset) == offsets["killed", case]
    log.close()
    assert files_in(directory) == files_in(root / "killed" / case / "t-0")


@pytest.mark.parametrize("case", CASES)
def test_after_a_stop_without_its_indexes_it_is_split_alike(kafka: Made, tmp_path: Path, case: str) -> None:
    """But for two faults of Apache Kafka: it makes only the first transaction index, and keeps what begins late."""
    root, offsets = kafka
    directory = tmp_path / "t-0"
    shutil.copytree(root / "written" / case / "t-0", directory)
    log = load(directory, is_clean=True)
    theirs = files_in(root / "stopped" / case / "t-0")
    if case == "starts-late":
        theirs = {name: data for name, data in theirs.items() if int(name[:20]) > 0}
        assert log.log_start_offset == 9
    else:
        assert log.log_start_offset == offsets["stopped", case][0]
    assert log.log_end_offset == offsets["stopped", case][1]
    log.close()
    ours = files_in(directory)
    if case == "transactions":
        assert [name for name in theirs if name.endswith(".txnindex")] == [f"{0:020d}.txnindex"]
        wanted = files_in(root / "killed" / case / "t-0")
        assert _only(ours, ".txnindex") == _only(wanted, ".txnindex") != {}
    for suffix in (".log", ".index", ".timeindex"):
        assert _only(ours, suffix) == _only(theirs, suffix)


def _only(files: dict[str, bytes], suffix: str) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name.endswith(suffix)}


@pytest.mark.parametrize("case", CASES)
def test_all_batches_are_found_by_their_offsets(kafka: Made, tmp_path: Path, case: str) -> None:
    root, _ = kafka
    directory = tmp_path / "t-0"
    shutil.copytree(root / "written" / case / "t-0", directory)
    written = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    log = load(directory, is_clean=False)
    log.update_high_watermark(log.log_end_offset)
    for batch in batches(written):
        read = log.read(batch.base_offset, 1)
        assert read.region is not None
        assert read.region.read() == batch.raw()
        read.region.release()
    log.close()
