"""What opening a log does about damage and leftovers; crashes are tests/sim/test_crash_enumeration.py's."""

import errno
import logging
from random import Random
from typing import Any

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.record.batches import batches
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.lookup import aborted_transactions
from kafkapy.storage.log.maintenance import delete_due_files
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.manager.recovery_process import hand_over
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.storage.segment.txn_index import ENTRY, VERSION, AbortedTransaction
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch
from tests.support.logs import DIRECTORY, NOW_MS, PARTITION, append, batch, open_small_log

CONFIG: dict[str, Any] = {"segment_bytes": 2000, "index_interval_bytes": 200}
COMPACTED: dict[str, Any] = {**CONFIG, "cleanup_policy": ("compact",)}


def written_log(count: int = 30) -> tuple[SimDisk, dict[str, bytes]]:
    """Return a disk with a cleanly closed log of several segments, and its files."""
    disk = SimDisk()
    log = open_small_log(disk, **CONFIG)
    for i in range(count):
        append(log, value_bytes=100, timestamp_ms=NOW_MS + i, producer_id=7, producer_epoch=0, base_sequence=i)
    log.close()
    return disk, files_of(disk)


def files_of(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.read_file(f"{DIRECTORY}/{name}") for name in disk.list_directory(DIRECTORY)}


def replace(disk: SimDisk, name: str, data: bytes) -> None:
    disk.write_file_atomically(f"{DIRECTORY}/{name}", data)


def reopen(disk: SimDisk, *, clean: bool = False, cleanup_policy: tuple[str, ...] = ("delete",), **options: Any) -> Log:
    log = open_log(
        disk,
        DIRECTORY,
        PARTITION,
        LogConfig(**{**CONFIG, "segment_index_bytes": 4096}, cleanup_policy=cleanup_policy),
        now_ms=NOW_MS,
        last_stop=LastStop(was_clean=clean, **options),
    )
    log.update_high_watermark(log.log_end_offset)
    return log


def segment_names(files: dict[str, bytes], suffix: str = ".log") -> list[str]:
    return sorted(name for name in files if name.endswith(suffix))


def assert_serves_a_prefix(log: Log, files: dict[str, bytes]) -> None:
    """Every batch that is served is one that was written, from offset 0 on."""
    written = b"".join(files[name] for name in segment_names(files))
    served = b"".join(segment.log.file.pread(segment.size, 0) for segment in log.segments)
    assert written.startswith(served)
    assert sum(1 for _ in batches(served)) == log.log_end_offset


def test_a_torn_tail_is_cut_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    disk, files = written_log()
    last = segment_names(files)[-1]
    replace(disk, last, files[last][:-5])
    with caplog.at_level(logging.WARNING, "kafkapy.storage"):
        log = reopen(disk)
    assert log.log_end_offset == 29
    base_offset = int(last[:20])
    assert f"Corruption found in segment {base_offset} of t-0, truncating to offset 29: 165 bytes cut" in caplog.text
    assert append(log, producer_id=7, producer_epoch=0, base_sequence=29) == 29


def test_what_recovery_cuts_stays_cut_after_a_power_loss() -> None:
    disk, files = written_log()
    first, second, *_ = segment_names(files)
    damaged = bytearray(files[second])
    damaged[100] ^= 1
    replace(disk, second, bytes(damaged))
    disk.sync_all()
    end_offset = reopen(disk).log_end_offset
    disk.crash("none")
    assert b"".join(files_of(disk)[name] for name in segment_names(files_of(disk))) == files[first]
    assert reopen(disk).log_end_offset == end_offset


def test_a_damaged_segment_ends_the_log() -> None:
    disk, files = written_log()
    first, second, *_ = segment_names(files)
    damaged = bytearray(files[second])
    damaged[100] ^= 1
    replace(disk, second, bytes(damaged))
    log = reopen(disk)
    assert log.log_end_offset == int(second[:20])
    assert len(log.segments) == 2
    delete_due_files(log, NOW_MS + 60_000)
    delete_due_files(log, NOW_MS + 120_000)
    log.close()
    assert segment_names(files_of(disk)) == [first, second]


def test_below_the_recovery_point_nothing_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    disk, files = written_log()
    first = segment_names(files)[0]
    damaged = bytearray(files[first])
    damaged[100] ^= 1
    replace(disk, first, bytes(damaged))
    with caplog.at_level("INFO"):
        log = reopen(disk, recovery_point=29)
    assert log.log_end_offset == 30
    lines = [line for line in caplog.messages if "unflushed" in line]
    assert lines == [f"Recovering unflushed segment {log.segments.active.base_offset}. 0/1 recovered for {PARTITION}."]


