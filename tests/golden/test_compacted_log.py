"""What Apache Kafka's cleaner made of a log, and what ours makes of the same segments: the same bytes.

The directory was copied while the segments that Kafka had just replaced were still there as .deleted: offsets 100-199
as they were produced, what a first pass left of them (in the segment at 0), 200-299 as produced, and what the second
pass made of both. A pass's clock is read off the delete horizon that it wrote.
"""

import tarfile
from pathlib import Path

import pytest

from kafkapy.config.log import DAY_MS, LogConfig
from kafkapy.config.log_defaults import LogDefaults
from kafkapy.record.batches import batches
from kafkapy.storage.cleaner.cleaning_pass import CleaningPass
from kafkapy.storage.cleaner.manager import CleanerManager
from kafkapy.storage.file_names import DELETED_SUFFIX
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import TopicPartition
from tests.support.chance import SeededRandom
from tests.support.logs import load_logs

ARCHIVE = Path(__file__).parent / "kafka_data_dir_clean.tar.gz"
LOG = TopicPartition("compacted", 0)
COMPACT = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "data"


def restore(partition: Path, *base_offsets: int) -> None:
    """Put replaced segments back."""
    for base_offset in base_offsets:
        for file in partition.glob(f"{base_offset:020d}.*{DELETED_SUFFIX}"):
            file.rename(file.with_suffix(""))


def remove(partition: Path, *base_offsets: int) -> None:
    for base_offset in base_offsets:
        for file in partition.glob(f"{base_offset:020d}.*"):
            file.unlink()


def clean(data: Path, first_dirty_offset: int, now_ms: int) -> None:
    disk = SystemDisk()
    logs = LogManager(disk, [str(data)], COMPACT, random=SeededRandom(1))
    logs.configure_producers(expiration_ms=1 << 60, is_verification_enabled=True)
    logs.directories.lock()
    load_logs(logs, now_ms)
    log = logs.logs[LOG]
    log.update_high_watermark(log.log_end_offset)
    log.clean_to = first_dirty_offset
    manager = CleanerManager(logs, disk)
    to_clean = manager.assess(log, now_ms)
    assert to_clean is not None
    logs.checkpoints.write_now(logs.checkpoints.recovery_points())
    cleaning = manager.begin(log, to_clean, LogDefaults(), now_ms)
    for progress in CleaningPass(disk, cleaning.plan).run():
        if progress.cleaned is not None:
            assert manager.swap_in(cleaning, progress.cleaned, now_ms)
    logs.close()


def clock_of(segment: bytes) -> int:
    """Return when Kafka's cleaner wrote a segment: delete.retention.ms before the horizon in it."""
    horizons = [batch.delete_horizon_ms for batch in batches(segment)]
    return min(horizon for horizon in horizons if horizon is not None) - DAY_MS


def test_a_segment_is_cleaned_to_the_byte_as_kafka_did(data: Path) -> None:
    partition = data / str(LOG)
    wanted = (partition / f"{0:020d}.log{DELETED_SUFFIX}").read_bytes()
    remove(partition, 0, 300)
    restore(partition, 100, 200)
    clean(data, 100, clock_of(wanted))
    assert (partition / f"{100:020d}.log").read_bytes() == wanted


def test_two_segments_become_one_to_the_byte_as_kafka_did(data: Path) -> None:
    partition = data / str(LOG)
    wanted = {suffix: (partition / f"{0:020d}{suffix}").read_bytes() for suffix in (".log", ".index", ".timeindex")}
    remove(partition, 100)
    restore(partition, 0, 200)
    clean(data, 200, clock_of(wanted[".log"]))
    assert {suffix: (partition / f"{0:020d}{suffix}").read_bytes() for suffix in wanted} == wanted
    assert sorted(int(file.stem) for file in partition.glob("*.log")) == [0, 300]
