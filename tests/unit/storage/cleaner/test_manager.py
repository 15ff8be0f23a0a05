"""The cleaner, pass by pass, on a simulated disk."""

import errno
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from kafkapy.errors import ApiError, StorageError
from kafkapy.record.batch import Record
from kafkapy.record.errors import CorruptRecordError
from kafkapy.record.legacy import build_message_set
from kafkapy.record.validate import AppendOrigin
from kafkapy.storage.cleaner.cleaning_pass import CleaningPass
from kafkapy.storage.cleaner.manager import Cleaning
from kafkapy.storage.cleaner.plan import CleanedSegment, CleaningPlan
from kafkapy.storage.file_names import CLEANED_SUFFIX
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.lookup import aborted_transactions
from kafkapy.storage.log.maintenance import delete_due_files, delete_old_segments
from kafkapy.storage.log.opening import assign_topic_id
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.types import uuid_from_string
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch
from tests.support.cleaning import NOW_MS, PARTITION, CompactedLogs, append, consume, stored, stored_batches
from tests.support.interpreter import needs_interpreter
from tests.support.logs import marker


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def compacted(disk: SimDisk, **config: Any) -> CompactedLogs:
    return CompactedLogs(disk, **config)


def test_keeps_the_last_record_of_each_key_at_its_offset(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"), ("b", "2"), ("a", "3"))
    append(logs.log, ("c", "4"))
    append(logs.log, ("b", "5"), ("d", "6"))
    logs.roll_and_flush()
    report = logs.clean()
    assert stored(logs.log) == [(2, "a", "3"), (3, "c", "4"), (4, "b", "5"), (5, "d", "6")]
    assert report is not None
    assert (report.records_read, report.records_kept, report.clean_to) == (6, 4, 6)
    assert report.bytes_after < report.bytes_before
    assert logs.log.log_end_offset == 6
    assert logs.clean() is None


def test_a_batch_whose_records_are_not_in_the_order_of_their_offsets_keeps_the_right_ones(disk: SimDisk) -> None:
    logs = compacted(disk)
    records = [(NOW_MS, b"a", b"at 1", ()), (NOW_MS, b"b", b"at 0", ())]
    disordered = build_batch(records, offset_deltas=[1, 0], last_offset_delta=1)
    logs.log.append_as_follower(disordered, NOW_MS, leader_epoch=0)
    append(logs.log, ("a", "2"))
    logs.roll_and_flush()
    logs.clean()
    assert stored(logs.log) == [(0, "b", "at 0"), (2, "a", "2")]


def test_leaves_the_active_segment_alone(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"))
    logs.roll_and_flush()
    append(logs.log, ("a", "2"), ("a", "3"))
    logs.clean()
    assert stored(logs.log) == [(0, "a", "1"), (1, "a", "2"), (2, "a", "3")]


def test_touches_nothing_that_is_not_durable(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"), ("a", "2"))
    logs.log.roll(NOW_MS)
    assert logs.clean() is None
    flush_log(logs.log)
    assert logs.clean() is not None


def test_drops_records_without_a_key(disk: SimDisk) -> None:
    logs = compacted(disk, cleanup_policy=("delete",))
    append(logs.log, (None, "1"), ("a", "2"))
    logs.roll_and_flush()
    logs.log.update_config(replace(logs.config, cleanup_policy=("compact",)))
    report = logs.clean()
    assert stored(logs.log) == [(1, "a", "2")]
    assert report is not None
    assert report.records_without_key == 1


def test_a_tombstone_stays_until_its_delete_horizon(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"), ("b", "1"))
    append(logs.log, ("a", None), ("c", "1"))
    logs.roll_and_flush()
    logs.clean(now_ms=NOW_MS)
    horizons = [batch.delete_horizon_ms for batch in stored_batches(logs.log)]
    assert horizons == [None, NOW_MS + 1000]
    assert stored(logs.log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    assert {record.timestamp_ms for record in consume(logs.log)} == {NOW_MS}

    append(logs.log, ("x", "1"))
    logs.roll_and_flush()
    logs.clean(now_ms=NOW_MS + 999)
    assert (2, "a", None) in stored(logs.log)
    append(logs.log, ("x", "2"))
    logs.roll_and_flush()
    logs.clean(now_ms=NOW_MS + 1000)
    assert stored(logs.log) == [(1, "b", "1"), (3, "c", "1"), (5, "x", "2")]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_batch_that_loses_records_keeps_all_else(disk: SimDisk, codec: int) -> None:
    logs = compacted(disk, message_timestamp_before_max_ms=1 << 60, message_timestamp_after_max_ms=1 << 60)
    records = [
        (NOW_MS + 5, b"a", b"old", ()),
        (NOW_MS + 9, b"b", b"kept" * 100, (("h", b"1"), ("h", None), ("", b"2" * 70))),
        (NOW_MS + 7, b"k" * 300, b"kept", ()),
        (NOW_MS + 12, b"a", b"old", ()),
    ]
    data = build_batch(records, compression=codec, producer_id=7, producer_epoch=3, base_sequence=10)
    logs.log.append_as_leader(bytearray(data), leader_epoch=4, now_ms=NOW_MS)
    append(logs.log, ("a", "new"), producer_id=7, producer_epoch=3, base_sequence=14)
    logs.roll_and_flush()
    logs.clean()
    batch = next(stored_batches(logs.log))
    assert batch.has_valid_crc()
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (0, 3, 4)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (7, 3, 10, 13)
    assert (batch.compression, batch.max_timestamp, batch.record_count) == (codec, NOW_MS + 9, 2)
    assert [tuple(record) for record in batch.records()] == [
        (1, NOW_MS + 9, b"b", b"kept" * 100, (("h", b"1"), ("h", None), ("", b"2" * 70))),
        (2, NOW_MS + 7, b"k" * 300, b"kept", ()),
    ]


def test_log_append_time_is_kept(disk: SimDisk) -> None:
    logs = compacted(disk, message_timestamp_type="LogAppendTime")
    append(logs.log, ("a", "1"), ("b", "1"), now_ms=NOW_MS + 3)
    append(logs.log, ("a", "2"), now_ms=NOW_MS + 4)
    logs.roll_and_flush()
    logs.clean()
    assert [(record.offset, record.timestamp_ms) for record in consume(logs.log)] == [(1, NOW_MS + 3), (2, NOW_MS + 4)]


def test_the_last_batch_of_each_producer_stays_empty(disk: SimDisk) -> None:
    logs = compacted(disk)
    for sequence in range(3):
        append(logs.log, ("a", str(sequence)), producer_id=7, producer_epoch=0, base_sequence=sequence)
    append(logs.log, ("a", "last"))
    append(logs.log, ("b", "1"))
    logs.roll_and_flush()
    logs.clean()
    found = [(batch.base_offset, batch.producer_id, batch.record_count) for batch in stored_batches(logs.log)]
    assert found == [(2, 7, 0), (3, -1, 1), (4, -1, 1)]
    assert next((batch.base_timestamp, batch.max_timestamp) for batch in stored_batches(logs.log)) == (-1, NOW_MS)
    logs.logs.close()
    for name in disk.list_directory("/logs/t-0"):
        if name.endswith(".snapshot"):
            disk.delete(f"/logs/t-0/{name}")
    disk.delete("/logs/.kafka_cleanshutdown")
    logs.start()
    assert logs.log.producer_state.producers[7].last_sequence == 2


def test_the_last_batch_of_a_pass_stays_so_that_the_log_ends_where_it_did(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"))
    append(logs.log, ("a", None))
    logs.roll_and_flush()
    for now_ms in (NOW_MS, NOW_MS + 5000):
        logs.clean(now_ms)
        logs.log.clean_to = 0
    assert [(batch.last_offset, batch.record_count) for batch in stored_batches(logs.log)] == [(1, 0)]
    assert logs.log.log_end_offset == 2


def test_aborted_data_goes_and_the_abort_marker_follows(disk: SimDisk) -> None:
    logs = compacted(disk)
    log = logs.log
    append(log, ("a", "kept"))
    append(log, ("a", "aborted"), producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(marker(is_abort=True), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    append(log, ("b", "committed"), producer_id=8, producer_epoch=0, base_sequence=1, is_transactional=True)
    log.append_as_leader(marker(is_abort=False), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    append(log, ("z", "1"))
    logs.roll_and_flush()

    def committed() -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for record in consume(log, FetchIsolation.TXN_COMMITTED)]

    wanted = [(b"a", b"kept"), (b"b", b"committed"), (b"z", b"1")]
    assert committed() == wanted
    logs.clean()
    assert stored(log) == [(0, "a", "kept"), (3, "b", "committed"), (5, "z", "1")]
    assert committed() == wanted
    assert _markers(log) == [(2, None), (4, None)]
    assert [entry.last_offset for entry in aborted_transactions(log, 0, 100)] == [2]

    now_ms = NOW_MS
    for expected in ([(2, NOW_MS + 1000), (4, None)], [(4, None)]):
        append(log, ("z", "1"))
        logs.roll_and_flush()
        logs.clean(now_ms)
        assert _markers(log) == expected
        assert committed()[:2] == wanted[:2]
        assert aborted_transactions(log, 0, 100) == []
        now_ms += 1000


def _markers(log: Log) -> list[tuple[int, int | None]]:
    return [(batch.base_offset, batch.delete_horizon_ms) for batch in stored_batches(log) if batch.is_control]


def test_an_open_transaction_bounds_the_pass(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"))
    append(logs.log, ("b", "open"), producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    logs.roll_and_flush()
    append(logs.log, ("a", "2"))
    logs.roll_and_flush()
    assert logs.clean() is None


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_messages_of_old_formats_become_batches(disk: SimDisk, magic: int, codec: int) -> None:
    logs = compacted(disk)
    records = [Record(0, NOW_MS, b"a", b"1"), Record(1, NOW_MS + 1, b"b", b"2"), Record(2, NOW_MS + 2, b"a", b"3")]
    data = build_message_set(records, magic=magic, compression=codec)
    _plant(logs, data)
    append(logs.log, ("c", "4"))
    logs.roll_and_flush()
    logs.clean()
    found = list(stored_batches(logs.log))
    assert all(batch.magic == 2 and batch.has_valid_crc() for batch in found)
    times = [NOW_MS + 1, NOW_MS + 2, NOW_MS] if magic else [-1, -1, NOW_MS]
    assert [(record.offset, record.timestamp_ms) for record in consume(logs.log)] == list(
        zip([1, 2, 3], times, strict=True)
    )


def _plant(logs: CompactedLogs, data: bytes) -> None:
    """Put bytes of an old format where only an old broker could have put them."""
    directory = logs.log.directory
    logs.logs.close()
    file = logs.disk.open(f"{directory}/{0:020d}.log")
    file.pwrite((data,), 0)
    file.sync()
    logs.disk.delete("/logs/.kafka_cleanshutdown")
    logs.start()


def test_segments_are_grouped_up_to_a_segments_size(disk: SimDisk) -> None:
    logs = compacted(disk)
    for number in range(12):
        append(logs.log, (f"k{number % 3}", "v" * 300))
        logs.roll_and_flush()
    append(logs.log, ("active", "1"))
    before = len(logs.log.segments)
    for now_ms in (NOW_MS, NOW_MS + 1):
        logs.clean(now_ms)
        logs.log.clean_to = 0
    assert before == 13
    assert len(logs.log.segments) == 3
    assert [key for _, key, _ in stored(logs.log)] == ["k0", "k1", "k2", "active"]
    assert all(segment.size <= 1000 for segment in logs.log.segments)


def test_a_pass_goes_on_where_the_end_of_the_clean_part_is_swapped_away_under_it(disk: SimDisk) -> None:
    logs = compacted(disk)
    for size in (10, 10, 900, 900):
        append(logs.log, (f"key of {logs.log.log_end_offset}", "v" * size))
        logs.roll_and_flush()
    logs.log.clean_to = 2  # by the pass before, with smaller segments: two that become one now
    report = logs.clean()
    assert report is not None
    assert report.clean_to == 4
    assert [segment.base_offset for segment in logs.log.segments] == [0, 2, 3, 4]


def test_records_without_a_time_are_as_young_as_their_file(disk: SimDisk) -> None:
    logs = compacted(disk, min_compaction_lag_ms=1000)
    _plant(logs, build_message_set([Record(0, -1, b"a", b"1")], magic=0))
    logs.roll_and_flush()
    written_ms = disk.modified_ms("/logs/t-0/00000000000000000000.log")
    assert logs.clean(written_ms + 999) is None
    assert logs.clean(written_ms + 1000) is not None


@needs_interpreter("a compiled log cannot be copied")
def test_a_log_that_is_set_aside_stays_so_where_it_moves_to(disk: SimDisk) -> None:
    logs = compacted(disk)
    topic_id = uuid_from_string("AAAAAAAAAAAAAAAAAAAAAQ")
    assign_topic_id(logs.log, topic_id)
    logs.cleaner.set_aside(logs.log, "no reason")
    moved = logs.logs.logs[PARTITION] = copy(logs.log)
    assert logs.cleaner.logs_set_aside == [moved]
    moved.topic_id = uuid_from_string("AAAAAAAAAAAAAAAAAAAAAg")  # another topic of the same name
    assert logs.cleaner.logs_set_aside == []


def test_a_full_offset_map_takes_several_passes(disk: SimDisk) -> None:
    logs = compacted(disk)
    for number in range(300):
        append(logs.log, (f"key-{number % 150}", str(number)))
    logs.roll_and_flush()
    ends = []
    while (report := logs.clean(log_cleaner_dedupe_buffer_size=24 * 80)) is not None:
        ends.append(report.clean_to)
    assert ends == [72, 144, 216, 288, 300]
    assert [value for _, _, value in stored(logs.log)] == [str(number) for number in range(150, 300)]


def test_a_checkpoint_holds_the_offset_up_to_which_the_log_is_clean(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"), ("a", "2"))
    logs.roll_and_flush()
    logs.clean()
    assert disk.read_file("/logs/cleaner-offset-checkpoint") == b"0\n1\nt 0 2\n"
    logs.logs.close()
    logs.start()
    assert logs.log.clean_to == 2
    assert logs.clean() is None


def test_truncation_takes_the_clean_offset_back(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"))
    append(logs.log, ("a", "2"))
    logs.roll_and_flush()
    logs.clean()
    logs.logs.truncate_to({PARTITION: 1})
    assert logs.log.clean_to == 1


def test_a_log_that_was_truncated_under_a_pass_takes_nothing_of_it(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"))
    append(logs.log, ("a", "2"))
    logs.roll_and_flush()
    cleaning, groups = _pass(logs)
    logs.logs.truncate_to({PARTITION: 1})
    assert not logs.cleaner.swap_in(cleaning, groups[0], NOW_MS)
    assert stored(logs.log) == [(0, "a", "1")]
    assert not [name for name in disk.list_directory("/logs/t-0") if name.endswith(CLEANED_SUFFIX)]


def test_a_log_that_lost_segments_under_a_pass_takes_nothing_of_it(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"))
    append(logs.log, ("b", "2"))
    logs.roll_and_flush()
    append(logs.log, ("c", "3"))
    cleaning, groups = _pass(logs)
    logs.log.maybe_increment_log_start_offset(2)
    assert delete_old_segments(logs.log, NOW_MS) == 1
    assert not logs.cleaner.swap_in(cleaning, groups[0], NOW_MS)
    assert stored(logs.log) == [(2, "c", "3")]


def _pass(logs: CompactedLogs) -> tuple[Cleaning, list[CleanedSegment]]:
    """Do a pass without swapping anything in."""
    cleaning = logs.begin()
    assert cleaning is not None
    steps = CleaningPass(logs.disk, cleaning.plan).run()
    return cleaning, [step.cleaned for step in steps if step.cleaned is not None]


def test_a_region_that_is_out_stays_readable(disk: SimDisk) -> None:
    logs = compacted(disk, file_delete_delay_ms=0)
    append(logs.log, ("a", "1"), ("a", "2"))
    logs.roll_and_flush()
    region = logs.log.read(0, 1000).region
    assert region is not None
    before = region.read()
    logs.clean()
    delete_due_files(logs.log, NOW_MS)
    assert region.read() == before
    region.release()
    assert not [name for name in disk.list_directory("/logs/t-0") if name.endswith(".deleted")]


def test_a_damaged_batch_sets_the_partition_aside(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"), ("a", "2"))
    logs.roll_and_flush()
    disk.open(f"/logs/t-0/{0:020d}.log").pwrite((b"\xff",), 68)
    with pytest.raises(CorruptRecordError, match="CRC") as failure:
        _pass(logs)
    cleaning = logs.begin()
    assert cleaning is not None
    logs.cleaner.fail(cleaning, str(failure.value), 0)
    assert list(logs.cleaner.uncleanable) == [PARTITION]
    assert logs.begin() is None
    assert consume_bytes(logs) == logs.log.segments.first.size


def consume_bytes(logs: CompactedLogs) -> int:
    region = logs.log.read(0, 10_000).region
    assert region is not None
    return len(region.read())


@pytest.mark.parametrize(("code", "is_offline"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_disk_that_fails_is_the_directorys_trouble(disk: SimDisk, code: int, is_offline: bool) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"), ("a", "2"))
    logs.roll_and_flush()
    log, cleaning = logs.log, logs.begin()
    assert cleaning is not None
    disk.fail("write", code, path=CLEANED_SUFFIX)
    with pytest.raises(OSError, match="cleaned"):
        list(CleaningPass(disk, cleaning.plan).run())
    logs.cleaner.fail(cleaning, "failed", code)
    assert log.is_offline is is_offline
    assert not logs.cleaner.uncleanable
    if not is_offline:
        assert logs.clean() is not None


def test_a_swap_for_which_there_are_too_many_open_files_has_changed_nothing(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"), ("a", "2"))
    logs.roll_and_flush()
    cleaning, groups = _pass(logs)
    disk.fail("open", errno.EMFILE, path=CLEANED_SUFFIX)
    with pytest.raises(ApiError):
        logs.cleaner.swap_in(cleaning, groups[0], NOW_MS)
    logs.cleaner.drop_leftovers(cleaning)
    assert not logs.log.is_offline
    assert stored(logs.log) == [(0, "a", "1"), (1, "a", "2")]
    assert logs.clean() is not None
    assert stored(logs.log) == [(1, "a", "2")]


def test_a_swap_that_fails_takes_the_directory_offline_and_the_next_start_finishes_it(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"), ("a", "2"))
    logs.roll_and_flush()
    cleaning, groups = _pass(logs)
    disk.fail("rename", errno.ENOSPC, path=".log.swap")
    with pytest.raises(StorageError):
        logs.cleaner.swap_in(cleaning, groups[0], NOW_MS)
    logs.logs.close()
    logs.start()
    assert stored(logs.log) == [(1, "a", "2")]


def test_a_helper_that_dies_over_a_log_again_and_again_sets_it_aside(disk: SimDisk) -> None:
    logs = compacted(disk)
    append(logs.log, ("a", "1"), ("a", "2"))
    logs.roll_and_flush()
    for _ in range(3):
        cleaning = logs.begin()
        assert cleaning is not None
        logs.cleaner.helper_lost(cleaning, "killed")
    assert logs.begin() is None


def test_a_consumer_reads_on_behind_a_segment_in_which_nothing_is_left(disk: SimDisk) -> None:
    logs = compacted(disk, segment_bytes=120)
    for number in range(4):
        append(logs.log, ("a" if number in (1, 3) else f"k{number}", str(number)))
        logs.roll_and_flush()
    append(logs.log, ("z", "active"))
    logs.clean()
    assert [segment.size for segment in logs.log.segments][1] == 0
    assert [record.offset for record in consume(logs.log)] == [0, 2, 3, 4]


def test_a_segment_that_spans_more_offsets_than_its_index_can_hold_is_refused() -> None:
    """As brokers before Kafka 2.0 may have written one: 2^31 offsets, or more."""
    disk = SimDisk()
    disk.make_directory("/logs/t-0")
    far = 2**31 + 5
    data = b"".join(build_batch([(NOW_MS, b"%d" % at, b"v", ())], base_offset=at) for at in (0, far))
    disk.write_file_atomically(f"/logs/t-0/{0:020d}.log", data)
    for suffix in (".index", ".timeindex"):
        disk.write_file_atomically(f"/logs/t-0/{0:020d}{suffix}", b"")
    plan = CleaningPlan(
        directory="/logs/t-0",
        segments=[(0, len(data))],
        first_dirty_offset=0,
        end_offset=far + 1,
        now_ms=NOW_MS,
        aborted=[],
        last_records=[],
        delete_retention_ms=1000,
        segment_bytes=1 << 20,
        segment_index_bytes=1 << 20,
        index_interval_bytes=4096,
        dedupe_buffer_bytes=1 << 16,
        load_factor=0.9,
        io_buffer_bytes=4096,
    )
    with pytest.raises(CorruptRecordError, match=f"offset {far} does not fit a segment from 0 on"):
        list(CleaningPass(disk, plan).run())
