"""Batches that the broker encodes itself: they end as append_as_leader would have left them, or are left to it."""

from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.record.builder import NewRecord
from kafkapy.record.validate import AppendOrigin
from kafkapy.storage.errors import INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.lookup import aborted_transactions
from kafkapy.storage.log.own_append import ProducerMarker, append_own_markers, append_own_records
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch
from tests.support.logs import NOW_MS, append, marker, open_small_log

EPOCH = 3
RECORDS: list[list[NewRecord]] = [
    [(NOW_MS, b"key", b"value", ())],
    [(NOW_MS, b"key", None, ())],
    [(NOW_MS, b"a", b"x" * 300, ()), (NOW_MS, b"b", b"y" * 300, ())],
]
ELSEWHERE: list[dict[str, Any]] = [
    {"message_timestamp_type": "LogAppendTime"},
    {"compression_type": "gzip"},
    {"max_message_bytes": 70},
    {"segment_bytes": 60},
]


def state_of(log: Log) -> object:
    producers = log.producer_state
    segment = log.segments.active
    return (
        segment.log.file.pread(segment.size, 0),
        segment.offset_index.entry_count,
        segment.time_index.entry_count,
        segment.largest_timestamp,
        log.log_end_offset,
        log.leader_epochs.latest_epoch,
        producers.encode_snapshot(),
        producers.map_end_offset,
        producers.first_unstable_offset,
        aborted_transactions(log, 0, log.log_end_offset),
    )


def with_transactions(log: Log) -> Log:
    """Open a transaction of each of three producers."""
    for producer_id in (1, 2, 3):
        append(log, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=False)
    log.producer_state.is_verification_enabled = False
    for producer_id in (1, 2, 3):
        append(log, producer_id=producer_id, producer_epoch=0, base_sequence=1, is_transactional=True)
    return log


def append_as_leader(log: Log, records: list[NewRecord], base_sequence: int) -> None:
    batch = bytearray(build_batch(records, base_sequence=base_sequence))
    log.append_as_leader(batch, leader_epoch=EPOCH, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("base_sequence", [-1, 0])
def test_records_end_as_those_that_are_checked(base_sequence: int) -> None:
    own, checked = open_small_log(SimDisk(), cleanup_policy="compact"), open_small_log(SimDisk())
    for records in RECORDS * 4:
        assert append_own_records(own, records, leader_epoch=EPOCH, now_ms=NOW_MS, base_sequence=base_sequence)
        append_as_leader(checked, records, base_sequence)
    assert own.segments.active.offset_index.entry_count > 1
    assert state_of(own) == state_of(checked)


def test_markers_end_as_those_that_are_checked() -> None:
    own, checked = with_transactions(open_small_log(SimDisk())), with_transactions(open_small_log(SimDisk()))
    markers = [ProducerMarker(1, 1, True, 7), ProducerMarker(3, 1, False, 8)]
    assert append_own_markers(own, markers, leader_epoch=EPOCH, now_ms=NOW_MS, transaction_version=2)
    batches = [
        marker(is_abort=not each.is_commit, producer_id=each.producer_id, producer_epoch=1, coordinator_epoch=epoch)
        for each, epoch in zip(markers, (7, 8), strict=True)
    ]
    checked.append_as_leader(
        bytearray(b"".join(batches)),
        leader_epoch=EPOCH,
        now_ms=NOW_MS,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=2,
    )
    assert len(aborted_transactions(own, 0, own.log_end_offset)) == 1
    assert state_of(own) == state_of(checked)


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (ProducerMarker(2, 0, True, 7), INVALID_PRODUCER_EPOCH),
        (ProducerMarker(1, 2, True, 6), TRANSACTION_COORDINATOR_FENCED),
    ],
)
def test_one_refused_marker_leaves_the_log_as_it_was(refused: ProducerMarker, code: int) -> None:
    log = with_transactions(open_small_log(SimDisk()))
    first = [ProducerMarker(1, 1, True, 7)]
    assert append_own_markers(log, first, leader_epoch=EPOCH, now_ms=NOW_MS, transaction_version=2)
    before = state_of(log)
    markers = [ProducerMarker(3, 1, True, 7), refused]
    with pytest.raises(ApiError) as error:
        append_own_markers(log, markers, leader_epoch=EPOCH, now_ms=NOW_MS, transaction_version=2)
    assert error.value.code == code
    assert state_of(log) == before


def test_a_marker_of_no_producer_leaves_no_producer_behind() -> None:
    """An administrator's WriteTxnMarkers may name any producer id; on followers a negative one leaves none either."""
    log = open_small_log(SimDisk())
    before = state_of(log)
    markers = [ProducerMarker(1, 1, True, 7), ProducerMarker(-1, 0, True, 7)]
    assert not append_own_markers(log, markers, leader_epoch=EPOCH, now_ms=NOW_MS, transaction_version=0)
    assert state_of(log) == before


@pytest.mark.parametrize("config", ELSEWHERE, ids=lambda config: next(iter(config)))
def test_what_is_not_simple_is_left_to_the_check(config: dict[str, Any]) -> None:
    log = open_small_log(SimDisk(), **config)
    before = state_of(log)
    assert not append_own_records(log, RECORDS[0], leader_epoch=EPOCH, now_ms=NOW_MS)
    markers = [ProducerMarker(1, 1, True, 7)]
    assert not append_own_markers(log, markers, leader_epoch=EPOCH, now_ms=NOW_MS, transaction_version=2)
    assert state_of(log) == before


def test_a_full_segment_is_rolled_by_the_checked_append() -> None:
    log = open_small_log(SimDisk(), segment_bytes=160)
    assert append_own_records(log, RECORDS[0], leader_epoch=EPOCH, now_ms=NOW_MS)
    assert append_own_records(log, RECORDS[0], leader_epoch=EPOCH, now_ms=NOW_MS)
    assert not append_own_records(log, RECORDS[0], leader_epoch=EPOCH, now_ms=NOW_MS)
    assert len(log.segments) == 1


@pytest.mark.parametrize("state", ["full", "offline"])
def test_nothing_is_written_to_a_directory_that_takes_nothing(state: str) -> None:
    log = open_small_log(SimDisk())
    if state == "full":
        log.log_dir.mark_full()
    else:
        log.log_dir.go_offline("test")
    assert not append_own_records(log, RECORDS[0], leader_epoch=EPOCH, now_ms=NOW_MS)
    assert log.log_end_offset == 0
