"""What must hold of a directory of logs after a crash: storage_script.py's promises against what was recovered.

I1  What was acknowledged is readable at its offset, with its bytes: after kill -9 all of it, after a power cut all
    below what was flushed; of a compacted log, the last value of each key.
I2  An offset holds what was written there, or nothing; below the flushed end only what stood there last.
I3  Offsets rise, and without a gap; the log start never lies above what was told. Of a compacted log a power cut may
    take what was not synced of a segment and leave the next one: nothing tells that gap from one that the cleaner made.

And what is derived fits: indexes, aborted transactions, producers, leader epochs are those that a scan would make.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from kafkapy.record.batch import NO_SEQUENCE, Record, RecordBatch
from kafkapy.record.batches import batch_at, batches
from kafkapy.storage.file_names import CLEANED_SUFFIX, SWAP_SUFFIX
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.lookup import offset_for_timestamp
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.types import TopicPartition
from tests.simulator.crash_enumeration import Crash
from tests.simulator.disk import Keep, SimDisk
from tests.simulator.storage_script import COMPACTED, NOW_MS, Appended, Promise, clean, committed, config_for, start
from tests.support.batches import build_batch
from tests.support.cleaning import consume, last_values

WHOLE, CUT, EMPTY = "whole", "tail lost", "no log"
OUTCOMES = (WHOLE, CUT, EMPTY)


def check_crash(crash: Crash, *, is_thorough: bool) -> str:
    """Recover and check everything; return the worst outcome of a partition. is_thorough: rebuild and crash again."""
    promises: dict[TopicPartition, Promise] = crash.promise
    manager = start(crash.disk, promises)
    assert len(manager.directories.live) == 1
    assert manager.logs.keys() <= promises.keys()
    assert not [name for name in _names_below(crash.disk, "/logs") if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))]
    outcomes = [_check_log(crash.keep, manager, partition, promises[partition]) for partition in promises]
    if is_thorough:
        for log in manager.logs.values():
            check_rebuilt_is_equal(crash.disk, log)
        check_second_crash(crash.disk, manager, promises)
    return max(outcomes, key=OUTCOMES.index, default=WHOLE)


def _names_below(disk: SimDisk, path: str) -> Iterator[str]:
    for name in disk.list_directory(path):
        yield name
        if disk.is_directory(f"{path}/{name}"):
            yield from _names_below(disk, f"{path}/{name}")


def _check_log(keep: Keep, manager: LogManager, partition: TopicPartition, promise: Promise) -> str:
    log = manager.get_log(partition)
    if log is None:
        assert promise.durable_end == 0
        assert keep != "all" or promise.acknowledged_end == 0
        return EMPTY if promise.acknowledged_end else WHOLE
    expected = _check_stored(log, promise)
    _check_served(log, expected)
    has_gap = any(each.next_offset != following.base_offset for each, following in pairwise(expected))
    if not has_gap:
        _check_producers(log, expected)
    if partition == COMPACTED:
        _check_cleaned(log)
    else:
        _check_times(log, expected)
    if log.log_end_offset >= promise.acknowledged_end and not has_gap:
        return WHOLE
    assert keep != "all", f"{partition} lost what was acknowledged"
    return CUT


def stored_batches(log: Log) -> Iterator[RecordBatch]:
    for segment in log.segments:
        yield from batches(segment.log.file.pread(segment.size, 0))


def _check_stored(log: Log, promise: Promise) -> list[Appended]:
    """Check the batches in the files; return what was appended of them, gone with compaction or not."""
    assert log.log_start_offset <= promise.log_start_offset
    assert log.segments.first.base_offset <= log.log_start_offset
    known_end = max(promise.durable_end, log.segments.first.base_offset)
    durable = [each for each in promise.batches.values() if each.next_offset <= known_end]
    tail = []
    end_offset = None
    is_compacted = log.config.is_compacted
    for found in stored_batches(log):
        assert found.has_valid_crc()
        if found.base_offset >= known_end or not is_compacted:
            assert end_offset in (None, found.base_offset) or (is_compacted and found.base_offset > end_offset)
            appended = promise.at(found.base_offset, bytes(found.raw()))
            assert appended is not None, f"{found} was never written there"
            if found.base_offset >= known_end:
                tail.append(appended)
            else:
                assert appended.data == promise.batches[found.base_offset].data
        else:
            assert end_offset is None or found.base_offset >= end_offset
            written = {record.offset: record for each in durable for record in each.records}
            assert all(written[record.offset] == record for record in found.records())
        end_offset = found.next_offset
    assert end_offset in (None, log.log_end_offset) or (is_compacted and end_offset < log.log_end_offset)
    is_all_below_start = end_offset is None and log.log_end_offset == log.log_start_offset
    assert log.log_end_offset >= promise.durable_end or is_all_below_start
    return [*durable, *tail]


def _check_served(log: Log, expected: list[Appended]) -> None:
    """Consumers get what was committed; every offset finds the batch that holds it, or the next one."""
    found = consume(log, FetchIsolation.TXN_COMMITTED)
    if log.config.is_compacted:
        wanted = list(committed(expected))
        assert last_values(found) == last_values(wanted)
        assert {record.offset for record in found} <= {record.offset for record in wanted}
    else:
        assert found in [_committed_from(offset, log, expected) for offset in _starts_of_knowledge(log)]
    bounds = [(each.base_offset, each.last_offset) for each in stored_batches(log)]
    for offset in range(log.log_start_offset, bounds[-1][1] + 1 if bounds else 0, 3):
        read = log.read(offset, 1, isolation=FetchIsolation.LOG_END)
        assert read.region is not None
        first = batch_at(read.region.read())
        assert (first.base_offset, first.last_offset) == next(each for each in bounds if each[1] >= offset)
        read.region.release()


def _starts_of_knowledge(log: Log) -> set[int]:
    """Recovery may know of transactions below the log start, or not: they hold back the last stable offset if it does.

    As in Apache Kafka, which drops the producer snapshots up to there.
    """
    return {0, log.segments.first.base_offset, log.log_start_offset}


def _committed_from(offset: int, log: Log, expected: list[Appended]) -> list[Record]:
    known = [each for each in expected if each.base_offset >= offset]
    return [record for record in committed(known) if record.offset >= log.log_start_offset]


def _check_producers(log: Log, expected: list[Appended]) -> None:
    wanted: dict[int, tuple[int, int]] = {}
    for each in expected:
        header = batch_at(each.data)
        if header.has_producer_id and header.last_sequence != NO_SEQUENCE and each.base_offset >= log.log_start_offset:
            wanted[header.producer_id] = (header.producer_epoch, header.last_sequence)
    found = {
        entry.producer_id: (entry.producer_epoch, entry.last_sequence)
        for entry in log.producer_state.producers.values()
    }
    assert wanted.items() <= found.items()


def _check_times(log: Log, expected: list[Appended]) -> None:
    if log.log_start_offset > log.segments.first.base_offset:
        return  # as in Apache Kafka nothing may be found, where the segment's latest record lies below the log start
    records = [record for each in expected for record in each.records if record.offset >= log.log_start_offset]
    for record in records[:: max(len(records) // 3, 1)]:
        found = offset_for_timestamp(log, record.timestamp_ms, wait=True)
        first = next(other for other in records if other.timestamp_ms >= record.timestamp_ms)
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (first.offset, first.timestamp_ms)


def _check_cleaned(log: Log) -> None:
    """What the cleaner's checkpoint calls clean is: no later pass would look for a key there twice."""
    clean = (batch for batch in stored_batches(log) if batch.last_offset < (log.clean_to or 0) and not batch.is_control)
    keys = [record.key for batch in clean for record in batch.records()]
    assert len(keys) == len(set(keys))