@pytest.mark.parametrize("seed", range(8))
def test_random_damage_never_serves_what_was_not_written(seed: int) -> None:
    random = Random(seed)
    for _ in range(25):
        disk, files = written_log()
        name = random.choice(sorted(files))
        damaged = bytearray(files[name])
        kind = random.choice(["flip", "zeros", "cut", "garbage", "twice", "missing"])
        if kind == "flip" and damaged:
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        elif kind == "zeros" and damaged:
            start = random.randrange(len(damaged))
            damaged[start : start + 512] = bytes(len(damaged[start : start + 512]))
        elif kind == "cut":
            del damaged[random.randrange(len(damaged) + 1) :]
        elif kind == "garbage":
            damaged += random.randbytes(random.randrange(1, 600))
        elif kind == "twice":
            damaged = damaged * 2
        replace(disk, name, bytes(damaged))
        if kind == "missing":
            disk.delete(f"{DIRECTORY}/{name}")
        log = reopen(disk)
        if kind != "missing" or not name.endswith(".log"):
            assert_serves_a_prefix(log, files)
        if not name.endswith(".log"):
            assert log.log_end_offset == 30
            log.close()
            assert {n: d for n, d in files_of(disk).items() if "index" in n} == {
                n: d for n, d in files.items() if "index" in n
            }


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "cut", "zeros"])
def test_indexes_are_rebuilt_wherever_they_are(damage: str, suffix: str, clean: bool) -> None:
    disk, files = written_log()
    for name in segment_names(files, suffix):
        if damage == "missing":
            disk.delete(f"{DIRECTORY}/{name}")
        else:
            replace(disk, name, files[name][:-3] if damage == "cut" else files[name] + bytes(120))
    log = reopen(disk, clean=clean, recovery_point=30)
    assert log.log_end_offset == 30
    log.close()
    assert files_of(disk) == files


@pytest.mark.parametrize("recovery_point", [0, 30])
def test_a_full_disk_leaves_a_rebuilt_time_index_without_its_entries(recovery_point: int) -> None:
    disk, files = written_log()
    for name in segment_names(files, ".timeindex"):
        disk.delete(f"{DIRECTORY}/{name}")
    disk.fail("write", errno.ENOSPC, path=".timeindex", times=1000)
    log = reopen(disk, recovery_point=recovery_point)
    assert_serves_a_prefix(log, files)
    assert log.log_end_offset == 30
    assert {segment.time_index.entry_count for segment in log.segments} == {0}


@pytest.mark.parametrize("clean", [True, False])
def test_an_aborted_transaction_that_was_cut_off_is_not_believed(clean: bool) -> None:
    """Its segment is below the recovery point; the cut of the index had not reached the disk. Found by the soak."""
    disk, files = written_log()
    first = min(name for name in files if name.endswith(".log")).removesuffix(".log")
    entry = AbortedTransaction(producer_id=7, first_offset=28, last_offset=29, last_stable_offset=30)
    replace(disk, f"{first}.txnindex", ENTRY.pack(VERSION, *entry))
    log = reopen(disk, clean=clean, recovery_point=30)
    assert aborted_transactions(log, 0, 100) == []
    assert log.log_end_offset == 30


def test_missing_snapshots_are_made_again() -> None:
    disk, files = written_log()
    for name in segment_names(files, ".snapshot"):
        disk.delete(f"{DIRECTORY}/{name}")
    log = reopen(disk)
    assert log.producer_state.producers[7].last_sequence == 29
    log.close()
    snapshots = segment_names(files_of(disk), ".snapshot")
    assert snapshots == segment_names(files, ".snapshot")


def test_a_damaged_snapshot_makes_way_for_an_older_one() -> None:
    disk, files = written_log()
    last = segment_names(files, ".snapshot")[-1]
    replace(disk, last, b"\0\1" + bytes(20))
    log = reopen(disk, clean=True)
    assert log.producer_state.producers[7].last_sequence == 29


