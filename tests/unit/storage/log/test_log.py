import pytest

from kafkapy.config.log import LogConfig
from kafkapy.record.batches import batches
from kafkapy.record.errors import CorruptRecordError, InvalidRecordsError
from kafkapy.record.validate import AppendOrigin
from kafkapy.storage.errors import (
    INCONSISTENT_TOPIC_ID,
    OFFSET_OUT_OF_RANGE,
    RECORD_LIST_TOO_LARGE,
    NeedsWarming,
)
from kafkapy.storage.log.flush import flush_log, prepare_flush
from kafkapy.storage.log.local_log import SharedByLogs
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.lookup import (
    aborted_transactions,
    earliest_offset,
    offset_for_timestamp,
    offset_of_max_timestamp,
)
from kafkapy.storage.log.opening import assign_topic_id, open_log
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.log.truncation import truncate_to
from kafkapy.storage.log_dir import LogDirState
from kafkapy.storage.segment.open_files import OpenFiles
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch
from tests.support.logs import (
    DIRECTORY,
    NOW_MS,
    PARTITION,
    append,
    bases,
    batch,
    end_transaction,
    open_small_log,
    ranges,
    refuses,
    transaction,
)

LOG_END, TXN_COMMITTED = FetchIsolation.LOG_END, FetchIsolation.TXN_COMMITTED


# Appending


def test_a_leader_gives_offsets_and_its_epoch(disk: SimDisk) -> None:
    log = open_small_log(disk)
    result = log.append_as_leader(batch(3), leader_epoch=5, now_ms=NOW_MS)
    assert (result.first_offset, result.last_offset, result.log_append_time_ms) == (0, 2, -1)
    assert (result.max_timestamp, result.log_start_offset, result.is_duplicate) == (NOW_MS, 0, False)
    log.append_as_leader(batch(2), leader_epoch=6, now_ms=NOW_MS)
    data = disk.read_file(f"{DIRECTORY}/00000000000000000000.log")
    assert [(found.base_offset, found.partition_leader_epoch) for found in batches(data)] == [(0, 5), (3, 6)]
    assert log.log_end_offset == 5
    assert log.leader_epochs.entries == [(5, 0), (6, 3)]


def test_log_append_time_is_stamped(disk: SimDisk) -> None:
    log = open_small_log(disk, message_timestamp_type="LogAppendTime")
    result = log.append_as_leader(batch(), leader_epoch=0, now_ms=NOW_MS + 7)
    assert (result.log_append_time_ms, result.max_timestamp) == (NOW_MS + 7, NOW_MS + 7)


def test_a_duplicate_is_answered_and_not_written(disk: SimDisk) -> None:
    log = open_small_log(disk)
    fields = {"producer_id": 7, "producer_epoch": 0}
    append(log, 3, base_sequence=0, **fields)
    size = log.size_bytes
    result = log.append_as_leader(batch(3, base_sequence=0, **fields), leader_epoch=0, now_ms=NOW_MS)
    assert (result.is_duplicate, result.first_offset, result.last_offset) == (True, 0, 2)
    assert (log.size_bytes, log.log_end_offset) == (size, 3)


def test_a_batch_larger_than_a_segment_is_refused(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=500)
    refuses(RECORD_LIST_TOO_LARGE, append, log, value_bytes=600)
    assert log.log_end_offset == 0


def test_a_follower_keeps_offsets_and_epochs(disk: SimDisk) -> None:
    log = open_small_log(disk)
    records = build_batch([(NOW_MS, None, b"a", ())] * 2, base_offset=0, leader_epoch=3)
    records += build_batch([(NOW_MS, None, b"b", ())], base_offset=2, leader_epoch=4)
    records += build_batch([(NOW_MS, None, b"c", ())], base_offset=3, leader_epoch=4)[:-1]
    result = log.append_as_follower(records, NOW_MS)
    assert (result.first_offset, result.last_offset, log.log_end_offset) == (0, 2, 3)
    assert log.leader_epochs.entries == [(3, 0), (4, 2)]
    assert log.append_as_follower(b"", NOW_MS).first_offset == -1


def test_a_follower_leaves_out_batches_of_a_later_epoch(disk: SimDisk) -> None:
    log = open_small_log(disk)
    records = build_batch([(NOW_MS, None, b"a", ())], leader_epoch=3)
    records += build_batch([(NOW_MS, None, b"b", ())], base_offset=1, leader_epoch=4)
    log.append_as_follower(records, NOW_MS, leader_epoch=3)
    assert log.log_end_offset == 1


