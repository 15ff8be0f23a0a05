"""Which segments are not split: an offset that leaps ahead may be damage. The others are tests/compat's and sim's."""

from typing import Any

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError
from kafkapy.storage.file_names import CLEANED_SUFFIX, LOG_SUFFIX, segment_file
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.recovery.loader import LastStop
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch
from tests.support.logs import DIRECTORY, NOW_MS, PARTITION

FAR = 1 << 31


def batch(base_offset: int) -> bytes:
    return build_batch([(NOW_MS, b"key", bytes(50), ())], base_offset=base_offset, leader_epoch=0)


def disk_with(**segments: bytes) -> SimDisk:
    """Return a disk with a log; segments by the word "at_" and their base offset."""
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    for name, data in segments.items():
        disk.write_file_atomically(segment_file(DIRECTORY, int(name[3:]), LOG_SUFFIX), data)
    return disk


def load(disk: SimDisk, **options: Any) -> Log:
    config = LogConfig(segment_index_bytes=480)
    return open_log(disk, DIRECTORY, PARTITION, config, now_ms=NOW_MS, **options)


def logs_on(disk: SimDisk) -> list[int]:
    return [int(name[:20]) for name in disk.list_directory(DIRECTORY) if name.endswith(LOG_SUFFIX)]


def test_a_leap_from_which_the_next_batch_returns_is_damage() -> None:
    disk = disk_with(at_0=batch(0) + batch(1) + batch(FAR << 8) + batch(3) + batch(4))
    log = load(disk, last_stop=LastStop(was_clean=False))
    assert (log.log_end_offset, logs_on(disk)) == (2, [0])


def test_a_leap_behind_the_next_segment_is_damage() -> None:
    disk = disk_with(at_0=batch(0) + batch(1) + batch(FAR << 8), at_3=batch(3))
    log = load(disk, last_stop=LastStop(was_clean=False))
    assert (log.log_end_offset, logs_on(disk)) == (2, [0])


def test_a_leap_in_the_last_part_does_not_keep_the_others_from_being_split() -> None:
    disk = disk_with(at_0=batch(0) + batch(FAR) + batch(FAR + 1) + batch(FAR << 8) + batch(FAR + 3))
    log = load(disk, last_stop=LastStop(was_clean=False))
    assert (log.log_end_offset, logs_on(disk)) == (FAR + 2, [0, FAR])


def test_what_looks_sound_but_cannot_be_split_whole_stays_as_it_is() -> None:
    damaged = bytearray(batch(1))
    damaged[-1] ^= 1
    data = batch(0) + bytes(damaged) + batch(FAR) + batch(FAR + 1)
    disk = disk_with(at_0=data)
    for suffix in (".index", ".timeindex"):
        disk.write_file_atomically(segment_file(DIRECTORY, 0, suffix), b"")
    log = load(disk)
    assert log.log_end_offset == FAR + 2
    assert disk.read_file(segment_file(DIRECTORY, 0, LOG_SUFFIX)) == data


def test_a_full_disk_leaves_the_segment_whole() -> None:
    data = b"".join(map(batch, (0, 1, FAR, FAR + 1)))
    disk = disk_with(at_0=data)
    disk.capacity_bytes = disk.used_bytes() + 300
    with pytest.raises(ApiError, match="No space left on device"):
        load(disk, last_stop=LastStop(was_clean=False))
    assert disk.read_file(segment_file(DIRECTORY, 0, LOG_SUFFIX)) == data
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(CLEANED_SUFFIX)]
    disk.heal()
    assert load(disk, last_stop=LastStop(was_clean=False)).log_end_offset == FAR + 2
    assert logs_on(disk) == [0, FAR]