@pytest.mark.parametrize("segment_bytes", [400, 2000, 1 << 20])
@pytest.mark.parametrize("is_recovered", [False, True])
def test_a_retry_of_the_last_five_batches_is_known_after_a_kill(segment_bytes: int, is_recovered: bool) -> None:
    """Of every producer, however its batches lie among others; is_recovered: a helper process did the work."""
    disk = SimDisk()
    log = open_small_log(disk, segment_bytes=segment_bytes)
    next_sequences = {(7, 0): 0, (8, 0): 0, (8, 1): 0, (9, 0): 0}
    for number, producer_id in enumerate([8, 8, *Random(5).choices((7, 8, 9), k=60), 7, 8, 9, 9, 9, 9, 9, 9]):
        producer = producer_id, int(producer_id == 8 and number > 1)
        count = 1 + number % 3
        fields = {"producer_id": producer_id, "producer_epoch": producer[1], "base_sequence": next_sequences[producer]}
        append(log, count, **fields)
        next_sequences[producer] += count
    expected = {each.producer_id: (each.producer_epoch, each.batches) for each in log.producer_state.producers.values()}
    assert {len(batches) for _, batches in expected.values()} == {5}
    if is_recovered:
        hand_over(reopen(disk))
    recovered = reopen(disk, is_recovered=is_recovered)
    found = recovered.producer_state.producers.values()
    assert {each.producer_id: (each.producer_epoch, each.batches) for each in found} == expected
    end_offset = recovered.log_end_offset
    for producer_id, (epoch, kept) in expected.items():
        for each in kept:
            count = each.offset_delta + 1
            retried = batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=each.first_sequence)
            result = recovered.append_as_leader(retried, leader_epoch=0, now_ms=NOW_MS)
            assert (result.is_duplicate, result.first_offset) == (True, each.first_offset)
    assert recovered.log_end_offset == end_offset