def test_a_follower_refuses_offsets_that_it_has(disk: SimDisk) -> None:
    log = open_small_log(disk)
    log.append_as_follower(build_batch([(NOW_MS, None, b"", ())], base_offset=7), NOW_MS)
    assert log.log_end_offset == 8
    with pytest.raises(InvalidRecordsError):
        log.append_as_follower(build_batch([(NOW_MS, None, b"", ())], base_offset=7), NOW_MS)
    damaged = bytearray(build_batch([(NOW_MS, None, b"", ())], base_offset=8))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(damaged, NOW_MS)
    assert log.log_end_offset == 8


def test_the_raft_leader_gives_offsets_itself(disk: SimDisk) -> None:
    log = open_small_log(disk)
    records = build_batch([(NOW_MS, None, b"", ())], base_offset=0, leader_epoch=2)
    log.append_as_leader(records, leader_epoch=2, now_ms=NOW_MS, origin=AppendOrigin.RAFT_LEADER)
    with pytest.raises(InvalidRecordsError):
        log.append_as_leader(records, leader_epoch=3, now_ms=NOW_MS, origin=AppendOrigin.RAFT_LEADER)
    assert ranges(log, 0, isolation=LOG_END) == [(0, 0)]


# Rolling


def test_rolls_by_bytes(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=1000)
    for _ in range(5):
        append(log, value_bytes=400)
    assert bases(log) == [0, 2, 4]
    assert all(segment.size <= 1000 for segment in log.segments)