# Derived files


def check_rebuilt_is_equal(disk: SimDisk, log: Log) -> None:
    """Indexes and producers as recovery left them are those that a scan of the whole log makes, in a copy of it."""
    state = _state_of(log)
    other = disk.fork(0)
    other.locked.clear()
    for name in other.list_directory(log.directory):
        if name.endswith((".index", ".timeindex", ".txnindex")):
            other.delete(f"{log.directory}/{name}")
    rebuilt = open_log(
        other,
        log.directory,
        log.topic_partition,
        config_for(log.topic_partition.topic),
        now_ms=NOW_MS,
        last_stop=LastStop(log.log_start_offset, was_clean=False),
    )
    rebuilt.update_high_watermark(rebuilt.log_end_offset)
    assert _state_of(rebuilt) == state
    was_truncated = len(log.leader_epochs.entries) > 1  # from then on the intervals of index entries begin elsewhere
    if log.log_start_offset == 0 and not log.config.is_compacted and not was_truncated:
        rebuilt.close()
        mine = disk.fork(0)
        closed = open_log(
            mine, log.directory, log.topic_partition, config_for(log.topic_partition.topic), now_ms=NOW_MS
        )
        closed.close()
        assert _index_files(other, log.directory) == _index_files(mine, log.directory)


def _index_files(disk: SimDisk, directory: str) -> dict[str, bytes]:
    names = [name for name in disk.list_directory(directory) if name.endswith((".index", ".timeindex", ".txnindex"))]
    found = {name: disk.read_file(f"{directory}/{name}") for name in names}
    return {name: data for name, data in found.items() if data}


