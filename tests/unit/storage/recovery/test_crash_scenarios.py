"""Power cuts that crash enumeration found to lose or bring back something, one scenario each."""

from kafkapy.config.log import LogConfig
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.lookup import offset_for_timestamp
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.log.truncation import truncate_to
from kafkapy.storage.recovery.loader import LastStop
from tests.simulator.disk import SimDisk
from tests.support.cleaning import consume
from tests.support.logs import DIRECTORY, NOW_MS, PARTITION, SMALL, append, batch, marker, open_small_log


def new_log(disk: SimDisk) -> Log:
    log = open_small_log(disk)
    disk.sync_all()
    return log


def after_power_cut(disk: SimDisk, *, recovery_point: int) -> Log:
    disk.crash("none")
    log = open_log(
        disk,
        DIRECTORY,
        PARTITION,
        LogConfig(**SMALL),
        now_ms=NOW_MS,
        last_stop=LastStop(recovery_point=recovery_point, was_clean=False),
    )
    log.update_high_watermark(log.log_end_offset)
    return log


def test_what_was_truncated_stays_away_where_the_next_segment_begins_at_the_cut() -> None:
    disk = SimDisk()
    log = new_log(disk)
    for value_bytes in (1, 2, 3):
        append(log, value_bytes=value_bytes)
    flush_log(log)
    truncate_to(log, 1)
    log.roll(NOW_MS)
    append(log, value_bytes=4)
    flush_log(log)
    log = after_power_cut(disk, recovery_point=2)
    assert [(record.offset, len(record.value or b"")) for record in consume(log)] == [(0, 1), (1, 4)]


def test_a_time_index_that_a_roll_closed_and_no_flush_made_durable_is_rebuilt() -> None:
    disk = SimDisk()
    log = new_log(disk)
    append(log, 2, timestamp_ms=NOW_MS)
    flush_log(log)
    log.roll(NOW_MS)
    name = f"{DIRECTORY}/{0:020d}"
    disk.write_file_atomically(f"{name}.index", b"")  # the new sizes are there, the entry is not
    disk.write_file_atomically(f"{name}.timeindex", bytes(12))
    log = after_power_cut(disk, recovery_point=2)
    found = offset_for_timestamp(log, NOW_MS, wait=True)
    assert found is not None
    assert found.offset == 0


def test_the_next_flush_makes_the_index_of_a_closed_segment_durable() -> None:
    disk = SimDisk()
    log = new_log(disk)
    append(log, 2, timestamp_ms=NOW_MS)
    flush_log(log)
    log.roll(NOW_MS)
    append(log)
    flush_log(log)
    disk.crash("none")
    assert len(disk.read_file(f"{DIRECTORY}/{0:020d}.timeindex")) == 12


def test_a_producer_snapshot_from_before_the_first_segment_is_not_used() -> None:
    """It knows of a transaction that ended in a segment which is gone: the last stable offset would stay for ever."""
    disk = SimDisk()
    log = new_log(disk)
    data = batch(producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    for offset, each in enumerate((data, marker(is_abort=False))):
        each[0:8] = offset.to_bytes(8, "big")
        log.append_as_follower(each, NOW_MS)
        log.roll(NOW_MS)
    append(log)
    flush_log(log)
    for base_offset in (0, 1):
        for suffix in (".log", ".index", ".timeindex"):
            disk.delete(f"{DIRECTORY}/{base_offset:020d}{suffix}")
    disk.write_file_atomically(f"{DIRECTORY}/{2:020d}.snapshot", b"damaged")
    disk.sync_all()
    log = after_power_cut(disk, recovery_point=0)
    assert log.last_stable_offset == log.log_end_offset == 3
    assert log.read(2, 1, isolation=FetchIsolation.TXN_COMMITTED).region is not None