def test_leader_epochs_are_found_again() -> None:
    disk = SimDisk()
    log = open_small_log(disk, **CONFIG)
    for i in range(30):
        append(log, value_bytes=100, leader_epoch=i // 10)
    log.close()
    wanted = [(0, 0), (1, 10), (2, 20)]
    for data in (b"0\n1\n0 0\n", b"garbage\nx", None):
        if data is None:
            disk.delete(f"{DIRECTORY}/leader-epoch-checkpoint")
        else:
            replace(disk, "leader-epoch-checkpoint", data)
        log = reopen(disk)
        assert [tuple(entry) for entry in log.leader_epochs.entries] == wanted
        log.close()


def test_deleted_and_cleaned_files_go() -> None:
    disk, files = written_log()
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.log.cleaned", "x.checkpoint.deleted"):
        replace(disk, name, b"x")
    reopen(disk, clean=True).close()
    assert set(files_of(disk)) == {*files, "x.checkpoint.deleted"}


def test_a_complete_swap_replaces_the_segments_that_it_covers() -> None:
    disk, files = written_log()
    first, second, third, *_ = segment_names(files)
    end_offset = int(third[:20])
    swap = build_batch(
        [(NOW_MS, None, b"compacted", ())], base_offset=0, last_offset_delta=end_offset - 1, leader_epoch=0
    )
    replace(disk, first + ".swap", swap)
    replace(disk, first.replace(".log", ".index.swap"), b"")
    replace(disk, first.replace(".log", ".timeindex.swap"), b"")
    log = reopen(disk)
    assert [segment.base_offset for segment in log.segments][:2] == [0, end_offset]
    assert log.log_end_offset == 30
    read = log.read(0, 1, isolation=FetchIsolation.LOG_END)
    assert read.region is not None
    assert read.region.read() == swap
    assert second not in files_of(disk)


def test_a_swap_whose_parts_were_not_all_ready_is_undone() -> None:
    disk, files = written_log()
    second = segment_names(files)[1]
    replace(disk, second + ".swap", b"x" * 100)
    replace(disk, segment_names(files)[0] + ".cleaned", b"x")
    log = reopen(disk)
    log.close()
    assert files_of(disk) == files


def test_orphaned_indexes_go() -> None:
    disk, files = written_log()
    replace(disk, "00000000000000009999.index", b"x")
    reopen(disk, clean=True).close()
    assert files_of(disk) == files


def test_a_gap_between_segments_ends_a_log_that_was_never_compacted(caplog: pytest.LogCaptureFixture) -> None:
    disk, files = written_log()
    second = segment_names(files)[1]
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        disk.delete(f"{DIRECTORY}/{second[:20]}{suffix}")
    log = reopen(disk)
    assert log.log_end_offset == int(second[:20])
    assert "does not follow offset" in caplog.text
    append(log)


def test_a_gap_between_segments_is_fine_where_the_log_was_compacted() -> None:
    disk = SimDisk()
    log = open_small_log(disk, **CONFIG)
    for offset in (0, 5):
        log.append_as_follower(build_batch([(NOW_MS, None, b"", ())], base_offset=offset), NOW_MS)
    log.roll(NOW_MS, at_offset=20)
    log.append_as_follower(build_batch([(NOW_MS, None, b"", ())], base_offset=20), NOW_MS)
    log.close()
    assert reopen(disk).log_end_offset == 21


def compacted_log(*records: tuple[int, int]) -> SimDisk:
    """Return a disk with a compacted log, not stopped cleanly: a segment for each (base offset, first offset)."""
    disk = SimDisk()
    log = open_small_log(disk, **COMPACTED)
    for base_offset, first_offset in records:
        log.roll(NOW_MS, at_offset=base_offset)
        if first_offset >= 0:
            log.append_as_follower(build_batch([(NOW_MS, b"key", b"", ())], base_offset=first_offset), NOW_MS)
    disk.sync_all()
    return disk


@pytest.mark.parametrize(
    ("recovery_point", "clean_to", "end_offset"),
    [
        (0, 0, 1),  # what is above both checkpoints was written by appends, which leave no gap: records are lost
        (9, 0, 1),
        (10, 0, 31),  # segment 10 was emptied before the recovery point was checkpointed
        (0, 1, 31),  # Apache Kafka's cleaner runs ahead of its recovery point
        (0, None, 31),  # no checkpoint of the recovery point: nothing is known
    ],
)
def test_a_gap_in_a_compacted_log_is_a_loss_where_the_cleaner_has_not_been(
    recovery_point: int, clean_to: int | None, end_offset: int
) -> None:
    disk = compacted_log((0, 0), (10, 30))
    log = reopen(disk, recovery_point=recovery_point, clean_to=clean_to, cleanup_policy=("compact",))
    assert log.log_end_offset == end_offset


def test_an_empty_segment_of_a_compacted_log_lost_its_records() -> None:
    disk = compacted_log((0, 0), (1, 5), (6, 6))
    second = f"{DIRECTORY}/{1:020d}"
    disk.open(second + ".log").truncate(0)
    disk.sync_all()
    log = reopen(disk, recovery_point=1, clean_to=0, cleanup_policy=("compact",))
    assert log.log_end_offset == 1
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_damaged_leader_epochs_do_not_make_a_loss_of_what_the_cleaner_removed() -> None:
    """All segments are read then, those below the recovery point, too."""
    for is_clean in (True, False):
        disk = compacted_log((0, 0), (10, 10))
        replace(disk, "leader-epoch-checkpoint", b"x")
        log = reopen(disk, clean=is_clean, recovery_point=10, clean_to=0, cleanup_policy=("compact",))
        assert log.log_end_offset == 11


def test_a_follower_leaves_no_gap_between_segments() -> None:
    disk = SimDisk()
    log = open_small_log(disk, **COMPACTED | {"segment_bytes": 100})
    for offset in (0, 5, 20):
        log.append_as_follower(build_batch([(NOW_MS, b"key", b"", ())], base_offset=offset), NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 6]
    disk.sync_all()
    assert reopen(disk, clean_to=0, cleanup_policy=("compact",)).log_end_offset == 21


def test_a_log_that_ends_below_its_start_begins_anew() -> None:
    disk, _ = written_log()
    log = reopen(disk, clean=True, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset, log.producer_state.producers) == (100, 100, {})
    assert append(log) == 100


def test_a_start_offset_within_a_segment_is_kept() -> None:
    disk, _ = written_log()
    log = reopen(disk, log_start_offset=5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 30)


def test_preallocated_log_files_are_cut_to_what_they_hold() -> None:
    disk = SimDisk()
    log = open_small_log(disk, preallocate=True)
    append(log, 5)
    assert log.segments.active.log.file.size() == 10_000
    log = open_small_log(disk, preallocate=True, was_clean_shutdown=False)
    assert (log.log_end_offset, log.size_bytes) == (5, 96)
    append(log)
    log.close()
    assert log.segments.active.log.file.size() == 164


def test_expired_producers_are_not_loaded() -> None:
    disk, _ = written_log()
    log = open_log(disk, DIRECTORY, PARTITION, LogConfig(), now_ms=NOW_MS + 2 * 86_400_000)
    assert log.producer_state.producers == {}


def test_a_tail_cut_short_after_a_clean_stop_is_cut_off_before_anything_is_appended() -> None:
    disk, files = written_log()
    last = segment_names(files)[-1]
    replace(disk, last, files[last][:-5])
    log = reopen(disk, clean=True)
    assert append(log) == 29
    assert [
        batch.base_offset for segment in log.segments for batch in batches(segment.log.file.pread(segment.size, 0))
    ] == list(range(30))
