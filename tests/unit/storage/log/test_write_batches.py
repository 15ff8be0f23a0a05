"""One way into the log: what every append entails happens for a leader, a follower, coalesced batches and our own."""

import ast
import errno
from pathlib import Path
from typing import Any, TypeGuard

import pytest

import kafkapy
from kafkapy.errors import ApiError, StorageError
from kafkapy.storage.log.append import PlacedBatch
from kafkapy.storage.log.coalesced_append import CoalescedAppend
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.own_append import append_own_records
from kafkapy.storage.log.replacement import take_over
from kafkapy.storage.producers.entry import ProducerEntry
from kafkapy.storage.producers.state import ProducerState
from kafkapy.types import OffsetAndEpoch
from tests.simulator.disk import SimDisk
from tests.support.logs import NOW_MS, batch, open_small_log


def append_alone(log: Log, leader_epoch: int) -> None:
    log.append_as_leader(batch(), leader_epoch=leader_epoch, now_ms=NOW_MS)


def append_replicated(log: Log, leader_epoch: int) -> None:
    data = batch(base_offset=log.log_end_offset, leader_epoch=leader_epoch)
    log.append_as_follower(data, NOW_MS, leader_epoch=leader_epoch)


def append_coalesced(log: Log, leader_epoch: int) -> None:
    assert CoalescedAppend.is_possible(log)
    coalesced = CoalescedAppend(log, leader_epoch=leader_epoch, now_ms=NOW_MS)
    data = bytes(batch())
    assert coalesced.add(data, 0, len(data))
    assert coalesced.write()


def append_own(log: Log, leader_epoch: int) -> None:
    assert append_own_records(log, [(NOW_MS, b"", b"", ())], leader_epoch=leader_epoch, now_ms=NOW_MS)


SOURCES = Path(kafkapy.__file__).parent
LOG_NAMES = {"log", "_log", "future", "current", "copy"}
"""What variables and fields that hold a Log are called."""
WAYS = [append_alone, append_replicated, append_coalesced, append_own]


@pytest.fixture
def log() -> Log:
    log = open_small_log(SimDisk())
    append_alone(log, 3)
    return log


@pytest.mark.parametrize("append", WAYS)
def test_a_new_leader_epoch_is_noted(log: Log, append: Any) -> None:
    append(log, 3)
    append(log, 5)
    assert log.leader_epochs.entries == [(3, 0), (5, 2)]
    assert log.end_offset_for_epoch(3) == OffsetAndEpoch(2, 3)


@pytest.mark.parametrize("append", [append_alone, append_replicated])
def test_reaching_flush_messages_is_noted(append: Any) -> None:
    log = open_small_log(SimDisk(), flush_messages=2)
    append(log, 0)
    log.update_high_watermark(1)
    assert log.is_committed(1)
    append(log, 0)
    log.update_high_watermark(2)
    assert not log.is_committed(2)
    log.on_flushed(2, NOW_MS)
    assert log.is_committed(2)


@pytest.mark.parametrize("append", WAYS)
@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_a_loaded_segment_that_cannot_be_read_is_a_failure_of_the_disk(append: Any, code: int) -> None:
    """The first append reads the timestamp of the segment's first batch. What failed before is possible afterwards."""
    disk = SimDisk()
    log = open_small_log(disk)
    append_alone(log, 3)
    log.close()
    log = open_small_log(disk)
    disk.fail("read", code, path=".log")
    with pytest.raises(StorageError if code == errno.EIO else ApiError):
        append(log, 3)
    assert log.is_offline == (code == errno.EIO)
    assert log.log_end_offset == 1
    if not log.is_offline:
        append(log, 3)
        assert log.log_end_offset == 2


@pytest.mark.parametrize("append", WAYS)
def test_an_append_behind_broken_offsets_is_an_assertion(log: Log, append: Any) -> None:
    log.high_watermark = 2
    with pytest.raises(AssertionError):
        append(log, 3)


@pytest.mark.parametrize(("base_offset", "last_offset"), [(0, 0), (0, 5), (2, 1)])
def test_a_batch_that_does_not_follow_the_log_is_an_assertion(log: Log, base_offset: int, last_offset: int) -> None:
    data = bytes(batch())
    placed = PlacedBatch(len(data), base_offset, last_offset, NOW_MS, 3)
    with pytest.raises(AssertionError):
        log.write_batches(log.segments.active, [data], len(data), [placed], NOW_MS)
    assert log.log_end_offset == 1