def test_rolls_by_the_time_between_records(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_ms=1000)
    append(log, timestamp_ms=NOW_MS)
    append(log, timestamp_ms=NOW_MS + 1000)
    append(log, timestamp_ms=NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_rolls_when_an_index_is_full(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_index_bytes=24, index_interval_bytes=0)
    for i in range(5):
        append(log, timestamp_ms=NOW_MS + i)
    # room for two time entries, one of which is kept for the roll
    assert bases(log) == [0, 2, 4]


def test_rolls_when_an_offset_does_not_fit(disk: SimDisk) -> None:
    log = open_small_log(disk)
    far = (1 << 31) + 1  # it does not fit a segment at the log end offset, 1, either
    for offset in (0, far, far + 1):
        log.append_as_follower(build_batch([(NOW_MS, None, b"", ())], base_offset=offset), NOW_MS)
    assert bases(log) == [0, far]


def test_a_roll_trims_indexes_and_takes_a_snapshot(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, producer_id=7, producer_epoch=0, base_sequence=0)
    log.roll(NOW_MS)
    files = {name: len(disk.read_file(f"{DIRECTORY}/{name}")) for name in disk.list_directory(DIRECTORY)}
    assert files == {
        "00000000000000000000.index": 0,
        "00000000000000000000.log": 68,
        "00000000000000000000.timeindex": 12,
        "00000000000000000001.index": 0,
        "00000000000000000001.log": 0,
        "00000000000000000001.snapshot": 56,
        "00000000000000000001.timeindex": 0,
    }


def test_a_segment_keeps_to_its_jitter_after_a_start(disk: SimDisk) -> None:
    """segment.ms less a random part of segment.jitter.ms, drawn again when the log is loaded."""
    config = LogConfig(segment_ms=1000, segment_jitter_ms=600, segment_index_bytes=4096)
    drawn: list[int] = []

    def opened(part: int) -> Log:
        disk.make_directory("/logs")
        shared = SharedByLogs.by_one(disk, DIRECTORY)._replace(jitter=lambda limit: drawn.append(limit) or part)
        return open_log(disk, DIRECTORY, PARTITION, config, now_ms=NOW_MS, shared=shared)

    log = opened(part=0)
    append(log, timestamp_ms=NOW_MS)
    append(log, timestamp_ms=NOW_MS + 1000)
    log.close()
    log = opened(part=599)
    append(log, timestamp_ms=NOW_MS + 401)
    assert bases(log) == [0]
    append(log, timestamp_ms=NOW_MS + 402)
    assert bases(log) == [0, 3]
    assert drawn == [600, 600, 600]


def test_an_empty_segment_is_not_rolled(disk: SimDisk) -> None:
    log = open_small_log(disk)
    log.roll(NOW_MS)
    assert bases(log) == [0]


# Reading


def test_reads_whole_batches_within_the_limit(disk: SimDisk) -> None:
    log = open_small_log(disk)
    for _ in range(10):
        append(log, 2)  # 75 bytes each
    assert ranges(log, 0, 75 * 3) == ranges(log, 0, 75 * 4 - 1) == [(0, 1), (2, 3), (4, 5)]
    assert ranges(log, 5, 75) == [(4, 5)]
    assert ranges(log, 0, 10) == [(0, 1)]
    assert ranges(log, 0, 75 * 10) == ranges(log, 0) == [(2 * i, 2 * i + 1) for i in range(10)]


def test_the_first_batch_may_be_refused_for_its_size(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log)
    append(log)
    read = log.read(0, 10, min_one_batch=False)
    assert (read.region, read.size_bytes, read.is_cut) == (None, 0, True)


def test_every_offset_and_limit_reads_as_a_scan_would(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=1500)
    expected = []
    for i in range(60):
        first = append(log, 1 + i % 3, value_bytes=i)
        expected.append((first, first + i % 3, 61 + (1 + i % 3) * (7 + i)))
    for offset in range(log.log_end_offset):
        for max_bytes in (0, 100, 500, 1 << 20):
            start = next(i for i, (_, last, _) in enumerate(expected) if last >= offset)
            wanted, total = [expected[start][:2]], expected[start][2]
            segment = log.segments.floor(expected[start][0])
            for first, last, size in expected[start + 1 :]:
                total += size
                if total > max_bytes or log.segments.floor(first) is not segment:
                    break
                wanted.append((first, last))
            assert ranges(log, offset, max_bytes) == wanted


def test_reading_on_from_where_a_read_ended_visits_each_batch_once(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=1500)
    for i in range(60):
        append(log, 1 + i % 3, value_bytes=i)
    log.close()
    log = open_small_log(disk)
    log.update_high_watermark(log.log_end_offset)
    offset, seen = 0, []
    while offset < log.log_end_offset:
        read = log.read(offset, 400)
        assert read.region is not None
        seen += [found.base_offset for found in batches(read.region.read())]
        read.region.release()
        offset = read.next_offset
    assert len(seen) == len(set(seen)) == 60


def test_the_high_watermark_limits_reads(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, 2)
    log.append_as_leader(batch(3), leader_epoch=0, now_ms=NOW_MS)
    assert ranges(log, 0) == [(0, 1)]
    assert ranges(log, 2) == ranges(log, 3) == []
    assert ranges(log, 0, isolation=LOG_END) == [(0, 1), (2, 4)]


def test_offsets_outside_the_log_are_refused(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, 5)
    log.maybe_increment_log_start_offset(3)
    assert ranges(log, 5) == []
    assert ranges(log, 3) == [(0, 4)]
    refuses(OFFSET_OUT_OF_RANGE, log.read, 6, 100)
    refuses(OFFSET_OUT_OF_RANGE, log.read, 2, 100)


def test_cold_pages_raise_needs_warming(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=1500)
    for _ in range(60):
        append(log, value_bytes=100)
    disk.chill()
    attempts = 0
    while True:
        attempts += 1
        try:
            read = log.read(2, 300)
            break
        except NeedsWarming as cold:
            cold.warm()
    assert attempts > 1
    assert read.region is not None
    assert next(batches(read.region.read())).base_offset == 2
    disk.chill()
    assert ranges(log, 33, wait=True)


def test_a_tail_read_touches_nothing_but_memory(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log)
    offset = append(log)
    disk.chill()
    read = log.read(offset, 1 << 20)
    assert (read.size_bytes, read.next_offset) == (68, 2)


def test_a_gap_left_by_compaction_is_passed(disk: SimDisk) -> None:
    log = open_small_log(disk)
    for offset in (0, 10, 20):
        log.append_as_follower(build_batch([(NOW_MS, None, b"", ())], base_offset=offset), NOW_MS)
    log.roll(NOW_MS, at_offset=100)
    log.append_as_follower(build_batch([(NOW_MS, None, b"", ())], base_offset=120), NOW_MS)
    log.update_high_watermark(200)
    assert ranges(log, 5) == [(10, 10), (20, 20)]
    assert ranges(log, 21) == ranges(log, 100) == [(120, 120)]


# Transactions


def test_committed_readers_stop_at_the_oldest_open_transaction(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log)
    transaction(log)
    append(log)
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    assert ranges(log, 0, isolation=TXN_COMMITTED) == [(0, 0)]
    end_transaction(log, is_abort=False)
    assert log.last_stable_offset == 4
    assert ranges(log, 0, isolation=TXN_COMMITTED) == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_committed_readers_get_the_aborts_in_their_range(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=300)
    first = transaction(log, producer_id=8)
    second = transaction(log, producer_id=9)
    append(log)
    end_transaction(log, is_abort=True, producer_id=8)
    end_transaction(log, is_abort=False, producer_id=9)
    append(log)
    third = transaction(log, producer_id=9, sequence=1)
    end_transaction(log, is_abort=True, producer_id=9)
    assert len(log.segments) > 1
    reported = log.read(0, 70, isolation=TXN_COMMITTED).aborted_transactions
    assert reported is not None
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in reported] == [(8, first, 3)]
    assert [entry.first_offset for entry in aborted_transactions(log, 0, 100)] == [first, third]
    assert log.read(second, 1 << 20, isolation=LOG_END).aborted_transactions is None