def _state_of(log: Log) -> tuple[Any, ...]:
    """Return what recovery must agree on.

    Producers whose last record is below the start may be known or not, and so may an epoch that wrote nothing yet, or
    where exactly below the start a transaction began.
    """
    epochs = [entry for entry in log.leader_epochs.entries if entry.start_offset < log.log_end_offset]
    producers = sorted(
        (entry.producer_id, entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset >= 0)
        for entry in log.producer_state.producers.values()
        if entry.last_offset >= log.log_start_offset
    )
    last_stable_offset = log.last_stable_offset if log.log_start_offset == 0 else -1
    return (log.log_start_offset, log.log_end_offset, epochs, producers, last_stable_offset)


def check_second_crash(disk: SimDisk, manager: LogManager, promises: dict[TopicPartition, Promise]) -> None:
    """What is flushed after a recovery is there after the next power cut, behind what was recovered.

    So are the values that another pass of the cleaner leaves.
    """
    added: dict[TopicPartition, tuple[int, list[Record]]] = {}
    for partition, log in manager.logs.items():
        isolation = _second_isolation(partition)
        before = consume(log, isolation)
        data = bytearray(build_batch([(NOW_MS, b"second", b"life", ())]))
        offset = log.append_as_leader(bytes(data), leader_epoch=1000, now_ms=NOW_MS).first_offset
        data[:8] = offset.to_bytes(8)
        log.update_high_watermark(log.log_end_offset)
        flush_log(log)
        is_stable = partition != COMPACTED or log.last_stable_offset > offset
        added[partition] = offset, [*before, *(batch_at(data).records() if is_stable else ())]
    if COMPACTED in manager.logs:
        manager.logs[COMPACTED].roll(NOW_MS)
        flush_log(manager.logs[COMPACTED])
        list(clean(disk, manager))
    disk.crash("none")
    manager = start(disk, promises)
    for partition, (offset, records) in added.items():
        log = manager.logs[partition]
        assert log.log_end_offset == offset + 1
        found = consume(log, _second_isolation(partition))
        if partition == COMPACTED:
            assert last_values(found) == last_values(records)
        else:
            assert found == records


def _second_isolation(partition: TopicPartition) -> FetchIsolation:
    """A pass drops aborted data, so that only what is committed is comparable."""
    return FetchIsolation.TXN_COMMITTED if partition == COMPACTED else FetchIsolation.HIGH_WATERMARK