def test_a_roll_that_fails_leaves_the_producers_at_the_log_end() -> None:
    """A replica rolls above its log end if its leader's next batch lies too far behind it for a segment's indexes."""
    disk = SimDisk()
    log = open_small_log(disk)
    append_alone(log, 3)
    disk.fail("write", errno.ENOSPC, path=".snapshot")
    with pytest.raises(ApiError):
        log.roll(NOW_MS, at_offset=10)
    append_alone(log, 3)
    assert log.producer_state.map_end_offset == log.log_end_offset == 2


def test_producers_do_not_go_back() -> None:
    state = ProducerState()
    state.record_end_offset(5)
    state.record_end_offset(2)  # no producers: as after a truncation
    state.load([ProducerEntry(7, last_timestamp_ms=NOW_MS)], 5, NOW_MS)
    with pytest.raises(AssertionError):
        state.record_end_offset(4)


def test_a_truncation_keeps_the_offsets_in_order(log: Log) -> None:
    log.update_high_watermark(1)
    with pytest.raises(AssertionError):
        log.on_truncated(0, 1)
    log.on_truncated(0, 0)
    assert log.high_watermark == 0


@pytest.mark.parametrize("sizes", [(10, 20_000, 30), (20_000, 10), (9_000, 9_000), (10, 20), (8_061, 8_062, 8_192)])
def test_coalesced_batches_of_all_sizes_are_written_as_they_would_be_alone(sizes: tuple[int, ...]) -> None:
    alone, together = (open_small_log(SimDisk(), segment_bytes=1 << 20) for _ in range(2))
    for log in (alone, together):
        append_alone(log, 3)
    batches = [bytes(batch(2, value_bytes=size // 2)) for size in sizes]
    for each in batches:
        alone.append_as_leader(bytearray(each), leader_epoch=3, now_ms=NOW_MS)
    coalesced = CoalescedAppend(together, leader_epoch=3, now_ms=NOW_MS)
    data, end = b"".join(batches) + b"the next request", 0
    for each in batches:
        assert coalesced.add(data, end, end + len(each))
        end += len(each)
    assert coalesced.size_bytes == end
    assert coalesced.write()
    written = [log.segments.active.log.file.pread(1 << 20, 0) for log in (alone, together)]
    assert written[0] == written[1]
    assert together.log_end_offset == alone.log_end_offset


def test_small_requests_are_coalesced_while_another_producer_waits_for_its_verification() -> None:
    log = open_small_log(SimDisk())
    for producer_id in (7, 8):
        log.append_as_leader(
            batch(producer_id=producer_id, producer_epoch=0, base_sequence=0), leader_epoch=0, now_ms=NOW_MS
        )
    log.producer_state.start_verification(8, 1, 0, supports_epoch_bump=True, now_ms=NOW_MS)
    coalesced = CoalescedAppend(log, leader_epoch=0, now_ms=NOW_MS)
    for producer_id, is_taken in ((7, True), (8, False)):
        data = bytes(batch(producer_id=producer_id, producer_epoch=0, base_sequence=1))
        assert coalesced.add(data, 0, len(data)) == is_taken


def test_a_copy_takes_over_the_verifications(log: Log) -> None:
    guard = log.producer_state.start_verification(7, 0, 0, supports_epoch_bump=True, now_ms=NOW_MS)
    copy = open_small_log(SimDisk())
    append_alone(copy, 3)
    take_over(copy, log)
    records = batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert copy.append_as_leader(records, leader_epoch=3, now_ms=NOW_MS, verification=guard).first_offset == 1


def test_only_log_writes_its_fields() -> None:
    """The class owns its fields: what others need is a method that asserts its invariants (STYLE.md 18)."""
    own = {node.attr for node in ast.walk(parsed(SOURCES / "storage/log/log.py")) if is_written(node, {"self"})}
    assert {"log_end_offset", "high_watermark", "recovery_point", "clean_to"} <= own
    found = [
        f"{path}:{node.lineno} {node.attr}"
        for folder in ("storage", "replication", "runtime", "handlers", "server", "group", "transaction")
        for path in sorted((SOURCES / folder).rglob("*.py"))
        for node in ast.walk(parsed(path))
        if is_written(node, LOG_NAMES) and node.attr in own
    ]
    assert found == []


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def is_written(node: ast.AST, names: set[str]) -> TypeGuard[ast.Attribute]:
    """Return whether this assigns to an attribute of something that one of the names stands for."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
        return False
    owner = node.value
    return (owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")) in names


def test_what_is_not_there_is_not_durable(log: Log) -> None:
    with pytest.raises(AssertionError):
        log.on_flushed(2, NOW_MS)