def test_an_open_transaction_survives_a_restart(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log)
    transaction(log)
    for was_clean in (True, False):
        log.close()
        log = open_small_log(disk, was_clean_shutdown=was_clean)
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 1
    end_transaction(log, is_abort=True)
    assert [tuple(entry) for entry in aborted_transactions(log, 0, 9)] == [(8, 1, 2, 3)]


# Time


def test_finds_the_first_record_at_or_after_a_time(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=600)
    times = [100, 150, 120, 300, 200, 310, 305, 400, 390]
    for timestamp_ms in times:
        append(log, timestamp_ms=timestamp_ms, value_bytes=100, leader_epoch=2)
    for target in range(90, 410, 5):
        found = offset_for_timestamp(log, target)
        wanted = next((i for i, timestamp_ms in enumerate(times) if timestamp_ms >= target), None)
        assert (found.offset if found is not None else None) == wanted
        assert found is None or (found.timestamp_ms, found.leader_epoch) == (times[wanted or 0], 2)
    largest = offset_of_max_timestamp(log)
    assert largest == (400, 7, 2)


def test_records_below_the_start_are_not_found(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, 3, timestamp_ms=100)
    append(log, timestamp_ms=50)
    log.maybe_increment_log_start_offset(2)
    found = offset_for_timestamp(log, 10)
    assert found is not None
    assert found.offset == 2
    assert earliest_offset(log) == (-1, 2, 0)


# Flushing, closing, identity


def test_a_flush_moves_the_recovery_point(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, 3)
    flush = prepare_flush(log)
    append(log)
    flush.run()
    flush.complete(NOW_MS)
    assert log.recovery_point == 3


def test_a_flush_that_was_overtaken_by_a_truncation_does_not_count(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, 1)
    append(log, 1)
    flush = prepare_flush(log)
    truncate_to(log, 1)
    append(log, 5)
    flush.run()
    flush.complete(NOW_MS)
    assert log.recovery_point == 0


def test_what_was_flushed_survives_the_power_going_off(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=500)
    for _ in range(9):
        append(log, value_bytes=100, leader_epoch=4)
    disk.sync_all()
    flush_log(log)
    disk.crash("none")
    log = open_small_log(disk, was_clean_shutdown=False)
    assert (log.log_end_offset, log.leader_epochs.entries) == (9, [(4, 0)])


def test_a_clean_stop_and_start_change_nothing(disk: SimDisk) -> None:
    log = open_small_log(disk, segment_bytes=500)
    for i in range(9):
        append(log, value_bytes=100, timestamp_ms=NOW_MS + i)
    log.close()
    before = {name: disk.read_file(f"{DIRECTORY}/{name}") for name in disk.list_directory(DIRECTORY)}
    log = open_small_log(disk, segment_bytes=500)
    assert (log.log_end_offset, log.recovery_point) == (9, 9)
    log.close()
    assert {name: disk.read_file(f"{DIRECTORY}/{name}") for name in disk.list_directory(DIRECTORY)} == before


def test_a_topic_id_is_kept_and_held_against_others(disk: SimDisk) -> None:
    log = open_small_log(disk)
    assert log.topic_id is None
    assign_topic_id(log, b"\1" * 16)
    log.close()
    log = open_small_log(disk)
    assert log.topic_id == b"\1" * 16
    refuses(INCONSISTENT_TOPIC_ID, assign_topic_id, log, b"\2" * 16)


def test_few_open_files_are_enough(disk: SimDisk) -> None:
    disk.make_directory("/logs")
    files = OpenFiles(disk, capacity=2)
    config = LogConfig(segment_bytes=300, index_interval_bytes=0, segment_index_bytes=4096)
    shared = SharedByLogs(files, LogDirState("/logs"))
    log = open_log(disk, DIRECTORY, PARTITION, config, now_ms=NOW_MS, shared=shared)
    for _ in range(30):
        append(log, value_bytes=50)
    assert [ranges(log, offset, 10) for offset in range(30)] == [[(offset, offset)] for offset in range(30)]
    assert len(files) <= 3
    log.close()
    assert len(files) == 0


def test_a_config_change_holds_from_the_next_append_on(disk: SimDisk) -> None:
    log = open_small_log(disk)
    append(log, value_bytes=100)
    log.update_config(LogConfig(segment_bytes=100, max_message_bytes=100))
    append(log)
    assert bases(log) == [0, 1]
    refuses(10, append, log, value_bytes=100)
